"""Pieces of work that go wrong, to stand in for ours in a child."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from pathlib import Path

import onnx

from compressor import graph
from compressor.errors import PublishError
from compressor.pipeline import work


def crash(*_arguments: object) -> None:
    ctypes.string_at(0)


def write_and_crash(_seconds: float, folder: Path) -> None:
    (folder / "half.onnx").write_bytes(b"half")
    crash()


def hang(*_arguments: object) -> None:
    time.sleep(600)


def eat(*_arguments: object) -> None:
    hoard = []
    while True:
        hoard.append(bytes(20_000_000))
        hoard[-1] = hoard[-1].replace(b"\0", b"x")


def refuse(uri: str, *_arguments: object) -> None:
    raise PublishError(f"registry {uri}: the run was not recorded")


def bug(*_arguments: object) -> None:
    raise ZeroDivisionError


def normalise_wrongly(given: work.Given, out: Path) -> Iterator[object]:
    """Negate a weight on the way."""
    proto = onnx.load(given.original.path)
    weight = next(tensor for tensor in proto.graph.initializer if tensor.name == "w1")
    weight.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(weight), "w1"))
    onnx.save(proto, out.with_name("negated.onnx"))
    real, graph.normalise = graph.normalise, lambda _path, to: real(out.with_name("negated.onnx"), to)
    return (yield from work.normalise(given, out))
