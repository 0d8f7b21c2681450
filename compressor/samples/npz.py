"""Samples in an .npz file, streamed row by row; no array is ever loaded whole.

A new file format is a module like this one, opened in `dataset`.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import IO

import numpy as np

from compressor.errors import InputError
from compressor.records import Array
from compressor.samples.archive import unzipped
from compressor.samples.fit import Column

_SUFFIX = ".npy"


@dataclass(frozen=True)
class Npz:
    """The arrays of a file that are read, and the one that holds the labels."""

    path: Path
    columns: tuple[Column, ...]
    label: Column | None

    @property
    def n(self) -> int:
        """How many samples the file holds."""
        return self.columns[0].shape[0]

    def rows(self, indices: Sequence[int]) -> Iterator[Mapping[str, Array]]:
        """Give one sample after another, raw: a row of each array. The indices ascend."""
        return _stream(self.path, self.columns, indices)

    def blobs(self, indices: Sequence[int]) -> Iterator[bytes]:
        """Give the bytes of one sample after another."""
        for row in self.rows(indices):
            yield b"".join(array.tobytes() for array in row.values())

    def labels(self, indices: Sequence[int]) -> Array | None:
        """Give the labels of these samples, None where the file has none."""
        if self.label is None:
            return None
        return np.stack([row[self.label.name] for row in _stream(self.path, (self.label,), indices)])

    def where(self, index: int) -> str:
        """Name a sample for people."""
        return f"{self.path}, sample {index}"


def columns(path: Path) -> tuple[Column, ...]:
    """Give the arrays of an .npz file from their headers.

    Raises:
        InputError: The file is damaged or empty, or an array is pickled, structured, in Fortran order or cut short.
    """
    with unzipped(path) as archive:
        found = tuple(_column(archive, info, path) for info in archive.infolist() if info.filename.endswith(_SUFFIX))
    if not found:
        raise InputError(f"{path}: holds no arrays; expected one for each input of the model, named after it")
    return found


def _column(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> Column:
    name = info.filename.removesuffix(_SUFFIX)
    with archive.open(info) as stream:
        shape, fortran, dtype = _header(stream, f"{path}: array {name!r}")
        expected_bytes = stream.tell() + math.prod(shape) * dtype.itemsize
    if dtype.hasobject or dtype.names:
        raise InputError(f"{path}: array {name!r} holds Python objects or records; save plain numbers or text")
    if fortran and len(shape) > 1:
        raise InputError(f"{path}: array {name!r} is in Fortran order; save numpy.ascontiguousarray of it")
    if info.file_size != expected_bytes:
        raise InputError(
            f"{path}: array {name!r} has {info.file_size} bytes, expected {expected_bytes}; write it again"
        )
    return Column(name, dtype.str, shape)


def _header(stream: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(stream)
        return readers[version](stream)
    except (ValueError, KeyError) as error:
        raise InputError(f"{where} is not in .npy format 1 or 2; save it with numpy.savez") from error


def _stream(path: Path, wanted: Sequence[Column], indices: Sequence[int]) -> Iterator[Mapping[str, Array]]:
    with ExitStack() as stack:
        archive = stack.enter_context(unzipped(path))
        streams = {each: stack.enter_context(archive.open(each.name + _SUFFIX)) for each in wanted}
        for stream in streams.values():
            _header(stream, str(path))
        for before, index in pairwise(chain((-1,), indices)):
            for each, stream in streams.items():
                _skip(stream, each.row_bytes, index - before - 1)
            blobs = {each: stream.read(each.row_bytes) for each, stream in streams.items()}
            if short := next((each.name for each, blob in blobs.items() if len(blob) < each.row_bytes), None):
                raise InputError(f"{path}: array {short!r} ends before its sample {index}; write it again")
            yield {each.name: each.row(blob) for each, blob in blobs.items()}


def _skip(stream: IO[bytes], row_bytes: int, rows: int) -> None:
    # not by seek, which reads ahead up to 16 MiB at once
    for _ in range(rows):
        stream.read(row_bytes)
