import math

import pytest

from compressor.bench import looks
from compressor.records import Target


def test_each_look_has_twice_the_calls_and_rounds_of_the_one_before() -> None:
    planned = looks.doubling(320, 5000, 10**5, by_rounds=True)
    assert [look.calls for look in planned] == [320, 640, 1280, 2560, 10**5]
    assert [look.rounds for look in planned] == [8, 16, 32, 64, 125]
    assert [look.rounds for look in looks.doubling(320, 5000, 10**5, by_rounds=False)] == [8, 16, 24, 32, 40]


@pytest.mark.parametrize("reach", [1, 100, 320, 370, 371, 1000, 5000, 100_000])
def test_all_looks_together_spend_the_permitted_error_and_no_more(reach: int) -> None:
    planned = looks.doubling(370, reach, 5000, by_rounds=False)
    assert sum(look.share for look in planned) == pytest.approx(1)
    assert planned[-1].calls == 5000
    assert planned[-1].share == looks.last_share(min(reach, 5000), 370)


@pytest.mark.parametrize(("reach", "shares"), [(300, [1]), (500, [1]), (800, [0.5, 0.5]), (1480, [0.5, 0.25, 0.25])])
def test_no_look_is_planned_that_the_budget_does_not_reach(reach: int, shares: list[float]) -> None:
    planned = looks.doubling(370, reach, 10**5, by_rounds=False)
    assert [look.share for look in planned] == shares
    assert all(look.calls * 1.3 < reach for look in planned[:-1])


def test_a_window_of_an_open_loop_is_long_enough_and_settles_first() -> None:
    assert looks.window(50, 370, 10**5).seconds == pytest.approx(14.8)
    assert looks.window(1000, 370, 10**5).seconds == 10
    assert looks.remainder(10**5) == looks.Look(10**5, 1, 0.5, math.inf, 0.1)


def test_the_first_look_is_where_clean_samples_decide_every_target() -> None:
    p99, p999 = Target(99, 0.95, 50), Target(99.9, 0.95, 50)
    assert looks.fewest([p99]) == 370  # log(0.025) / log(0.99) = 367.04
    assert looks.fewest([p99, p999]) == 3690  # log(0.025) / log(0.999) = 3687.03


def test_without_a_target_a_first_look_supports_a_p99() -> None:
    assert looks.fewest([]) == 370
    assert 0.99**370 < 0.025 < 0.99**366  # at half of the error too


def test_a_first_round_is_an_eighth_of_the_look_and_no_more_of_the_budget() -> None:
    assert looks.trial(370, 60) == looks.Look(47, 1, 1.0, 7.5)


def test_one_look_spends_all_and_supports_a_p99() -> None:
    (only,) = looks.single(5000)
    assert (only.calls, only.rounds, only.share) == (370, 8, 1)
    assert looks.single(50)[0].calls == 50


def test_a_stricter_confidence_leaves_a_share_of_the_error() -> None:
    assert looks.stricter(0.95, 0.5) == pytest.approx(0.975)
    assert looks.stricter(0.95, 1) == pytest.approx(0.95)
