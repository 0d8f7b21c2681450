"""Recipes as files: strict YAML in, with line numbers and did-you-mean; YAML and JSON Schema out.

What makes a file readable or not is decided here; what it means, in `tree`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from compressor.errors import InputError
from compressor.recipe.tree import Recipe
from compressor.recipe.words import said
from compressor.units import human_bytes

SCHEMA_ID = "urn:compressor:recipe:v1"
_SHOWN = 5
_MOST_BYTES = 2**20
_MOST_VALUES = 20_000
_TEXT = frozenset({"tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"})
Location = Sequence[int | str]


def read(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
        InputError: It is not there, no YAML, or not a recipe; each problem with its line and what was expected.
    """
    try:
        with path.open("rb") as file:  # which may be any, such as /dev/zero
            data = file.read(_MOST_BYTES + 1)
        text = data.decode()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a recipe ({error}); `compress recipe init` writes one") from error
    if len(data) > _MOST_BYTES:
        raise InputError(f"{path}: expected a recipe of at most {human_bytes(_MOST_BYTES)}, found more")
    return parse(text, str(path))


def parse(text: str, name: str) -> Recipe:
    """Read a recipe from YAML text; `name` stands before every message."""
    try:
        root = yaml.compose(text, yaml.SafeLoader)
        _check_expanded(root, name)
        content = yaml.load(text, _Strict)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise InputError(f"{name}: {_yaml_problem(error)}") from error
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        # a date that is none, a tag that does not fit, a number of thousands of digits, a loop
        raise InputError(f"{name}: not readable as YAML: {error!r}") from error
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        problems = _innermost(error.errors(include_url=False))
        problems.sort(key=lambda problem: _line(root, problem["loc"]))
        lines = [f"{name}:{_line(root, p['loc'])}: recipe{_dotted(p['loc'])}: {_said(p)}" for p in problems]
        more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
        raise InputError(*lines[:_SHOWN], *more) from error


def write(recipe: Recipe, *, everything: bool = True) -> str:
    """Give the recipe as YAML that `parse` reads back to an equal one: everything, or what differs from the default."""
    content = recipe.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=not everything)
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)


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
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **Recipe.model_json_schema(by_alias=True, mode="serialization"),  # defaults as people write them
    }


def _check_expanded(root: yaml.Node | None, name: str) -> None:
    """Return if aliases repeat no more than a person could have written; ten lines of them can stand for billions."""
    sizes: dict[int, int | None] = {}

    def size(node: yaml.Node) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = None
            parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
            sizes[id(node)] = 1 + sum(map(size, parts)) if isinstance(node, yaml.CollectionNode) else 1
        if (known := sizes[id(node)]) is None:
            raise InputError(f"{name}:{node.start_mark.line + 1}: what is anchored here holds itself; write it out")
        return known

    if root is not None and (found := size(root)) > _MOST_VALUES:
        raise InputError(f"{name}: its aliases stand for {found} values, expected at most {_MOST_VALUES}; write it out")


class _Strict(yaml.SafeLoader):
    """YAML in which a key may stand only once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - yaml's signature
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in _TEXT:
                raise yaml.constructor.ConstructorError(None, None, "a key is no plain text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _innermost(problems: Sequence[Any]) -> list[Any]:
    """Leave out a problem that is only the consequence of one further in: a list that is short of its wrong item."""
    locations = [problem["loc"] for problem in problems]
    return [
        p for p in problems if not any(len(at) > len(p["loc"]) and at[: len(p["loc"])] == p["loc"] for at in locations)
    ]


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    said = getattr(error, "problem", None) or " ".join(str(error).split())
    return f"{where}not readable as YAML: {said}"


def _line(node: Any, location: Location) -> int:
    """Find the line of what an error is about, or of the innermost thing around it that the file has."""
    line = node.start_mark.line if node else 0
    for part in location:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if k.value == part), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line
    return line + 1


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
