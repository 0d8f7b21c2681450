"""The page of every key of a recipe, from its JSON Schema and the docstrings of its classes.

A key needs nothing here. One that the code says nothing of needs a line in `words`; another unit one in `_UNITS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel

from compressor import recipe
from generators import source, words

Node = Mapping[str, Any]
HEAD = """\
# Every key of a recipe

<!-- Written by `python docs/generate.py` from the code; a test compares. Change the code, or docs/generators. -->

What a recipe is, how one is made and how files include each other: [recipes.md](../recipes.md). Units and their
spellings: [units](../recipes.md#units). `(required)` has no default; *unset* means that the key may be left out. One
kind out of several (a stage, an engine, a load, a gate) is written as the bare word where all defaults are meant:
`fuse` is `{fuse: {}}`. `compress recipe schema` prints the JSON Schema that this page is made of.
"""
_VARIABLE = {"type": "string", "pattern": r"\$\{"}
_UNITS = {
    "(us|ms|s|min|h|d)": "time, such as `50ms`",
    "%$": "share, such as `20%`",
    "(B|kB|MB|GB|KiB|MiB|GiB)": "size, such as `4MiB`",
    "(/s|/min|/h)": "rate, such as `200/s`",
    r"\s*x$": "factor, such as `1.2x`",
    "(USD/1M)": "price, such as `0.50 USD/1M`",
    "(k|M|G)?": "count, such as `300M` or `200`",
    "(x[0-9]{1,9})*": "shape, such as `1x3x224x224`",
    "/[1-9]": "sizes, such as `1/8/32`",
    "^models:/": "registered version, such as `models:/name@champion`",
}
_KINDS = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`", "string": "text"}


@dataclass(frozen=True)
class Section:
    """A mapping of a recipe: where it stands, the class that it becomes, its schema."""

    path: str
    name: str
    node: Node

    @property
    def anchor(self) -> str:
        """The anchor of its heading, as GitHub makes it."""
        return re.sub(r"[^a-z0-9_ -]", "", self.path.lower()).replace(" ", "-")


def page() -> str:
    """Give the page."""
    found = sections()
    return HEAD + "".join(_section(each, found) for each in found)


def sections() -> tuple[Section, ...]:
    """Give every mapping of a recipe once, at the place where it is met first."""
    schema = _plain(recipe.schema())
    found: dict[str, Section] = {}
    _walk(Section("recipe", "Recipe", schema), schema["$defs"], found)
    return tuple(found.values())


def meaning(section: Section, key: str) -> str:
    """Give what a key means, by its schema, by the code, and by what `words` adds."""
    described = str(section.node["properties"][key].get("description", ""))
    cls = _classes().get(section.name)
    told = source.told(cls, key.replace(".", "_")) if cls else ""
    parts = dict.fromkeys(part.rstrip(".") for part in (words.KEYS.get(f"{section.name}.{key}", ""), described, told))
    return source.plain("; ".join(filter(None, parts)), "unset")


def _section(section: Section, found: tuple[Section, ...]) -> str:
    anchors = {each.name: each for each in found}
    required = section.node.get("required", ())
    rows = (
        (f"`{key}`", _type(node, anchors), _default(node, required=key in required), meaning(section, key))
        for key, node in section.node["properties"].items()
    )
    said = str(section.node.get("description", ""))
    intro = "\n\n".join(" ".join(part.split()) for part in said.split("\n\n"))
    listed = tuple(rows)
    table = source.table(("key", "value", "default", "meaning"), listed) if listed else "It has no keys."
    return f"\n## {section.path}\n\n{source.plain(intro, 'unset')}\n\n{table}\n"


def _walk(section: Section, defs: Mapping[str, Node], found: dict[str, Section]) -> None:
    if section.name in found:
        return
    found[section.name] = section
    for key, node in section.node["properties"].items():
        prefix = "" if section.path == "recipe" else f"{section.path}."
        for child in _mappings(Section(f"{prefix}{key}", "", node), defs):
            _walk(child, defs, found)


def _mappings(at: Section, defs: Mapping[str, Node]) -> Iterator[Section]:
    """Give the mappings that may stand at a place: of one kind, of several, or in a list."""
    node = _resolved(at.node, defs)
    for choice in node.get("anyOf", ()):
        yield from _mappings(Section(at.path, "", choice), defs)
    if "items" in node:
        yield from _mappings(Section(f"{at.path}[]", "", node["items"]), defs)
    properties = node.get("properties", {})
    if len(properties) == 1 and "title" not in node:  # one kind out of several, under its word
        ((word, inner),) = properties.items()
        yield from _mappings(Section(f"{at.path}.{word}", "", inner), defs)
    elif "properties" in node and "title" in node:
        yield Section(at.path, node["title"], node)


def _type(node: Node, anchors: Mapping[str, Section]) -> str:
    return " or ".join(dict.fromkeys(_types(node, anchors)))


def _types(node: Node, anchors: Mapping[str, Section]) -> Iterator[str]:  # noqa: C901 - a case a kind of schema
    if "$ref" in node:
        section = anchors.get(node["$ref"].rpartition("/")[2])
        yield f"[{section.path}](#{section.anchor})" if section else _version()
    elif "anyOf" in node:
        for choice in node["anyOf"]:
            yield from _types(choice, anchors)
    elif "const" in node:
        yield f"`{node['const']}`"
    elif "enum" in node:
        yield ", ".join(f"`{each}`" for each in node["enum"])
    elif "items" in node or node.get("type") == "array":
        inner = _type(node.get("items", {}), anchors)
        yield f"list of {inner or 'values'}" + (", at least one" if node.get("minItems") else "")
    elif len(node.get("properties", {})) == 1 and "title" not in node:
        ((word, inner),) = node["properties"].items()
        yield f"[{word}](#{anchors[inner.get('title') or inner['$ref'].rpartition('/')[2]].anchor})"
    elif node.get("title") in anchors:
        yield f"[{anchors[node['title']].path}](#{anchors[node['title']].anchor})"
    elif node.get("additionalProperties"):
        yield f"mapping from names to {_type(node['additionalProperties'], anchors)}"
    elif node.get("type") != "null":
        yield _scalar(node)


def _version() -> str:
    return "registered version, such as `models:/name@champion`"


def _scalar(node: Node) -> str:
    pattern = node.get("pattern", "")
    unit = next((told for part, told in _UNITS.items() if part in pattern), "")
    if not unit and node.get("format") == "path":
        unit = "path"
    if not unit and pattern:
        unit = f"text of the form `{pattern}`"
    kind = node.get("type", "")
    return (unit or _KINDS.get(kind if isinstance(kind, str) else "string", "value")) + _range(node)


def _range(node: Node) -> str:
    least, above = node.get("minimum"), node.get("exclusiveMinimum", node.get("gt"))
    most = node.get("maximum")
    if least is not None and most is not None:
        return f", {least:,} to {most:,}"
    told = [f", {least:,} or more"] if least else []
    told += [f", above {above}"] if above is not None else []
    told += [f", at most {most:,}"] if most is not None else []
    return "".join(told)


def _default(node: Node, *, required: bool) -> str:
    if required:
        return "(required)"
    value = node.get("default")
    if value is None:
        return "unset"
    if isinstance(value, dict | list) and (written := _written(value)):
        return written
    if isinstance(value, str | bool | int | float):
        return f"`{json.dumps(value) if not isinstance(value, str) else value}`"
    return f"`{json.dumps(value)}`" if not value else "see there"


def _written(value: Any) -> str:
    """Give a default of the recipe as people write it."""
    if isinstance(value, list) and value and "stages" in value[0]:
        return "the ladder"
    return f"`{yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000).strip()}`" if value else ""


def _resolved(node: Node, defs: Mapping[str, Node]) -> Node:
    return defs[node["$ref"].rpartition("/")[2]] if "$ref" in node else node


def _plain(node: Any) -> Any:
    """Leave out that a variable of the environment may stand in the place of a value."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    made = {key: _plain(value) for key, value in node.items() if not (key == "title" and node.get("type") != "object")}
    choices = [choice for choice in made.get("anyOf", ()) if choice != _VARIABLE]
    if "anyOf" not in made or "properties" in made:
        return made
    return (
        {**made, "anyOf": choices}
        if len(choices) > 1
        else {**made.pop("anyOf")[0], **made}
        if not choices
        else _merged(made, choices[0])
    )


def _merged(outside: dict[str, Any], inside: dict[str, Any]) -> dict[str, Any]:
    return {**inside, **{key: value for key, value in outside.items() if key != "anyOf"}}


def _classes() -> Mapping[str, type[BaseModel]]:
    """Give the classes of settings by their names."""
    found: dict[str, type[BaseModel]] = {}
    waiting = [BaseModel]
    while waiting:
        for cls in waiting.pop().__subclasses__():
            waiting.append(cls)
            if cls.__module__.startswith("compressor."):
                found[cls.__name__] = cls
    return found
