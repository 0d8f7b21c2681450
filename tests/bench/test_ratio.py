import math
from statistics import NormalDist

import numpy as np
import pytest

from compressor.bench import ratio
from compressor.records import Array, Speedup, Timing


def rounds(n: int, effect: float, seed: int, pairs: int = 40) -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(seed)
    moments = rng.lognormal(0, 0.3, (n, 1))  # what the machine does to both
    return [(m * rng.lognormal(effect, 0.1, pairs), m * rng.lognormal(0, 0.1, pairs)) for m in moments]


def test_an_effect_is_within_its_interval() -> None:
    found = ratio.speedup(rounds(8, math.log(1.05), 0), 0.95)
    assert found is not None
    assert 1 < found.low < 1.05 < found.high < 1.1
    assert found.low < found.ratio < found.high
    assert found.rounds == 8


def test_lowest_and_highest_are_the_extremes_of_the_rounds() -> None:
    exact = [(np.full(40, r), np.ones(40)) for r in (0.9, 1.0, 1.1, 1.2)]
    found = ratio.speedup(exact, 0.95)
    assert found is not None
    assert (found.lowest, found.highest) == (pytest.approx(0.9), pytest.approx(1.2))
    assert found.ratio == pytest.approx((0.9 * 1.0 * 1.1 * 1.2) ** 0.25)


def test_below_eight_rounds_the_interval_is_students_t_of_all_of_them() -> None:
    logs = np.array([0.01, 0.05, -0.02, 0.04])
    found = ratio.speedup([(np.full(9, math.exp(x)), np.ones(9)) for x in logs], 0.95)
    assert found is not None
    reach = 3.18245 * logs.std(ddof=1) / 2  # t at 97.5 % and 3 degrees of freedom, from tables
    assert math.log(found.ratio) == pytest.approx(logs.mean())
    assert math.log(found.high) == pytest.approx(logs.mean() + reach, abs=1e-6)
    assert math.log(found.low) == pytest.approx(logs.mean() - reach, abs=1e-6)


def test_a_round_that_was_disturbed_does_not_hide_what_the_others_show() -> None:
    clean = rounds(8, math.log(1.05), 1)
    disturbed = [(clean[0][0] * 3, clean[0][1]), *clean[1:]]
    plain, found = ratio.speedup(clean, 0.95), ratio.speedup(disturbed, 0.95)
    assert plain is not None
    assert found is not None
    assert found.ratio == pytest.approx(plain.ratio, rel=0.02)
    assert found.highest is not None
    assert found.highest > 2.9


def test_swapping_the_sides_inverts_the_ratio() -> None:
    forth = ratio.speedup(rounds(8, 0, 2), 0.95)
    back = ratio.speedup([(b, a) for a, b in rounds(8, 0, 2)], 0.95)
    assert forth is not None
    assert back is not None
    assert forth.ratio * back.ratio == pytest.approx(1)
    assert forth.low * back.high == pytest.approx(1)


def test_there_is_no_interval_below_three_rounds() -> None:
    assert ratio.speedup(rounds(2, 0, 3), 0.95) is None
    assert ratio.speedup(rounds(3, 0, 3), 0.95) is not None


def test_a_round_may_be_a_single_pair() -> None:
    found = ratio.speedup([(np.array([2.0]), np.array([1.0]))] * 3, 0.95)
    assert found is not None
    assert (found.low, found.ratio, found.high) == (pytest.approx(2), pytest.approx(2), pytest.approx(2))


def test_the_detectable_slow_down_is_found_nine_times_in_ten() -> None:
    rng, n, sd = np.random.default_rng(4), 40, 0.03
    noise = Speedup(1, 1, 1, rounds=n)
    typical = []
    for _ in range(200):
        found = ratio.speedup([(np.array([math.exp(x)]), np.ones(1)) for x in rng.normal(0, sd, n)], 0.95)
        assert found is not None
        typical.append(ratio.detectable(found, 0.25))
    effect = math.log1p(float(np.median(typical)))
    claimed = 0
    for _ in range(1000):
        found = ratio.speedup([(np.array([math.exp(-x)]), np.ones(1)) for x in rng.normal(effect, sd, n)], 0.9875)
        assert found is not None
        claimed += found.high < 1 / 1.02
    # 900 expected, sd 9.5; four of them, and 2 % for the approximation of t by a shifted t
    assert 840 <= claimed <= 950
    assert ratio.detectable(noise, 0.25) == pytest.approx(0.02)


def test_the_detectable_slow_down_is_the_formula() -> None:
    sd, n = 0.02, 4  # nothing is trimmed
    reach = 3.18245 * sd / math.sqrt(n)
    found = ratio.detectable(Speedup(1, math.exp(-reach), math.exp(reach), rounds=n), 0.4)
    stricter = 4.54070 * sd / math.sqrt(n)  # t at 99 %, which leaves a fifth of 5 % on each side: 0.4 of it
    expected = math.log(1.02) + stricter + NormalDist().inv_cdf(0.9) * sd / math.sqrt(n)
    assert found == pytest.approx(math.exp(expected) - 1, abs=1e-5)


def timing(latencies_ms: Array, seconds: float, offered_per_s: float | None = None) -> Timing:
    return Timing((latencies_ms * 1e6).astype(np.int64), seconds, 0.0, offered_per_s=offered_per_s)


def test_throughput_over_rounds_is_students_t_of_the_seconds_per_call_inverted() -> None:
    windows = [timing(np.full(100, 1.0), seconds) for seconds in (0.9, 1.0, 1.1)]
    found = ratio.throughput(windows, 4, 0.95)
    assert found.value_per_s == pytest.approx(400)
    reach_s = 4.30265 * 0.001 / math.sqrt(3)  # t at 97.5 % and 2 degrees of freedom
    assert found.low_per_s == pytest.approx(4 / (0.01 + reach_s), abs=1e-3)
    assert found.high_per_s == pytest.approx(4 / (0.01 - reach_s), abs=1e-3)
    stricter = ratio.throughput(windows, 4, 0.975)
    assert stricter.low_per_s is not None
    assert stricter.low_per_s < found.low_per_s


def test_a_throughput_of_rounds_that_differ_much_has_a_lower_limit_above_0_and_no_upper_one() -> None:
    windows = [timing(np.full(10, 1.0), seconds) for seconds in (0.001, 0.002, 0.4)]
    found = ratio.throughput(windows, 1, 0.95)
    assert found.low_per_s is not None
    assert found.low_per_s > 0
    assert found.high_per_s is None


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_throughput_of_fewer_than_three_rounds_has_no_interval(rounds: int) -> None:
    found = ratio.throughput([timing(np.full(100, 10.0), 1.0)] * rounds, 8, 0.95)
    assert (found.value_per_s, found.low_per_s, found.high_per_s) == (pytest.approx(800), None, None)


def test_an_open_loop_answers_what_is_offered_and_shows_no_more() -> None:
    latencies_ms = np.random.default_rng(6).lognormal(math.log(3), 0.2, 400)
    found = ratio.throughput([timing(latencies_ms, 2.0, offered_per_s=200)] * 3, 1, 0.95)
    assert (found.value_per_s, found.low_per_s, found.high_per_s) == (pytest.approx(200), None, None)
