import numpy as np
import pytest
from host import Host, finish

from compressor.bench.looks import Look
from compressor.bench.pairs import interleaved
from compressor.bench.rounds import Budget, Drive, Rounds, Way, extend
from compressor.records import Feeds

FEEDS: tuple[Feeds, ...] = tuple({"x": np.full((1, 3), i)} for i in range(3))


def way(host: Host, took_ms: float, drive: Drive = interleaved) -> Way:
    return Way((host.opener(lambda _: took_ms),), drive, FEEDS, np.random.default_rng(0))


def extended(host: Host, took_ms: float, look: Look, seconds: float, drive: Drive = interleaved) -> Rounds:
    return finish(extend(Rounds(), look, way(host, took_ms, drive), Budget.starting(seconds, host.clock)))[0]


def sizes(rounds: Rounds) -> list[int]:
    return [len(window[0].latencies_ns) for window in rounds.windows]


def test_calls_are_spread_evenly_over_the_rounds_that_are_wanted() -> None:
    assert sizes(extended(Host(), 10, Look(320, 8, 1), 1000)) == [40] * 8
    assert sizes(extended(Host(), 10, Look(10, 4, 1), 1000)) == [3, 3, 2, 2]


def test_a_later_look_adds_what_is_missing() -> None:
    host = Host()
    budget = Budget.starting(1000, host.clock)
    first, _ = finish(extend(Rounds(), Look(80, 2, 0.5), way(host, 10), budget))
    both, _ = finish(extend(first, Look(160, 4, 0.5), way(host, 10), budget))
    assert sizes(both) == [40] * 4
    assert sizes(first) == [40] * 2


def test_the_first_round_is_made_whatever_is_left() -> None:
    assert sizes(extended(Host(), 10, Look(320, 8, 1), 0)) == [1]


@pytest.mark.parametrize("opening_ms", [0, 100, 1000, 5000])
@pytest.mark.parametrize("took_ms", [1, 30, 700, 4000])
@pytest.mark.parametrize("seconds", [5, 30])
def test_a_budget_is_overrun_by_no_more_than_what_the_first_round_must_do(
    opening_ms: float, took_ms: float, seconds: float
) -> None:
    host = Host(opening_ms=opening_ms)
    rounds = extended(host, took_ms, Look(10**6, 8, 1), seconds)
    assert host.now_ns / 1e9 <= max(seconds + 0.001, (opening_ms + 2 * took_ms) / 1000)
    assert len(rounds.windows) >= (3 if seconds * 1000 >= 3 * (opening_ms + 3 * took_ms) else 1)


def test_opening_is_a_small_share_of_what_is_spent() -> None:
    host = Host(opening_ms=2000)
    rounds = extended(host, 10, Look(10**6, 24, 1), 100)
    assert rounds.overhead_s < 25
    assert len(rounds.windows) >= 8
