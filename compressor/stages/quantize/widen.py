"""Other floats inside a graph made float32; what the caller sees at its ends keeps its type.

Float64 is another matter: it is there either because the whole model was saved so, or to count what float32 cannot
(indices and times beyond 2 ** 24). Only where layers have weights in it is it taken for the former.

Another attribute that names a type is an entry of `_TYPE_NAMES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from compressor.stages.quantize import constants

if TYPE_CHECKING:
    import onnx_ir as ir

Kinds = frozenset[str]
"""Types of float as onnx names them."""

_HALVES = frozenset({"BFLOAT16", "FLOAT16"})
_OTHERS = _HALVES | {"DOUBLE"}
_LAYERS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_TYPE_NAMES = frozenset(
    {"dtype", "output_datatype", "output_dtype", "precision", "softmax_precision", "stash_type", "to"}
)
_FAITHFUL = frozenset({"BitCast"})
"""Operators that look at the bits of a number."""


def others(model: ir.Model) -> Kinds:
    """Give the types of float in the model, at its ends too, that are to become float32."""
    layers = (node for node in model.graph.all_nodes() if node.op_type in _LAYERS)
    layered = {value.type.dtype.name for node in layers for value in node.inputs if value is not None and value.type}
    kinds = _OTHERS if "DOUBLE" in layered else _HALVES
    named = {kind for node in model.graph.all_nodes() for kind in kinds if _names_other(node, frozenset({kind}))}
    return frozenset(named | {value.type.dtype.name for value in _values(model) if _is_of(value.type, kinds)})


def refusal(model: ir.Model, kinds: Kinds) -> str:
    """Say why floats of these types cannot be widened; empty if they can."""
    import onnx_ir as ir

    for value in (*model.graph.inputs, *model.graph.outputs):
        if _is_of(value.type, kinds) and not isinstance(value.type, ir.TensorType):
            return f"{value.name!r} is a sequence or optional of {_word(value.type)}, which cannot be cast"
    for node in model.graph.all_nodes():
        text = node.op_type == "Cast" and node.attributes.get_int("to", 0) == ir.DataType.STRING
        if (text or node.op_type in _FAITHFUL) and _is_of(node.inputs[0].type, kinds):
            return f"{node.name} reads the digits or bits of {_word(node.inputs[0].type)}"
    return ""


def widen(model: ir.Model, kinds: Kinds) -> None:
    """Make floats of these types inside the model, which the caller owns, float32; a Cast stands at each end of one.

    Infinities stay infinite and finite values finite: a float64 beyond the range of float32 becomes its bound.
    """
    ends = {value: value.type for value in (*model.graph.inputs, *model.graph.outputs)}
    for node in model.graph.all_nodes():
        _widen_attributes(node, kinds)
    for value in list(_values(model)):
        _widen_value(value, kinds)
    for value, kept in ends.items():
        if _is_of(kept, kinds) and value.is_graph_input():
            _cast_input(model, value, kept)
        elif _is_of(kept, kinds):
            _cast_output(model, value, kept)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from graph.inputs
        yield from graph.initializers.values()
    for node in model.graph.all_nodes():
        yield from node.outputs


def _is_of(type_: ir.TypeProtocol | None, kinds: Kinds) -> bool:
    """Tell whether a tensor's elements, or those of a sequence of tensors, are of one of these types."""
    return type_ is not None and type_.dtype.name in kinds


def _word(type_: ir.TypeProtocol) -> str:
    return str(type_.dtype.name.lower())


def _names_other(node: ir.Node, kinds: Kinds) -> bool:
    import onnx_ir as ir

    named = {ir.DataType[kind] for kind in kinds}
    return any(
        (name in _TYPE_NAMES and attribute.value in named)
        or (attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype in named)
        for name, attribute in node.attributes.items()
    )


def _widen_attributes(node: ir.Node, kinds: Kinds) -> None:
    import onnx_ir as ir

    if not _names_other(node, kinds):
        return
    for name, attribute in list(node.attributes.items()):
        if attribute.type == ir.AttributeType.TENSOR:
            node.attributes[name] = ir.AttrTensor(name, _float32(attribute.value, kinds))
        elif name in _TYPE_NAMES:
            node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.FLOAT))


def _widen_value(value: ir.Value, kinds: Kinds) -> None:
    if value.type is not None:
        value.type = _widened(value.type, kinds)
    if value.const_value is not None:
        value.const_value = _float32(value.const_value, kinds)


def _widened(type_: ir.TypeProtocol, kinds: Kinds) -> ir.TypeProtocol:
    import onnx_ir as ir

    if not _is_of(type_, kinds):
        return type_
    if isinstance(type_, ir.SequenceType | ir.OptionalType):
        return type(type_)(_widened(type_.elem_type, kinds), denotation=type_.denotation)
    return type(type_)(ir.DataType.FLOAT, denotation=type_.denotation)


def _float32(tensor: ir.TensorProtocol, kinds: Kinds) -> ir.TensorProtocol:
    import onnx_ir as ir

    if tensor.dtype.name not in kinds:
        return tensor
    array, bound = tensor.numpy(), np.finfo(np.float32).max
    if array.dtype == np.float64:
        array = np.where(np.isfinite(array), np.clip(array, -bound, bound), array)
    return ir.tensor(array.astype(np.float32), name=tensor.name)


def _cast_input(model: ir.Model, value: ir.Value, kept: ir.TypeProtocol) -> None:
    import onnx_ir as ir

    value.type, readers = kept, list(value.uses())
    if not readers:
        return
    inner = _cast(model, value, ir.TensorType(ir.DataType.FLOAT))
    for reader in readers:
        reader.node.replace_input_with(reader.idx, inner)
    model.graph.insert_before(model.graph[0], inner.producer())


def _cast_output(model: ir.Model, value: ir.Value, kept: ir.TypeProtocol) -> None:
    """Let a Cast give the output under its name; what gave it so far gets another."""
    outer = _cast(model, value, kept)
    name, value.name = value.name, outer.name
    outer.name = name
    model.graph.outputs[:] = [outer if output is value else output for output in model.graph.outputs]
    model.graph.append(outer.producer())


def _cast(model: ir.Model, value: ir.Value, to: ir.TypeProtocol) -> ir.Value:
    import onnx_ir as ir

    name = constants.free_name(model, f"{value.name}_cast")
    attributes = [ir.AttrInt64("to", int(to.dtype))]
    output = ir.Value(name=name, shape=value.shape, type=to)
    return ir.Node("", "Cast", [value], attributes, outputs=[output], name=name).outputs[0]
