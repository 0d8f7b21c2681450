"""The two streams: results go to stdout, what is told about them to stderr.

Another kind of result is a function here.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence

from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from compressor.errors import printable

_NO_TERMINAL = 100_000
"""Columns where none would be folded."""
STYLES = {
    **dict.fromkeys(("pass", "not worse"), "bold green"),
    **dict.fromkeys(("fail", "worse"), "bold red"),
    **dict.fromkeys(("inconclusive", "undecided"), "bold yellow"),
}
"""How verdicts look, of a run, a bench and a comparison."""


class _Messages(Console):
    """A stream for messages that falls silent where its reader has gone: nobody loses a run for that."""

    def on_broken_pipe(self) -> None:
        """Write to nowhere from now on."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def stderr() -> Console:
    """Give the stream for messages."""
    return _Messages(stderr=True, highlight=False)


def say(text: str, *, style: str = "", wrap: bool = False) -> None:
    """Tell the user something on stderr; `wrap` breaks sentences between words, which would break a path."""
    console = stderr()
    console.print(Text(printable(text), style=style), soft_wrap=not wrap or not console.is_terminal)


def warn(warnings: Iterable[str]) -> None:
    """Tell the user what to know before believing a number."""
    for warning in warnings:
        say(f"warning: {warning}", style="yellow", wrap=True)


def result(text: str) -> None:
    """Give a command's result on stdout, as it is; if nobody reads it, the verdict stands all the same."""
    if sys.stdout is None:  # it was closed before the program began
        return
    try:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or it would be flushed, and fail, at the exit


def json(record: object) -> None:
    """Give a record as a command's result on stdout; a number that is not finite becomes null."""
    result(TypeAdapter(type(record)).dump_json(record, indent=2).decode())


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Give a table as a command's result on stdout; a cell is folded only where it would leave the terminal."""
    if sys.stdout is not None and sys.stdout.isatty():
        Console(highlight=False).print(cells(header, rows))
        return
    text = io.StringIO()
    Console(file=text, width=_NO_TERMINAL, color_system=None).print(cells(header, rows))
    result("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def cells(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Give a table in which nothing is read as markup."""
    made = Table(box=None, pad_edge=False)
    for name in header:
        made.add_column(printable(name), overflow="fold")
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made
