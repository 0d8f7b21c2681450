"""`Samples`: a description of samples that can be iterated, divided and sent to another process.

A new kind of source is a reader with the methods of `Arrays`, opened in `source`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from compressor.errors import InputError
from compressor.records import Array, Feeds, Shapes, Source, Tensor
from compressor.samples.fit import (
    Column,
    Fit,
    Roles,
    cast_note,
    check_symbols,
    fit,
    is_image,
    is_whole,
    one_by_one,
    sample_shapes,
)
from compressor.samples.mismatch import Dims
from compressor.samples.preprocess import Preprocess
from compressor.samples.source import Reader, opened
from compressor.samples.synthetic import Synthetic, drawn

Seen = Mapping[str, tuple[int | tuple[int, int], ...]]
"""The shape of one sample of each input; where samples differ, the size in the smallest and in the largest sample."""


@dataclass(frozen=True)
class Samples:
    """Samples of a model's inputs; iterating reads them afresh, in the order of their file, one feed at a time."""

    reader: Reader
    fits: tuple[Fit, ...]
    origin: Source  # of all samples of the file
    indices: tuple[int, ...] | range  # ascending
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Count the samples."""
        return len(self.indices)

    def __iter__(self) -> Iterator[Feeds]:
        """Give one feed after another, with the dtypes and shapes of the inputs.

        A feed holds `per_feed` samples; the last is filled up with its last sample.

        Raises:
            InputError: A sample cannot be read, or comes out in another shape.
        """
        prepared = self._prepared()
        while group := list(islice(prepared, self.per_feed)):
            group += [group[-1]] * (self.per_feed - len(group))
            yield {each.input: each.feed([sample[each.input] for sample in group]) for each in self.fits}

    @property
    def per_feed(self) -> int:
        """How many samples go into one feed: the batch, or 1 where each sample is a complete feed."""
        return math.prod(self.fits[0].batch) if self.fits else 1

    @property
    def vary(self) -> bool:
        """Whether the samples may differ in shape, each a feed of its own."""
        return any(each.dims is not None for each in self.fits)

    @property
    def source(self) -> Source:
        """Where the samples came from; `n` counts these, `sha256` is that of the whole file or folder."""
        return replace(self.origin, n=len(self))

    def labels(self) -> Array | None:
        """Give one label a sample, in the order of iteration; None where there are none."""
        return self.reader.labels(self.indices)

    def take(self, n: int, seed: int) -> Samples:
        """Give n of the samples, drawn without replacement; all of them where there are no more."""
        return self._only(np.random.default_rng(seed).permutation(self.indices)[:n])

    def split(self, first_n: int, seed: int) -> tuple[Samples, Samples]:
        """Divide the samples by chance into first_n and the rest.

        Raises:
            InputError: That would leave one part empty.
        """
        if not 0 < first_n < len(self):
            raise InputError(f"{self.origin.source}: cannot set {first_n} of {len(self)} samples apart; give more data")
        order = np.random.default_rng(seed).permutation(self.indices)
        return self._only(order[:first_n]), self._only(order[first_n:])

    def without(self, other: Samples) -> Samples:
        """Give the samples that are not, byte for byte, among the others; may be none."""
        taken = other.digests()
        kept = [
            i
            for i, blob in zip(self.indices, self.reader.blobs(self.indices), strict=True)
            if _digest(blob) not in taken
        ]
        return self._only(np.array(kept, np.intp))

    def at(self, shapes: Shapes) -> Samples | None:
        """Give those of the samples that have these static shapes, so many a feed as these say; None if there are none.

        Samples that do not differ in shape are all given.
        """
        if not self.vary:
            return self
        fits = tuple(replace(f, batch=f.batch and shapes[f.input][:1], dims=None) for f in self.fits)
        fits = tuple(replace(f, shape=shapes[f.input][len(f.batch) :]) for f in fits)
        kept = [
            index
            for index, sample in zip(self.indices, self._prepared(), strict=True)
            if all(sample[each.input].shape == each.shape for each in fits)
        ]
        return replace(self, fits=fits, indices=tuple(kept)) if kept else None

    def digests(self) -> frozenset[bytes]:
        """Give a hash of the raw bytes of each sample, labels left out."""
        return frozenset(map(_digest, self.reader.blobs(self.indices)))

    def check(self) -> None:
        """Read the samples once.

        Raises:
            InputError: A value is NaN or infinite, all samples are identical, or one cannot be read.
        """
        self._check_finite()
        blobs = self.reader.blobs(self.indices)
        first = next(blobs)
        if len(self) > 1 and all(blob == first for blob in blobs):
            raise InputError(
                f"{self.origin.source}: no variation, all {len(self)} samples are identical, so they say nothing about "
                "the model; give real samples"
            )

    def _only(self, indices: Array) -> Samples:
        return replace(self, indices=tuple(sorted(indices.tolist())))

    def _prepared(self) -> Iterator[Mapping[str, Array]]:
        for index, row in zip(self.indices, self.reader.rows(self.indices), strict=True):
            with _located(self.reader.where(index)):
                sample = {each.input: each.prepare(row[each.column.name]) for each in self.fits}
                check_symbols(sample, self.fits)
            yield sample

    def _check_finite(self) -> None:
        names = {each.input: each.column.name for each in self.fits if each.can_be_nonfinite}
        bad: dict[str, list[int]] = {name: [] for name in names}
        prepared = zip(self.indices, self._prepared(), strict=True) if bad or self.vary else ()
        for index, sample in prepared:
            for name, found in bad.items():
                if not np.isfinite(sample[name]).all():
                    found.append(index)
        for name, found in bad.items():
            if found:
                where = self.reader.where(found[0])
                file = where.removeprefix(f"{self.origin.source}/")
                raise InputError(
                    f"{self.origin.source}: array {names[name]!r} has NaN or infinite values in {len(found)} of "
                    f"{len(self)} samples, the first at index {found[0]}{'' if file == where else f' ({file})'}; "
                    "remove or repair them"
                )


def read(path: Path, tensors: Sequence[Tensor], shapes: Shapes, preprocess: Preprocess | None = None) -> Samples:
    """Describe the samples of a file, folder, zip or function for these inputs at these shapes.

    Raises:
        InputError: They are missing or damaged, or do not serve the inputs.
    """
    found = opened(path, tensors, preprocess)
    with _located(str(path)):
        fits = tuple(fit(found.roles.inputs[t.name], t, shapes[t.name], found.preprocess) for t in tensors)
        fits = one_by_one(fits, tensors)
        _check_batch(fits)
        _check_used(found.preprocess, fits)
    casts = [note for each in fits if each.preprocess is None for note in cast_note(each.column, each.dtype)]
    n = next(iter(found.roles.inputs.values())).shape[0]
    origin = Source(str(path), found.sha256, n, synthetic=False)
    return Samples(found.reader, fits, origin, range(n), (*found.roles.notes, *casts))


def observed_shapes(path: Path, tensors: Sequence[Tensor], preprocess: Preprocess | None = None) -> Seen:
    """Give the shape that one sample of each input has once prepared.

    A shape leaves the batch axis out, and so has one axis less than the input; where the file holds a complete feed
    for each sample, it has them all.

    Raises:
        InputError: The file is missing or damaged, or does not serve the inputs.
    """
    found = opened(path, tensors, preprocess)
    with _located(str(path)):
        return {t.name: _observed(found.roles, t, found.preprocess) for t in tensors}


def synthetic(tensors: Sequence[Tensor], shapes: Shapes, n: int, seed: int, limits: Mapping[str, int]) -> Samples:
    """Describe n samples made up from a seed; integers stay below their input's limit, or 2.

    Where all inputs have the same first dimension it is the batch; else each sample is a complete feed.

    Raises:
        InputError: Values of an input's type cannot be made up.
    """
    firsts = {shapes[t.name][:1] for t in tensors}
    batch = firsts.pop() if len(firsts) == 1 else ()
    inputs = tuple(drawn(t, shapes[t.name][len(batch) :], limits.get(t.name, 2)) for t in tensors)
    fits = tuple(Fit(Column(x.name, x.dtype, (n, *x.shape)), x.name, x.dtype, x.shape, batch) for x in inputs)
    reader = Synthetic(inputs, n, seed)
    return Samples(reader, fits, Source("synthetic", reader.sha256, n, synthetic=True), range(n))


def _digest(blob: bytes) -> bytes:
    return hashlib.sha256(blob).digest()


def _observed(roles: Roles, tensor: Tensor, preprocess: Preprocess | None) -> tuple[int | tuple[int, int], ...]:
    column = roles.inputs[tensor.name]
    dims: Dims = (None,) * len(column.shape) if tensor.shape is None else tensor.shape
    whole = is_whole(column, len(dims))
    found = sample_shapes(column, dims[1:], preprocess if is_image(column, whole=whole) else None)
    by_size = sorted(found, key=lambda shape: (math.prod(shape), shape))
    ends = zip(by_size[0], by_size[-1], strict=True)
    return tuple(
        sizes[0] if len(set(sizes)) == 1 else pair for pair, sizes in zip(ends, zip(*found, strict=True), strict=True)
    )


def _check_batch(fits: Sequence[Fit]) -> None:
    batches = {each.input: math.prod(each.batch) for each in fits}
    if len(set(batches.values())) > 1:
        found = ", ".join(f"{name!r} takes {batch}" for name, batch in batches.items())
        raise InputError(f"inputs take different numbers of samples a feed: {found}; give each input a complete feed")


def _check_used(preprocess: Preprocess | None, fits: Sequence[Fit]) -> None:
    if preprocess is not None and not any(each.preprocess for each in fits):
        raise InputError("data.preprocess is for images, but no input has samples with three axes; remove it")


@contextmanager
def _located(where: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
