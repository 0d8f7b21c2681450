"""The loads: in which rhythm requests reach a session, and what that took.

Add a load as a class with a `drive`, and to the union at the foot.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field, PlainSerializer, ValidationError

from compressor import units
from compressor.bench.clock import Clock
from compressor.bench.serve import Line, serve
from compressor.errors import InputError
from compressor.grammar import Keyed
from compressor.records import Array, Feeds, Session, Timing, Work
from compressor.units import Rate

_COLUMNS = ("arrival_s", "seconds", "timestamp")
_EXPECTED = f"expected a CSV file of arrival times in seconds: one column, or one named {', '.join(_COLUMNS)}"

Workers = Annotated[int, Field(ge=1, le=1024, description="Requests that are answered at the same time.")]
Sessions = Annotated[
    Literal["shared", "own"], Field(description="Whether all workers call one session, or each one of its own.")
]
_FOUR_DIGITS = 1000
FilePath = Annotated[Path, PlainSerializer(str, return_type=str)]


@dataclass(frozen=True)
class Window:
    """At most so many calls, until a moment at the latest; `rng` draws what a load leaves to chance.

    In an open loop, `deadline_ns` is the last moment at which a request may be due, and one that is due is answered.
    Every window begins with an idle session and an empty queue, and a trace at its first request. `settling` is the
    share of its time, at the start, in which requests come that do not count.
    """

    calls: int
    deadline_ns: int
    rng: np.random.Generator
    settling: float = 0.0


def _opened(load: Closed | Constant | Poisson | Trace) -> int:
    """Give how many sessions a load calls."""
    workers = load.concurrency if isinstance(load, Closed) else load.workers
    return 1 if load.sessions == "shared" else workers


class Closed(BaseModel, frozen=True, extra="forbid"):
    """Each of `concurrency` workers sends a request when the one before it is answered."""

    concurrency: Workers = 1
    sessions: Sessions = "shared"
    open: ClassVar[Literal[False]] = False
    opened: ClassVar[property] = property(_opened)

    @property
    def paired(self) -> bool:
        """Whether its calls can alternate with those of another session."""
        return self.concurrency == 1

    def describe(self) -> str:
        """Say it in a few words."""
        return f"closed loop, {_staff(self.concurrency, self.sessions)}"

    def drive(self, sessions: Sequence[Session], feeds: Sequence[Feeds], window: Window, clock: Clock) -> Work[Timing]:
        """Give what the calls took, from their start to their end; at least one is made."""
        line = Line(window.calls, window.deadline_ns, None, clock)
        return serve(line, _each(sessions, self.concurrency), feeds)


class Constant(BaseModel, frozen=True, extra="forbid"):
    """Requests come at equal distances, whether or not those before them are answered."""

    rate: Rate = Field(gt=0, description="Requests that come in a time, such as 200/s.")
    workers: Workers = 1
    sessions: Sessions = "shared"
    open: ClassVar[Literal[True]] = True
    paired: ClassVar[bool] = False
    opened: ClassVar[property] = property(_opened)

    def describe(self) -> str:
        """Say it in a few words."""
        return f"constant {_per_s(self.rate)}, {_staff(self.workers, self.sessions)}"

    def drive(self, sessions: Sequence[Session], feeds: Sequence[Feeds], window: Window, clock: Clock) -> Work[Timing]:
        """Give what the requests took; see `Trace.drive`."""
        due_s = np.arange(_most(self.rate, window, clock)) / self.rate
        return serve(_line(due_s, window, clock), _each(sessions, self.workers), feeds)


class Poisson(BaseModel, frozen=True, extra="forbid"):
    """Requests come by chance and independently, as those of many users do."""

    rate: Rate = Field(gt=0, description="Requests that come in a time on average, such as 200/s.")
    workers: Workers = 1
    sessions: Sessions = "shared"
    open: ClassVar[Literal[True]] = True
    paired: ClassVar[bool] = False
    opened: ClassVar[property] = property(_opened)

    def describe(self) -> str:
        """Say it in a few words."""
        return f"Poisson arrivals {_per_s(self.rate)}, {_staff(self.workers, self.sessions)}"

    def drive(self, sessions: Sequence[Session], feeds: Sequence[Feeds], window: Window, clock: Clock) -> Work[Timing]:
        """Give what the requests took; see `Trace.drive`. The gaps between them are drawn from `window.rng`."""
        gaps_s = window.rng.exponential(1 / self.rate, _most(self.rate, window, clock) - 1)
        due_s = np.concatenate([[0.0], np.cumsum(gaps_s)])
        return serve(_line(due_s, window, clock), _each(sessions, self.workers), feeds)


class Trace(BaseModel, frozen=True, extra="forbid"):
    """Requests come at the times that were recorded in a file."""

    path: FilePath = Field(description="A CSV file of ascending arrival times in seconds; the first is the start.")
    workers: Workers = 1
    sessions: Sessions = "shared"
    open: ClassVar[Literal[True]] = True
    paired: ClassVar[bool] = False
    opened: ClassVar[property] = property(_opened)

    def describe(self) -> str:
        """Say it in a few words."""
        return f"trace {self.path}, {_staff(self.workers, self.sessions)}"

    def arrivals_s(self) -> Array:
        """Give the arrival times in seconds after the first, ascending, float64.

        Raises:
            InputError: The file is missing or empty, or one of its lines is no time, or before the one above it.
        """
        times_s = np.array(list(_times_s(self.path)))
        if not len(times_s):
            raise InputError(f"{self.path}: holds no arrival times; {_EXPECTED}")
        since_s: Array = times_s - times_s[0]
        return since_s

    def drive(self, sessions: Sequence[Session], feeds: Sequence[Feeds], window: Window, clock: Clock) -> Work[Timing]:
        """Give what the requests took, from the moment each was due to the end of its call.

        A free worker takes the request that waits longest. One that is taken too late ends the window as overloaded:
        later than 5 s or a third of the window, whichever is less, and until the deadline also than 20 calls take. The
        latencies are then those of the requests before it; the ones that were due after it, which `offered_per_s`
        counts, would have waited longer still. So percentiles are lower limits, and a longer window finds higher ones.
        A window that ends with more requests in line than chance leaves there is overloaded too.

        Raises:
            InputError: As `arrivals_s`.
        """
        return serve(_line(self.arrivals_s(), window, clock), _each(sessions, self.workers), feeds)


Load = Annotated[Closed | Constant | Poisson | Trace, Keyed(Closed, Constant, Poisson, Trace)]


def parse(text: str) -> Closed | Constant | Poisson | Trace:
    """Read an open loop: `200/s`, `poisson:200/s`, or the path of a trace.

    Raises:
        InputError: The rate cannot be read, has no unit, or is 0.
    """
    if _time_s(text) is not None:
        raise InputError(f"expected a rate such as 200/s, found {text!r}: did you mean {text.strip()}/s?")
    kind, _, rate = text.rpartition(":")
    try:
        if kind == "poisson":
            return Poisson(rate=rate)
        return Constant(rate=text) if _is_rate(text) else Trace(path=Path(text))
    except ValidationError as error:
        raise InputError(f"expected a rate above 0 such as 200/s or poisson:200/s, found {text!r}") from error


def _per_s(rate: float) -> str:
    """Write a rate for people: four significant digits, and all that stand before the point."""
    return units.write_rate(float(f"{rate:.4g}") if rate < _FOUR_DIGITS else round(rate))


def _staff(workers: int, sessions: str) -> str:
    if workers == 1:
        return "1 worker"
    return f"{workers} workers, {'one shared session' if sessions == 'shared' else 'a session each'}"


def _each(sessions: Sequence[Session], workers: int) -> tuple[Session, ...]:
    """Give each worker its session."""
    return tuple(islice(cycle(sessions), workers))


def _most(rate: float, window: Window, clock: Clock) -> int:
    """Give more arrivals than chance can put into the window, but no more than it may have."""
    mean = rate * max(0, window.deadline_ns - clock.now_ns()) / 1e9
    return min(window.calls, math.ceil(mean + 10 * math.sqrt(mean)) + 1)


def _line(due_s: Array, window: Window, clock: Clock) -> Line:
    """Put those requests in line that are due in the window; the first always is."""
    left_s = (window.deadline_ns - clock.now_ns()) / 1e9
    fitting = max(1, int(np.searchsorted(due_s, left_s, "right")))
    due_ns = np.rint(due_s[: min(fitting, window.calls)] * 1e9).astype(np.int64)
    return Line(len(due_ns), window.deadline_ns, due_ns, clock, window.settling)


def _is_rate(text: str) -> bool:
    """Tell a rate, perhaps an impossible one, from a path."""
    return re.search(r"/(s|min|h)$", text) is not None and not Path(text).exists()


def _times_s(path: Path) -> Iterator[float]:
    rows = _rows(path)
    first = next(rows, None)
    if first is None:
        return
    column = _column(path, *first)
    before_s = -math.inf
    for line, row in rows if _time_s(first[1][column]) is None else chain([first], rows):
        found = row[column] if column < len(row) else ""
        time_s = _time_s(found)
        if time_s is None:
            raise InputError(f"{path}, line {line}: expected a time in seconds, found {found!r}")
        if time_s < before_s:
            raise InputError(f"{path}, line {line}: {time_s:.12g} s comes after {before_s:.12g} s; sort the times")
        yield time_s
        before_s = time_s


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Give the lines that are not empty, with their numbers."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is no regular file; {_EXPECTED}")
        rows = csv.reader(path.read_text("utf-8-sig").splitlines())
        yield from ((rows.line_num, row) for row in rows if "".join(row).strip())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {_EXPECTED}; a rate is written 200/s") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: is no text; {_EXPECTED}") from error


def _column(path: Path, line: int, row: Sequence[str]) -> int:
    """Find where the times stand: in the only column, or below a name."""
    names = [name.strip().lower() for name in row]
    named = [names.index(name) for name in _COLUMNS if name in names]
    if len(row) > 1 and not named:
        raise InputError(f"{path}, line {line}: {_EXPECTED}; found {','.join(row)[:80]!r}")
    return named[0] if named else 0


def _time_s(text: str) -> float | None:
    try:
        time_s = float(text)
    except ValueError:
        return None
    return time_s if math.isfinite(time_s) else None
