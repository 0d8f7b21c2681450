"""`engine.json`: what the engines beside it are, and where alone they run.

What else a server must know of an engine is a field of `Record`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from compressor.errors import InputError

FILE = "engine.json"
Provider = Literal["tensorrt", "tensorrt-rtx"]
Range = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Shapes that an input may have under a profile: the least, the one it is built to be fastest with, the largest."""


class Bound(BaseModel, frozen=True, extra="forbid"):
    """An input or output. `dtype` as numpy names it; a dimension that a profile covers is -1."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Record(BaseModel, frozen=True, extra="forbid"):
    """One engine file. `capabilities`: compute capabilities such as 8.6, those of the devices it was built for.

    `precision`: as asked; `computes`: what is known of the arithmetic that the engine really does. `flags`: as the
    provider names them. `profiles`: by input. `onnx_sha256`: of the graph that was built, which lies beside it.
    """

    file: str
    sha256: str
    size_bytes: int
    provider: Provider
    version: str
    devices: tuple[str, ...]
    capabilities: tuple[str, ...]
    precision: str
    computes: str
    profiles: tuple[dict[str, Range], ...]
    inputs: tuple[Bound, ...]
    outputs: tuple[Bound, ...]
    onnx_sha256: str
    flags: tuple[str, ...]
    build_s: float
    cuda_graph: bool = False  # how it is run


class Records(BaseModel, frozen=True, extra="forbid"):
    """All engines of a folder."""

    schema_version: Literal[1] = 1
    engines: tuple[Record, ...]


def write(records: Records) -> str:
    """Give the text of `engine.json`."""
    return records.model_dump_json(indent=2) + "\n"


def read(path: Path) -> Records:
    """Read an `engine.json`.

    Raises:
        InputError: It is not there, or not one that this version writes.
    """
    try:
        return Records.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}: an engine needs it beside it, as it was built") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise InputError(f"{path}: {where}: {first['msg']}; build the engine again") from error


def of(engine: Path) -> Record:
    """Give what stands beside an engine file about it.

    Raises:
        InputError: There is no `engine.json`, or it does not name the file.
    """
    found = read(engine.with_name(FILE)).engines
    named = next((each for each in found if each.file == engine.name), None)
    if named is None:
        names = ", ".join(each.file for each in found) or "none"
        raise InputError(f"{engine.with_name(FILE)}: tells nothing of {engine.name}, but of {names}; build it again")
    return named
