from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from compressor.bench.clock import SYSTEM, Clock
from compressor.bench.load import Closed, Load
from compressor.records import Feeds, Outputs, Timing


@dataclass
class Host:
    """A machine on which time passes only in calls."""

    now_ns: int = 0
    switches: int = 0
    calls: list[tuple[str, int]] = field(default_factory=list)

    def clock(self) -> Clock:
        return Clock(lambda: self.now_ns, lambda: self.switches)

    def session(self, name: str, took_ns: Callable[[int], int]) -> "Fake":
        return Fake(self, name, took_ns)


@dataclass
class Fake:
    host: Host
    name: str
    took_ns: Callable[[int], int]

    def __call__(self, feeds: Feeds) -> Outputs:
        number = int(feeds["x"][0])
        self.host.calls.append((self.name, number))
        self.host.now_ns += self.took_ns(number)
        return {}

    def close(self) -> None:
        raise NotImplementedError


def feeds(n: int) -> list[Feeds]:
    return [{"x": np.array([i])} for i in range(n)]


def drive(host: Host, sessions: list[Fake], n: int, seed: int = 0) -> tuple[Timing, ...]:
    return Closed().drive(sessions, feeds(n), np.random.default_rng(seed), host.clock())


def test_latencies_are_those_of_the_calls_in_their_order() -> None:
    host = Host()
    fast, slow = drive(host, [host.session("a", lambda i: 10 + i), host.session("b", lambda i: 1000 * (i + 1))], 4)
    assert fast.latencies_ns.tolist() == [10, 11, 12, 13]
    assert slow.latencies_ns.tolist() == [1000, 2000, 3000, 4000]
    assert (fast.seconds, slow.seconds) == pytest.approx((46e-9, 10e-6))


def test_both_sessions_of_a_pair_get_the_same_feed_before_the_next_is_sent() -> None:
    host = Host()
    drive(host, [host.session("a", lambda _: 1), host.session("b", lambda _: 1)], 50)
    for i in range(50):
        assert sorted(host.calls[2 * i : 2 * i + 2]) == [("a", i), ("b", i)]


def test_the_order_within_a_pair_is_drawn_and_depends_on_the_seed_alone() -> None:
    def first(seed: int) -> list[str]:
        host = Host()
        drive(host, [host.session("a", lambda _: 1), host.session("b", lambda _: 1)], 200, seed)
        return [name for name, _ in host.calls[::2]]

    assert first(0) == first(0)
    assert first(0) != first(1)
    assert 70 < first(0).count("a") < 130


def test_one_session_can_be_driven_alone() -> None:
    host = Host()
    (only,) = drive(host, [host.session("a", lambda _: 5)], 3)
    assert only.latencies_ns.tolist() == [5, 5, 5]


def test_calls_in_which_the_cpu_was_taken_away_are_counted() -> None:
    host = Host()

    def took_ns(number: int) -> int:
        host.switches += number % 4 == 0
        return 1

    (only,) = drive(host, [host.session("a", took_ns)], 100)
    assert only.preempted == 0.25


def test_switches_between_calls_do_not_count() -> None:
    host = Host()
    readings = iter([0, 0, 7, 7])
    clock = Clock(lambda: host.now_ns, lambda: next(readings))
    (only,) = Closed().drive([host.session("a", lambda _: 1)], feeds(2), np.random.default_rng(0), clock)
    assert only.preempted == 0


def test_the_clock_of_the_machine_never_goes_back() -> None:
    assert SYSTEM.now_ns() <= SYSTEM.now_ns()
    assert 0 <= SYSTEM.preemptions() <= SYSTEM.preemptions()


def test_a_recipe_names_the_load_or_gives_its_settings() -> None:
    loads = TypeAdapter[Closed](Load)
    assert loads.validate_python("closed") == loads.validate_python({"closed": {"concurrency": 1}}) == Closed()
    assert loads.dump_python(Closed(), exclude_defaults=True) == "closed"


def test_other_concurrency_is_refused_with_what_is_expected() -> None:
    with pytest.raises(ValidationError, match=r"expected 1, .* found 4"):
        Closed(concurrency=4)
