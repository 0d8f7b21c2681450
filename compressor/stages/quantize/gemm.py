"""Gemm in the one form that quantizers get right: factors of 1, and as bias a row of constants or none.

What cannot be brought into it stays float, in `exclude`. Another rewriting of a Gemm is a function beside `scale`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from compressor.graph import count
from compressor.stages.quantize import constants

if TYPE_CHECKING:
    import onnx_ir as ir

_LEFT, _RIGHT, _BIAS = 0, 1, 2
_FACTORS = (("alpha", (_RIGHT, _LEFT)), ("beta", (_BIAS,)))
"""What each factor of the operator scales; for a product, one side of it."""


def scale(model: ir.Model) -> int:
    """Multiply alpha and beta into the constants they scale, each into a copy where others read it; count them.

    A beta without a bias, or of 0, goes with what it scales.

    onnxruntime 1.32 leaves the bias unscaled by beta.
    """
    return sum(_scale(model, node, *factor) for node in _gemms(model) for factor in _FACTORS)


def straighten(model: ir.Model) -> int:
    """Make a row of each bias that is one number or a row in more axes; let an Add add any other; count them.

    onnxruntime 1.32 fails on a bias with another number of elements than the product has columns, nncf 3.4 on one
    that is computed, or beside two activations.
    """
    odd = [node for node in _gemms(model) if _has_bias(node) and not _is_good(node)]
    for node in odd:
        columns = _columns(node)
        if columns and _has_weight(node) and _is_one_row(node.inputs[_BIAS]):
            row = np.broadcast_to(node.inputs[_BIAS].const_value.numpy().reshape(-1), columns)
            constants.replace(model, [node], _BIAS, np.array(row))
        else:
            _split(model, node)
    return len(odd)


def _gemms(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type == "Gemm" and node.domain in count.STANDARD_DOMAINS]


def _scale(model: ir.Model, node: ir.Node, name: str, indices: tuple[int, ...]) -> bool:
    import onnx_ir as ir

    factor = node.attributes.get_float(name, 1.0)
    index = next((i for i in indices if i < len(node.inputs) and constants.is_constant(node.inputs[i])), None)
    if factor == 1:
        return False
    if name == "beta" and (factor == 0 or not _has_bias(node)):
        node.resize_inputs(min(len(node.inputs), _BIAS))
    elif index is None:
        return False
    else:
        array = node.inputs[index].const_value.numpy()
        constants.replace(model, [node], index, (array.astype(np.float64) * factor).astype(array.dtype))
    node.attributes[name] = ir.AttrFloat32(name, 1.0)
    return True


def _has_bias(node: ir.Node) -> bool:
    return len(node.inputs) > _BIAS and node.inputs[_BIAS] is not None


def _is_good(node: ir.Node) -> bool:
    bias = node.inputs[_BIAS]
    is_row = constants.is_constant(bias) and list(bias.const_value.shape) == [_columns(node)]
    return is_row and _has_weight(node)


def _has_weight(node: ir.Node) -> bool:
    return any(map(constants.is_constant, node.inputs[:_BIAS]))


def _is_one_row(bias: ir.Value) -> bool:
    shape = bias.const_value.shape if constants.is_constant(bias) else (0, 0)
    return all(dim == 1 for dim in shape[:-1])


def _columns(node: ir.Node) -> int | None:
    shape = node.inputs[_RIGHT].shape
    size = None if shape is None else shape[0 if node.attributes.get_int("transB", 0) else 1]
    return size if isinstance(size, int) else None


def _split(model: ir.Model, node: ir.Node) -> None:
    """Let an Add after the Gemm add its bias; the result keeps its name."""
    import onnx_ir as ir

    result, bias = node.outputs[0], _scaled_bias(model, node)
    name = constants.free_name(model, f"{result.name}_product")
    node.resize_inputs(_BIAS)
    added = ir.Value(name=result.name, shape=result.shape, type=result.type)
    result.replace_all_uses_with(added, replace_graph_outputs=True)
    result.name = name
    add_name = constants.free_name(model, f"{node.name}_bias")
    node.graph.insert_after(node, ir.Node("", "Add", [result, bias], outputs=[added], name=add_name))


def _scaled_bias(model: ir.Model, node: ir.Node) -> ir.Value:
    """Give beta times the bias of a Gemm, by a Mul where it is not 1; the Gemm scales it no longer."""
    import onnx_ir as ir

    bias, beta = node.inputs[_BIAS], node.attributes.pop("beta", None)
    if beta is None or beta.value == 1:
        return bias
    kind = bias.dtype or ir.DataType.FLOAT
    name = constants.free_name(model, f"{node.outputs[0].name}_beta")
    factor = ir.val(name, const_value=ir.tensor(np.array(beta.value, kind.numpy()), name=name))
    model.graph.register_initializer(factor)
    output = ir.Value(name=constants.free_name(model, f"{name}_times"), shape=bias.shape, type=bias.type)
    mul = ir.Node("", "Mul", [bias, factor], outputs=[output], name=output.name)
    node.graph.insert_before(node, mul)
    return mul.outputs[0]
