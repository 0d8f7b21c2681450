"""What in a graph is known before it runs: constants, and the weights that operators multiply with.

Add here what is known of a value without running the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compressor.records import Array

if TYPE_CHECKING:
    import onnx_ir as ir

_KEEPS_ZERO = frozenset(
    {"Cast", "Concat", "Flatten", "Identity", "Mul", "Neg", "Reshape", "Slice", "Split", "Squeeze", "Transpose"}
    | {"Unsqueeze"}
)


def constant(value: ir.Value | None) -> Array | None:
    """Give the array of an initializer that no caller can change; None for every other value."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    array: Array = value.const_value.numpy()
    return array


def is_weight(value: ir.Value | None) -> bool:
    """Tell whether a value is a float initializer, or made of such so that zeros in them are zeros in it."""
    if value is None or value.is_graph_input():
        return False
    node = value.producer()
    if node is None:
        return value.const_value is not None and bool(value.const_value.dtype.is_floating_point())
    data = node.inputs if node.op_type in {"Concat", "Mul"} else node.inputs[:1]  # others: shapes, axes, bounds
    return node.op_type in _KEEPS_ZERO and all(map(is_weight, data))


def origin(value: ir.Value, axis: int) -> tuple[ir.Value, int]:
    """Follow an axis of weights back through nodes that only turn or convert them."""
    node = value.producer()
    while node is not None and node.op_type in {"Cast", "Identity", "Neg", "Transpose"}:
        if node.op_type == "Transpose":
            ranks = len(value.shape.dims)
            axis = (node.attributes.get_ints("perm", None) or range(ranks)[::-1])[axis]
        value = node.inputs[0]
        node = value.producer()
    return value, axis
