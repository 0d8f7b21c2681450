"""CSV and Parquet files as pyarrow reads them: their columns, and their rows some at a time.

Another format of tables is a branch of `heads` and `batches`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor.errors import InputError
from compressor.records import Array
from compressor.samples import cells
from compressor.samples.columns import NUMBER, OTHER, TEXT, Head

if TYPE_CHECKING:
    import pyarrow as pa

CSV, PARQUET = ".csv", ".parquet"
_BLOCK_BYTES = 2**20
"""As much is parsed at once, and some 40 blocks ahead; no row may be longer."""
_BUFFER_BYTES = 2**16
_MOST_ROWS = 2**16


def is_csv(path: Path) -> bool:
    """Tell a CSV file from a Parquet file."""
    return path.suffix.lower() == CSV


def heads(path: Path) -> tuple[Head, ...]:
    """Give the columns of a table.

    Raises:
        InputError: A name stands twice, or there is no row.
    """
    if is_csv(path):
        return cells.heads(path)
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        schema, first = file.schema_arrow, next(file.iter_batches(1), None)
    if twice := next((name for name in schema.names if schema.names.count(name) > 1), None):
        raise InputError(f"has the column {twice!r} twice; names of columns must differ")
    if first is None:
        raise InputError("holds no rows")
    return tuple(_head(field.name, field.type, first.column(field.name)) for field in schema)


def batches(path: Path, kinds: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Give columns, some rows at a time; `kinds`: the numpy types that cells of text are read as, by column."""
    found = _csv(path, kinds) if is_csv(path) else _parquet(path, kinds)
    return (batch for batch in found if len(batch))


def values(column: pa.Array, kind: str) -> Array:
    """Give the values of some rows of a column; of lists, [rows, size]."""
    if is_list(column.type):
        return values(column.flatten(), kind).reshape(len(column), -1)
    if kind == "str":
        return np.array(column.to_pylist(), np.str_)
    return np.asarray(column.cast(_arrow(kind)).to_numpy(zero_copy_only=False))


def is_list(kind: pa.DataType) -> bool:
    """Tell whether each cell holds several values."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _head(name: str, kind: pa.DataType, first: pa.Array) -> Head:
    """Describe a column of a Parquet file; the first row tells how long lists are."""
    from pyarrow import types

    if is_list(kind):
        if is_list(kind.value_type) or first.null_count:
            return Head(name, OTHER, "str")
        size = len(first.flatten())
        return replace(_head(name, kind.value_type, first.flatten()), size=size)
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return Head(name, NUMBER, np.dtype(kind.to_pandas_dtype()).name)
    if types.is_decimal(kind):
        return Head(name, NUMBER, "float64")
    return Head(name, TEXT if types.is_string(kind) or types.is_large_string(kind) else OTHER, "str")


def _csv(path: Path, kinds: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    from pyarrow import csv

    names = [head.name for head in cells.heads(path)]
    types = {name: _arrow(kind) for name, kind in kinds.items()}
    with csv.open_csv(
        path,
        csv.ReadOptions(
            use_threads=False, block_size=_BLOCK_BYTES, column_names=names, skip_rows=cells.header_lines(path)
        ),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(include_columns=[*kinds], column_types=types, null_values=[]),
    ) as reader:
        yield from reader


def _parquet(path: Path, kinds: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES) as file:
        for group in range(file.num_row_groups):  # all at once would keep what was read of each (pyarrow 25)
            told = file.metadata.row_group(group)
            rows = _BLOCK_BYTES * told.num_rows // max(1, told.total_byte_size)
            rows = min(max(rows, 1), _MOST_ROWS)
            yield from file.iter_batches(rows, row_groups=[group], columns=[*kinds], use_threads=False)


def _arrow(kind: str) -> pa.DataType:
    import pyarrow as pa

    return pa.string() if kind == "str" else pa.from_numpy_dtype(np.dtype(kind))
