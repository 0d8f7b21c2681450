import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compressor.bench import stats
from compressor.records import Array, quantile_levels

# Samples that prove a percentile with 0, 1, 2, 5, 10 violations: the published table of MLPerf LoadGen's rule.
TABLE = {
    (90, 0.95): (29, 46, 61, 103, 167),
    (95, 0.95): (59, 93, 124, 208, 336),
    (99, 0.95): (299, 473, 628, 1049, 1693),
    (99, 0.99): (459, 662, 838, 1307, 2010),
    (99.9, 0.95): (2995, 4742, 6294, 10511, 16959),
}


@pytest.mark.parametrize(("percentile", "confidence"), TABLE)
def test_the_published_numbers_of_samples_are_just_enough(percentile: float, confidence: float) -> None:
    share, alpha = 1 - percentile / 100, 1 - confidence
    for violations, n in zip((0, 1, 2, 5, 10), TABLE[percentile, confidence], strict=True):
        assert stats.allowed(n, share, alpha) == violations
        assert stats.allowed(n - 1, share, alpha) == (violations - 1 if violations else None)
    assert stats.clean_samples(percentile, confidence) == TABLE[percentile, confidence][0]


def test_the_published_numbers_of_allowed_violations_hold() -> None:
    allowed = [stats.allowed(n, 0.01, 0.05) for n in (500, 1000, 2000, 5000, 10000)]
    assert allowed == [1, 4, 12, 38, 83]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.floats(0.001, 0.999), st.data())
def test_the_binomial_distribution_agrees_with_summing_exact_coefficients(
    n: int, share: float, data: st.DataObject
) -> None:
    t = data.draw(st.integers(0, n))
    exact = math.fsum(math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(t + 1))
    # a power of the plain sum that underflows is worth up to 1e-324 times a coefficient of 1e89
    assert stats.binomial_cdf(t, n, share) == pytest.approx(exact, rel=1e-9, abs=1e-230)


def test_limits_are_the_order_statistics_of_the_table() -> None:
    milliseconds = np.random.default_rng(0).permutation(np.arange(1, 1001)).astype(float)
    found = stats.bound(milliseconds, 99, 0.95)
    assert (found.value_ms, found.high_ms) == (990, 996)  # four violations are allowed in 1000
    assert stats.bound(milliseconds[:298], 99, 0.95).high_ms is None
    assert stats.bound(milliseconds[:299], 99, 0.95).high_ms == milliseconds[:299].max()


def test_limits_of_the_median_are_symmetric() -> None:
    found = stats.bound(np.arange(1.0, 102.0), 50, 0.95)
    assert found.value_ms == 51
    assert found.low_ms is not None
    assert found.high_ms is not None
    assert found.low_ms + found.high_ms == 102


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=400), st.sampled_from([50, 90, 95, 99, 99.9]))
def test_a_percentile_lies_between_its_limits(samples: list[float], percentile: float) -> None:
    found = stats.bound(np.array(samples), percentile, 0.95)
    assert found.low_ms is None or found.low_ms <= found.value_ms
    assert found.high_ms is None or found.value_ms <= found.high_ms


@pytest.mark.parametrize("percentile", [50, 90, 99])
def test_each_limit_errs_in_at_most_five_of_a_hundred_measurements(percentile: float) -> None:
    rng = np.random.default_rng(1)
    truth = -math.log(1 - percentile / 100)
    found = [stats.bound(rng.exponential(size=1000), percentile, 0.95) for _ in range(1000)]
    too_low = sum(b.high_ms is not None and b.high_ms < truth for b in found)
    too_high = sum(b.low_ms is not None and b.low_ms > truth for b in found)
    assert 10 <= too_low <= 65  # exact tests err a little less than 50 times; a limit that never errs is useless
    assert 10 <= too_high <= 65


def test_a_system_exactly_on_its_limit_passes_rarely_where_a_naive_percentile_passes_half_the_time() -> None:
    rng = np.random.default_rng(2)
    limit = -math.log(0.01)
    samples = rng.exponential(size=(600, 500))
    found = [stats.bound(s, 99, 0.95, limit) for s in samples]
    passed = sum(b.high_ms is not None and b.high_ms <= limit and b.steady is not False for b in found)
    naive = int((np.percentile(samples, 99, axis=1) <= limit).sum())
    assert passed <= 0.06 * 600
    assert naive > 0.4 * 600


def test_too_few_clean_samples_have_no_upper_limit() -> None:
    found = stats.bound(np.full(100, 40.0), 99, 0.95, 50)
    assert (found.violations, found.high_ms, found.steady) == (0, None, True)
    assert not stats.decided(found)


def test_a_latency_equal_to_the_limit_is_no_violation() -> None:
    found = stats.bound(np.full(299, 50.0), 99, 0.95, 50)
    assert found.violations == 0
    assert stats.decided(found)


def test_too_many_violations_are_decided_as_well() -> None:
    samples = np.full(400, 40.0)
    samples[::20] = 60
    found = stats.bound(samples, 99, 0.95, 50)
    assert found.low_ms == 60
    assert stats.decided(found)


def test_a_single_sample_over_the_limit_by_chance_does_not_decide_the_median() -> None:
    assert not stats.decided(stats.bound(np.array([60.0]), 50, 0.95, 50))
    assert stats.decided(stats.bound(np.full(5, 60.0), 50, 0.95, 50))  # 2^-5 < 5 %


def test_bursts_are_seen_and_keep_a_limit_from_being_met() -> None:
    samples = np.full(2000, 40.0)
    samples[1000:1012] = 60  # twelve violations are allowed in 2000, if they come independently
    burst = stats.bound(samples, 99, 0.95, 50)
    assert (burst.high_ms, burst.steady) == (40, False)
    assert burst.dispersion is not None
    assert burst.dispersion > 5
    assert not stats.decided(burst)


@pytest.mark.parametrize("percentile", [50, 99])
def test_independent_violations_have_a_dispersion_of_about_one(percentile: float) -> None:
    rng = np.random.default_rng(3)
    limit = -math.log(1 - percentile / 100)
    found = [stats.bound(rng.exponential(size=2000), percentile, 0.95, limit).dispersion for _ in range(200)]
    assert np.mean([d for d in found if d is not None]) == pytest.approx(1, abs=0.08)


# Quantiles from published tables, rounded to as many digits.
STUDENT = {
    (0.975, 1): 12.706,
    (0.975, 2): 4.303,
    (0.975, 3): 3.182,
    (0.975, 7): 2.365,
    (0.99, 7): 2.998,
    (0.95, 19): 1.729,
    (0.99, 19): 2.539,
    (0.995, 120): 2.617,
}


@pytest.mark.parametrize(("quantile", "freedom"), STUDENT)
def test_quantiles_of_students_t_agree_with_the_tables(quantile: float, freedom: int) -> None:
    assert stats.student(quantile, freedom) == pytest.approx(STUDENT[quantile, freedom], abs=6e-4)


def test_the_spread_of_a_mean_covers_it_as_often_as_it_says() -> None:
    drawn = np.random.default_rng(4).normal(size=(2000, 5))
    outside = sum(abs(values.mean()) > stats.spread(values, 0.95) for values in drawn)
    assert 150 <= outside <= 250  # 10 % of 2000, sd 13


def test_more_samples_allow_more_violations() -> None:
    allowed = [stats.allowed(n, 0.01, 0.05) or 0 for n in range(299, 3000, 50)]
    assert all(a <= b for a, b in pairwise(allowed))


def test_independent_samples_count_almost_all_and_dependent_ones_a_part() -> None:
    rng = np.random.default_rng(5)
    independent = [stats.design_effect(rng.exponential(size=4000)) for _ in range(100)]
    assert np.mean(independent) == pytest.approx(1.4, abs=0.2)  # an upper limit: 19 / 13.7 of 1
    tenfold = [stats.design_effect(np.repeat(rng.exponential(size=1000), 10)) for _ in range(100)]
    assert np.mean(tenfold) == pytest.approx(14, rel=0.1)
    assert 4000 / stats.design_effect(np.arange(4000)) < 20


@pytest.mark.parametrize("latencies", [np.full(1000, 7), np.arange(19)])
def test_samples_that_are_alike_or_few_count_in_full(latencies: Array) -> None:
    assert stats.design_effect(latencies) == 1


def test_limits_of_dependent_samples_are_those_of_as_many_independent_ones() -> None:
    samples = np.random.default_rng(6).permutation(np.arange(1.0, 4001))
    found = stats.bound(samples, 99, 0.95, deff=4)
    assert found.high_ms == 4000 - 4 * 4  # 4 of 1000 may violate
    assert stats.bound(samples, 99, 0.95, deff=14).high_ms is None  # as 285


def test_waits_that_go_on_to_grow_are_seen() -> None:
    rising = np.linspace(10, 100, 300)
    assert stats.grows(rising, 10)
    assert not stats.grows(rising, 80)  # less than a call
    assert not stats.grows(np.linspace(10, 15, 300), 1)  # not twofold
    assert not stats.grows(rising[::-1], 10)
    assert not stats.grows(rising[:: 300 // 10], 10)  # ten are none


@pytest.mark.parametrize("n", [1, 7, 100, 5000, 200_000])
def test_the_quantiles_of_a_distribution_are_samples_as_fine_as_there_are(n: int) -> None:
    taken = np.random.default_rng(n).lognormal(size=n)
    found, levels = stats.quantiles(taken), quantile_levels(n)
    assert len(found) == len(levels) <= 130
    ordered = np.sort(taken)
    for level, value in zip(levels, found, strict=True):
        place = max(0, math.ceil(round(n * level / 100, 6)) - 1)  # the first sample that so many reach
        assert value == pytest.approx(ordered[place], rel=1e-4)
        assert float(f"{value:.5g}") == value
    assert levels[-1] == 100
    assert all(n * (100 - level) >= 99.999 for level in levels[:-1])
    assert list(levels) == sorted(set(levels))
