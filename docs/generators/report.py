"""The page of every field of report.json, and of what `bench --json` and `compare --json` print, from the records.

A field needs nothing here; one that the code says nothing of needs a line in `words`.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from compressor import records
from generators import source, words

ROOTS = (records.Report, records.Benched, records.Compared, records.Noise)
HEAD = """\
# Every field of report.json

<!-- Written by `python docs/generate.py` from the code; a test compares. Change the code, or docs/generators. -->

`report.json` is one [Report](#report). `compress bench --json` prints [Benched](#benched), `compare --json`
[Compared](#compared), `doctor --noise --json` [Noise](#noise). `schema_version` is 1: fields may be added, none is
changed or removed. How to read a report: [reading-a-report.md](../reading-a-report.md).

A field's unit stands at the end of its name: `_ms` milliseconds, `_s` seconds, `_ns` nanoseconds, `_bytes` bytes,
`_per_s` a second, `_db` decibels. Shares are from 0 to 1. A number that is not finite is written as `null`; a field
that may be `null` says so.
"""
_PLAIN = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    datetime: "time in UTC",
    Any: "any value",
}


def page() -> str:
    """Give the page."""
    return HEAD + "".join(map(_section, classes()))


def classes() -> tuple[type, ...]:
    """Give every record that stands in a report, in the order in which it is met."""
    found: dict[type, None] = {}
    for root in ROOTS:
        _walk(root, found)
    return tuple(found)


def fields(cls: type) -> Mapping[str, str]:
    """Give what each field of a record means; empty where nobody says it."""
    return {each.name: _meaning(cls, each.name) for each in dataclasses.fields(cls)}


def _meaning(cls: type, name: str) -> str:
    told = source.told(cls, name)
    added = words.FIELDS.get(f"{cls.__name__}.{name}", "" if told else words.EVERYWHERE.get(name, ""))
    return source.plain("; ".join(filter(None, (added, told))), "null")


def _section(cls: type) -> str:
    hints = typing.get_type_hints(cls)
    rows = ((f"`{name}`", _type(hints[name]), text) for name, text in fields(cls).items())
    return (
        f"\n## {cls.__name__}\n\n{source.plain(source.paragraphs(cls), 'null')}\n\n"
        + source.table(("field", "value", "meaning"), rows)
        + "\n"
    )


def _walk(cls: type, found: dict[type, None]) -> None:
    if cls in found:
        return
    found[cls] = None
    hints = typing.get_type_hints(cls)
    for each in dataclasses.fields(cls):
        for inner in _records(hints[each.name]):
            _walk(inner, found)


def _records(hint: Any) -> Iterator[type]:
    if dataclasses.is_dataclass(hint):
        yield typing.cast("type", hint)
    for inner in typing.get_args(hint):
        yield from _records(inner)


def _type(hint: Any) -> str:  # noqa: PLR0911 - a case a kind of hint
    inner = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return ", ".join(f"`{each}`" for each in inner)
    if origin in {typing.Union, types.UnionType}:
        named = [_type(each) for each in inner if each is not type(None)]
        return " or ".join((*named, *(["null"] if type(None) in inner else [])))
    if origin is tuple:
        return (
            f"list of {_type(inner[0])}"
            if Ellipsis in inner
            else f"list of {len(inner)}: " + ", ".join(map(_type, inner))
        )
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"mapping to {_type(inner[1])}"
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return f"list of {_type(inner[0])}"
    if dataclasses.is_dataclass(hint):
        name = typing.cast("type", hint).__name__
        return f"[{name}](#{name.lower()})"
    return _PLAIN[hint]
