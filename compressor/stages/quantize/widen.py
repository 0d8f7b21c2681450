"""Float16, bfloat16 and float64 inside a graph made float32; what the caller sees at its ends keeps its type.

Another attribute that names a type is an entry of `_TYPE_NAMES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from compressor.stages.quantize import constants

if TYPE_CHECKING:
    import onnx_ir as ir

_OTHERS = frozenset({"BFLOAT16", "DOUBLE", "FLOAT16"})
_TYPE_NAMES = frozenset(
    {"dtype", "output_datatype", "output_dtype", "precision", "softmax_precision", "stash_type", "to"}
)
_FAITHFUL = frozenset({"BitCast"})
"""Operators that look at the bits of a number."""


def is_wide(model: ir.Model) -> bool:
    """Tell whether every float in the model is float32, at its ends too."""
    return not any(_kind(value.type) for value in _values(model)) and not any(
        map(_names_other, model.graph.all_nodes())
    )


def refusal(model: ir.Model) -> str:
    """Say why the model cannot be widened; empty if it can."""
    import onnx_ir as ir

    for value in (*model.graph.inputs, *model.graph.outputs):
        if _kind(value.type) and not isinstance(value.type, ir.TensorType):
            return f"{value.name!r} is a sequence or optional of {_kind(value.type)}, which cannot be cast"
    for node in model.graph.all_nodes():
        text = node.op_type == "Cast" and node.attributes.get_int("to", 0) == ir.DataType.STRING
        if (text or node.op_type in _FAITHFUL) and _kind(node.inputs[0].type):
            return f"{node.name} reads the digits or bits of {_kind(node.inputs[0].type)}"
    return ""


def widen(model: ir.Model) -> None:
    """Make every float inside the model, which the caller owns, float32; a Cast stands at each end of another type.

    Infinities stay infinite and finite values finite: a float64 beyond the range of float32 becomes its bound.
    """
    ends = {value: value.type for value in (*model.graph.inputs, *model.graph.outputs)}
    for node in model.graph.all_nodes():
        _widen_attributes(node)
    for value in list(_values(model)):
        _widen_value(value)
    for value, kept in ends.items():
        if _kind(kept) and value.is_graph_input():
            _cast_input(model, value, kept)
        elif _kind(kept):
            _cast_output(model, value, kept)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from graph.inputs
        yield from graph.initializers.values()
    for node in model.graph.all_nodes():
        yield from node.outputs


def _kind(type_: ir.TypeProtocol | None) -> str:
    """Name the type of a tensor's elements, or of those of a sequence, if it is a float other than float32."""
    name = "" if type_ is None else type_.dtype.name
    return name.lower() if name in _OTHERS else ""


def _names_other(node: ir.Node) -> bool:
    import onnx_ir as ir

    others = {ir.DataType[name] for name in _OTHERS}
    return any(
        (name in _TYPE_NAMES and attribute.value in others)
        or (attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype in others)
        for name, attribute in node.attributes.items()
    )


def _widen_attributes(node: ir.Node) -> None:
    import onnx_ir as ir

    if not _names_other(node):
        return
    for name, attribute in list(node.attributes.items()):
        if attribute.type == ir.AttributeType.TENSOR:
            node.attributes[name] = ir.AttrTensor(name, _float32(attribute.value))
        elif name in _TYPE_NAMES:
            node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.FLOAT))


def _widen_value(value: ir.Value) -> None:
    if value.type is not None:
        value.type = _widened(value.type)
    if value.const_value is not None:
        value.const_value = _float32(value.const_value)


def _widened(type_: ir.TypeProtocol) -> ir.TypeProtocol:
    import onnx_ir as ir

    if not _kind(type_):
        return type_
    if isinstance(type_, ir.SequenceType | ir.OptionalType):
        return type(type_)(_widened(type_.elem_type), denotation=type_.denotation)
    return type(type_)(ir.DataType.FLOAT, denotation=type_.denotation)


def _float32(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    import onnx_ir as ir

    if tensor.dtype.name not in _OTHERS:
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
