"""Pieces of work that one command calls one after another, each in a child of its own.

What holds for every call of a command is a field of `Steps`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, overload

from compressor import isolation
from compressor.errors import CompressorError, InputError, OutOfTimeError, RungError
from compressor.isolation import Limits, Nursery, Returned
from compressor.records import Progress, Work, relayed
from compressor.units import human_bytes, write_seconds

T = TypeVar("T")
Imports = tuple[str, ...] | None
_PIECES = (f"{__package__}.{module}" for module in ("quality", "search", "timing", "work"))
_IMPORTS = (*_PIECES, "onnx", "onnx_ir", "onnxruntime")
"""What most pieces of work load anyway."""
_LOGGER = logging.getLogger("compressor")
_LOGGER.addHandler(logging.NullHandler())  # or Python would print warnings where no command line keeps them


def nursery() -> Nursery:
    """Give what the children of a command come from that calls several pieces of work."""
    return Nursery(*_IMPORTS)


class Steps:
    """Calls pieces of work under names; `now` is the one that is running, or that failed."""

    def __init__(
        self,
        limits: Limits,
        *,
        verbose: bool,
        environment: Mapping[str, str] | None = None,
        nursery: Nursery | None = None,
    ) -> None:
        """Take what every piece of work may use, whether vendors may print, and variables for the children.

        `nursery`: where children come from; without one, as for a command of a single piece, each is fresh.
        """
        self.limits, self.verbose, self.now = limits, verbose, ""
        self.environment = environment or {}
        self.nursery = nursery
        self.deadline_s = math.inf if limits.run is None else time.monotonic() + limits.run

    @property
    def left_s(self) -> float:
        """What `limits.run` leaves."""
        return self.deadline_s - time.monotonic()

    @overload
    def call(
        self, step: str, piece: Callable[..., Work[T]], *arguments: object, more_s: float = 0, imports: Imports = ()
    ) -> Work[Returned[T]]: ...
    @overload
    def call(
        self, step: str, piece: Callable[..., T], *arguments: object, more_s: float = 0, imports: Imports = ()
    ) -> Work[Returned[T]]: ...
    def call(
        self, step: str, piece: Callable[..., Any], *arguments: object, more_s: float = 0, imports: Imports = ()
    ) -> Work[Returned[Any]]:
        """Run a piece of work in a child, its progress under the name of the step.

        `more_s`: what it may take longer than others, because it is told to. `imports`: packages that it loads beside
        those that most pieces do; None for a fresh interpreter, where starting is what is measured.

        Raises:
            OutOfTimeError: All pieces together have taken what `limits.run` leaves them.
        """
        seconds, left_s = self.limits.seconds + math.ceil(more_s), self.left_s
        limits = self.limits.model_copy(update={"seconds": max(1, math.ceil(min(seconds, left_s)))})
        self.now, own = step, step.rpartition(": ")[2]  # behind the name of a rung

        def under(progress: Progress) -> Progress:
            return replace(progress, step=step if progress.step == own else f"{step}, {progress.step}")

        if left_s <= 0:
            raise self._over()
        yield Progress(step)
        called = isolation.call(
            piece,
            *arguments,
            limits=limits,
            verbose=self.verbose,
            environment=self.environment,
            nursery=self.nursery.having(*imports) if self.nursery and imports is not None else None,
        )
        try:
            return (yield from _logged(step, relayed(called, under)))
        except RungError as error:
            if time.monotonic() >= self.deadline_s:
                raise self._over() from error
            raise

    @staticmethod
    def reused(step: str) -> None:
        """Say in the log that what a step would make is there already."""
        _LOGGER.info("step: %s: reused", step)

    @contextmanager
    def of(self, source: str) -> Iterator[None]:
        """Turn the failure of a step into the caller's: there is no rung that it could cost.

        Raises:
            InputError: A step failed for this source.
        """
        try:
            yield
        except RungError as error:
            raise InputError(f"{source}: {self.now} failed: {error}") from error

    def _over(self) -> OutOfTimeError:
        over = f"limits.run, {write_seconds(self.limits.run or 0)}, was over at {self.now}"
        return OutOfTimeError(f"{over}; run again, which goes on from what is made, or raise limits.run")


def _logged(step: str, work: Work[Returned[T]]) -> Work[Returned[T]]:
    """Do the work, and leave a line in the log on how it ended."""
    started = time.monotonic()
    try:
        done = yield from work
    except BaseException as error:
        how = f"failed ({_why(error)})" if isinstance(error, Exception) else "stopped"
        _LOGGER.warning("step: %s: %s after %.3f s", step, how, time.monotonic() - started)
        raise
    _LOGGER.info("step: %s: done in %.3f s, peak memory %s", step, done.seconds, human_bytes(done.peak_memory_bytes))
    return done


def _why(error: Exception) -> str:
    """Give a sentence of ours, or the last line of a traceback, all of which is kept elsewhere."""
    return str(error) if isinstance(error, CompressorError) else str(error).strip().rpartition("\n")[2]
