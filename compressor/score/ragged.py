"""An output whose shape differs from sample to sample, on disk, made even in the end.

What else it may be filled up with is to be written in `Ragged.even`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from compressor.records import Array


class Ragged:
    """Arrays of one type and number of axes, one a sample; none is kept in memory."""

    def __init__(self, path: Path) -> None:
        """Begin with none.

        Args:
            path: The .npy file that they shall go to.
        """
        self._path, self._flat = path, path.with_suffix(".flat")
        self._dtype: np.dtype | None = None
        self._shapes: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        """Count what was added."""
        return len(self._shapes)

    def add(self, array: Array) -> bool:
        """Add one, and tell whether it can stand beside the others."""
        self._dtype = self._dtype or array.dtype
        self._shapes.append(array.shape)
        with self._flat.open("ab") as file:
            file.write(array.tobytes())
        return array.dtype == self._dtype and array.ndim == len(self._shapes[0])

    def even(self) -> tuple[tuple[int, ...], ...]:
        """Write them to their file, [n, ...], each filled up with 0 to the greatest size, and give their own shapes.

        A first axis that is 1 in all of them is the batch, and is left out.
        """
        shapes = _without_batch(self._shapes)
        sizes = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
        whole = np.lib.format.open_memmap(self._path, mode="w+", dtype=self._dtype, shape=(len(shapes), *sizes))
        with self._flat.open("rb") as file:
            for row, shape in enumerate(shapes):
                values = np.fromfile(file, whole.dtype, math.prod(shape))
                place: tuple[int | slice, ...] = (row, *map(slice, shape))
                whole[place] = values.reshape(shape)
        whole.flush()
        self._flat.unlink()
        return shapes


def own(rows: Array, shapes: Sequence[tuple[int, ...]]) -> Iterator[Array]:
    """Give each row without what it was filled up with; as it is where no shapes are told."""
    if not shapes:
        yield from rows
    for row, shape in zip(rows, shapes, strict=False):
        yield row[tuple(map(slice, shape))]


def _without_batch(shapes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    return tuple(shape[1:] for shape in shapes) if all(shape[:1] == (1,) for shape in shapes) else tuple(shapes)
