"""Texts about fields, as they stand in the code: docstrings behind fields, comments beside them, docstrings of classes.

Another place for such a text is a function here, and a line in `told`.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import tokenize
from collections.abc import Iterable, Mapping
from functools import cache
from io import StringIO
from itertools import pairwise

_SENTENCE = re.compile(r"(?<=\.)\s+(?=[`A-Z])|(?<=;)\s+(?=`)")
_SUBJECT = re.compile(r"((?:`\w+`(?:, | and )?)+)(?::| (?=is|are|says|tells|has)\b)")


def told(cls: type, field: str) -> str:
    """Give all that the code says of a field of a class; empty where it says nothing."""
    found = (_behind(cls).get(field, ""), _beside(cls).get(field, ""), _above(cls).get(field, ""))
    return "; ".join(filter(None, found))


def paragraphs(cls: type) -> str:
    """Give the docstring of a class, one line a paragraph."""
    text = inspect.cleandoc(cls.__doc__ or "")
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def plain(text: str, nothing: str) -> str:
    """Give a text of the code in words of a file: `nothing` stands there for None."""
    words = {"None": nothing, "True": "true", "False": "false"}
    return re.sub(r"\b(None|True|False)\b", lambda found: words[found[0]], text)


def cell(text: str) -> str:
    """Give text as it may stand in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Give a table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


@cache
def _behind(cls: type) -> Mapping[str, str]:
    """Give the strings that stand behind fields."""
    body = _class(cls).body
    pairs = pairwise(body)
    return {
        one.target.id: " ".join(two.value.value.split()).rstrip(".;")
        for one, two in pairs
        if isinstance(one, ast.AnnAssign)
        and isinstance(one.target, ast.Name)
        and isinstance(two, ast.Expr)
        and isinstance(two.value, ast.Constant)
        and isinstance(two.value.value, str)
    }


@cache
def _beside(cls: type) -> Mapping[str, str]:
    """Give the comments that stand on the lines of fields."""
    tokens = tokenize.generate_tokens(StringIO(_source(cls)).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    fields = (node for node in _class(cls).body if isinstance(node, ast.AnnAssign))
    found = {
        node.target.id: comments.get(node.end_lineno or 0, "") for node in fields if isinstance(node.target, ast.Name)
    }
    return {name: text for name, text in found.items() if text and not text.startswith("noqa")}


@cache
def _above(cls: type) -> Mapping[str, str]:
    """Give what the docstring of a class says of single fields, in sentences that begin with their names."""
    text = " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n", 1)[-1].split())
    found: dict[str, str] = {}
    for sentence in _SENTENCE.split(f"{text} "):
        if start := _SUBJECT.match(sentence):
            said = sentence[start.end() :] if start[0].endswith(":") else sentence
            for name in re.findall(r"\w+", start[1].replace(" and ", " ")):
                found.setdefault(name, said.strip().rstrip(".;"))
    return found


@cache
def _source(cls: type) -> str:
    return textwrap.dedent(inspect.getsource(cls))


@cache
def _class(cls: type) -> ast.ClassDef:
    (found,) = ast.parse(_source(cls)).body
    assert isinstance(found, ast.ClassDef)  # noqa: S101 - a class is asked for
    return found
