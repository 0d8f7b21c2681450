"""The cells of a CSV file as text: the names of its columns, what they hold, and which cell is wrong.

What else can be wrong with a cell is a branch of `_wrong`. Messages leave the file's name to the caller.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import dropwhile, islice
from pathlib import Path

from compressor.errors import InputError
from compressor.samples.columns import NUMBER, OTHER, TEXT, Head

_LINE_BYTES = 2**24
"""Of one line; what is longer is no CSV."""
_LOOKED_AT = 100
"""Rows that tell what a column holds."""
_OTHER_DELIMITERS = ";\t|"


def heads(path: Path) -> tuple[Head, ...]:
    """Give the columns by the first line of a file, and whether they hold numbers by the cells below.

    Raises:
        InputError: It is no CSV in UTF-8 with commas and a line of names, or a name stands twice.
    """
    with _rows(path) as rows:
        _, names = next(rows, (0, []))
        below = [row for _, row in islice(rows, _LOOKED_AT)]
    where = "its first line"
    if not names:
        raise InputError("holds nothing; expected a line with the names of columns")
    if len(names) == 1 and (found := next((each for each in _OTHER_DELIMITERS if each in names[0]), None)):
        raise InputError(f"{where} is separated by {found!r}, expected commas; write it again with sep=','")
    if all(_is_number(name) for name in names):
        raise InputError(f"{where} holds numbers alone, expected the names of columns; write it with a header")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"{where} has the name {twice!r} twice; names of columns must differ")
    return tuple(Head(name, _kind([row[i] for row in below if i < len(row)])) for i, name in enumerate(names))


def header_lines(path: Path) -> int:
    """Count the lines to the end of the one with the names, which may hold line ends; empty ones may precede it."""
    with _rows(path) as rows:
        return next(rows)[0]


def complain(path: Path, wanted: Mapping[str, type]) -> None:
    """Raise for the first line that has another number of cells than the first, or a cell that is no number.

    Args:
        path: A file with a line of names.
        wanted: The columns that hold numbers, int or float.

    Raises:
        InputError: There is such a line.
    """
    with _rows(path) as rows:
        _, names = next(rows)
        for line, row in rows:
            where = f"line {line}"
            if len(row) != len(names):
                raise InputError(f"{where} has {len(row)} cells, expected {len(names)} as the first line has")
            for name, cell in zip(names, row, strict=True):
                if name in wanted and (why := _wrong(cell, wanted[name])):
                    raise InputError(f"{where}, column {name!r} {why}; repair it or leave the line out")


def line(path: Path, row: int) -> int:
    """Give the line in which a row ends, of which the first is 0."""
    with _rows(path) as rows:
        return next(islice(rows, row + 1, None))[0]


@contextmanager
def _rows(path: Path) -> Iterator[Iterator[tuple[int, list[str]]]]:
    """Give the number of the line in which it ends, and the cells, of each row that is not empty.

    The first is that of the names, without white space at their ends; rows of empty cells before it are left out.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(iter(lambda: file.readline(_LINE_BYTES), ""), strict=True)
            yield _named((reader.line_num, row) for row in reader if row)
    except UnicodeDecodeError as error:
        raise InputError("expected text in UTF-8, found other bytes; write it again") from error
    except csv.Error as error:
        raise InputError(f"line {reader.line_num} is no CSV ({error}); write it again") from error


def _named(rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    rows = dropwhile(lambda numbered: not any(cell.strip() for cell in numbered[1]), rows)
    yield from ((line, [name.strip() for name in names]) for line, names in islice(rows, 1))
    yield from rows


def _kind(cells: Sequence[str]) -> str:
    first = next((cell for cell in cells if cell.strip()), None)
    return OTHER if first is None else NUMBER if _is_number(first) else TEXT


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _wrong(cell: str, kind: type) -> str:
    """Say why a cell is no finite number of a kind; nothing if it is one."""
    if not cell.strip():
        return "is empty"
    if not _is_number(cell):
        return f"holds {cell[:40]!r}, expected a number"
    if not math.isfinite(float(cell)):
        return f"is {cell.strip()}, expected a finite number"
    if kind is int and not cell.strip().lstrip("+-").isdecimal():
        return f"holds {cell.strip()[:40]}, expected a whole number"
    return ""
