"""`Samples`: a description of samples that can be iterated, divided and sent to another process.

A new kind of source is a reader beside `Npz`, `Images` and `Synthetic`, opened in `_opened`.
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
from compressor.samples import npz
from compressor.samples.archive import sha256
from compressor.samples.fit import Column, Fit, Roles, assign, cast_note, fit, is_image, is_whole, sample_shape
from compressor.samples.images import Images, images
from compressor.samples.preprocess import Preprocess
from compressor.samples.synthetic import Synthetic, drawn

Reader = npz.Npz | Images | Synthetic


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
            yield sample

    def _check_finite(self) -> None:
        names = {each.input: each.column.name for each in self.fits if each.can_be_nonfinite}
        bad: dict[str, list[int]] = {name: [] for name in names}
        prepared = zip(self.indices, self._prepared(), strict=True) if bad else ()
        for index, sample in prepared:
            for name, found in bad.items():
                if not np.isfinite(sample[name]).all():
                    found.append(index)
        for name, found in bad.items():
            if found:
                raise InputError(
                    f"{self.origin.source}: array {names[name]!r} has NaN or infinite values in {len(found)} of "
                    f"{len(self)} samples, the first at index {found[0]}; remove or repair them"
                )


def read(path: Path, tensors: Sequence[Tensor], shapes: Shapes, preprocess: Preprocess | None = None) -> Samples:
    """Describe the samples of an .npz file, or of a folder or zip of images, for these inputs at these shapes.

    Raises:
        InputError: The file is missing or damaged, or does not serve the inputs.
    """
    reader, roles, preprocess = _opened(path, tensors, preprocess)
    with _located(str(path)):
        fits = tuple(fit(roles.inputs[t.name], t, shapes[t.name], preprocess) for t in tensors)
        _check_batch(fits)
        _check_used(preprocess, fits)
    casts = [note for each in fits if each.preprocess is None for note in cast_note(each.column, each.dtype)]
    origin = Source(str(path), sha256(path), reader.n, synthetic=False)
    return Samples(reader, fits, origin, range(reader.n), (*roles.notes, *casts))


def observed_shapes(path: Path, tensors: Sequence[Tensor], preprocess: Preprocess | None = None) -> Shapes:
    """Give the shape that one sample of each input has once prepared: its first sample, where they differ.

    A shape leaves the batch axis out, and so has one axis less than the input; where the file holds a complete feed
    for each sample, it has them all.

    Raises:
        InputError: The file is missing or damaged, or does not serve the inputs.
    """
    _, roles, preprocess = _opened(path, tensors, preprocess)
    with _located(str(path)):
        return {t.name: _observed(roles, t, preprocess) for t in tensors}


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


def _opened(
    path: Path, tensors: Sequence[Tensor], preprocess: Preprocess | None
) -> tuple[Reader, Roles, Preprocess | None]:
    if not tensors:
        raise InputError(f"{path}: the model has no inputs, so samples cannot serve it; remove data from the recipe")
    if path.suffix == ".npz" and path.is_file():
        columns = npz.columns(path)
        with _located(str(path)):
            roles = assign(columns, tensors)
        used = tuple(dict.fromkeys(roles.inputs.values()))
        return npz.Npz(path, used, roles.label), roles, preprocess
    if path.is_dir() or (path.suffix == ".zip" and path.is_file()):
        if len(tensors) > 1:
            names = ", ".join(repr(t.name) for t in tensors)
            raise InputError(f"{path}: images serve one input, the model has {names}; give an .npz file")
        reader, notes = images(path, tensors[0])
        pixels = preprocess and preprocess.model_copy(update={"layout": "nhwc"})
        return reader, Roles({tensors[0].name: reader.columns[0]}, None, notes), pixels
    raise InputError(f"{path}: expected an .npz file, or a folder or .zip of images, found {_kind(path)}")


def _kind(path: Path) -> str:
    return f"a file {path.suffix or 'without suffix'}" if path.exists() else "nothing there"


def _observed(roles: Roles, tensor: Tensor, preprocess: Preprocess | None) -> tuple[int, ...]:
    column = roles.inputs[tensor.name]
    shape = (None,) * len(column.shape) if tensor.shape is None else tensor.shape
    whole = is_whole(column, len(shape))
    return sample_shape(column, shape[1:], preprocess if is_image(column, whole=whole) else None)


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
