"""Correction of biases for the error that rounding weights adds to the mean of a layer's output.

How the mean error of one more kind of layer follows from its weights is a branch of `_mean_error`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor import graph
from compressor.records import Array
from compressor.stages.quantize.statistics import Statistics
from compressor.stages.quantize.taps import channel_axis

if TYPE_CHECKING:
    import onnx_ir as ir

_MATRIX = 2
_QDQ = frozenset({"DequantizeLinear", "QuantizeLinear"})


def corrected(reference: Path, quantized: Path, out: Path, statistics: Statistics) -> None:
    """Write the quantized model with its biases corrected.

    Layers are found by their name. Corrected are the biases in float or 32 bits of Conv, ConvTranspose and Gemm, and
    the row that a float Add adds to a MatMul by a matrix. What stays as it is: a layer without a bias of its own, and
    one whose bias has 8 bits, as that of a MatMul has where the Add after it is quantized too.
    Source: Nagel et al., Data-Free Quantization through Weight Equalization and Bias Correction, 2019, section 4.2:
    E[y'] - E[y] = (W' - W) E[x], here with the means of x over calibration samples instead of those expected by
    BatchNormalization.
    """
    layers = {node.name: node for node in graph.load(reference).graph if channel_axis(node) is not None}
    model = graph.load(quantized)
    for node in model.graph:
        if node.name in layers:
            _correct(layers[node.name], node, statistics.means)
    graph.save(model, out)


def _correct(layer: ir.Node, node: ir.Node, means: Mapping[tuple[str, int], Array]) -> None:
    """Subtract the mean error of a layer from its bias in place, where there is one to correct."""
    mean = means.get((str(layer.inputs[0].name), channel_axis(layer) or 1))
    bias = _bias(node)
    if mean is None or bias is None or not np.isfinite(mean).all() or layer.op_type != node.op_type:
        return
    before, after = _computed(layer.inputs[1]), _computed(node.inputs[1])
    if before is None or after is None or before.shape != after.shape:
        return
    if node.op_type != "MatMul" or before.ndim == _MATRIX:  # a stack of them has a mean error each
        _subtract(bias, _mean_error(node, after.astype(np.float64) - before, mean))


def _mean_error(node: ir.Node, change: Array, mean: Array) -> Array:
    """Give what a change of weights adds to the mean of each output channel, far from the borders of an image."""
    if node.op_type == "Gemm" and node.attributes.get_int("transB", 0):
        change = change.T
    if not node.op_type.startswith("Conv"):
        return np.asarray(mean @ change)
    per_group = mean.reshape(node.attributes.get_int("group", 1), -1)
    taps = change.reshape(*change.shape[:2], -1).sum(axis=2)
    if node.op_type == "Conv":  # [out, in per group]
        grouped = taps.reshape(len(per_group), -1, taps.shape[1])
        return np.asarray(np.einsum("goi,gi->go", grouped, per_group)).reshape(-1)
    # [in, out per group], and each output meets but one in so many taps
    met = math.prod(node.attributes.get_ints("strides", [1]))
    grouped = taps.reshape(*per_group.shape, -1) / met
    return np.asarray(np.einsum("gio,gi->go", grouped, per_group)).reshape(-1)


def _bias(node: ir.Node) -> ir.Value | None:
    """Give the constant bias that this layer alone reads, or the dequantized one; None where there is none."""
    if node.op_type == "MatMul":
        return _added(node)
    if any(node.attributes.get_float(factor, 1.0) != 1 for factor in ("alpha", "beta")):
        return None
    return _own(node.inputs[2]) if len(node.inputs) > 2 else None  # noqa: PLR2004


def _added(node: ir.Node) -> ir.Value | None:
    """Give the constant that is added to what a MatMul gives, through a Q/DQ pair if need be."""
    uses = node.outputs[0].uses()
    while len(uses) == 1 and uses[0].node.op_type in _QDQ:
        uses = uses[0].node.outputs[0].uses()
    if len(uses) == 1 and uses[0].node.op_type == "Add":
        return _own(uses[0].node.inputs[1 - uses[0].idx])
    return None


def _own(value: ir.Value | None) -> ir.Value | None:
    if value is None or len(value.uses()) != 1:
        return None
    producer = value.producer()
    held = value if producer is None else producer.inputs[0]
    ours = held is not None and held.const_value is not None and len(held.uses()) == 1
    return value if ours and (producer is None or producer.op_type == "DequantizeLinear") else None


def _subtract(bias: ir.Value, error: Array) -> None:
    """Subtract from a float bias, or from the integers of a dequantized one, if it is a row as long as the error."""
    import onnx_ir as ir

    producer = bias.producer()
    held = bias if producer is None else producer.inputs[0]
    array = held.const_value.numpy()
    step = 1.0 if producer is None else producer.inputs[1].const_value.numpy().astype(np.float64)
    is_row = array.shape[-1:] == error.shape and array.size == error.size
    if not is_row or array.dtype not in (np.float32, np.int32):
        return
    wanted = array - (error / step).reshape(array.shape)
    if array.dtype == np.int32:
        limits = np.iinfo(np.int32)
        wanted = np.clip(np.rint(wanted), limits.min, limits.max)
    held.const_value = ir.tensor(wanted.astype(array.dtype), name=held.name)


def _computed(value: ir.Value | None) -> Array | None:
    """Give the float values of a constant, quantized and dequantized as it may be; None for any other value."""
    if value is None:
        return None
    if value.const_value is not None:
        return np.asarray(value.const_value.numpy())
    node = value.producer()
    if node is None or node.op_type not in _QDQ or node.attributes.get_int("block_size", 0):
        return None
    array = _computed(node.inputs[0])
    return None if array is None else _converted(node, array)


def _converted(node: ir.Node, array: Array) -> Array | None:
    scale = _computed(node.inputs[1])
    zero = _computed(node.inputs[2]) if len(node.inputs) > 2 else np.zeros((), np.uint8)  # noqa: PLR2004
    if scale is None or zero is None:
        return None
    along = [1] * array.ndim
    if scale.ndim:
        along[node.attributes.get_int("axis", 1)] = scale.size
    step, offset = scale.astype(np.float64).reshape(along), zero.astype(np.float64)
    offset = offset.reshape(along) if zero.size > 1 else offset.reshape(())
    if node.op_type == "DequantizeLinear":
        return (array - offset) * step
    limits = np.iinfo(zero.dtype)
    return np.clip(np.rint(array / step) + offset, limits.min, limits.max)
