"""Events as they come: a live table in a terminal, lines in a log.

A new view is a class with `show` beside `_Live` and `_Lines`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, Self, TypeVar

import rich.progress
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from compressor.console import out
from compressor.errors import Stopped, printable
from compressor.formats.words import at_most, median, ratio
from compressor.pipeline.choose import passed, undecided
from compressor.records import Measurement, Progress, Trial
from compressor.units import human_bytes

T = TypeVar("T")
_LOGGER = logging.getLogger("compressor")
_NOTHING = "-"
_COLUMNS = ("rung", "size", "p50", "p99 at most", "speed-up", "score", "verdict")


class View(Protocol):
    """Shows events while work goes on."""

    def show(self, event: Progress | Trial) -> None:
        """Show one event."""
        ...


def follow(work: Generator[Progress | Trial, None, T], *, quiet: bool) -> T:
    """Run the work to its end, showing what it yields; nothing if quiet, plain lines where stderr is no terminal."""
    with _view(quiet=quiet) as view:
        try:
            while True:
                event = next(work)
                if isinstance(event, Trial):
                    _LOGGER.info("trial: %s: %s", event.rung, _outcome(event))
                view.show(event)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        except Stopped as stop:
            work.throw(stop)  # it may have come while something was shown, of which the work knows nothing
            raise


def _view(*, quiet: bool) -> AbstractContextManager[View]:
    if quiet:
        return nullcontext(_Silent())
    console = out.stderr()
    return _Live(console) if console.is_terminal else nullcontext(_Lines(console))


class _Silent:
    def show(self, event: Progress | Trial) -> None:
        """Show nothing."""


class _Lines:
    """One line a step and one a trial, for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begin = time.monotonic()
        self._step = ""

    def show(self, event: Progress | Trial) -> None:
        seconds = f"{time.monotonic() - self._begin:6.1f} s  "
        if isinstance(event, Trial):
            cells = zip(_COLUMNS[1:], _row(event)[1:], strict=True)
            told = "; ".join(_told(name, cell) for name, cell in cells if cell != _NOTHING)
            self._print(f"{seconds}{event.rung}: {told}")
        elif (step := event.step.partition(",")[0]) != self._step:
            self._step = step
            self._print(f"{seconds}{step}")

    def _print(self, line: str) -> None:
        self._console.print(Text(printable(line)), soft_wrap=True)


class _Live:
    """A table that grows by a row a trial, over a bar for the step that is going on."""

    def __init__(self, console: Console) -> None:
        self._trials: list[Trial] = []
        self._bar = rich.progress.Progress(
            rich.progress.SpinnerColumn(),
            rich.progress.TextColumn("{task.description}", markup=False),
            rich.progress.BarColumn(),
            rich.progress.TimeElapsedColumn(),
            console=console,
        )
        self._task = self._bar.add_task("", total=None)
        self._live = Live(self._bar, console=console, transient=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.remove_task(self._task)
        self._live.update(self._shown())
        self._live.__exit__(*error)  # type: ignore[arg-type]

    def show(self, event: Progress | Trial) -> None:
        if isinstance(event, Trial):
            self._trials.append(event)
            self._live.update(self._shown())
        else:
            self._bar.update(self._task, description=printable(event.step), completed=event.done, total=event.total)

    def _shown(self) -> Group:
        rows = [_row(trial) for trial in self._trials]
        return Group(*([out.cells(_COLUMNS, rows)] if rows else []), self._bar)


def _told(name: str, cell: str) -> str:
    return f"{name.removesuffix(' at most') if cell.startswith('at least') else name} {cell}"


def _row(trial: Trial) -> list[str]:
    measured, score = trial.measurement, trial.quality
    return [
        trial.rung,
        _NOTHING if trial.size_bytes is None else human_bytes(trial.size_bytes),
        *(_speed(measured) if measured else [_NOTHING] * 3),
        f"{score.metric} {score.value:.4g}" if score else _NOTHING,
        _outcome(trial),
    ]


def _speed(measured: Measurement) -> list[str]:
    latency = measured.latency
    return [median(latency), at_most(latency.p99_ms, latency.p99_high_ms, latency), _speedup(measured)]


def _speedup(measured: Measurement) -> str:
    if (speedup := measured.speedup) is None:
        return _NOTHING
    return f"{ratio(speedup.ratio)}x ({ratio(speedup.low)} to {ratio(speedup.high)})"


def _outcome(trial: Trial) -> str:
    if trial.failure:
        return f"not built: {trial.failure.stage}: {trial.failure.reason}"
    if passed(trial):
        return "met"
    met = None if undecided(trial) else False
    word = "undecided" if met is None else "not met"
    return f"{word}: {', '.join(verdict.gate for verdict in trial.verdicts if verdict.met is met)}"
