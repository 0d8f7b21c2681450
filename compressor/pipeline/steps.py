"""Pieces of work that one command calls one after another, each in a child of its own.

What holds for every call of a command is a field of `Steps`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, overload

from compressor import isolation
from compressor.errors import InputError, RungError
from compressor.isolation import Limits, Returned
from compressor.records import Progress, Work, relayed

T = TypeVar("T")


class Steps:
    """Calls pieces of work under names; `now` is the one that is running, or that failed."""

    def __init__(self, limits: Limits, *, verbose: bool, environment: Mapping[str, str] | None = None) -> None:
        """Take what every piece of work may use, whether vendors may print, and variables for the children."""
        self.limits, self.verbose, self.now = limits, verbose, ""
        self.environment = environment or {}

    @overload
    def call(
        self, step: str, piece: Callable[..., Work[T]], *arguments: object, more_s: float = 0
    ) -> Work[Returned[T]]: ...
    @overload
    def call(self, step: str, piece: Callable[..., T], *arguments: object, more_s: float = 0) -> Work[Returned[T]]: ...
    def call(self, step: str, piece: Callable[..., Any], *arguments: object, more_s: float = 0) -> Work[Returned[Any]]:
        """Run a piece of work in a child, its progress under the name of the step.

        `more_s`: what it may take longer than others, because it is told to.
        """
        limits = self.limits.model_copy(update={"seconds": self.limits.seconds + math.ceil(more_s)})
        self.now, own = step, step.rpartition(": ")[2]  # behind the name of a rung

        def under(progress: Progress) -> Progress:
            return replace(progress, step=step if progress.step == own else f"{step}, {progress.step}")

        yield Progress(step)
        called = isolation.call(piece, *arguments, limits=limits, verbose=self.verbose, environment=self.environment)
        return (yield from relayed(called, under))

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
