"""What pydantic finds wrong, in our words: what was expected, and what was found.

Another of its kinds of error that reads badly is a line in `_KINDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS = {
    "model_type": "expected a mapping of keys to values",
    "dict_type": "expected a mapping of keys to values",
    "tuple_type": "expected a list",
    "too_short": "expected at least one item",
    "int_parsing": "expected a whole number",
    "int_type": "expected a whole number",
    "string_type": "expected text",
    "path_type": "expected a path",
    "string_pattern_mismatch": "expected lower-case letters, digits, dots, dashes and underscores",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
}


def said(problem: Mapping[str, Any]) -> str:
    """Say one problem of a `ValidationError`: without its place, with the value that was found."""
    kind, found = problem["type"], problem["input"]
    if kind == "missing":
        return "required, but missing"
    if kind == "extra_forbidden":
        return "unknown key"
    message = _KINDS.get(kind) or problem["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    return message if "found" in message else f"{message}, found {found!r}"
