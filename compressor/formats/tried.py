"""The ways of applying a stage that were tried: what each is called, and how they came out in one line.

A setting that tells ways apart is a line in `way`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from compressor.formats.words import ratio
from compressor.records import Applied, Tried

_SCHEMES = {"weights": "weights only"}


def way(settings: Mapping[str, Any]) -> str:
    """Give settings of a stage in words: those that tell ways of quantizing apart, of another stage all."""
    if "scheme" not in settings:
        return ", ".join(f"{name} {value}" for name, value in settings.items()) or "as it is"
    return ", ".join(_quantizing(settings))


def sentence(stage: Applied) -> str:
    """Say in short how the ways of a stage came out; empty where there was nothing to choose."""
    if not stage.tried:
        return ""
    left = "" if any(tried.taken for tried in stage.tried) else "; none taken"
    return f"{stage.stage}: {'; '.join(map(_outcome, stage.tried))}{left}"


def _quantizing(settings: Mapping[str, Any]) -> Iterator[str]:
    scheme = settings["scheme"]
    yield _SCHEMES.get(scheme, scheme)
    if scheme == "static":
        nncf = settings.get("backend") == "nncf"
        yield "by nncf" if nncf else f"{settings.get('operators', 'all')} operators"
    if settings.get("activations") == "s8":
        yield "signed"
    if settings.get("reduce_range"):
        yield "7-bit weights"
    if layers := settings.get("unsigned"):
        yield f"unsigned weights in {len(layers)} layer{'s' * (len(layers) > 1)}"


def _outcome(tried: Tried) -> str:
    if tried.size_bytes is None:
        return f"{way(tried.settings)} refused"
    speed = f" {ratio(tried.ratio)}x" if tried.ratio is not None else ""
    return f"{way(tried.settings)}{speed}{' taken' if tried.taken else ''}"
