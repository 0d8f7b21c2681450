"""Which initializers of a graph were learnt, so that training may change them: never masks, grids or settings.

Another operator with weights is a line in `_FACTORS` or `_BIASES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from compressor.records import Array

if TYPE_CHECKING:
    import onnx_ir as ir

_NORMALISATIONS = ("BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization")
_FACTORS = {"Conv": (1,), "ConvTranspose": (1,), "Einsum": (0, 1), "Gather": (0,), "Gemm": (0, 1), "MatMul": (0, 1)}
"""Inputs that are weights, unless their values are those of a mask or a selection."""
_BIASES = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm"), (2,)),
    **dict.fromkeys(_NORMALISATIONS, (1, 2)),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), (1, 2, 3)),
    "PRelu": (1,),
}
"""Inputs that are learnt whatever their values are: 0 and 1 are where training begins."""
_LAYERS = ({*_FACTORS} | {*_BIASES}) - {"Gather", "PRelu"}
_LAYOUT = {"Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
"""What only places the values of a weight otherwise."""


def is_learnt(value: ir.Value) -> bool:
    """Tell whether all that the graph does with an initializer is what it does with learnt weights of 32-bit floats."""
    import onnx_ir as ir

    tensor = value.const_value
    if tensor is None or value.is_graph_input() or value.is_graph_output() or tensor.dtype != ir.DataType.FLOAT:
        return False
    uses, array = list(_uses(value)), tensor.numpy()
    if not uses or not array.ndim or array.size == 1 or not np.isfinite(array).all():
        return False
    return all(index in _BIASES.get(node.op_type, ()) or _is_factor(node, index, array) for node, index in uses)


def _uses(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    for node, index in value.uses():
        if node.op_type in _LAYOUT and index == 0 and not node.outputs[0].is_graph_output():
            yield from _uses(node.outputs[0])
        else:
            yield node, index


def _is_factor(node: ir.Node, index: int, array: Array) -> bool:
    values = array[array != 0]
    if not values.size or (values == values[0]).all():  # a mask, a selection, a mean
        return False
    return index in _FACTORS.get(node.op_type, ()) or _is_behind_layer(node, index)


def _is_behind_layer(node: ir.Node, index: int) -> bool:
    """Tell whether this input is one value a channel that scales or shifts what a layer gives."""
    if node.op_type not in {"Add", "Mul"}:
        return False
    value, other = node.inputs[index], node.inputs[1 - index]
    if value is None or value.const_value is None or other is None:
        return False
    source, sizes = other.producer(), value.const_value.shape.numpy()
    if source is None or not 1 < value.const_value.size == max(sizes, default=0):
        return False
    return source.op_type in _LAYERS or _normalises(source) or any(_is_behind_layer(source, i) for i in range(2))


def _normalises(node: ir.Node) -> bool:
    """Tell whether a node divides by a root, as the last step of a normalisation that is written out."""
    by = node.inputs[1] if node.op_type == "Div" else None
    root = by.producer() if by else None
    return root is not None and root.op_type == "Sqrt"
