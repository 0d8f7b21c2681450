"""Arrays, and the progress of long work.

A shape of data that several floors pass on is named here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy.typing as npt

Array = npt.NDArray[Any]
Shapes = Mapping[str, tuple[int, ...]]
"""A static shape for each graph input."""
Feeds = Mapping[str, Array]
"""One array for each graph input, leading axis the batch."""
Outputs = Mapping[str, Array]
"""One array for each graph output."""


@dataclass(frozen=True)
class Progress:
    """How far a piece of work is; `total` is None where nobody knows."""

    step: str
    done: int = 0
    total: int | None = None


T = TypeVar("T")
Work = Generator[Progress, None, T]


def relayed(work: Work[T], change: Callable[[Progress], Progress]) -> Work[T]:
    """Do the work, with its progress told in other words."""
    while True:
        try:
            progress = next(work)
        except StopIteration as end:
            done: T = end.value
            return done
        yield change(progress)
