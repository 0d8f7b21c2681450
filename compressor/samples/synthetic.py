"""Samples made up from a seed, for a model without data.

A new type of input is a line in `_drawn`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compressor.errors import InputError
from compressor.records import Array, Tensor


@dataclass(frozen=True)
class Drawn:
    """One input: the shape of one sample, and the number that its integers stay below."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    limit: int


@dataclass(frozen=True)
class Synthetic:
    """Floats from N(0, 1), integers from [0, limit), either truth value; sample i depends on the seed and i alone."""

    inputs: tuple[Drawn, ...]
    n: int
    seed: int

    def rows(self, indices: Sequence[int]) -> Iterator[Mapping[str, Array]]:
        """Draw one sample after another."""
        for index in indices:
            generator = np.random.default_rng((self.seed, index))
            yield {each.name: _drawn(each, generator) for each in self.inputs}

    def blobs(self, indices: Sequence[int]) -> Iterator[bytes]:
        """Give the bytes of one sample after another."""
        for row in self.rows(indices):
            yield b"".join(array.tobytes() for array in row.values())

    def labels(self, indices: Sequence[int]) -> None:  # noqa: ARG002 - what every reader takes
        """Give None: nobody labelled these."""
        return

    def where(self, index: int) -> str:
        """Name a sample for people."""
        return f"synthetic sample {index}"

    @property
    def sha256(self) -> str:
        """The hash of all that the samples depend on."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


def drawn(tensor: Tensor, shape: tuple[int, ...], limit: int) -> Drawn:
    """Describe what is drawn for an input.

    Raises:
        InputError: Values of its type cannot be made up.
    """
    try:
        drawable = np.dtype(tensor.dtype).kind in "fiubU"
    except TypeError:
        drawable = False
    if not drawable:
        raise InputError(f"input {tensor.name!r} is {tensor.dtype}: samples of that type cannot be made up; give data")
    return Drawn(tensor.name, tensor.dtype, shape, limit)


def _drawn(spec: Drawn, generator: np.random.Generator) -> Array:
    kind = np.dtype(spec.dtype).kind
    if kind == "f":
        return generator.standard_normal(spec.shape).astype(spec.dtype)
    limit = 2 if kind == "b" else spec.limit
    return generator.integers(0, limit, spec.shape).astype(spec.dtype)
