"""Samples in the rows of a CSV or Parquet file, streamed; no file is ever loaded whole.

What formats there are is known in `batches`, which columns serve what in `columns`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor.errors import InputError
from compressor.records import Array, Tensor
from compressor.samples import cells
from compressor.samples.batches import batches, heads, is_csv, is_list, values
from compressor.samples.columns import NUMBER, TEXT, Head, dims, matched
from compressor.samples.fit import Column, Roles

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_SAID = 200
"""Characters of what pyarrow says, which may quote a whole row."""
_EXACT = 2.0**53
"""From here on a float64 skips whole numbers."""


@dataclass(frozen=True)
class Field:
    """Columns of a table that make one array; `kind`: the numpy type that they are read as."""

    column: Column
    names: tuple[str, ...]
    kind: str

    def values(self, batch: pa.RecordBatch) -> Array:
        """Give the array of some rows, [rows, ...]."""
        parts = [values(batch.column(name), self.kind) for name in self.names]
        whole = parts[0] if len(parts) == 1 else np.stack(parts, axis=1)
        with np.errstate(over="ignore"):  # an overflow becomes infinite, which `Samples.check` counts
            return whole.reshape(len(whole), *self.column.shape[1:]).astype(self.column.dtype, copy=False)


@dataclass(frozen=True)
class Table:
    """The columns that are read, and those that hold the labels."""

    path: Path
    fields: tuple[Field, ...]
    label: Field | None
    n: int

    def rows(self, indices: Sequence[int]) -> Iterator[Mapping[str, Array]]:
        """Give one sample after another, raw. The indices ascend."""
        return _stream(self.path, self.fields, indices)

    def blobs(self, indices: Sequence[int]) -> Iterator[bytes]:
        """Give the bytes of one sample after another."""
        for row in self.rows(indices):
            yield b"".join(_bytes(array) for array in row.values())

    def labels(self, indices: Sequence[int]) -> Array | None:
        """Give the labels of these samples, None where there are none."""
        if self.label is None:
            return None
        return np.stack([row[self.label.column.name] for row in _stream(self.path, (self.label,), indices)])

    def where(self, index: int) -> str:
        """Name a sample for people."""
        return f"{self.path}, sample {index}"


def table(path: Path, tensors: Sequence[Tensor]) -> tuple[Table, Roles]:
    """Give the samples of a table for these inputs, all of which are looked at, and what its columns are for.

    Raises:
        InputError: It is damaged or no such table, its columns do not serve the inputs, or a cell is empty, not finite
            or no number.
    """
    with _understood(path):
        found = matched(heads(path), tensors, lambda head: _counts(path, head))
        made = [_field(t.name, found.inputs[t.name], t) for t in tensors]
        label = _label(path, found.label) if found.label else None
        n = _checked(path, [field for field, _ in made] + ([label] if label else []))
    fields = tuple(_counted(field, n) for field, _ in made)
    label = _counted(label, n) if label else None
    notes = (*found.notes, *(note for _, notes in made for note in notes))
    columns = {tensor.name: field.column for tensor, field in zip(tensors, fields, strict=True)}
    return Table(path, fields, label, n), Roles(columns, label.column if label else None, notes)


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # names of columns may be no text
        said = " ".join(str(error).split())[:_MOST_SAID]
        raise InputError(f"{path}: cannot be read as a table of the model's inputs ({said})") from error


def _field(name: str, own: Sequence[Head], tensor: Tensor) -> tuple[Field, tuple[str, ...]]:
    """Give the field of an input, without its number of rows, and what is done to its values."""
    shape = dims(tensor, sum(head.size or 1 for head in own))
    names = tuple(head.name for head in own)
    wanted, given = tensor.dtype, {head.dtype for head in own} - {None}
    if not given or wanted == "str":  # cells of a CSV are read as what the input takes
        kind = "float64" if wanted.startswith("float") else wanted
        return Field(Column(name, wanted, (0, *shape)), names, kind), ()
    found, is_list = np.result_type(*map(str, given)), any(head.size is not None for head in own)
    # 8 bits a value in a list are an image, as in an array; whole numbers are otherwise as good as others in a table
    if found.kind in "iub" and wanted.startswith("float") and not (is_list and found == np.uint8):
        note = f"columns of input {name!r}: cast {found} to {wanted}"
        return Field(Column(name, wanted, (0, *shape)), names, str(found)), (note,)
    if found.kind in "iu" and np.dtype(wanted).kind in "iu":
        return Field(Column(name, wanted, (0, *shape)), names, wanted), ()
    return Field(Column(name, found.str, (0, *shape)), names, str(found)), ()


def _label(path: Path, head: Head) -> Field:
    """Give the field of the labels: whole numbers if all are, be it as 1.0, else numbers, else text."""
    shape = () if head.size is None else (head.size,)
    kind = head.dtype or ("str" if head.kind == TEXT else "int64" if _is_whole(path, head.name, "int64") else "float64")
    is_float = not shape and np.dtype(kind).kind == "f"
    dtype = "int64" if is_float and _is_whole(path, head.name, kind) else kind
    return Field(Column(head.name, dtype, (0, *shape)), (head.name,), kind)


def _is_whole(path: Path, name: str, kind: str) -> bool:
    """Tell whether all cells of a column are whole numbers, read as a type."""
    import pyarrow as pa

    try:
        return all(_all_whole(part) for part in _parts(path, name, kind))
    except pa.ArrowInvalid:
        return False


def _all_whole(part: Array) -> bool:
    return part.dtype.kind != "f" or bool(((part == np.floor(part)) & (np.abs(part) < _EXACT)).all())


def _counts(path: Path, head: Head) -> bool:
    """Tell whether a column numbers the rows from 0 or 1, in any order."""
    kind = head.dtype or "int64"
    if head.kind != NUMBER or head.size is not None or np.dtype(kind).kind not in "iu":
        return False
    if head.dtype is None and not _is_whole(path, head.name, kind):
        return False
    found = np.sort(np.concatenate([np.empty(0, np.int64), *_parts(path, head.name, kind)]))
    return any(np.array_equal(found, np.arange(first, first + len(found))) for first in (0, 1))


def _parts(path: Path, name: str, kind: str) -> Iterator[Array]:
    return (values(batch.column(name), kind) for batch in batches(path, {name: kind}))


def _checked(path: Path, fields: Sequence[Field]) -> int:
    """Read all rows and give how many there are."""
    import pyarrow as pa

    n = 0
    try:
        for batch in batches(path, _kinds(fields)):
            for field in fields:
                _check_values(path, field, batch, n)
            n += len(batch)
    except pa.ArrowInvalid:
        if is_csv(path):
            kinds = {name: np.dtype(kind).kind for name, kind in _kinds(fields).items()}
            cells.complain(
                path, {name: int if kind in "iu" else float for name, kind in kinds.items() if kind in "iuf"}
            )
        raise
    if not n:
        raise InputError("holds no rows")
    return n


def _check_values(path: Path, field: Field, batch: pa.RecordBatch, before: int) -> None:
    """Make sure that no cell is empty, every list as long as it should be and every number finite."""
    for name, bad, why in _problems(field, batch):
        if bad.any():
            row = before + int(bad.argmax())
            where = f"line {cells.line(path, row)}" if is_csv(path) else f"row {row}"
            raise InputError(f"{where}, column {name!r} {why} or leave the row out")


def _problems(field: Field, batch: pa.RecordBatch) -> Iterator[tuple[str, Array, str]]:
    """Give what can be wrong in a column, and where it is, [rows]; a later one is asked for if no earlier is there."""
    n = len(batch)
    for name in field.names:
        column = batch.column(name)
        yield name, np.asarray(column.is_null()), "is empty; fill it"
        if is_list(column.type):
            size = math.prod(field.column.shape[1:]) if len(field.names) == 1 else len(column[0])
            yield name, np.not_equal(column.value_lengths(), size), f"holds not {size} values; repair it"
            yield name, np.any(np.reshape(column.flatten().is_null(), (n, -1)), axis=1), "has a gap; fill it"
    whole = field.values(batch)
    if whole.dtype.kind == "f":
        bad = np.asarray(~np.isfinite(whole)).reshape(n, len(field.names), -1)
        for i, name in enumerate(field.names):
            yield name, np.any(bad[:, i], axis=1), "is not finite; repair it"


def _kinds(fields: Sequence[Field]) -> Mapping[str, str]:
    return {name: field.kind for field in fields for name in field.names}


def _counted(field: Field, n: int) -> Field:
    return replace(field, column=replace(field.column, shape=(n, *field.column.shape[1:])))


def _stream(path: Path, fields: Sequence[Field], indices: Sequence[int]) -> Iterator[Mapping[str, Array]]:
    before, wanted = 0, np.asarray(indices, np.int64)
    with _understood(path):
        for batch in batches(path, _kinds(fields)):
            inside = wanted[(wanted >= before) & (wanted < before + len(batch))] - before
            if len(inside):
                part = batch.take(inside)
                arrays = {field.column.name: field.values(part) for field in fields}
                for i in range(len(part)):
                    yield {name: array[i, ...] for name, array in arrays.items()}
            before += len(batch)
            if not len(wanted) or before > wanted[-1]:
                return
        raise InputError(f"has {before} rows, fewer than when it was looked at")


def _bytes(array: Array) -> bytes:
    """Give the bytes of one row; text as wide as it is, not as the rows read with it."""
    return np.array(array.tolist()).tobytes() if array.dtype.kind == "U" else array.tobytes()
