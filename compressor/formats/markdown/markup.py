"""Markdown from text that is none: what would be read as markup is escaped.

A new element is a function here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from compressor.errors import printable

_SPECIAL = re.compile(r"[\\`*\[\]<>|&~$]|(?<!\w)_|_(?!\w)|^[#+=-]")

_WHOLE = 10
"""Characters that one may become when it is escaped."""


def text(value: str) -> str:
    """Escape what Markdown would read as markup, and keep it on one line."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(printable(value).split()))


def table(header: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Give a table of cells that are Markdown already."""
    head = list(header)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def fenced(code: str, language: str) -> str:
    """Give a block of code within a fence that nothing in it can close."""
    longest = max(map(len, re.findall(r"`{3,}", code)), default=2)
    fence = "`" * (longest + 1)
    lines = "\n".join(printable(line, _WHOLE * len(code)) for line in code.rstrip().split("\n"))
    return f"{fence}{language}\n{lines}\n{fence}"
