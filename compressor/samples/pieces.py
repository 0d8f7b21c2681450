"""Samples that are a file each in a folder or zip: an .npy file of the only input, or an .npz file of all.

What else a file may hold is a branch of `_open`; where labels can stand is decided in `labels`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np

from compressor.errors import InputError
from compressor.records import Array, Tensor
from compressor.samples import labels as labelling
from compressor.samples import npy
from compressor.samples.archive import Members, members, unzipped
from compressor.samples.fit import Column, Roles, assign

_Stream = tuple[IO[bytes], int, str]


@dataclass(frozen=True)
class Pieces:
    """The files that are read; labels are an array in each, or `values`."""

    path: Path
    columns: tuple[Column, ...]
    own: str  # of the only input
    names: tuple[str, ...]
    label: Column | None
    values: labelling.Values | None

    @property
    def n(self) -> int:
        """How many files there are."""
        return len(self.names)

    def rows(self, indices: Sequence[int]) -> Iterator[Mapping[str, Array]]:
        """Give one sample after another."""
        wanted = [column.name for column in self.columns]
        for sample in self._samples(indices, wanted):
            yield {name: sample[name] for name in wanted}

    def blobs(self, indices: Sequence[int]) -> Iterator[bytes]:
        """Give the bytes of one sample after another."""
        for row in self.rows(indices):
            yield b"".join(array.tobytes() for array in row.values())

    def labels(self, indices: Sequence[int]) -> Array | None:
        """Give the labels of these samples, None where there are none."""
        if self.label is None:
            return None if self.values is None else np.asarray(self.values)[list(indices)]
        name = self.label.name
        return np.stack([sample[name] for sample in self._samples(indices, [name])])

    def where(self, index: int) -> str:
        """Name a sample for people."""
        return f"{self.path}/{self.names[index]}"

    def _samples(self, indices: Sequence[int], wanted: Sequence[str]) -> Iterator[Mapping[str, Array]]:
        with members(self.path) as held:
            for index in indices:
                sample = _sample(held, self.names[index], self.own, wanted)
                if missing := next((name for name in wanted if name not in sample), None):
                    raise InputError(f"{self.where(index)}: array {missing!r} is gone since it was looked at")
                yield sample


def pieces(path: Path, held: Members, tensors: Sequence[Tensor], names: tuple[str, ...]) -> tuple[Pieces, Roles]:
    """Give the samples in these files, all .npy or all .npz, and what each of their arrays is for.

    Raises:
        InputError: A file is damaged, its arrays have other names, types or numbers of axes than the first file's, or
            labels cannot be matched to the files.
    """
    own = tensors[0].name
    found = [_columns(held, name, own) for name in names]
    columns = tuple(_together(path, key, names, found) for key in found[0])
    roles = assign(columns, tensors)
    label = roles.label
    if label and label.others:
        raise InputError(f"{path}: labels {label.name!r} differ in shape from file to file")
    values, notes = (None, ()) if label else labelling.of_files(held, names)
    used = tuple(dict.fromkeys(roles.inputs.values()))
    return Pieces(path, used, own, names, label, values), replace(roles, notes=(*roles.notes, *notes))


def _columns(held: Members, name: str, own: str) -> Mapping[str, Column]:
    """Give the arrays of one file, whose shapes are the sample's own."""
    with _open(held, name, own) as arrays:
        return {key: npy.column(stream, size_bytes, key, where) for key, (stream, size_bytes, where) in arrays}


def _sample(held: Members, name: str, own: str, wanted: Collection[str]) -> Mapping[str, Array]:
    """Give the wanted arrays of one file."""
    with _open(held, name, own) as arrays:
        return {key: npy.array(*array) for key, array in arrays if key in wanted}


@contextmanager
def _open(held: Members, name: str, own: str) -> Iterator[Iterator[tuple[str, _Stream]]]:
    """Give a stream, its size and where it is, of each array in a file, by name; `own` is that of a sole one."""
    where = f"{held.where}/{name}"
    if not _is_npz(name):
        with held.stream(name) as stream:
            yield iter([(own, (stream, held.sizes[name], where))])
        return
    with unzipped(BytesIO(held.read(name)), where) as archive:
        yield (
            (key, (archive.open(info), info.file_size, f"{where}: array {key!r}"))
            for info in archive.infolist()
            if (key := info.filename.removesuffix(npy.SUFFIX)) != info.filename
        )


def _is_npz(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() == ".npz"


def _together(path: Path, key: str, names: Sequence[str], found: Sequence[Mapping[str, Column]]) -> Column:
    """Give one array of all files, with a first axis that counts them."""
    first = found[0][key]
    kind, rank = np.dtype(first.dtype), len(first.shape)
    for name, each in zip(names, found, strict=True):
        if key not in each:
            raise InputError(f"{path}/{name}: no array {key!r}, which {names[0]} has")
        dtype, shape = np.dtype(each[key].dtype), each[key].shape
        if dtype != kind and {dtype.kind, kind.kind} != {"U"}:
            raise InputError(f"{path}/{name}: array of {dtype}, expected {kind} as in {names[0]}")
        if len(shape) != rank:
            raise InputError(
                f"{path}/{name}: found {len(shape)} axes, expected {rank} as in {names[0]}; a file is one sample, "
                "unless the files are named after the model's inputs"
            )
    shapes = {each[key].shape for each in found} - {first.shape}
    return Column(key, first.dtype, (len(found), *first.shape), tuple(sorted(shapes)))
