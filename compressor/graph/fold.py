"""Exact folding of BatchNormalization into the convolution before it.

Like the passes of onnx_ir, `batch_norms` changes the graph it is given, which `normalise` owns. Add another pattern
that folds into weights as a function beside it.
"""

from __future__ import annotations

from itertools import chain
from itertools import count as numbers
from typing import TYPE_CHECKING

import numpy as np

from compressor.graph import count

if TYPE_CHECKING:
    import onnx_ir as ir

    from compressor.records import Array

_WEIGHT, _BIAS = 1, 2  # inputs of a convolution
_EPSILON = 1e-5  # the operator's default


def batch_norms(graph: ir.Graph) -> int:
    """Fold each BatchNormalization in inference mode that alone reads a convolution; give how many.

    Computed in float64, stored in the weight's own type (float32 or float64; others stay as they are). The result keeps
    the name of the BatchNormalization's output; a weight with other readers gets a copy.
    """
    candidates = [norm for norm in graph.all_nodes() if _is_foldable(norm)]
    return sum(_fold(graph, norm) for norm in candidates)


def _is_foldable(norm: ir.Node) -> bool:
    if norm.op_type != "BatchNormalization" or norm.domain not in count.STANDARD_DOMAINS or count.is_training(norm):
        return False
    value = norm.inputs[0]
    conv = value.producer()
    if conv is None or conv.op_type not in {"Conv", "ConvTranspose"} or conv.domain not in count.STANDARD_DOMAINS:
        return False
    only_reader = len(value.uses()) == 1 and not value.is_graph_output() and conv.graph is norm.graph
    statistics_unread = not any(extra.uses() or extra.is_graph_output() for extra in norm.outputs[1:])
    constants = (*conv.inputs[1:], *norm.inputs[1:])
    return only_reader and statistics_unread and all(c is None or _is_plain_float(c) for c in constants)


def _is_plain_float(value: ir.Value) -> bool:
    return value.const_value is not None and value.const_value.dtype.name in {"FLOAT", "DOUBLE"}


def _fold(graph: ir.Graph, norm: ir.Node) -> bool:
    conv = norm.inputs[0].producer()
    kernel = conv.inputs[_WEIGHT].const_value.numpy()
    scale, shift = _affine(norm)
    weight = _scaled(conv, kernel.astype(np.float64), scale).astype(kernel.dtype)
    bias = (_bias(conv) * scale + shift).astype(kernel.dtype)
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        return False  # a variance of zero or below: the runtime's own answer is kept, whatever it is
    _set_constant(graph, conv, _WEIGHT, weight)
    _set_constant(graph, conv, _BIAS, bias)
    _bypass(conv, norm)
    return True


def _affine(norm: ir.Node) -> tuple[Array, Array]:
    """Give scale and shift per channel. Source: ONNX operator BatchNormalization, inference mode."""
    gamma, beta, mean, variance = (value.const_value.numpy().astype(np.float64) for value in norm.inputs[1:])
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = gamma / np.sqrt(variance + norm.attributes.get_float("epsilon", _EPSILON))
        return scale, beta - mean * scale


def _scaled(conv: ir.Node, kernel: Array, scale: Array) -> Array:
    if conv.op_type == "Conv":  # [out, in / groups, ...]
        return kernel * scale.reshape(-1, *(1,) * (kernel.ndim - 1))
    groups = conv.attributes.get_int("group", 1)  # [in, out / groups, ...]: a group's inputs share its outputs
    grouped = kernel.reshape(groups, -1, *kernel.shape[1:])
    return (grouped * scale.reshape(groups, 1, -1, *(1,) * (kernel.ndim - 2))).reshape(kernel.shape)


def _bias(conv: ir.Node) -> Array | float:
    has_bias = len(conv.inputs) > _BIAS and conv.inputs[_BIAS] is not None
    return conv.inputs[_BIAS].const_value.numpy().astype(np.float64) if has_bias else 0.0


def _set_constant(graph: ir.Graph, conv: ir.Node, index: int, array: Array) -> None:
    import onnx_ir as ir

    old = conv.inputs[index] if index < len(conv.inputs) else None
    if old is not None and len(old.uses()) == 1 and not old.is_graph_output():
        old.const_value = ir.tensor(array, name=old.name)
        return
    name = _free_name(graph, f"{conv.outputs[0].name}_{'bias' if index == _BIAS else 'weight'}")
    new = ir.val(name, const_value=ir.tensor(array, name=name))
    conv.graph.register_initializer(new)
    conv.resize_inputs(max(len(conv.inputs), index + 1))
    conv.replace_input_with(index, new)


def _free_name(graph: ir.Graph, wanted: str) -> str:
    graphs = (graph, *graph.subgraphs())
    taken = {value.name for part in graphs for value in (*part.inputs, *part.initializers.values())}
    taken |= {value.name for node in graph.all_nodes() for value in node.outputs}
    return next(n for n in chain([wanted], (f"{wanted}_{i}" for i in numbers(1))) if n not in taken)


def _bypass(conv: ir.Node, norm: ir.Node) -> None:
    import onnx_ir as ir

    result, replaced = conv.outputs[0], norm.outputs[0]
    name, shape, type_ = replaced.name, replaced.shape, replaced.type
    ir.convenience.replace_all_uses_with(replaced, result, replace_graph_outputs=True)
    norm.graph.remove(norm, safe=True)
    replaced.name = None
    result.name, result.shape, result.type = name, shape, type_
