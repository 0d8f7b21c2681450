"""Samples in arrays with an axis of samples: an .npz or .npy file, or a folder or zip of .npy files, streamed by rows.

No array is ever loaded whole. A new file format is a module like this one, opened in `source`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import IO

import numpy as np

from compressor.errors import InputError
from compressor.records import Array
from compressor.samples import npy
from compressor.samples.archive import Members, check_size, members
from compressor.samples.fit import Column


@dataclass(frozen=True)
class Arrays:
    """The arrays that are read, and the one that holds the labels; `files`: the member that holds each."""

    path: Path
    columns: tuple[Column, ...]
    label: Column | None
    files: Mapping[str, str]

    @property
    def n(self) -> int:
        """How many samples there are."""
        return self.columns[0].shape[0]

    def rows(self, indices: Sequence[int]) -> Iterator[Mapping[str, Array]]:
        """Give one sample after another, raw: a row of each array. The indices ascend."""
        return self._stream(self.columns, indices)

    def blobs(self, indices: Sequence[int]) -> Iterator[bytes]:
        """Give the bytes of one sample after another."""
        for row in self.rows(indices):
            yield b"".join(array.tobytes() for array in row.values())

    def labels(self, indices: Sequence[int]) -> Array | None:
        """Give the labels of these samples, None where there are none."""
        if self.label is None:
            return None
        return np.stack([row[self.label.name] for row in self._stream((self.label,), indices)])

    def where(self, index: int) -> str:
        """Name a sample for people."""
        return f"{self.path}, sample {index}"

    def _stream(self, wanted: Sequence[Column], indices: Sequence[int]) -> Iterator[Mapping[str, Array]]:
        with ExitStack() as stack:
            held = stack.enter_context(members(self.path))
            streams = {each: stack.enter_context(self._open(held, each)) for each in wanted}
            for before, index in pairwise(chain((-1,), indices)):
                for each, stream in streams.items():
                    _skip(stream, each.row_bytes, index - before - 1)
                blobs = {each: stream.read(each.row_bytes) for each, stream in streams.items()}
                if short := next((each.name for each, blob in blobs.items() if len(blob) < each.row_bytes), None):
                    raise InputError(f"{self.path}: array {short!r} ends before its sample {index}; write it again")
                yield {each.name: each.row(blob) for each, blob in blobs.items()}

    def _open(self, held: Members, each: Column) -> IO[bytes]:
        """Open an array at its first value, and make sure that it is still the one that was looked at."""
        where = f"{self.path}: array {each.name!r}"
        name = self.files[each.name]
        if name not in held.sizes:
            raise InputError(f"{where} is gone since it was looked at")
        stream = held.stream(name)
        if npy.column(stream, held.sizes[name], each.name, where) != each:
            raise InputError(f"{where} has changed since it was looked at")
        return stream


def columns(held: Members, names: Mapping[str, str]) -> tuple[Column, ...]:
    """Give arrays from their headers, by the names of the members that hold them.

    Raises:
        InputError: One is damaged, pickled, structured, in Fortran order or cut short, or its samples are too large.
    """
    return tuple(_column(held, member, name) for name, member in names.items())


def _column(held: Members, member: str, name: str) -> Column:
    where = f"{held.where}: array {name!r}"
    with held.stream(member) as stream:
        found = npy.column(stream, held.sizes[member], name, where)
    check_size(found.row_bytes, where)
    return found


def _skip(stream: IO[bytes], row_bytes: int, rows: int) -> None:
    # not by seek, which reads ahead up to 16 MiB at once
    for _ in range(rows):
        stream.read(row_bytes)
