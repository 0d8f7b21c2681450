"""The blocks that a section is made of: paragraphs, which are plain text, tables, lists, code, what is folded away.

Their text is escaped already for the format that renders them; only `Code` holds text as it is. Add a block as a class
here and a case in every format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from compressor.formats.words import Escape


@dataclass(frozen=True)
class Strong:
    """Text that stands out, and what stands behind it in plain letters."""

    text: str
    after: str = ""


Cell: TypeAlias = str | Strong


@dataclass(frozen=True)
class Table:
    """Rows of as many cells as the header has."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @classmethod
    def of(cls, header: Iterable[str], rows: Iterable[Iterable[Cell]]) -> Table:
        """Give the table of any rows."""
        return cls(tuple(header), tuple(map(tuple, rows)))


@dataclass(frozen=True)
class Item:
    """A line of a list, with the lines below it."""

    text: Cell
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Items:
    """A list."""

    items: tuple[Item, ...]

    @classmethod
    def of(cls, texts: Iterable[Cell]) -> Items:
        """Give the list of lines that have none below them."""
        return cls(tuple(map(Item, texts)))


@dataclass(frozen=True)
class Title:
    """What the blocks up to the next one are about."""

    text: str


@dataclass(frozen=True)
class Code:
    """Lines of a language, as they are."""

    text: str
    language: str


@dataclass(frozen=True)
class Folded:
    """Code that is shown when it is asked for."""

    summary: str
    code: Code


Block: TypeAlias = str | Table | Items | Title | Code | Folded


@dataclass(frozen=True)
class Section:
    """Blocks under a title, which is empty for those that need none."""

    title: str
    blocks: tuple[Block, ...]


def value(found: object, text: Escape) -> str:
    """Give a value of a record on one line."""
    if isinstance(found, Mapping):
        return pairs(found, text)
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, float):
        return f"{found:.4g}"
    listed = isinstance(found, Sequence) and not isinstance(found, str)
    return text(", ".join(map(str, found)) if listed else str(found))  # type: ignore[call-overload]


def pairs(values: Mapping[str, object], text: Escape) -> str:
    """Give names and their values on one line."""
    return ", ".join(f"{text(name)} {value(found, text)}" for name, found in values.items())
