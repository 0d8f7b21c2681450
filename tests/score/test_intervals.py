import math
from itertools import product

import numpy as np
import pytest

from compressor.records import Array
from compressor.score.intervals import at_least, bootstrap, percentiles, resamples, tango, unseen, wilson

Z = 1.959963985


def score_statistic(lost: int, gained: int, n: int, difference: float) -> float:
    """Find the likeliest shares that differ so by trying them all, and give the score statistic there."""
    share_gained = np.linspace(max(0.0, -difference), (1 - difference) / 2, 200_001)[1:-1]
    share_lost = share_gained + difference
    kept = np.maximum(1 - share_lost - share_gained, 1e-300)
    likelihood = lost * np.log(share_lost) + gained * np.log(share_gained) + (n - lost - gained) * np.log(kept)
    best = share_gained[likelihood.argmax()]
    variance = n * (2 * best + difference * (1 - difference))
    return (lost - gained - n * difference) / math.sqrt(variance)


@pytest.mark.parametrize(
    ("lost", "gained", "n"), [(16, 6, 161), (6, 16, 161), (1, 0, 44), (0, 3, 20), (40, 20, 160), (9, 9, 18), (0, 0, 30)]
)
def test_tango_ends_where_the_score_statistic_reaches_the_quantile(lost: int, gained: int, n: int) -> None:
    low, high = tango(lost, gained, n)
    assert score_statistic(lost, gained, n, low) == pytest.approx(Z, abs=2e-3)
    assert score_statistic(lost, gained, n, high) == pytest.approx(-Z, abs=2e-3)


def test_tango_gives_a_published_interval() -> None:
    # Fagerland, Lydersen and Laake 2017, Statistical Analysis of Contingency Tables, chapter 8: complete response
    # before and after consolidation therapy, -0.0621 (-0.1240 to -0.0054)
    assert tango(6, 16, 161) == pytest.approx((-0.1240, -0.0054), abs=5e-5)


def test_tango_leaves_out_zero_just_where_mcnemars_test_does() -> None:
    for lost, gained in product(range(31), repeat=2):
        low, high = tango(lost, gained, 100)
        rejected = (lost - gained) ** 2 > Z**2 * (lost + gained)
        assert (low > 0 or high < 0) == rejected


def test_tango_has_a_width_where_no_pair_changed() -> None:
    bound = Z**2 / (1000 + Z**2)
    assert tango(0, 0, 1000) == pytest.approx((-bound, bound))


def test_tango_reaches_the_ends() -> None:
    low, high = tango(50, 0, 50)
    assert high == 1
    assert low == pytest.approx((50 - Z**2) / (50 + Z**2))
    assert tango(0, 50, 50) == (-high, -low)


def test_tango_holds_for_very_many_pairs() -> None:
    low, high = tango(20_000, 10_000, 10_000_000)
    half = Z * math.sqrt(30_000 - 10_000**2 / 1e7) / 1e7
    assert (low, high) == pytest.approx((0.001 - half, 0.001 + half), abs=1e-7)


def test_tango_widens_with_confidence() -> None:
    wide, narrow = tango(10, 5, 100, 0.0005), tango(10, 5, 100)
    assert wide[0] < narrow[0] < 0.05 < narrow[1] < wide[1]


@pytest.mark.parametrize("shares", [(0.05, 0.05), (0.1, 0.02), (0.02, 0.0), (0.3, 0.25), (0.01, 0.01)])
def test_tango_covers_the_truth_about_95_times_in_100(shares: tuple[float, float]) -> None:
    n = 60
    kept = 1 - sum(shares)
    covered = 0.0
    for lost in range(n + 1):
        for gained in range(n + 1 - lost):
            same = n - lost - gained
            likelihood = math.comb(n, lost) * math.comb(n - lost, gained) * kept**same
            likelihood *= shares[0] ** lost * shares[1] ** gained
            if likelihood > 1e-9:
                low, high = tango(lost, gained, n)
                covered += likelihood * (low <= shares[0] - shares[1] <= high)
    assert 0.93 <= covered <= 0.9999


@pytest.mark.parametrize(("successes", "n"), [(1, 10), (7, 10), (50, 1000), (999, 1000)])
def test_wilson_ends_where_the_score_test_does(successes: int, n: int) -> None:
    for end in wilson(successes, n):
        assert abs(successes / n - end) == pytest.approx(Z * math.sqrt(end * (1 - end) / n))


def test_wilson_reaches_the_ends_exactly() -> None:
    assert wilson(0, 50) == (0, pytest.approx(Z**2 / (50 + Z**2)))
    assert wilson(50, 50) == (pytest.approx(50 / (50 + Z**2)), 1)


@pytest.mark.parametrize(("changed", "n"), [(0, 30), (1, 50), (3, 200), (29, 200)])
def test_unseen_and_what_a_bootstrap_draws_make_the_exact_limit(changed: int, n: int) -> None:
    drawn = np.random.default_rng(0).binomial(n, changed / n, 1_000_000)
    limit = np.quantile(drawn, 0.975, method="higher") / n + unseen(changed, n)
    at_most = sum(math.comb(n, k) * limit**k * (1 - limit) ** (n - k) for k in range(changed + 1))
    assert at_most == pytest.approx(0.025)


def test_nothing_is_unseen_where_every_sample_changed() -> None:
    assert unseen(50, 50) == 0
    assert unseen(49, 50) == 0


@pytest.mark.parametrize(("successes", "n", "share"), [(0, 9, 0.3), (9, 9, 0.3), (25, 60, 1 / 3), (3, 5, 1.0)])
def test_at_least_is_the_tail_of_the_binomial(successes: int, n: int, share: float) -> None:
    terms = (math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(successes, n + 1))
    assert at_least(successes, n, share) == pytest.approx(sum(terms))


def test_resamples_are_drawn_with_replacement_from_the_seed() -> None:
    drawn: list[Array] = []

    def statistic(index: Array) -> Array:
        drawn.append(index)
        return np.array([index.mean(), index.max()])

    found = bootstrap(statistic, 500, 200, seed=3)
    assert found.shape == (200, 2)
    np.testing.assert_array_equal(found[:, 1], [index.max() for index in drawn])
    distinct = [len(set(index.tolist())) / 500 for index in drawn]
    assert np.mean(distinct) == pytest.approx(1 - 1 / math.e, abs=0.01)
    np.testing.assert_array_equal(found, bootstrap(statistic, 500, 200, seed=3))


@pytest.mark.parametrize(
    ("each_s", "most", "count"),
    [(0.001, 200, 200), (0.1, 200, 200), (0.11, 200, 100), (0.3, 200, 50), (9.0, 200, 50), (0.03, 1000, 500)],
)
def test_costly_resamples_are_fewer(each_s: float, most: int, count: int) -> None:
    assert resamples(each_s, most) == count


def test_percentiles_leave_out_a_fortieth_on_either_side() -> None:
    assert percentiles(np.arange(1001)) == (25, 975)
    assert percentiles(np.array([0.0] * 50 + [np.inf] * 50)) == (0, np.inf)
