"""Damaged recipes: text, keys and values, and what YAML can do to a careless reader.

Each function writes a mutant into a folder and gives its path.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import yaml
from bases import RECIPES
from model_mutants import NAMES

_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 3.5, 2**70, 10**400, float("nan"), float("inf"), 1e308, "", "x", "nan", "inf", "0%"),
    *("1e9999ms", "1GiB", "9" * 400, "150%", "1x2x", "0x0", "-1x3", "é", [], [[]], {}, {"a": 1}, ["quantize"] * 50),
    *("100%", "50ms", "1e-9ms", "auto", "int8", "/etc/passwd", "../../x", "os:system", "a.b:c", b"bytes", *NAMES),
)
_TEXTS = (
    "",
    "\ufeffversion: 1\n",
    "# only a comment\n",
    "---\n---\nversion: 1\n",
    "version: 1\n...\nseed: 2\n",
    "\tversion: 1\n",
    "version:\t1\n",
    "version: 1\n\tseed: 1\n",
    "- version: 1\n",
    "version\n",
    "null\n",
    "version: 1\nversion: 1\n",
    "data: {metric: top1, metric: top5}\n",
    "? [a, b]\n: 1\n",
    "1: 2\n",
    "version: &a 1\nseed: *a\n",
    "version: *nobody\n",
    "data: &a {metric: *a}\n",
    "rungs: &a [*a]\n",
    "<<: {seed: 3}\nversion: 1\n",
    "<<: [{seed: 3}, {seed: 4}]\n",
    "<<: 5\n",
    "seed: !!python/object/apply:os.system ['true']\n",
    "seed: !!python/name:os.system\n",
    "seed: !!binary aGVsbG8=\n",
    "seed: !!binary '*'\n",
    "seed: !!timestamp 2001-99-99\n",
    "seed: 2001-01-01\n",
    "seed: !!int x\n",
    "seed: !!float x\n",
    "seed: !!set {a, b}\n",
    "seed: !!omap [a: 1]\n",
    "seed: !!pairs [a: 1]\n",
    "seed: !unknown 3\n",
    "!!python/dict {seed: 1}\n",
    "seed: 0b2\n",
    "seed: 1:30\n",
    "seed: 190:20:30\n",
    "seed: 1_000\n",
    "seed: 0o17\n",
    "seed: .nan\n",
    "seed: -.inf\n",
    "shapes: {x: 1e3}\n",
    "seed: " + "9" * 5000 + "\n",
    "shapes: {" + ", ".join(f"k{i}: 1x2" for i in range(3000)) + "}\n",
    "seed: " + "[" * 3000 + "]" * 3000 + "\n",
    "".join(f"{' ' * i}a:\n" for i in range(600)),
    "data: {metric: " + "x" * 100_000 + "}\n",
    "".join(["a0: &a0 [x, x]\n", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))]),
    "".join(["a0: &a0 {k: x}\n", *(f"a{i}: &a{i} {{l: *a{i - 1}, m: *a{i - 1}}}\n" for i in range(1, 28))]),
    "version: 1\nseed: \x00\n",
    "version: 1\nseed: \x07\n",
    "%YAML 9.9\n---\nversion: 1\n",
    "%TAG ! tag:x,2000:\n---\nversion: 1\n",
    "{version: 1, seed: 2\n",
    "version: 'x\n",
    "version: |\n  1\n",
    "version: 1 # \u2028 comment\n",
    "a\u0301: 1\n",
    "=: 1\n",
    "seed: =\n",
)
_ENCODED = (b"\xff\xfe", b"\xff", b"\xc3\x28", b"version: \x80\n", b"\xff\xfev\0e\0r\0")
_ENCODED += (b"\xef\xbb\xbf\xef\xbb\xbf",)
_SOME = 4


def text(rng: random.Random, folder: Path) -> Path:
    """Change characters, lines, or bytes of a recipe."""
    data = bytearray(rng.choice(RECIPES).encode())
    for _ in range(rng.randrange(1, _SOME)):
        at, n = rng.randrange(len(data)), rng.randrange(1, 12)
        match rng.randrange(5):
            case 0:
                data[at] = rng.choice(b"{}[]:,-&*!|>'\"%@`#\t\n ?0aZ\xff")
            case 1:
                del data[at : at + n]
            case 2:
                data[at:at] = data[at : at + n]
            case 3:
                data[at:at] = rng.choice(NAMES).encode()
            case 4:
                lines = data.splitlines(keepends=True)
                data = bytearray(b"".join([*lines, rng.choice(lines)]))
        data = data or bytearray(b" ")
    return _write(bytes(data), folder)


def values(rng: random.Random, folder: Path) -> Path:
    """Change keys and values of a recipe anywhere in its tree."""
    tree = yaml.safe_load(rng.choice(RECIPES))
    for _ in range(rng.randrange(1, _SOME)):
        _damage(rng, tree)
    return _write(yaml.safe_dump(tree, allow_unicode=True, sort_keys=False).encode(), folder)


def hostile(rng: random.Random, folder: Path) -> Path:
    """Take one of the texts that break careless readers, alone or behind a valid recipe."""
    if rng.random() < 0.15:  # noqa: PLR2004
        return _write(rng.choice(_ENCODED), folder)
    start = rng.choice(["", "", *RECIPES])
    return _write((start + rng.choice(_TEXTS)).encode(errors="surrogatepass"), folder)


def _damage(rng: random.Random, tree: Any) -> None:
    parents = list(_containers(tree))
    parent = rng.choice(parents)
    if isinstance(parent, list):
        at = rng.randrange(len(parent))
        match rng.randrange(3):
            case 0:
                parent[at] = rng.choice(_VALUES)
            case 1:
                del parent[at]
            case 2:
                parent.append(parent[at])
        return
    key = rng.choice(list(parent))
    match rng.randrange(4):
        case 0 | 1:
            parent[key] = rng.choice(_VALUES)
        case 2:
            parent[f"{key}x" if rng.random() < 0.5 else rng.choice(NAMES)] = parent.pop(key)  # noqa: PLR2004
        case 3:
            parent[rng.choice(list(rng.choice([p for p in parents if isinstance(p, dict)])))] = parent[key]


def _containers(tree: Any) -> Any:
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    if children:
        yield tree
    for child in children:
        yield from _containers(child)


def _write(data: bytes, folder: Path) -> Path:
    path = folder / "recipe.yaml"
    path.write_bytes(data)
    return path
