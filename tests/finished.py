"""Running a piece of work to its end."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

E = TypeVar("E")
T = TypeVar("T")


def finish(work: Generator[E, None, T], events: list[E] | None = None) -> T:
    """Give what the work returns; what it yields goes to `events`."""
    seen = [] if events is None else events
    while True:
        try:
            seen.append(next(work))
        except StopIteration as stop:
            value: T = stop.value
            return value
