"""Recipes that include others: `$include` names files that are read first, over which the including one is put.

What a file may include, and how much of it, is decided here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import yaml

from compressor.errors import InputError
from compressor.recipe import variables
from compressor.recipe.nodes import compose, merged, where
from compressor.units import human_bytes

KEY = "$include"
_MOST_BYTES = 2**20
_DEEPEST = 10


@dataclass(frozen=True)
class Source:
    """A recipe's text, its name in messages, where its includes start, and its file, if it is one."""

    text: str
    name: str
    folder: Path = Path()
    path: Path | None = None


@dataclass(frozen=True)
class Expanded:
    """A recipe with what it includes; the environment variables that they list, and the bytes of them all."""

    root: yaml.Node | None
    listed: tuple[str, ...]
    size_bytes: int


def load(path: Path) -> Source:
    """Read a recipe's text.

    Raises:
        InputError: It cannot be read, is no text, or is too large.
    """
    try:
        with path.open("rb") as file:  # which may be any, such as /dev/zero
            data = file.read(_MOST_BYTES + 1)
        text = data.decode()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a recipe ({error}); `compress recipe init` writes one") from error
    if len(data) > _MOST_BYTES:
        raise InputError(f"{path}: expected a recipe of at most {human_bytes(_MOST_BYTES)}, found more")
    return Source(text, str(path), path.parent, path)


def expand(source: Source, choices: Collection[str], trail: tuple[Source, ...] = ()) -> Expanded:
    """Give a recipe's tree over those of all that it includes.

    `choices` are those of `nodes.merged`, `trail` the recipes that include this one.

    Raises:
        InputError: One cannot be read, or they include each other, too deeply, or too much.
    """
    root, trail = compose(source.text, source.name), (*trail, source)
    size_bytes = len(source.text.encode())
    if not isinstance(root, yaml.MappingNode):
        return Expanded(root, (), size_bytes)
    said = {key.value: value for key, value in root.value}
    own = [pair for pair in root.value if pair[0].value not in {KEY, variables.KEY}]
    over: yaml.Node = yaml.MappingNode(root.tag, own, root.start_mark, root.end_mark)
    names, under = variables.listed(said.get(variables.KEY)), None
    for node in _named(said.get(KEY)):
        inner = _included(node, choices, trail)
        size_bytes += inner.size_bytes
        if size_bytes > _MOST_BYTES:
            raise InputError(f"{where(node)}: {KEY}: more than {human_bytes(_MOST_BYTES)} with all that is included")
        names = (*names, *inner.listed)
        under = inner.root if under is None or inner.root is None else merged(under, inner.root, choices)
    return Expanded(over if under is None else merged(under, over, choices), names, size_bytes)


def _named(node: yaml.Node | None) -> list[yaml.ScalarNode]:
    """Read which files are included, in their order."""
    if node is None:
        return []
    names = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for name in names:
        if not isinstance(name, yaml.ScalarNode) or not name.value or name.tag.rpartition(":")[2] != "str":
            raise InputError(f"{where(name)}: {KEY}: expected the path of a recipe, or a list of them")
        if "${" in name.value or "\0" in name.value:
            raise InputError(f"{where(name)}: {KEY}: expected a path as it is, without variables")
    return list(names)


def _included(node: yaml.ScalarNode, choices: Collection[str], trail: tuple[Source, ...]) -> Expanded:
    place, source = f"{where(node)}: {KEY}", trail[-1]
    path = source.folder / node.value
    try:
        known, wrong = path.is_file(), f"{path}: no file" if not path.exists() else f"{path}: no regular file"
    except OSError as error:  # of a name that is too long, or a loop of links
        known, wrong = False, f"{node.value[:80]!r}: no path ({error.strerror})"
    if not known:
        raise InputError(f"{place}: {wrong}; a relative path starts at {source.folder.absolute()}")
    if any(above.path is not None and above.path.samefile(path) for above in trail):
        way = " > ".join([*(above.name for above in trail), str(path)])
        raise InputError(f"{place}: {path} includes itself: {way}")
    if len(trail) > _DEEPEST:
        raise InputError(f"{place}: expected at most {_DEEPEST} recipes that include each other, found more")
    inner = expand(load(path), choices, trail)
    if not isinstance(inner.root, yaml.MappingNode):
        raise InputError(f"{place}: {path} is no recipe: expected a mapping of keys to values")
    return inner
