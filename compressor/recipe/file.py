"""Recipes as files: strict YAML in, with line numbers and did-you-mean; YAML and JSON Schema out.

What a file may hold is decided here and in what it uses: `nodes`, `include`, `variables`. What it means, in `tree`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from compressor.errors import InputError
from compressor.grammar import Keyed
from compressor.recipe import include, nodes, variables
from compressor.recipe.include import Source, expand, load
from compressor.recipe.nodes import Location
from compressor.recipe.tree import Recipe, judged
from compressor.recipe.words import said

SCHEMA_ID = "urn:compressor:recipe:v1"
_SHOWN = 5
_CHOICES = frozenset(
    name for name, field in Recipe.model_fields.items() if any(isinstance(mark, Keyed) for mark in field.metadata)
)
"""Keys under which one kind out of several stands."""
_PATH = {"type": "string", "minLength": 1}
_OF_FILES = {
    include.KEY: {
        "anyOf": [_PATH, {"type": "array", "items": _PATH}],
        "description": "Recipes that this one is put over, later ones over earlier; a relative path starts here.",
    },
    variables.KEY: {
        "type": "array",
        "items": {"type": "string", "pattern": f"^{variables.NAME}$"},
        "description": "Environment variables that values may name as ${NAME} or ${NAME:-default}.",
    },
}
"""Keys of files, which a recipe that is read has no more."""
_VARIABLE = {"type": "string", "pattern": r"\$\{"}
_NARROW = frozenset({"boolean", "integer", "number"})
_VALUES = frozenset({"const", "default", "enum", "examples", "required"})
"""Keys of a schema under which no schema stands."""


@dataclass(frozen=True)
class Place:
    """Where something stands in a recipe, or in one that it includes; lines count from 1."""

    file: Path
    line: int


def read(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
        InputError: It is not there, no YAML, or not a recipe; each problem with its line and what was expected.
    """
    return _read(load(path))[0]


def parse(text: str, name: str) -> Recipe:
    """Read a recipe from YAML text; `name` stands before every message, and includes start at the working folder."""
    return _read(Source(text, name))[0]


def of_report(content: Mapping[str, Any], name: str) -> Recipe:
    """Read a recipe that a report holds: what comes with a report includes no file and asks for no variable.

    Raises:
        InputError: It is no recipe.
    """
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        problems = _innermost(error.errors(include_url=False))
        raise InputError(*_few(f"{name}: recipe{_dotted(p['loc'])}: {_said(p)}" for p in problems)) from error


def places(path: Path) -> Mapping[str, Place]:
    """Give where each gate of a recipe stands, by the name under which its verdict appears, and its `baseline`.

    What nobody wrote, such as the default gates, has no place.

    Raises:
        InputError: As `read`.
    """
    recipe, root = _read(load(path))
    written = {key.value: (key, value) for key, value in root.value} if isinstance(root, yaml.MappingNode) else {}
    found = (
        {judged(gate): node for gate, node in zip(recipe.gates, written["gates"][1].value, strict=True)}
        if "gates" in written
        else {}
    )
    if recipe.baseline is not None:
        found["baseline"] = written["baseline"][0]
    return {name: Place(Path(node.start_mark.name), nodes.line(node)) for name, node in found.items()}


def write(recipe: Recipe, *, everything: bool = True) -> str:
    """Give the recipe as YAML that `parse` reads back to an equal one: everything, or what differs from the default."""
    content = recipe.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=not everything)
    return yaml.safe_dump(variables.escaped(content), sort_keys=False, allow_unicode=True, width=120)


def starter(recipe: Recipe) -> str:
    """Give the text of a new recipe file, with the line by which editors find the schema."""
    return (
        "# What `compress run MODEL --recipe THIS` is asked to do. `compress recipe check THIS` checks it.\n"
        "# For an editor that completes it: `compress recipe schema > recipe.v1.json`.\n"
        "# yaml-language-server: $schema=recipe.v1.json\n"
        f"{write(recipe)}"
    )


def schema() -> dict[str, Any]:
    """Give the JSON Schema (2020-12) of recipe version 1."""
    tree = Recipe.model_json_schema(by_alias=True, mode="serialization")  # defaults as people write them
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **tree,
        "$defs": {name: _opened(part) for name, part in tree["$defs"].items()},
        "properties": {**_OF_FILES, **_opened(dict(_with_defaults(tree["properties"])))},
    }


def _with_defaults(properties: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Give defaults with the words under which kinds stand, which pydantic leaves out."""
    written = Recipe().model_dump(mode="json", by_alias=True, exclude_none=True)
    for name, part in properties.items():
        yield name, {**part, "default": written[name]} if name in written else part


def _opened(node: Any) -> Any:
    """Let a variable stand wherever a number, a truth value, or a text of some form is expected."""
    if isinstance(node, list):
        return list(map(_opened, node))
    if not isinstance(node, Mapping):
        return node
    made = {name: part if name in _VALUES else _opened(part) for name, part in node.items()}
    if not _is_narrow(node):
        return made
    outside = {name: made.pop(name) for name in ("title", "description", "default") if name in made}
    return {"anyOf": [made, _VARIABLE], **outside}


def _is_narrow(node: Mapping[str, Any]) -> bool:
    """Tell whether a schema takes some scalars and not every text."""
    kinds = node.get("type", ())
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    return bool(kinds & _NARROW) or (kinds == {"string"} and bool({"pattern", "enum", "format", "const"} & node.keys()))


def _read(source: Source) -> tuple[Recipe, yaml.Node | None]:
    """Give a recipe, and the tree that it was made of."""
    expanded = expand(source, _CHOICES)
    nodes.check_expanded(expanded.root, source.name)  # each file of many may be within the limit
    root = None if expanded.root is None else variables.filled(expanded.root, expanded.listed)
    try:
        content = nodes.construct(root, source.name)
    except InputError as error:
        raise InputError(*(variables.hidden(told, root) if root else told for told in error.args)) from None
    try:
        return Recipe.model_validate(content), root
    except ValidationError as error:
        problems = [(_place(root, source.name, p["loc"]), p) for p in _innermost(error.errors(include_url=False))]
        problems.sort(key=lambda problem: (problem[0][0] != source.name, problem[0]))
        lines = (f"{file}:{line}: recipe{_dotted(p['loc'])}: {_unquoted(root, p)}" for (file, line), p in problems)
        raise InputError(*_few(lines)) from None  # it quotes values that may be secret


def _place(root: yaml.Node | None, name: str, location: Location) -> tuple[str, int]:
    """Find the file and line of what an error is about."""
    found = nodes.find(root, location)
    return (name, 1) if found is None else (str(found[0].start_mark.name), nodes.line(found[0]))


def _unquoted(root: yaml.Node | None, problem: Mapping[str, Any]) -> str:
    """Say what is wrong, without values of the environment."""
    expected, mark, found = _said(problem).partition("found")
    if (around := nodes.find(root, problem["loc"])) is None:
        return expected + mark + found
    return variables.hidden(expected, around[1]) + mark + (variables.found(found, around[1]) if mark else "")


def _few(lines: Iterator[str]) -> list[str]:
    told = list(lines)
    return told if len(told) <= _SHOWN else [*told[:_SHOWN], f"and {len(told) - _SHOWN} more"]


def _innermost(problems: Sequence[Any]) -> list[Any]:
    """Leave out a problem that is only the consequence of one further in: a list that is short of its wrong item."""
    locations = [problem["loc"] for problem in problems]
    return [
        p for p in problems if not any(len(at) > len(p["loc"]) and at[: len(p["loc"])] == p["loc"] for at in locations)
    ]


def _dotted(location: Location) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def _said(problem: Mapping[str, Any]) -> str:
    return _unknown_key(problem["loc"]) if problem["type"] == "extra_forbidden" else said(problem)


def _unknown_key(location: Location) -> str:
    known = _known_keys(schema(), location[:-1])
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return "unknown key" + (f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}")


def _known_keys(root: Mapping[str, Any], location: Location) -> list[str]:
    """Walk the schema to the mapping at `location` and give its keys."""
    node = root
    for part in location:
        node = next((child for child in map(_step(part), _alternatives(root, node)) if child), {})
    return [key for choice in _alternatives(root, node) for key in choice.get("properties", {})]


def _step(part: int | str) -> Any:
    def step(node: Mapping[str, Any]) -> Any:
        return node.get("items") if isinstance(part, int) else node.get("properties", {}).get(part)

    return step


def _alternatives(root: Mapping[str, Any], node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "$ref" in node:
        return _alternatives(root, root["$defs"][node["$ref"].rpartition("/")[2]])
    choices = node.get("anyOf", [])
    return [inner for choice in choices for inner in _alternatives(root, choice)] or [node]
