"""Labels of files that are one sample each, from a table beside them or from the folders they lie in.

A new way to match a table's rows to files belongs into `_match`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import PurePosixPath

from compressor.errors import InputError
from compressor.samples.archive import Members

_FILE_COLUMNS = ("file", "filename", "path", "image")
_LABEL_COLUMNS = ("label", "class", "index")
_TEXT_COLUMN = "text"
_TABLE = "labels.csv"

Values = tuple[float, ...] | tuple[str, ...]
Labels = tuple[Values | None, tuple[str, ...]]
"""The labels of files, in their order, and notes on how they were found."""
_Keys = Callable[[str], frozenset[str]]
_Table = Mapping[str, Sequence[str]]


def of_files(held: Members, names: Sequence[str]) -> Labels:
    """Take labels from the only labels.csv of a folder or zip, else from the folders in it.

    Raises:
        InputError: There are several tables, or one does not match the files.
    """
    tables = [name for name in held.names(".csv") if PurePosixPath(name).name == _TABLE]
    if not tables:
        return from_folders(names)
    if len(tables) > 1:
        raise InputError(f"{held.where}: holds {len(tables)} files {_TABLE}, expected one")
    return from_table(held.read(tables[0]), names, f"{held.where}/{tables[0]}")


def from_folders(names: Sequence[str]) -> Labels:
    """Number the folders that files lie in, sorted, from 0; no labels unless all lie in one of several."""
    folders = sorted({str(PurePosixPath(name).parent) for name in names})
    if len(folders) == 1 or "." in folders:
        return None, ()
    number = {folder: label for label, folder in enumerate(folders)}
    labels = tuple(number[str(PurePosixPath(name).parent)] for name in names)
    return labels, (f"labels 0 to {len(folders) - 1} from the folders {folders[0]!r} to {folders[-1]!r}, sorted",)


def from_table(data: bytes, names: Sequence[str], where: str) -> Labels:
    """Take labels from a table with a column of file names and one of numbers, label, class or index, or of text.

    Where the file names do not match, a row is a file's if the file's name holds a word that stands only in that row;
    every file must then have its own row, all columns that match so must agree, and one must be no number.

    Raises:
        InputError: There is no column of labels, or the rows do not match the files one to one.
    """
    table = _read(data, where)
    order, column = _match(table, names, where)
    for label in _LABEL_COLUMNS:
        numbers = _numbers([table[label][row] for row in order] if label in table else [])
        if numbers:
            return numbers, (f"labels from {where}, column {label!r}, matched to files by {column}",)
    if _TEXT_COLUMN in table:
        texts = tuple(table[_TEXT_COLUMN][row] for row in order)
        return texts, (f"texts from {where}, column {_TEXT_COLUMN!r}, matched to files by {column}",)
    raise InputError(
        f"{where}: expected a column of numbers named {' or '.join(_LABEL_COLUMNS)}, or one of texts named "
        f"{_TEXT_COLUMN}"
    )


def _read(data: bytes, where: str) -> _Table:
    try:
        header, *rows = [row for row in csv.reader(StringIO(data.decode("utf-8-sig"), newline="")) if row]
        return {name.strip().lower(): values for name, values in zip(header, zip(*rows, strict=True), strict=True)}
    except (ValueError, csv.Error) as error:
        raise InputError(f"{where}: expected a table in UTF-8 with a header and rows of equal length") from error


def _match(table: _Table, names: Sequence[str], where: str) -> tuple[list[int], str]:
    for column in _FILE_COLUMNS:
        for keys in (_path, _name, _stem):
            order = _rows(table.get(column, ()), names, keys)
            if order:
                return order, f"column {column!r}"
    orders = {column: order for column, values in table.items() if (order := _rows(values, names, _words))}
    # a column of numbers alone may match by accident, as labels do numbered files
    if all(value.isdigit() for column in orders for value in table[column]):
        raise InputError(
            f"{where}: its rows match the files, such as {names[0]!r}, in no way one to one; "
            "expected a column 'file' with their names"
        )
    if len({tuple(order) for order in orders.values()}) > 1:
        raise InputError(f"{where}: its columns {', '.join(map(repr, orders))} match the files differently")
    return next(iter(orders.values())), f"the words of their names in {' and '.join(map(repr, orders))}"


def _rows(values: Sequence[str], names: Sequence[str], keys: _Keys) -> list[int]:
    rows = {key: row for row, value in enumerate(values) for key in _sole(keys(value))}
    found = [{rows[key] for key in keys(name) if key in rows} for name in names]
    order = [row for each in found if len(each) == 1 for row in each]
    unique = len(rows) == len(values) and len(order) == len(set(order)) == len(names)
    return order if unique else []


def _sole(keys: frozenset[str]) -> Iterator[str]:
    if len(keys) == 1:
        yield from keys


def _path(text: str) -> frozenset[str]:
    return frozenset({str(PurePosixPath(text))})


def _name(text: str) -> frozenset[str]:
    return frozenset({PurePosixPath(text).name})


def _stem(text: str) -> frozenset[str]:
    return frozenset({PurePosixPath(text).stem})


def _words(text: str) -> frozenset[str]:
    words = re.split(r"[\W_]+", PurePosixPath(text).stem)
    return frozenset(word.lstrip("0") or "0" for word in words if word)


def _numbers(texts: Sequence[str]) -> tuple[float, ...]:
    for kind in (int, float):
        try:
            return tuple(kind(text) for text in texts)
        except ValueError:
            continue
    return ()
