"""Shapes inside a graph, and the way through the C++ parts of onnx, which hold at most 2 GB.

Add here what needs shapes or one of onnx's C++ transformations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from compressor.errors import InputError
from compressor.graph import count, files, serial

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from compressor.records import Array, Shapes

_SMALL_BYTES = 1024  # constants up to here stay in sight: they hold shapes, axes and scales
_REFERENCE_OPSET = 13  # onnx 1.23's reference implementation fails on older forms, such as Unsqueeze with an attribute
_AS_THEIR_INPUT = frozenset({"GroupNormalization"})  # onnx 1.23 infers it at static shapes only
_SHAPE_ARITHMETIC = frozenset(
    {"Add", "Cast", "Concat", "ConstantOfShape", "Div", "Equal", "Gather", "Identity", "Max", "Min", "Mod"}
    | {"Mul", "Reshape", "Shape", "Slice", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where"}
)


def inferred(model: ir.Model, shapes: Shapes | None = None) -> ir.Model:
    """Give a copy with every shape inferred anew, at static input shapes where given.

    Outputs keep the shapes the file declares unless `shapes` are given. A shape that cannot be inferred is unknown.
    """
    return through(_without_shapes(model, shapes), _inferred)


def settled(model: ir.Model, shapes: Shapes | None) -> ir.Model:
    """Give a copy for counting: functions written out, small constants computed, every shape inferred.

    onnx's own inference stops where a shape or padding is computed from constants, as older PyTorch exports do. Once
    shapes are inferred, what Shape reads of a tensor of known size is a constant too.
    """
    found = inferred(_evaluated(inlined(model)), shapes)
    while True:
        further = _evaluated(found, sizes=True)
        if further.graph.num_nodes() == found.graph.num_nodes():
            return found
        found = inferred(further, shapes)


def inlined(model: ir.Model) -> ir.Model:
    """Give the model with its local functions written out; the model itself where it has none.

    Raises:
        InputError: They cannot be.
    """
    from onnx import inliner

    if not model.functions:
        return model
    try:
        return through(model, lambda proto: inliner.inline_local_functions(proto, convert_version=True))
    except RuntimeError as error:
        raise InputError(f"the model's local functions cannot be written out: {error}; export it without") from error


def dimension(dim: int | ir.SymbolicDim) -> int | str | None:
    """Read one dimension: a number, a symbol, or None; some exporters write an unknown one as -1 or `?`."""
    if isinstance(dim, int):
        return dim if dim >= 0 else None
    return dim.value if dim.value != "?" else None


def through(model: ir.Model, change: Callable[[onnx.ModelProto], onnx.ModelProto]) -> ir.Model:
    """Give the model that `change` makes of it; `change` sees large initializers as inputs, without their data."""
    import onnx_ir as ir

    lean = model.clone()
    large = {v.name: v for v in lean.graph.initializers.values() if _is_large(v)}
    for name, value in large.items():
        value.shape, value.dtype = ir.Shape(value.const_value.shape), value.const_value.dtype
        del lean.graph.initializers[name]
        lean.graph.inputs.append(value)
    changed = serial.deserialised(change(serial.serialised(lean)))
    external = next(files.external_tensors(model), None)
    if external is not None:
        ir.external_data.set_base_dir(changed.graph, external.base_dir)
    for value in [v for v in changed.graph.inputs if v.name in large]:
        changed.graph.inputs.remove(value)
        value.const_value = large[value.name].const_value
        changed.graph.register_initializer(value)
    return _with_description(changed, model)


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Infer shapes as onnx does; of operators that it cannot infer, by an Identity in their place."""
    import onnx

    stand_in = onnx.ModelProto()
    stand_in.CopyFrom(proto)
    hidden = [i for i, node in enumerate(proto.graph.node) if node.op_type in _AS_THEIR_INPUT and not node.domain]
    for i in hidden:
        node = stand_in.graph.node[i]
        node.op_type = "Identity"
        del node.input[1:], node.attribute[:]
    try:
        found = onnx.shape_inference.infer_shapes(stand_in, data_prop=True)
    except onnx.shape_inference.InferenceError:  # of a model that does not fit together, nothing can be inferred
        return proto
    for i in hidden:
        found.graph.node[i].CopyFrom(proto.graph.node[i])
    return found


def _with_description(changed: ir.Model, model: ir.Model) -> ir.Model:
    """Put back what onnx's version converter loses."""
    import onnx_ir as ir

    changed.metadata_props.update(model.metadata_props)
    changed.graph.metadata_props.update(model.graph.metadata_props)
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(changed, field, getattr(model, field))
    changed.graph.name, changed.graph.doc_string = model.graph.name, model.graph.doc_string
    for before, value in zip(model.graph.outputs, changed.graph.outputs, strict=True):
        if not isinstance(before.type, ir.TensorType):  # a sequence or a map
            value.type = before.type
            value.metadata_props.update(before.metadata_props)
    return changed


def _without_shapes(model: ir.Model, shapes: Shapes | None) -> ir.Model:
    import onnx_ir as ir

    bare = model.clone()
    for node in bare.graph.all_nodes():
        if node.domain in count.STANDARD_DOMAINS:  # nobody could infer the others again
            for value in node.outputs:
                if not value.is_graph_output() or shapes is not None:
                    value.shape = None
    for value in bare.graph.inputs:
        if shapes is not None and value.name in shapes:
            value.shape = ir.Shape(shapes[value.name])
    return bare


def _is_large(value: ir.Value) -> bool:
    import onnx_ir as ir

    tensor = value.const_value
    if tensor is None or value.is_graph_input():
        return False
    return tensor.nbytes > _SMALL_BYTES or isinstance(tensor, ir.ExternalTensor)


def _evaluated(model: ir.Model, *, sizes: bool = False) -> ir.Model:
    """Give a copy with shape arithmetic on constants computed; if `sizes`, also that on sizes that are known."""
    import onnx_ir as ir

    copy = model.clone()
    if copy.opset_imports.get("", 0) < _REFERENCE_OPSET:
        return copy
    for node in [node for node in copy.graph.all_nodes() if node.domain in count.STANDARD_DOMAINS]:
        array = _sizes(node) if sizes else None
        array = _value(node, copy.opset_imports) if array is None else array
        if array is not None:
            name, graph = node.outputs[0].name, node.graph
            constant = ir.val(name, const_value=ir.tensor(array, name=name))
            node.outputs[0].replace_all_uses_with(constant)
            graph.remove(node, safe=True)
            graph.register_initializer(constant)
    return copy


def _sizes(node: ir.Node) -> Array | None:
    """Give what Shape reads, or what is picked from that; None where not all of it is known."""
    dims = _dims(node) if node.op_type == "Shape" else None
    if node.op_type in {"Gather", "Slice"} and node.inputs[0] is not None and (shape := node.inputs[0].producer()):
        dims = _picked(node, _dims(shape)) if shape.op_type == "Shape" else None
    if dims is None or not all(isinstance(dim, int) for dim in np.ravel(dims)) or node.outputs[0].is_graph_output():
        return None
    return np.array(dims, np.int64)


def _dims(shape: ir.Node) -> Array | None:
    """Give the dimensions that Shape reads, known or not; None where not even their number is known."""
    read = shape.inputs[0].shape
    if read is None or shape.inputs[0].is_graph_output():  # whose shape the file states, rightly or not
        return None
    start, end = shape.attributes.get_int("start", 0), shape.attributes.get_int("end", len(read.dims))
    return np.array([*read.dims, None], object)[:-1][start:end]  # the last keeps numpy from reading the others


def _picked(node: ir.Node, dims: Array | None) -> Array | None:
    import onnx_ir as ir

    tensors = [ir.convenience.get_const_tensor(value) for value in node.inputs[1:] if value is not None]
    if dims is None or None in tensors or (node.op_type == "Slice" and len(tensors) < len(node.inputs) - 1):
        return None
    numbers = [tensor.numpy() for tensor in tensors]
    if not all(array.size and array.dtype.kind == "i" for array in numbers):
        return None
    if node.op_type == "Gather":
        within = (numbers[0] < len(dims)) & (numbers[0] >= -len(dims))
        return np.asarray(dims[numbers[0]], object) if within.all() else None
    step = int(numbers[3].flat[0]) if len(numbers) > 3 else 1  # noqa: PLR2004 - Slice's input `steps`
    cut: Array = dims[int(numbers[0].flat[0]) : int(numbers[1].flat[0]) : step or 1]
    return cut


def _value(node: ir.Node, opsets: dict[str, int]) -> Array | None:
    """Compute a node of shape arithmetic whose inputs are small constants; None for every other node."""
    import onnx_ir as ir
    from onnx.reference import ReferenceEvaluator

    if node.op_type not in _SHAPE_ARITHMETIC or node.outputs[0].is_graph_output():
        return None
    tensors = {v.name: ir.convenience.get_const_tensor(v) for v in node.inputs if v is not None}
    if any(tensor is None or tensor.nbytes > _SMALL_BYTES for tensor in tensors.values()):
        return None
    feeds = {name: tensor.numpy() for name, tensor in tensors.items()}
    if node.op_type == "ConstantOfShape" and any(np.prod(shape) > _SMALL_BYTES for shape in feeds.values()):
        return None
    try:
        (result,) = ReferenceEvaluator(ir.to_proto(node), opsets=opsets).run(None, feeds)
    except Exception:  # noqa: BLE001 - it raises anything of a node that is none; ONNX Runtime will say so in words
        return None
    return np.asarray(result)
