"""Workers that answer a line of requests, and what that took.

How requests are spaced is a load's business (`load`); add here only what happens to a request once it is in line.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from threading import Lock

import numpy as np

from compressor.bench.clock import Clock, stalled_share
from compressor.records import Array, Feeds, Progress, Session, Timing, Work

_NAP_NS = 100_000_000  # the longest sleep, and the least time between two reports of progress
_BUSY_NAP_NS = 10 * _NAP_NS  # between two reports where a request is always due
_SPARE_NS = 1_000_000  # time enough to report
_LEAD_NS = 200_000  # in which a worker, back from a long sleep, does what need not be done between due and call
_LATE_NS = 5_000_000_000
_LATE_SHARE = 3  # of the window
_BLOCKS = 20  # of a window, in which arrivals are counted
_UNLIKELY = 3.0  # standard deviations
_LATE_CALLS = 20  # a shorter queue than this comes and goes by chance


class Line:
    """Requests in line, first come, first served, and what became of each; shared by the workers of one window.

    In a closed loop (`due_ns` None) a request comes whenever a worker is free, until the deadline. In an open loop,
    request i comes `due_ns[i]` after the first, ascending from 0, and is answered however late that is, unless a
    worker takes it so late that the line is given up as overloaded.
    """

    def __init__(self, calls: int, deadline_ns: int, due_ns: Array | None, clock: Clock, settling: float = 0.0) -> None:
        """Take how many requests may come, when at the latest, and the share of the time that does not count."""
        self.calls = calls if due_ns is None else len(due_ns)
        self.taken = 0
        self.ended = False
        self.overloaded = False
        self.turn = Lock()
        """Held by the one worker that waits for the next request; the others are in a call, or wait for this."""
        self.clock = clock
        self._deadline_ns = deadline_ns
        self._settling = settling
        self._due_ns = None if due_ns is None else due_ns.tolist()  # plain numbers are ready sooner after a sleep
        self._begin_ns = 0
        self._rows = array("q")  # a list of a million tuples would make the garbage collector a part of the latencies

    @property
    def busy(self) -> bool:
        """Whether a pause between calls makes requests wait."""
        return self._due_ns is not None

    def take(self) -> Generator[int, None, int | None]:
        """Give the next request's number shortly before it is due, or None at the end.

        Yields, each time before it sleeps, for how many nanoseconds nothing is due.
        """
        with self.turn:
            if self.taken == 0:
                self._begin_ns = self.clock.now_ns()
            if self.taken == self.calls:
                return None
            yield from self._rest()
            if self._is_over():
                self.ended = True
                return None
            self.taken += 1
            return self.taken - 1

    def wait(self, number: int) -> None:
        """Return when a request that was taken is due."""
        if self._due_ns is not None:
            left_ns = self._begin_ns + self._due_ns[number] - self.clock.now_ns()
            self.clock.sleep(max(0, left_ns) / 1e9)

    def answered(self, number: int, start_ns: int, end_ns: int, *, preempted: bool) -> None:
        """Note what became of a request."""
        self._rows.extend((number, start_ns, end_ns, preempted))  # in one step: workers answer at the same time

    def timing(self, stalled: float | None, workers: int) -> Timing:
        """Sum up; for what `seconds` means see `serve`."""
        rows = self._answers()
        if self._due_ns is not None:
            return self._queued(rows, stalled, workers)
        latencies_ns = rows[:, 2] - rows[:, 1]
        took_ns = latencies_ns.sum() if workers == 1 else rows[:, 2].max() - self._begin_ns
        return Timing(latencies_ns, float(took_ns) / 1e9, float(rows[:, 3].mean()), stalled)

    def _queued(self, rows: Array, stalled: float | None, workers: int) -> Timing:
        """Sum up an open loop; answers to what came while it settled count for the throughput alone."""
        due_ns, end_ns = np.array(self._due_ns), rows[:, 2] - self._begin_ns
        answered_ns = due_ns[: len(rows)]
        counted = answered_ns >= self._settling * answered_ns[-1]
        wall_s = float(end_ns.max()) / 1e9
        offered_per_s = _rate_per_s(due_ns[due_ns <= wall_s * 1e9])
        seconds = wall_s if offered_per_s is None else max(wall_s, len(rows) / offered_per_s)
        return Timing(
            latencies_ns=(end_ns - answered_ns)[counted],
            seconds=seconds * float(counted.mean()),
            preempted=float(rows[:, 3].mean()),
            stalled=stalled,
            offered_per_s=offered_per_s,
            overloaded=self.overloaded or _is_behind(answered_ns, rows[:, 1:3] - self._begin_ns, workers),
        )

    def _rest(self) -> Iterator[int]:
        if self._due_ns is None:
            return
        ready_ns = self._begin_ns + self._due_ns[self.taken] - _LEAD_NS
        while (left_ns := ready_ns - self.clock.now_ns()) > 0 and not self.ended:
            yield left_ns
            self.clock.sleep(max(0, min(_NAP_NS, ready_ns - self.clock.now_ns())) / 1e9)

    def _is_over(self) -> bool:
        now_ns = self.clock.now_ns()
        if not self.taken:  # one request is answered in any case
            return self.ended
        if self._due_ns is None:
            return self.ended or now_ns >= self._deadline_ns
        late_ns = now_ns - self._begin_ns - self._due_ns[self.taken]
        bound_ns = min(_LATE_NS, (self._deadline_ns - self._begin_ns) / _LATE_SHARE)
        patient = late_ns <= bound_ns or (now_ns < self._deadline_ns and late_ns <= _LATE_CALLS * self._service_ns())
        self.overloaded |= not patient
        return self.ended or self.overloaded

    def _service_ns(self) -> float:
        rows = self._answers()
        return float((rows[:, 2] - rows[:, 1]).mean()) if len(rows) else 0.0

    def _answers(self) -> Array:
        """Give a row of number, start, end and preempted for each request that was answered, by number."""
        # of a copy, which is made in one step: an array cannot grow while another thread reads it
        rows = np.array(self._rows[:], np.int64).reshape(-1, 4)
        return rows[np.argsort(rows[:, 0])]


def serve(line: Line, sessions: Sequence[Session], feeds: Sequence[Feeds]) -> Work[Timing]:
    """Let a worker for each of `sessions` answer the line; request i is `feeds[i]`, from the front again at the end.

    A single worker is the calling thread; several are threads that end before this does, whatever the reason. An
    exception of one ends the line and is raised here.

    `seconds`, in which so many requests were answered: of one worker in a closed loop, the time in its own calls, for
    reading clocks and freeing outputs is the measurement's; of several, the wall time up to the last answer, in which
    some have nothing left to do, so that throughput is rather too low. In an open loop, the wall time up to the last
    answer, and at least as long as requests take to come at the rate offered.
    """
    begin_ns, before_us = line.clock.now_ns(), line.clock.stalled_us()
    yield from _alone(line, sessions[0], feeds) if len(sessions) == 1 else _together(line, sessions, feeds)
    return line.timing(stalled_share(before_us, line.clock.stalled_us(), line.clock.now_ns() - begin_ns), len(sessions))


def _alone(line: Line, session: Session, feeds: Sequence[Feeds]) -> Work[None]:
    """Report ten times a second where nothing is due, else once: whoever listens may make the next request wait."""
    told_ns = line.clock.now_ns()
    for spare_ns in _answer(line, session, feeds):
        quiet_ns = _NAP_NS if spare_ns >= _SPARE_NS else _BUSY_NAP_NS
        if line.clock.now_ns() - told_ns >= quiet_ns:
            yield Progress("measure", line.taken, line.calls)
            told_ns = line.clock.now_ns()


def _together(line: Line, sessions: Sequence[Session], feeds: Sequence[Feeds]) -> Work[None]:
    with ThreadPoolExecutor(len(sessions)) as pool:
        try:
            with line.turn:  # nobody begins before everybody is there
                work = [pool.submit(_finish, line, session, feeds) for session in sessions]
            while True:
                done, left = wait(work, _NAP_NS / 1e9, FIRST_EXCEPTION)
                for each in done:
                    each.result()
                if not left:
                    return
                yield Progress("measure", line.taken, line.calls)
        finally:
            line.ended = True


def _finish(line: Line, session: Session, feeds: Sequence[Feeds]) -> None:
    for _ in _answer(line, session, feeds):
        pass


def _answer(line: Line, session: Session, feeds: Sequence[Feeds]) -> Iterator[int]:
    """Answer requests until the line ends; yields, between calls, for how many nanoseconds nothing is due."""
    clock, spare_ns = line.clock, 0 if line.busy else _SPARE_NS
    while (number := (yield from line.take())) is not None:
        feed = feeds[number % len(feeds)]
        switches = clock.preemptions()
        line.wait(number)
        start_ns = clock.now_ns()
        outputs = session(feed)
        end_ns = clock.now_ns()
        line.answered(number, start_ns, end_ns, preempted=clock.preemptions() != switches)
        del outputs  # only now: freeing them is not part of the call
        yield spare_ns


def _rate_per_s(due_ns: Array) -> float | None:
    """Give how many requests were due a second, answered or not; None of a single moment."""
    return float((len(due_ns) - 1) / due_ns[-1] * 1e9) if due_ns[-1] > 0 else None


def _is_behind(due_ns: Array, taken_ns: Array, workers: int) -> bool:
    """Say whether more requests are left when the last is due than chance leaves where as many are answered as come.

    `taken_ns` holds the start and the end of each call. Of n requests, as many are then left as a random walk goes that
    cannot become negative: its variance is n times the index of dispersion of arrivals plus the squared coefficient of
    variation of calls. Source: Whitt 2002, the heavy-traffic limit of a queue at critical load.
    """
    left = int((taken_ns[:, 1] > due_ns[-1]).sum()) - workers
    calls_ns = taken_ns[:, 1] - taken_ns[:, 0]
    arrivals = np.histogram(due_ns, _BLOCKS)[0]
    variance = arrivals.var() / arrivals.mean() + (calls_ns.std() / max(1.0, calls_ns.mean())) ** 2
    return bool(left > max(_UNLIKELY, _UNLIKELY * math.sqrt(len(due_ns) * variance)))
