"""Precision as the types of the graph, which is all that a strongly typed builder reads.

INT8 is where the graph has Q/DQ pairs, and stays there. FP16 is made of the rest, but for what overflows and for what
touches a pair: between two pairs a layer computes in INT8 whatever type the graph names there.
Source: NVIDIA TensorRT documentation, Explicit quantization and Strongly typed networks.
Another precision is a branch in `typed`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from compressor import graph, runtime, workspace
from compressor.errors import RungError
from compressor.records import Feeds

if TYPE_CHECKING:
    import onnx_ir as ir

Precision = Literal["auto", "int8", "fp16", "fp32"]
_QDQ = frozenset({"QuantizeLinear", "DequantizeLinear"})
_MOST = 65504.0 / 2
"""Half of the largest FP16 number: other inputs than those that were seen can be larger."""


@dataclass(frozen=True)
class Typed:
    """What the types of a graph say: what `auto` became, how many Q/DQ pairs there are, and what FP16 cannot hold."""

    precision: Literal["int8", "fp16", "fp32"]
    pairs: int
    overflowing: tuple[str, ...] = ()
    kept: int = 0  # nodes that stay FP32 beside the pairs, for what FP16 cannot hold, or for touching a pair


def typed(path: Path, out: Path, precision: Precision, feeds: Iterable[Feeds]) -> Typed:
    """Write the graph with the types of a precision; float32 samples say which values FP16 cannot hold.

    Raises:
        RungError: INT8 is asked for and nothing is quantized, or the graph cannot be converted.
    """
    model = graph.load(path)
    pairs = sum(node.op_type == "DequantizeLinear" for node in model.graph)
    settled = precision if precision != "auto" else "int8" if pairs else "fp16"
    if settled == "int8" and not pairs:
        raise RungError("precision int8: nothing in the graph is quantized; add `quantize` to the stages, or use fp16")
    if settled != "fp16":
        for source, target in zip(graph.parts(path), _beside(path, out), strict=True):
            workspace.copy(source, target)
        return Typed(settled, pairs)
    with TemporaryDirectory() as scratch:
        graph.normalise(path, normal := Path(scratch) / "model.onnx")  # stages leave names and types unsaid
        model = graph.load(normal)
        overflowing = tuple(_overflowing(model, runtime.largest(normal, feeds)))
        beside = set(_at_pairs(model))
        runtime.halved(normal, out, {*overflowing, *beside})
    pairing = {str(node.name) for node in model.graph if node.op_type in _QDQ}
    return Typed(settled, pairs, overflowing, len({*overflowing, *beside} - pairing))


def _beside(path: Path, out: Path) -> Iterator[Path]:
    main, *external = graph.parts(path)
    yield out
    yield from (out.parent / data.relative_to(main.parent) for data in external)


def _overflowing(model: ir.Model, largest: Mapping[str, float]) -> Iterator[str]:
    """Name the nodes that read or give a value that FP16 cannot hold, or that nobody saw."""
    import onnx_ir as ir

    for node in model.graph:
        values = [value for value in (*node.inputs, *node.outputs) if value is not None]
        floats = [str(value.name) for value in values if value.dtype in {None, ir.DataType.FLOAT}]
        if any(largest.get(name, math.inf) > _MOST for name in floats):
            yield str(node.name)


def _at_pairs(model: ir.Model) -> Iterator[str]:
    """Name the nodes of pairs, and those that read from one or write to one."""
    for node in model.graph:
        before = (value.producer() for value in node.inputs if value is not None)
        behind = (use.node for value in node.outputs for use in value.uses())
        if any(near is not None and near.op_type in _QDQ for near in (node, *before, *behind)):
            yield str(node.name)
