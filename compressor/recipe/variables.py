"""Environment variables in recipes: `${NAME}` and `${NAME:-default}`, of names that the recipe lists and no others.

Another form of reference is a group in `_REFERENCE` and a line in `_value`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping

import yaml
from yaml.resolver import Resolver

from compressor.errors import InputError
from compressor.recipe.nodes import below, construct, where

KEY = "environment"
NAME = "[A-Za-z_][A-Za-z0-9_]*"
_MARK = "${"
_REFERENCE = re.compile(rf"\$\$\{{|\$\{{(?:(?P<name>{NAME})(?::-(?P<default>[^}}]*))?\}})?")
_STR = "tag:yaml.org,2002:str"
_NO_VALUES = frozenset({"tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"})
_SHOWN = 80
_SHORTEST_SECRET = 4
_BROKEN = re.compile(r"[\ud800-\udfff]")
"""Bytes that are no UTF-8, as Python gives them."""


class Filled(yaml.ScalarNode):
    """A scalar in which values of the environment stand; `told` gives for each what the recipe says in its place."""

    told: Mapping[str, str]
    written: str


def listed(node: yaml.Node | None) -> tuple[str, ...]:
    """Read the names that a recipe lists.

    Raises:
        InputError: It is no list of names of variables.
    """
    if node is None:
        return ()
    names = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for name in names:
        if name is node or not (isinstance(name, yaml.ScalarNode) and re.fullmatch(NAME, name.value)):
            raise InputError(f"{where(name)}: recipe.{KEY}: expected a list of names of environment variables")
    return tuple(name.value for name in names)


def filled(root: yaml.Node, names: Collection[str]) -> yaml.Node:
    """Give the tree with values in the place of variables; keys stay as they are.

    A value is one scalar whatever it holds. Where the scalar stands without quotes, it is read as YAML reads it there.

    Raises:
        InputError: A variable is not listed, or is not set and has no default.
    """
    done: dict[int, yaml.Node] = {}

    def fill(node: yaml.Node) -> yaml.Node:
        if id(node) not in done:
            done[id(node)] = _rebuilt(node, fill) if isinstance(node, yaml.CollectionNode) else _scalar(node, names)
        return done[id(node)]

    return fill(root)


def hidden(text: str, node: yaml.Node) -> str:
    """Put what the recipe says where a text quotes values of variables, which may be secret, of a node or below it.

    Values of a few characters stay: they are no secret, and may stand in any word.
    """
    told = {form: name for part in below(node) if isinstance(part, Filled) for form, name in _forms(part)}
    for form, name in sorted(told.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(form, name) if len(form) >= _SHORTEST_SECRET else text
    return text


def found(text: str, node: yaml.Node) -> str:
    """Give the end of a message that quotes what stands at a node: as the recipe says it, where that is a variable."""
    return f" {node.written!r}" if isinstance(node, Filled) and node.told else hidden(text, node)


def escaped(value: object) -> object:
    """Write texts so that nothing in them is read as a variable."""
    if isinstance(value, str):
        return value.replace(_MARK, f"${_MARK}")
    if isinstance(value, Mapping):
        return {key: escaped(part) for key, part in value.items()}
    return [escaped(part) for part in value] if isinstance(value, list | tuple) else value


def _rebuilt(node: yaml.CollectionNode, fill: Callable[[yaml.Node], yaml.Node]) -> yaml.Node:
    ends = node.start_mark, node.end_mark
    if isinstance(node, yaml.MappingNode):
        return yaml.MappingNode(node.tag, [(key, fill(value)) for key, value in node.value], *ends)
    return yaml.SequenceNode(node.tag, list(map(fill, node.value)), *ends)


def _scalar(node: yaml.Node, names: Collection[str]) -> yaml.Node:
    if not isinstance(node, yaml.ScalarNode) or _MARK not in node.value:
        return node
    told: dict[str, str] = {}

    def value(match: re.Match[str]) -> str:
        if match[0] == f"${_MARK}":
            return _MARK
        found, secret = _value(match, node, names)
        if secret and found:
            told[found] = f"${{{match['name']}}}"
        return found

    text = _REFERENCE.sub(value, node.value)
    tag = node.tag
    if node.style is None and tag == _STR:
        tag = Resolver().resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        tag = _STR if tag in _NO_VALUES else tag
    made = Filled(tag, text, node.start_mark, node.end_mark, node.style)
    made.told, made.written = told, node.value
    return made


def _forms(node: Filled) -> Iterator[tuple[str, str]]:
    """Give how a message may write what a scalar holds, and what to write in its place: YAML reads 0o17 as 15."""
    for value, name in node.told.items():
        yield from ((value, name), (repr(value)[1:-1], name))
    if not node.told:  # only a default stands in it
        return
    try:
        made = construct(node, node.start_mark.name)
    except InputError:  # no value, and so in no message
        return
    if not isinstance(made, str | bool | None):
        yield from ((str(made), node.written), (repr(made), node.written))


def _value(match: re.Match[str], node: yaml.Node, names: Collection[str]) -> tuple[str, bool]:
    """Give what a variable stands for, and whether the environment says it."""
    name = match["name"]
    if name is None:
        found = node.value[match.start() : match.start() + _SHOWN]
        raise InputError(
            f"{where(node)}: expected ${{NAME}} or ${{NAME:-default}}, found {found!r}; $${{ stands for ${{ itself"
        )
    if name not in names:
        raise InputError(
            f"{where(node)}: ${{{name}}}: the recipe does not list this variable: add {name} to its key {KEY}, or "
            f"write $${{{name}}} for the text itself"
        )
    found = os.environ.get(name)
    if not found and match["default"] is not None:
        return match["default"], False
    if found is None:
        raise InputError(
            f"{where(node)}: ${{{name}}}: this environment variable is not set: set it, or give a default as "
            f"${{{name}:-default}}"
        )
    if _BROKEN.search(found):
        raise InputError(f"{where(node)}: ${{{name}}}: this environment variable holds what is no text")
    return found, True
