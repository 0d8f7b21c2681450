"""Recipes as trees of YAML nodes, each of which knows its file and line: composed, checked, merged, made into values.

What makes a single file unreadable, or how one goes over another, belongs here; what `$include` names, to `include`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

from compressor.errors import InputError

Location = Sequence[int | str]
Pair = tuple[yaml.Node, yaml.Node]
_MOST_VALUES = 20_000
_TEXT = frozenset({"tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"})


def compose(text: str, name: str) -> yaml.Node | None:
    """Give the tree of a text, in which every mapping has each key once and nothing is left to merge.

    Raises:
        InputError: It is no YAML, a key stands twice or is no text, or its aliases stand for too much.
    """
    with readable(name, text):
        loader = yaml.SafeLoader(text)
        loader.name = name  # which every mark then has
        root = loader.get_single_node()
        check_expanded(root, name)
        for mapping in _mappings(root):
            _check_keys(mapping)
        for mapping in _mappings(root):
            SafeConstructor().flatten_mapping(mapping)
            mapping.value = list({key.value: (key, value) for key, value in mapping.value}.values())
    return root


def construct(root: yaml.Node | None, name: str) -> Any:
    """Give what a tree stands for.

    Raises:
        InputError: A value is none of its kind, such as a date that there is not.
    """
    with readable(name):
        return None if root is None else SafeConstructor().construct_document(root)


def merged(under: yaml.Node, over: yaml.Node, choices: Collection[str]) -> yaml.Node:
    """Put one tree over another: mappings key by key, everything else as a whole.

    `choices`: keys of the outermost mapping under which one kind out of several stands by its name, so that another
    kind replaces it.
    """
    if not (isinstance(under, yaml.MappingNode) and isinstance(over, yaml.MappingNode)):
        return over
    pairs: dict[str, Pair] = {key.value: (key, value) for key, value in under.value}
    for key, value in over.value:
        before = pairs[key.value][1] if key.value in pairs else value
        kept = value if key.value in choices and keys(before) != keys(value) else merged(before, value, ())
        pairs[key.value] = (key, kept)
    return yaml.MappingNode(over.tag, list(pairs.values()), over.start_mark, over.end_mark)


def keys(node: yaml.Node) -> frozenset[str]:
    """Give the keys of a mapping; none of anything else."""
    return frozenset(key.value for key, _ in node.value) if isinstance(node, yaml.MappingNode) else frozenset()


def find(root: yaml.Node | None, location: Location) -> tuple[yaml.Node, yaml.Node] | None:
    """Give where a place stands and what stands there, or of the innermost thing around it that is written."""
    if root is None:
        return None
    place = node = root
    for part in location:
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == part), None)
            if pair is None:
                break
            place, node = pair
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            place = node = node.value[part]
    return place, node


def below(node: yaml.Node) -> Iterator[yaml.Node]:
    """Give a node and all below it, each once."""
    seen: set[int] = set()
    left = [node]
    while left:
        node = left.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            left += children(node)


def children(node: yaml.Node) -> list[yaml.Node]:
    """Give what stands right below a node, keys too."""
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def where(node: yaml.Node) -> str:
    """Give the file and the line of a node, as they stand before a message."""
    return f"{node.start_mark.name}:{line(node)}"


def line(node: yaml.Node) -> int:
    """Give the line of a node, from 1."""
    return int(node.start_mark.line) + 1


def check_expanded(root: yaml.Node | None, name: str) -> None:
    """Return if aliases repeat no more than a person could have written; ten lines of them can stand for billions.

    Raises:
        InputError: They repeat more, or one holds itself.
    """
    sizes: dict[int, int | None] = {}

    def size(node: yaml.Node) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = None
            sizes[id(node)] = 1 + sum(map(size, children(node)))
        if (known := sizes[id(node)]) is None:
            raise InputError(f"{where(node)}: what is anchored here holds itself; write it out")
        return known

    if root is not None and (found := size(root)) > _MOST_VALUES:
        raise InputError(f"{name}: its aliases stand for {found} values, expected at most {_MOST_VALUES}; write it out")


@contextmanager
def readable(name: str, text: str = "") -> Iterator[None]:
    """Say in a sentence what YAML cannot read."""
    try:
        yield
    except yaml.YAMLError as error:
        raise InputError(_yaml_problem(error, name, text)) from error
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        # a date that is none, a tag that does not fit, a number of thousands of digits, a loop
        raise InputError(f"{name}: not readable as YAML: {type(error).__name__}: {error}") from error


def _mappings(root: yaml.Node | None) -> list[yaml.MappingNode]:
    return [] if root is None else [node for node in below(root) if isinstance(node, yaml.MappingNode)]


def _check_keys(mapping: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag not in _TEXT:
            raise ConstructorError(None, None, "a key is no plain text", key.start_mark)
        if key.value in seen:
            raise ConstructorError(None, None, f"the key {key.value!r} stands twice", key.start_mark)
        seen.add(key.value)


def _yaml_problem(error: yaml.YAMLError, name: str, text: str) -> str:
    mark = getattr(error, "problem_mark", None)
    said = getattr(error, "problem", None) or " ".join(str(error).split())
    if mark is None:
        return f"{name}: not readable as YAML: {said}"
    lines = text.splitlines()[mark.line : mark.line + 1]
    hint = '; between { } or [ ], a variable needs quotes: "${NAME}"' if any("${" in line for line in lines) else ""
    return f"{mark.name}: line {mark.line + 1}, column {mark.column + 1}: not readable as YAML: {said}{hint}"
