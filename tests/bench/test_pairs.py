import numpy as np
import pytest
from host import MS, Fake, Host, finish

from compressor.bench.load import Window
from compressor.bench.pairs import interleaved
from compressor.records import Feeds, Outputs, Timing

FEEDS: list[Feeds] = [{"x": np.full((1, 3), i)} for i in range(3)]


def window(calls: int, seconds: float = 1e6) -> Window:
    return Window(calls, int(seconds * 1e9), np.random.default_rng(0))


def drive(host: Host, sessions: list[Fake], asked: Window) -> tuple[Timing, ...]:
    return finish(interleaved(sessions, FEEDS, asked, host.clock))[0]


def test_all_sessions_answer_a_feed_before_the_next_one() -> None:
    host = Host()
    sessions = [Fake(host, lambda _: 1, "a"), Fake(host, lambda _: 2, "b")]
    drive(host, sessions, window(50))
    assert sessions[0].seen == sessions[1].seen == [i % 3 for i in range(50)]
    pairs = [tuple(host.log[i : i + 2]) for i in range(0, 100, 2)]
    assert set(pairs) == {("call a", "call b"), ("call b", "call a")}


def test_latencies_are_those_of_each_session() -> None:
    host = Host()
    a, b = drive(host, [Fake(host, lambda i: i), Fake(host, lambda i: 10 * i)], window(5))
    assert a.latencies_ns.tolist() == [i * MS for i in range(5)]
    assert b.latencies_ns.tolist() == [10 * i * MS for i in range(5)]
    assert (a.seconds, b.seconds) == (pytest.approx(0.010), pytest.approx(0.100))


def test_no_feed_is_sent_for_which_no_time_is_left() -> None:
    host = Host()
    (a,) = drive(host, [Fake(host, lambda _: 300)], window(100, seconds=1))
    assert len(a.latencies_ns) == 3
    assert host.now_ns <= 1000 * MS


def test_at_least_one_feed_is_answered() -> None:
    host = Host(now_ns=5)
    a, b = drive(host, [Fake(host, lambda _: 300), Fake(host, lambda _: 300)], window(100, seconds=0))
    assert len(a.latencies_ns) == len(b.latencies_ns) == 1


def test_the_share_of_the_time_in_which_a_task_waited_is_read() -> None:
    host = Host(stalled_us=7)

    def stalls(_: int) -> float:
        host.stalled_us = (host.stalled_us or 0) + 2500
        return 10

    (a,) = drive(host, [Fake(host, stalls)], window(8))
    assert a.stalled == pytest.approx(0.25)
    assert drive(Host(), [Fake(Host(), lambda _: 1)], window(1))[0].stalled is None


def test_preempted_calls_are_counted_for_each_session() -> None:
    host = Host()

    def preempts(i: int) -> float:
        host.switches += i % 4 == 0
        return 1

    a, b = drive(host, [Fake(host, preempts), Fake(host, lambda _: 1)], window(8))
    assert (a.preempted, b.preempted) == (0.25, 0)


def test_freeing_outputs_is_no_part_of_a_call() -> None:
    host = Host()

    class Heavy:
        def __del__(self) -> None:
            host.now_ns += 100 * MS

    class Session(Fake):
        def __call__(self, feeds: Feeds) -> Outputs:
            super().__call__(feeds)
            return {"y": Heavy()}  # type: ignore[dict-item]

    (a,) = drive(host, [Session(host, lambda _: 1)], window(3))
    assert a.latencies_ns.tolist() == [MS] * 3


def test_progress_is_shown_four_times_a_second_and_at_the_end() -> None:
    host = Host()
    _, seen = finish(interleaved([Fake(host, lambda _: 10)], FEEDS, window(100), host.clock))
    assert [(step.done, step.total) for step in seen] == [(26, 100), (52, 100), (78, 100), (100, 100)]
