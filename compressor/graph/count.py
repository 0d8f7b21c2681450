"""What an open graph holds: constants and their roles, parameters, multiply-accumulates, operators.

Nothing here reads a file. Add an operator that multiplies weights to the tables at the head and its rule to
the one at the foot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

FLOATS = frozenset({"FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"})
STANDARD_DOMAINS = ("", "ai.onnx")
RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)

_NUMBERS = frozenset({"value", "value_float", "value_floats", "value_int", "value_ints"})
# Inputs whose float weights integer kernels can read instead.
_INT8: Mapping[str, tuple[int, ...]] = {
    "Conv": (1,),
    "ConvTranspose": (1,),
    "Gather": (0,),
    "Gemm": (0, 1),
    "MatMul": (0, 1),
}
# Inputs that hold parameters, where that is not "every float input": scales, bounds and sizes are none.
_PARAMETERS: Mapping[str, tuple[int, ...]] = {
    "Clip": (),
    "ConvInteger": (0, 1),
    "DequantizeLinear": (0,),
    "Dropout": (),
    "DynamicQuantizeMatMul": (1, 4),
    "MatMulInteger": (0, 1),
    "MatMulIntegerToFloat": (0, 1, 6),
    "Pad": (),
    "QGemm": (0, 3, 6),
    "QLinearConv": (3, 8),
    "QLinearMatMul": (0, 3),
    "QuantizeLinear": (0,),
    "Resize": (),
    "Upsample": (),
}
_UNCOUNTED = frozenset({"Attention", "DeformConv", "Einsum"})  # they multiply, and have no rule below
_DROPOUT_INPUTS = 3
_LEARNED = frozenset(
    {*_INT8, "BatchNormalization", "GRU", "GroupNormalization", "InstanceNormalization", "LSTM", "LayerNormalization"}
    | {"PRelu", "RMSNormalization", "RNN"}
)


def constants(model: ir.Model) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    """Give every constant of the graph, its subgraphs and functions: initializers, and outputs of Constant nodes."""
    import onnx_ir as ir

    for graph in model.graphs():
        yield from ((v, v.const_value) for v in graph.initializers.values() if v.const_value is not None)
    for node in nodes(model):
        if is_numeric_constant(node) and (tensor := ir.convenience.get_const_tensor(node.outputs[0])) is not None:
            yield node.outputs[0], tensor


def nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Give every node of the graph, its subgraphs and functions."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Give every tensor of the graph, its subgraphs and functions: initializers, and attributes of nodes."""
    for graph in model.graphs():
        yield from (v.const_value for v in graph.initializers.values() if v.const_value is not None)
    for node in nodes(model):
        for attribute in node.attributes.values():
            if attribute.type.name == "TENSOR" and not attribute.is_ref():
                yield attribute.value
            elif attribute.type.name == "TENSORS" and not attribute.is_ref():
                yield from attribute.value


def is_numeric_constant(node: ir.Node) -> bool:
    """Tell whether this is a Constant node of numbers; onnx_ir 1.1 cannot read those of text beyond ASCII."""
    return node.op_type == "Constant" and len(node.attributes) == 1 and set(node.attributes) <= _NUMBERS


def is_weight(value: ir.Value) -> bool:
    """Tell whether an operator with learned weights reads this constant."""
    return any(use.node.op_type in _LEARNED for use in value.uses())


def weights(model: ir.Model) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    """Give the constants that some node computes with, each once."""
    yield from (pair for pair in constants(model) if _is_parameter(*pair))


def parameters(model: ir.Model) -> int:
    """Count the elements of the constants that some node computes with, each once."""
    return sum(tensor.size for _, tensor in weights(model))


def weight_bytes(model: ir.Model) -> tuple[int, int]:
    """Give the bytes of all parameters, and of those among them that could become INT8."""
    found = list(weights(model))
    return sum(t.nbytes for _, t in found), sum(t.nbytes for v, t in found if _can_be_int8(v, t))


def operators(model: ir.Model) -> dict[str, int]:
    """Count the operators, most frequent first; those of other domains as `domain:operator`."""
    names = (n.op_type if n.domain in STANDARD_DOMAINS else f"{n.domain}:{n.op_type}" for n in nodes(model))
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def is_quantized(model: ir.Model) -> bool:
    """Tell whether some node computes in, or converts to or from, integers of a quantized model."""
    marks = ("QLinear", "QuantizeLinear", "DequantizeLinear", "DynamicQuantize", "MatMulNBits", "QAttention", "QGemm")
    ops = {node.op_type for node in nodes(model)}
    return any(op.startswith(marks) or "Integer" in op for op in ops)


def is_training(node: ir.Node) -> bool:
    """Tell whether BatchNormalization or Dropout was exported in training mode, or may be put into it."""
    import onnx_ir as ir

    if node.op_type == "BatchNormalization":
        return bool(node.attributes.get_int("training_mode", 0))
    if node.op_type != "Dropout" or len(node.inputs) < _DROPOUT_INPUTS or (mode := node.inputs[2]) is None:
        return False
    tensor = ir.convenience.get_const_tensor(mode)
    return tensor is None or bool(tensor.numpy().any())


def macs(graph: ir.Graph) -> int | None:
    """Count multiply-accumulates of a graph whose shapes are inferred, biases not counted; None where not settled.

    Of the branches of an If the costliest counts; a loop around multiplications has no settled count.
    """
    costs = [node_macs(node) for node in graph]
    return sum(cost for cost in costs if cost) if None not in costs else None


def node_macs(node: ir.Node) -> int | None:
    """Count multiply-accumulates of a node whose shapes are inferred, as `macs` does."""
    if node.op_type in _UNCOUNTED or (node.domain not in STANDARD_DOMAINS and _reads_matrix(node)):
        return None
    rule = _MACS.get(node.op_type)
    if rule is not None:
        return rule(node)
    bodies = [macs(graph) for attribute in node.attributes.values() for graph in _graphs(attribute)]
    if None in bodies or (node.op_type != "If" and any(bodies)):
        return None
    return max((cost for cost in bodies if cost), default=0)


def _is_parameter(value: ir.Value, tensor: ir.TensorProtocol) -> bool:
    is_float = tensor.dtype.name in FLOATS
    return any(
        use.idx in _PARAMETERS[use.node.op_type] if use.node.op_type in _PARAMETERS else is_float
        for use in value.uses()
    )


def _can_be_int8(value: ir.Value, tensor: ir.TensorProtocol) -> bool:
    readers = ((use.idx, use.node.op_type) for use in value.uses())
    return tensor.dtype.name in FLOATS and any(idx in _INT8.get(op, ()) for idx, op in readers)


def _reads_matrix(node: ir.Node) -> bool:
    constants = (value.const_value for value in node.inputs if value is not None)
    return any(tensor is not None and len(tensor.shape) > 1 for tensor in constants)


def _graphs(attribute: ir.Attr) -> tuple[ir.Graph, ...]:
    return (attribute.as_graph(),) if attribute.type.name == "GRAPH" else ()


def _conv(node: ir.Node) -> int | None:
    kernel = node.inputs[3 if node.op_type.startswith("QLinear") else 1]
    return _product(_size(node.outputs[0]), _size(kernel, 1))  # kernel [out, in / groups, ...]


def _conv_transpose(node: ir.Node) -> int | None:
    return _product(_size(node.inputs[0]), _size(node.inputs[1], 1))  # kernel [in, out / groups, ...]


def _gemm(node: ir.Node) -> int | None:
    inner = 0 if node.attributes.get_int("transA", 0) else 1
    return _product(_size(node.outputs[0]), _size(node.inputs[0], inner, inner + 1))


def _matmul(node: ir.Node) -> int | None:
    return _product(_size(node.outputs[0]), _size(node.inputs[0], -1))


def _recurrent(node: ir.Node) -> int | None:
    steps = _size(node.inputs[0], 0, 2)  # sequence and batch, in either layout
    inputs, state = _size(node.inputs[1]), _size(node.inputs[2])
    return None if inputs is None or state is None else _product(steps, inputs + state)


def _size(value: ir.Value | None, start: int = 0, stop: int | None = None) -> int | None:
    dims = None if value is None or value.shape is None else value.shape.dims[start:stop]
    if dims is None or not all(isinstance(dim, int) and dim >= 0 for dim in dims):
        return None
    return int(prod(dims))


def _product(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left * right


_MACS: Mapping[str, Callable[[ir.Node], int | None]] = {
    "Conv": _conv,
    "ConvInteger": _conv,
    "ConvTranspose": _conv_transpose,
    "GRU": _recurrent,
    "Gemm": _gemm,
    "LSTM": _recurrent,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "RNN": _recurrent,
}
