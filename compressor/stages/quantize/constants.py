"""What follows from constants alone, computed once and stored, unless that would make the file larger.

An operator that must stay as it is although all it reads is constant is an entry of `_KEPT`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from itertools import count as numbers
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor import runtime
from compressor.errors import RungError
from compressor.graph import count

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from compressor.records import Array

Known = Mapping["ir.Value", "Array"]

_KEPT = count.RANDOM | {"Constant", "DequantizeLinear", "QuantizeLinear"}
"""Random ones, constants of text, and those by which a quantized weight is read."""
_SMALL_BYTES = 1024
_SMALL_PART = 100
"""By up to 1 kB, or one part in so many of all constants, the result of one computation may enlarge the file."""
_MOST_BYTES = 1_800_000_000
"""protobuf stops at 2 GiB."""


def fold(model: ir.Model) -> int:
    """Make initializers of what the main graph of a model, which the caller owns, computes from constants.

    What would take more room than the constants that are no longer read stays computed: an embedding whose transpose
    is read too is stored once. Gives how many nodes went.
    """
    gone = _bypass_copies(model.graph)
    total_bytes = sum(value.const_value.nbytes for value in _initializers(model.graph))
    allowed_bytes = max(_SMALL_BYTES, total_bytes // _SMALL_PART)
    known = _computed(model, max(_SMALL_BYTES, total_bytes))
    for nodes in _connected([node for node in model.graph if node.outputs and node.outputs[0] in known]):
        results = [v for node in nodes for v in node.outputs if any(use.node not in nodes for use in v.uses())]
        if sum(known[value].nbytes for value in results) <= _freed_bytes(nodes) + allowed_bytes:
            _store(model.graph, nodes, {value: known[value] for value in results})
            gone += len(nodes)
    drop_unread(model.graph)
    return gone


def drop_unread(graph: ir.Graph) -> None:
    """Take out the initializers that nothing reads."""
    for value in list(_initializers(graph)):
        if not value.uses() and not value.is_graph_output():
            del graph.initializers[value.name]


def is_constant(value: ir.Value | None) -> bool:
    """Tell whether a value is an initializer that no caller can replace."""
    return value is not None and value.const_value is not None and value.is_initializer() and not value.is_graph_input()


def replace(model: ir.Model, nodes: Sequence[ir.Node], index: int, array: Array) -> None:
    """Let nodes of the main graph read a new initializer, as input `index`; what they read stays for others."""
    import onnx_ir as ir

    role = {1: "weight", 2: "bias"}.get(index, "input")
    name = free_name(model, f"{nodes[0].outputs[0].name}_{role}")
    new = ir.val(name, const_value=ir.tensor(array, name=name))
    model.graph.register_initializer(new)
    for node in nodes:
        node.replace_input_with(index, new)


def free_name(model: ir.Model, wanted: str) -> str:
    """Give the name, or one like it, that no value and no node of the model has."""
    taken = {value.name for part in model.graphs() for value in (*part.inputs, *part.initializers.values())}
    for node in model.graph.all_nodes():
        taken |= {node.name, *(value.name for value in node.outputs)}
    return next(name for name in chain([wanted], (f"{wanted}_{i}" for i in numbers(1))) if name not in taken)


def _initializers(graph: ir.Graph) -> Iterator[ir.Value]:
    return filter(is_constant, graph.initializers.values())


def _bypass_copies(graph: ir.Graph) -> int:
    """Let who reads a constant through Identity read it itself."""
    copies = [node for node in graph if node.op_type == "Identity" and is_constant(node.inputs[0])]
    copies = [node for node in copies if not node.outputs[0].is_graph_output()]
    for node in copies:
        node.outputs[0].replace_all_uses_with(node.inputs[0])
        graph.remove(node, safe=True)
    return len(copies)


def _computed(model: ir.Model, limit_bytes: int) -> Known:
    """Give the value of everything in the main graph that can be computed from constants."""
    known: dict[ir.Value, Array] = {}
    for node in model.graph:
        if _is_computable(node, known):
            arrays = {v.name: _array(v, known) for v in node.inputs if v is not None}
            made = _evaluated(_model_of(node, arrays, model.opset_imports), limit_bytes)
            known |= {value: made[value.name] for value in node.outputs if value.name in made}
    return known


def _is_computable(node: ir.Node, known: Known) -> bool:
    import onnx_ir as ir

    kinds = {attribute.type for attribute in node.attributes.values()}
    plain = node.domain in count.STANDARD_DOMAINS and node.op_type not in _KEPT and ir.AttributeType.GRAPH not in kinds
    inputs = [value for value in node.inputs if value is not None]
    ends = any(value.is_graph_output() for value in node.outputs)
    return plain and bool(inputs) and not ends and all(is_constant(v) or v in known for v in inputs)


def _array(value: ir.Value, known: Known) -> Array:
    return known[value] if value in known else value.const_value.numpy()


def _model_of(node: ir.Node, arrays: Mapping[str, Array], opsets: Mapping[str, int]) -> onnx.ModelProto:
    import onnx
    import onnx_ir as ir

    proto = ir.to_proto(node)
    outputs = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
    size_bytes = sum(array.nbytes for array in arrays.values())
    constants = [onnx.numpy_helper.from_array(a, n) for n, a in arrays.items()] if size_bytes < _MOST_BYTES else []
    body = onnx.helper.make_graph([proto], "constant", [], outputs, constants)
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return onnx.helper.make_model(body, opset_imports=imports, ir_version=10)


def _evaluated(model: onnx.ModelProto, limit_bytes: int) -> Mapping[str, Array]:
    """Run a model without inputs; nothing where it does not run, or what it gives is no tensor or too large."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    sizes = [_size_bytes(value) for value in inferred.graph.output]
    if any(size is None or size > limit_bytes for size in sizes):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "constant.onnx"
        onnx.save(inferred, path)
        try:
            return runtime.load(path, runtime.options(1, spinning=False))({})
        except RungError:  # no kernel for this type; then it stays in the graph
            return {}


def _size_bytes(value: onnx.ValueInfoProto) -> int | None:
    import onnx

    tensor = value.type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    if not tensor.HasField("shape") or None in dims or tensor.elem_type == onnx.TensorProto.STRING:
        return None
    itemsize: int = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize
    size: int = itemsize * prod(dim for dim in dims if dim is not None)
    return size


def _connected(nodes: Iterable[ir.Node]) -> list[list[ir.Node]]:
    """Group nodes, which are sorted, by who reads whose result."""
    fresh = numbers()
    group_of: dict[ir.Node, int] = {}
    for node in nodes:
        joined = {group_of[v.producer()] for v in node.inputs if v is not None and v.producer() in group_of}
        own = min(joined, default=next(fresh))
        group_of = {other: own if group in joined else group for other, group in group_of.items()} | {node: own}
    groups = {group: [node for node, own in group_of.items() if own == group] for group in group_of.values()}
    return list(groups.values())


def _freed_bytes(nodes: list[ir.Node]) -> int:
    read = {value for node in nodes for value in node.inputs if is_constant(value)}
    freed = [v for v in read if not v.is_graph_output() and all(use.node in nodes for use in v.uses())]
    return sum(value.const_value.nbytes for value in freed)


def _store(graph: ir.Graph, nodes: list[ir.Node], results: Known) -> None:
    import onnx_ir as ir

    for value, array in results.items():
        name, value.name = value.name, None
        constant = ir.val(name, const_value=ir.tensor(np.ascontiguousarray(array) if array.ndim else array, name=name))
        value.replace_all_uses_with(constant)
        graph.register_initializer(constant)
    for node in reversed(nodes):
        graph.remove(node, safe=True)
