"""Values for the inputs of a torch program, drawn from a seed.

Another type of values is a line in `drawn`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from compressor.records import Array, Feeds

Symbols = Mapping[str, int]
"""The sizes of open axes by their symbols."""


@dataclass(frozen=True)
class Given:
    """An input under its name in ONNX; `shape` has symbols where an axis is open. Integers are from [0, `limit`)."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    limit: int = 2

    def at(self, sizes: Symbols) -> tuple[int, ...]:
        """Give the shape where open axes have these sizes."""
        return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in self.shape)


def drawn(inputs: tuple[Given, ...], sizes: Symbols, seed: int) -> Feeds:
    """Draw a value for each input: floats from N(0, 1), whole numbers below their limit, either truth value."""
    generator = np.random.default_rng(seed)
    return {each.name: _values(each, each.at(sizes), generator) for each in inputs}


def _values(each: Given, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    dtype = np.dtype(each.dtype)
    if dtype.kind == "f":
        return np.asarray(generator.standard_normal(shape)).astype(dtype)
    limit = 2 if dtype.kind == "b" else min(each.limit, np.iinfo(dtype).max)
    return np.asarray(generator.integers(0, limit, shape)).astype(dtype)
