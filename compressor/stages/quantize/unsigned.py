"""Weights of layers that a CPU's integer kernels compute wrongly, shifted from signed to unsigned 8 bits.

x86 CPUs without VNNI add two products of an unsigned and a signed byte in 16 bits, which saturates; two unsigned bytes
take a slower way that is exact. What else mends a layer without changing its numbers is a function here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor.records import Feeds, Work
from compressor.stages.quantize.layers import Layer, layers

if TYPE_CHECKING:
    import onnx

_SHIFT = 128
_CLEARLY_DB = 0.2
"""Exact kernels come within 0.01 dB of the emulation, which rounds otherwise; saturation costs whole decibels."""


def unsaturated(reference: Path, quantized: Path, feeds: Iterable[Feeds]) -> Work[tuple[str, ...]]:
    """Give the names of the layers of a Q/DQ file that this CPU computes right only with `unsigned` weights.

    `reference` is the float model, whose activations on a few `feeds` show what saturates.
    """
    import onnx

    found = yield from layers(reference, quantized, feeds, real=True)
    model = onnx.load(quantized)
    return tuple(name for name in saturating(found) if any(_signed_weights(model, {name})))


def saturating(found: Iterable[Layer]) -> tuple[str, ...]:
    """Give the names of the layers that this machine's kernels compute clearly worse than exact arithmetic."""
    return tuple(
        layer.name for layer in found if layer.real_db is not None and layer.real_db < layer.exact_db - _CLEARLY_DB
    )


def unsigned(model: onnx.ModelProto, nodes: Collection[str]) -> onnx.ModelProto:
    """Give the same model with the signed 8-bit weights of these nodes unsigned: equal numbers, other codes.

    All DequantizeLinear that read the same weights are switched with them, so that they stay in the file once.
    """
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    weights = set(_signed_weights(result, nodes))
    for node in result.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in weights:
            node.input[:] = _switched(result, node)
    _drop_unread(result, weights)
    del result.graph.value_info[:]  # they may still give the signed type
    return result


def _signed_weights(model: onnx.ModelProto, nodes: Collection[str]) -> Iterator[str]:
    """Give the names of the signed 8-bit constants that these nodes read through DequantizeLinear."""
    import onnx

    read = {name for node in model.graph.node if node.name in nodes for name in node.input}
    signed = {tensor.name for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.INT8}
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.output[0] in read and node.input[0] in signed:
            yield node.input[0]


def _switched(model: onnx.ModelProto, node: onnx.NodeProto) -> list[str]:
    """Give the inputs of a DequantizeLinear whose codes and zero points are unsigned; adds those to the model."""
    from onnx import numpy_helper

    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    weight, scale, *rest = node.input
    zeros = numpy_helper.to_array(constants[rest[0]]) if any(rest) else np.zeros(constants[scale].dims, np.int8)
    wanted = {weight: numpy_helper.to_array(constants[weight]), rest[0] if any(rest) else scale: zeros}
    names = [f"{name}_unsigned" for name in wanted]
    for name, codes in zip(names, wanted.values(), strict=True):
        if name not in constants:
            shifted = (codes.astype(np.int16) + _SHIFT).astype(np.uint8)
            model.graph.initializer.append(numpy_helper.from_array(shifted, name))
    return [names[0], scale, names[1]]


def _drop_unread(model: onnx.ModelProto, names: Collection[str]) -> None:
    """Drop those of these constants that no node reads any more, branches included."""
    read = set(_read(model.graph))
    kept = [tensor for tensor in model.graph.initializer if tensor.name not in names or tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def _read(body: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in body.output)
    for node in body.node:
        yield from node.input
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _read(inner)
