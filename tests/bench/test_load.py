import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from compressor.bench.clock import SYSTEM, Clock
from compressor.bench.load import Closed, Constant, Load, Poisson, Trace, Window, parse
from compressor.errors import InputError
from compressor.records import Feeds, Outputs, Progress, Session, Timing

T = TypeVar("T")
MS = 1_000_000
S = 1_000 * MS
AnyLoad = Closed | Constant | Poisson | Trace


@dataclass
class Host:
    """A machine on which time passes only in calls and in sleep."""

    now_ns: int = 5 * S
    switches: int = 0
    stalled_us: int | None = None
    calls: list[tuple[str, int]] = field(default_factory=list)

    def clock(self) -> Clock:
        return Clock(lambda: self.now_ns, lambda: self.switches, lambda: self.stalled_us, self.sleep)

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_ns += round(seconds * S)

    def session(self, took_ns: Callable[[int], int], name: str = "a") -> "Fake":
        return Fake(self, took_ns, name)


@dataclass
class Fake:
    host: Host
    took_ns: Callable[[int], int]
    name: str = "a"

    def __call__(self, feeds: Feeds) -> Outputs:
        number = int(feeds["x"][0])
        self.host.calls.append((self.name, number))
        self.host.now_ns += self.took_ns(number)
        return {}

    def close(self) -> None:
        raise NotImplementedError


@dataclass
class Sleeper:
    """A session that takes its time without the CPU, and notes what ran beside it."""

    seconds: float
    failing: int = -1
    seen: list[int] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)

    def __call__(self, feeds: Feeds) -> Outputs:
        self.seen.append(int(feeds["x"][0]))
        self.threads.add(threading.get_ident())
        if self.seen[-1] == self.failing:
            raise RuntimeError("the session broke")
        time.sleep(self.seconds)
        return {}

    def close(self) -> None:
        raise NotImplementedError


def feeds(n: int) -> list[Feeds]:
    return [{"x": np.array([i])} for i in range(n)]


def finished(work: Generator[Progress, None, T]) -> tuple[list[Progress], T]:
    steps = []
    while True:
        try:
            steps.append(next(work))
        except StopIteration as end:
            return steps, end.value


def drive(load: AnyLoad, host: Host, session: Session, calls: int, seconds: float = 1e6) -> Timing:
    return finished(load.drive([session], feeds(calls), window(host, calls, seconds), host.clock()))[1]


def drive_really(load: AnyLoad, sessions: Sequence[Session], calls: int, seconds: float = 20) -> Timing:
    window = Window(calls, SYSTEM.now_ns() + round(seconds * S), np.random.default_rng(0))
    return finished(load.drive(sessions, feeds(calls), window, SYSTEM))[1]


def window(host: Host, calls: int, seconds: float = 1e6) -> Window:
    return Window(calls, host.now_ns + round(seconds * S), np.random.default_rng(0))


def percentile_ms(timing: Timing, percent: float) -> float:
    return float(np.percentile(timing.latencies_ns, percent, method="inverted_cdf")) / MS


def stalling(number: int) -> int:
    return 500 * MS if number == 300 else 10 * MS


# closed loop


def test_a_closed_loop_gives_each_calls_own_time_in_order() -> None:
    host = Host()
    timing = drive(Closed(), host, host.session(lambda i: 1000 * (i + 1)), 4)
    assert timing.latencies_ns.tolist() == [1000, 2000, 3000, 4000]
    assert timing.latencies_ns.dtype == np.int64
    assert host.calls == [("a", 0), ("a", 1), ("a", 2), ("a", 3)]
    assert (timing.offered_per_s, timing.overloaded) == (None, False)


def test_the_seconds_of_one_worker_are_those_of_its_calls() -> None:
    host = Host()
    work = Closed().drive([host.session(lambda _: 60 * MS)], feeds(4), window(host, 4), host.clock())
    assert next(work).done == 2
    host.now_ns += S  # somebody takes long to show the progress
    assert finished(work)[1].seconds == pytest.approx(0.24)


def test_feeds_are_cycled() -> None:
    host = Host()
    finished(Closed().drive([host.session(lambda _: 1)], feeds(3), window(host, 7), host.clock()))
    assert [number for _, number in host.calls] == [0, 1, 2, 0, 1, 2, 0]


def test_a_closed_loop_ends_at_its_deadline() -> None:
    host = Host()
    assert len(drive(Closed(), host, host.session(lambda _: 10 * MS), 1000, seconds=0.1).latencies_ns) == 10


def test_one_call_is_made_even_when_the_time_is_over() -> None:
    host = Host()
    assert len(drive(Closed(), host, host.session(lambda _: 10 * MS), 1000, seconds=-1).latencies_ns) == 1


def test_one_worker_calls_in_the_callers_thread() -> None:
    session = Sleeper(0)
    for load in (Closed(), Constant(rate="1000/s")):
        drive_really(load, [session], 20)
    assert session.threads == {threading.get_ident()}


def test_progress_comes_at_most_ten_times_a_second() -> None:
    host = Host()
    work = Closed().drive([host.session(lambda _: MS)], feeds(2000), window(host, 2000), host.clock())
    steps, _ = finished(work)
    assert 15 <= len(steps) <= 20
    assert {(step.step, step.total) for step in steps} == {("measure", 2000)}
    assert [step.done for step in steps] == sorted(step.done for step in steps)


def test_calls_in_which_the_cpu_was_taken_away_are_counted() -> None:
    host = Host()

    def took_ns(number: int) -> int:
        host.switches += number % 4 == 0
        return 1

    assert drive(Closed(), host, host.session(took_ns), 100).preempted == 0.25


def test_switches_between_calls_do_not_count() -> None:
    host = Host()
    readings = iter([0, 0, 7, 7])
    clock = Clock(lambda: host.now_ns, lambda: next(readings))
    _, timing = finished(Closed().drive([host.session(lambda _: 1)], feeds(2), window(host, 2), clock))
    assert timing.preempted == 0


def test_the_share_of_time_without_a_free_cpu_is_that_of_the_window() -> None:
    host = Host(stalled_us=40)

    def took_ns(_: int) -> int:
        host.stalled_us = (host.stalled_us or 0) + 2_000
        return 10 * MS

    assert drive(Closed(), host, host.session(took_ns), 100).stalled == pytest.approx(0.2)


def test_nobody_knows_the_stalls_where_the_kernel_keeps_none() -> None:
    host = Host()
    assert drive(Closed(), host, host.session(lambda _: 1), 3).stalled is None


# open loops


def test_a_stall_shows_in_an_open_loop_and_not_in_a_closed_one() -> None:
    host = Host()
    opened = drive(Constant(rate="50/s"), host, host.session(stalling), 600)
    closed = drive(Closed(), host, host.session(stalling), 600)
    assert percentile_ms(opened, 99) >= 400
    assert percentile_ms(closed, 99) == pytest.approx(10)
    assert not opened.overloaded


def test_a_constant_rate_is_met_exactly_where_nothing_waits() -> None:
    host = Host()
    timing = drive(Constant(rate="50/s"), host, host.session(lambda _: 3 * MS), 200)
    assert set(timing.latencies_ns.tolist()) == {3 * MS}
    assert timing.offered_per_s == pytest.approx(50)
    assert len(timing.latencies_ns) / timing.seconds == pytest.approx(50)


def test_latency_counts_from_when_a_request_was_due() -> None:
    host = Host()
    timing = drive(Constant(rate="100/s"), host, host.session(lambda i: 25 * MS if i == 0 else 5 * MS), 6)
    assert (timing.latencies_ns / MS).tolist() == [25, 20, 15, 10, 5, 5]  # by hand: due at 0, 10, 20, 30, 40, 50


def test_the_mean_wait_of_random_arrivals_is_that_of_queueing_theory() -> None:
    host = Host()
    timing = drive(Poisson(rate="50/s"), host, host.session(lambda _: 10 * MS), 60_000)
    wait_ms = timing.latencies_ns.mean() / MS - 10
    assert wait_ms == pytest.approx(0.5 * 10 / (2 * (1 - 0.5)), rel=0.04)  # M/D/1: rho S / (2 (1 - rho))
    assert timing.offered_per_s == pytest.approx(50, rel=0.02)


def test_random_arrivals_depend_on_the_seed_alone() -> None:
    def latencies(seed: int) -> list[int]:
        host = Host()
        drawn = Window(500, host.now_ns + 60 * S, np.random.default_rng(seed))
        session = host.session(lambda _: 15 * MS)
        return finished(Poisson(rate="50/s").drive([session], feeds(1), drawn, host.clock()))[1].latencies_ns.tolist()

    assert latencies(0) == latencies(0)
    assert latencies(0) != latencies(1)


def test_requests_are_due_up_to_the_deadline_and_then_still_answered() -> None:
    host = Host()
    session = host.session(lambda i: 300 * MS if i == 9 else MS)
    timing = drive(Constant(rate="10/s"), host, session, 1000, seconds=1.05)
    assert len(timing.latencies_ns) == 11  # due at 0.0, 0.1, ... 1.0
    assert timing.latencies_ns[-1] == 201 * MS
    assert not timing.overloaded


def test_a_rate_too_low_for_the_window_still_sends_one_request() -> None:
    for load in (Constant(rate="1/h"), Poisson(rate="1/h")):
        host = Host()
        timing = drive(load, host, host.session(lambda _: 2 * MS), 10, seconds=1)
        assert timing.latencies_ns.tolist() == [2 * MS]
        assert (timing.offered_per_s, timing.seconds) == (None, 0.002)


def test_overload_ends_by_itself_and_says_so() -> None:
    host = Host()
    begin_ns = host.now_ns
    timing = drive(Constant(rate="100/s"), host, host.session(lambda _: 20 * MS), 100_000, seconds=60)
    assert timing.overloaded
    assert (host.now_ns - begin_ns) / S == pytest.approx(10, rel=0.02)  # by hand: half of the requests wait 5 s then
    assert timing.offered_per_s == pytest.approx(100, rel=0.01)
    assert len(timing.latencies_ns) / timing.seconds == pytest.approx(50, rel=0.01)
    assert np.all(np.diff(timing.latencies_ns) == 10 * MS)


def test_a_window_that_ends_with_a_long_line_is_overloaded_although_none_waited_long() -> None:
    host = Host()
    timing = drive(Constant(rate="100/s"), host, host.session(lambda _: round(10.5 * MS)), 100_000, seconds=10)
    assert percentile_ms(timing, 100) < 1000  # 5 % of 10 s: nobody gave up
    assert timing.overloaded
    assert len(timing.latencies_ns) / timing.seconds == pytest.approx(1000 / 10.5, rel=0.01)


def test_a_line_that_chance_made_is_no_overload(tmp_path: Path) -> None:
    host = Host()
    stalled = drive(Constant(rate="100/s"), host, host.session(lambda i: 300 * MS if i == 995 else 5 * MS), 1000, 10)
    assert not stalled.overloaded
    burst = trace(tmp_path, "\n".join([*(str(i / 50) for i in range(800)), *["16"] * 200]))
    assert not drive(burst, host, host.session(lambda _: 5 * MS), 1000).overloaded


def test_what_comes_while_the_window_settles_does_not_count() -> None:
    host = Host()
    asked = Window(10_000, host.now_ns + 10 * S, np.random.default_rng(0), settling=0.1)
    session = host.session(lambda i: 300 * MS if i == 3 else MS)
    _, timing = finished(Constant(rate="100/s").drive([session], feeds(1001), asked, host.clock()))
    assert timing.latencies_ns.tolist() == [MS] * 901  # due from 1.00 s to 10.00 s
    assert len(timing.latencies_ns) / timing.seconds == pytest.approx(100, rel=0.01)


def test_in_a_short_window_a_third_of_it_is_late() -> None:
    host = Host()
    timing = drive(Constant(rate="1000/s"), host, host.session(lambda _: 2 * MS), 100_000, seconds=3)
    assert timing.overloaded
    assert percentile_ms(timing, 100) == pytest.approx(1000, rel=0.01)


def test_a_queue_of_twenty_calls_is_no_overload_before_the_deadline(tmp_path: Path) -> None:
    for waiting, overloaded in ((20, False), (23, True)):
        host = Host()
        burst = trace(tmp_path, "0\n" * waiting)
        assert drive(burst, host, host.session(lambda _: 100 * MS), 100, seconds=3).overloaded == overloaded


def test_a_slow_session_does_not_keep_the_line_long_after_the_deadline() -> None:
    host = Host()
    begin_ns = host.now_ns
    timing = drive(Constant(rate="50/s"), host, host.session(lambda _: 5 * S), 1000, seconds=10)
    assert timing.overloaded
    assert host.now_ns - begin_ns == 10 * S


def test_progress_waits_for_a_moment_in_which_nothing_is_due() -> None:
    host = Host()
    session = host.session(lambda i: 999_500 if i % 100 else 500_000)  # a load of 100 %, with a little room at times
    work = Constant(rate="1000/s").drive([session], feeds(5000), window(host, 5000), host.clock())
    steps, timing = finished(work)
    assert 4 <= len(steps) <= 5  # seldom
    assert percentile_ms(timing, 100) <= 1
    assert len(finished(Constant(rate="100/s").drive([session], feeds(500), window(host, 500), host.clock()))[0]) >= 40


# several workers


@pytest.mark.parametrize("load", [Closed(concurrency=4), Constant(rate="1000/s", workers=4)])
def test_workers_answer_at_the_same_time(load: Closed | Constant) -> None:
    def per_s(load: AnyLoad) -> float:
        timing = drive_really(load, [Sleeper(0.02)], 60)
        return len(timing.latencies_ns) / timing.seconds

    assert 2 < per_s(load) / per_s(Closed()) < 6


def test_every_request_is_sent_once_and_all_workers_send() -> None:
    session = Sleeper(0.001)
    timing = drive_really(Closed(concurrency=5), [session], 100)
    assert sorted(session.seen) == list(range(100))
    assert len(timing.latencies_ns) == 100
    assert len(session.threads) == 5
    assert threading.get_ident() not in session.threads


@pytest.mark.parametrize(
    "load", [Closed(concurrency=3, sessions="own"), Poisson(rate="500/s", workers=3, sessions="own")]
)
def test_workers_with_sessions_of_their_own_do_not_share_them(load: Closed | Poisson) -> None:
    sessions = [Sleeper(0.02) for _ in range(load.opened)]
    drive_really(load, sessions, 30)
    assert len(sessions) == 3
    assert [len(session.threads) for session in sessions] == [1, 1, 1]


def test_a_line_in_front_of_several_workers_counts_from_when_requests_were_due() -> None:
    timing = drive_really(Constant(rate="100/s", workers=2), [Sleeper(0.04)], 40)
    assert timing.offered_per_s == pytest.approx(100)
    assert timing.latencies_ns[-1] > 5 * timing.latencies_ns[0]  # 50 answers a second: the line grows


@pytest.mark.parametrize("load", [Closed(concurrency=4), Constant(rate="500/s", workers=4), Constant(rate="500/s")])
def test_a_workers_exception_ends_the_window_and_is_raised(load: Closed | Constant) -> None:
    before, session = threading.active_count(), Sleeper(0.005, failing=6)
    with pytest.raises(RuntimeError, match="the session broke"):
        drive_really(load, [session], 10_000)
    assert threading.active_count() == before
    assert len(session.seen) < 100


@pytest.mark.parametrize("load", [Closed(concurrency=3), Constant(rate="1/min", workers=3)])
def test_no_thread_outlives_a_window_that_is_left(load: Closed | Constant) -> None:
    before = threading.active_count()
    for leave in (KeyboardInterrupt, GeneratorExit):
        window = Window(10_000, SYSTEM.now_ns() + 600 * S, np.random.default_rng(0))
        work = load.drive([Sleeper(0.001)], feeds(1), window, SYSTEM)
        next(work)
        assert threading.active_count() == before + 3
        with pytest.raises(leave):
            work.throw(leave())
        assert threading.active_count() == before


# traces


def trace(folder: Path, content: str | bytes) -> Trace:
    path = folder / "trace.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Trace(path=path)


@pytest.mark.parametrize(
    "content",
    [
        "10\n10.5\n10.5\n12\n",
        "anything\n10\n10.5\n10.5\n12",
        "user,Timestamp,seconds\na,1,10\nb,2,10.5\n\nc,3,10.5\nd,4,12\n",
        "\ufeffarrival_s , size\r\n1e1,7\r\n10.5,7\r\n10.5,7\r\n12.0,7\r\n",
    ],
)
def test_a_trace_is_read_with_and_without_names(tmp_path: Path, content: str) -> None:
    assert trace(tmp_path, content).arrivals_s().tolist() == [0, 0.5, 0.5, 2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no arrival times"),
        ("arrival_s\n", "holds no arrival times"),
        ("1\n2\nsoon\n", r"line 3: expected a time in seconds, found 'soon'"),
        ("1\n2\nnan\n", r"line 3: .* found 'nan'"),
        ("seconds\n1\n3\n\n2\n", r"line 5: 2 s comes after 3 s; sort the times"),
        ("user,when\na,1\n", r"line 1: expected a CSV file .* found 'user,when'"),
        ("user,seconds\na,1\nb\n", r"line 3: expected a time in seconds, found ''"),
        (b"\xff\xfe\x00\x01", "is no text"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    load = trace(tmp_path, content)
    with pytest.raises(InputError, match=message) as refusal:
        load.arrivals_s()
    assert str(refusal.value).startswith(str(load.path))


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    expected = "expected a CSV file of arrival times in seconds"
    for path, found in ((tmp_path / "none.csv", "cannot be read"), (tmp_path, "is no regular file")):
        with pytest.raises(InputError, match=f"{found}.* {expected}"):
            Trace(path=path).arrivals_s()


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    host = Host()
    timing = drive(trace(tmp_path, "100\n100.01\n100.5\n"), host, host.session(lambda _: 30 * MS), 50)
    assert (timing.latencies_ns / MS).tolist() == [30, 50, 30]
    assert timing.offered_per_s == pytest.approx(4)


# recipes


@pytest.mark.parametrize(
    ("written", "load"),
    [
        ("closed", Closed()),
        ({"closed": {"concurrency": 4, "sessions": "own"}}, Closed(concurrency=4, sessions="own")),
        ({"constant": {"rate": "200/s"}}, Constant(rate="200/s")),
        ({"poisson": {"rate": "90/min", "workers": 2}}, Poisson(rate="1.5/s", workers=2)),
        ({"trace": {"path": "a.csv"}}, Trace(path=Path("a.csv"))),
    ],
)
def test_a_load_is_read_from_a_recipe_and_written_back(written: object, load: AnyLoad) -> None:
    loads: TypeAdapter[AnyLoad] = TypeAdapter(Load)
    assert loads.validate_python(written) == load
    assert loads.validate_json(loads.dump_json(load, exclude_defaults=True)) == load
    assert loads.json_schema()


@pytest.mark.parametrize(
    "written",
    [
        {"closed": {"concurrency": 0}},
        {"closed": {"concurrency": 1025}},
        {"closed": {"sessions": "mine"}},
        {"constant": {"rate": "0/s"}},
        {"constant": {"rate": "fast"}},
        {"poisson": {"rate": "5/s", "workers": 0}},
        {"trace": {}},
    ],
)
def test_impossible_loads_are_refused(written: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Load).validate_python(written)


@pytest.mark.parametrize(
    ("text", "load"),
    [
        ("200/s", Constant(rate="200/s")),
        ("poisson:30/min", Poisson(rate="0.5/s")),
        ("traces/monday.csv", Trace(path=Path("traces/monday.csv"))),
    ],
)
def test_a_load_is_read_from_a_word(text: str, load: AnyLoad) -> None:
    assert parse(text) == load


@pytest.mark.parametrize("text", ["0/s", "poisson:fast", "poisson:0/s", "poisson:", "nan/s", "-1/s", "inf/min"])
def test_a_word_that_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=rf"expected a rate above 0 such as 200/s .* found '{text}'"):
        parse(text)


def test_a_trace_that_never_ends_is_refused() -> None:
    with pytest.raises(InputError, match="/dev/zero: is no regular file"):
        Trace(path=Path("/dev/zero")).arrivals_s()


@pytest.mark.parametrize("text", ["200", "1.5", " 3 "])
def test_a_number_without_a_unit_is_no_file(text: str) -> None:
    with pytest.raises(InputError, match=rf"found '{text}': did you mean {text.strip()}/s\?"):
        parse(text)


def test_a_rate_is_written_for_people() -> None:
    described = [Constant(rate=f"{rate}/s").describe().split()[1] for rate in (87.34567, 0.012345678, 12345.6, 200)]
    assert described == ["87.35/s,", "0.01235/s,", "12346/s,", "200/s,"]


def test_a_load_says_its_workers_and_their_sessions() -> None:
    assert Closed().describe() == "closed loop, 1 worker"
    assert Closed(concurrency=4).describe() == "closed loop, 4 workers, one shared session"
    assert Constant(rate="200/s", workers=2, sessions="own").describe() == "constant 200/s, 2 workers, a session each"
    assert Poisson(rate="1.5/s").describe() == "Poisson arrivals 1.5/s, 1 worker"
    assert Trace(path=Path("a.csv")).describe() == "trace a.csv, 1 worker"


def test_only_the_calls_of_one_closed_worker_can_be_pairs() -> None:
    loads = (Closed(), Closed(concurrency=2), Constant(rate="1/s"), Poisson(rate="1/s"), Trace(path=Path("a")))
    assert [load.paired for load in loads] == [True, False, False, False, False]
    assert [load.open for load in loads] == [False, False, True, True, True]
    assert [load.opened for load in loads] == [1] * 5
    assert Trace(path=Path("a"), workers=3, sessions="own").opened == 3


@pytest.mark.parametrize("load", [Constant(rate="1/s"), Poisson(rate="1/s")])
def test_one_request_is_answered_even_when_the_time_is_over(load: AnyLoad) -> None:
    host = Host()
    timing = drive(load, host, host.session(lambda _: 10 * MS), 5, seconds=-1)
    assert timing.latencies_ns.tolist() == [10 * MS]
