"""The calibration feeds that `compare.py` wrote, one .npz of the model's inputs each, for the scripts beside it.

This module is imported in the environments of the peers, which share NumPy and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Feeds = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Folder:
    """Feeds in a folder; iterating reads them afresh, one at a time."""

    path: str

    def files(self) -> list[Path]:
        """Give the files in order."""
        return sorted(Path(self.path).glob("*.npz"))

    def __len__(self) -> int:
        """Count the feeds."""
        return len(self.files())

    def __iter__(self) -> Iterator[Feeds]:
        """Give one feed after another."""
        return map(_read, self.files())

    def __getitem__(self, index: int) -> Feeds:
        """Give one feed."""
        return _read(self.files()[index])


def _read(path: Path) -> Feeds:
    with np.load(path) as arrays:
        return dict(arrays)
