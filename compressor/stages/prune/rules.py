"""What each operator does to the indices of its axes: the table of rules, and the rules that only pass indices on.

A rule names what goes together; it may return why the axes that it does not name stay. Operators that multiply weights
are in `products`, those that move values in `layout`, those that regroup axes in `regroup`. Add an operator as a line
in `_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from compressor.graph import count
from compressor.stages.prune import layout, products, regroup, sizes
from compressor.stages.prune.atoms import Atoms, Flow, rank, size
from compressor.stages.prune.constants import constant, is_weight

if TYPE_CHECKING:
    import onnx_ir as ir

_ELEMENTWISE = (
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "And",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "Div",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Mean",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Sum",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Where",
    "Xor",
)
_POOLS = ("AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool")
_REDUCTIONS = ("ArgMax", "ArgMin", "L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_ALONG_ONE_AXIS = ("Hardmax", "LogSoftmax", "LpNormalization", "Softmax")
_NO_RULE = "cannot be followed"


def follow(node: ir.Node, atoms: Atoms) -> None:
    """Tie and freeze the atoms of the axes of a node."""
    flow = Flow(node, atoms)
    flow.close(_silent(flow))


def _silent(flow: Flow) -> str:
    """Apply the rule of a node; give why the axes that it does not name stay."""
    node = flow.node
    if node.domain not in {"", "ai.onnx"}:
        return f"of {node.domain} {_NO_RULE}"
    if any(attribute.type.name in {"GRAPH", "GRAPHS"} for attribute in node.attributes.values()):
        return "runs a graph inside, which is not followed"
    rule = _RULES.get(node.op_type)
    if rule is None:
        return _NO_RULE
    if any(value is not None and value.shape is None for value in (*node.inputs, *flow.outputs)):
        return "has an input or output of unknown shape"
    return rule(flow) or "cannot do without an index of this axis"


def _dropout(flow: Flow) -> str:
    return "draws random numbers" if count.is_training(flow.node) else _elementwise(flow)


def _cast_like(flow: Flow) -> None:
    flow.same(flow.x, flow.y, range(rank(flow.x)))
    like = flow.inputs[1]
    for axis in range(rank(like)) if like is not None else ():  # only its type matters
        flow.axis(like, axis)


def _elementwise(flow: Flow) -> str:
    for value in flow.inputs:
        if value is not None:
            _broadcast(flow, value, flow.y)
    for mask in flow.outputs[1:]:  # of Dropout
        flow.same(mask, flow.y, range(rank(flow.y)))
    return "spreads one index over all"


def _broadcast(flow: Flow, value: ir.Value, onto: ir.Value) -> None:
    offset = rank(onto) - rank(value)
    for axis in range(rank(value)):
        if size(value, axis) == 1:
            flow.axis(value, axis)
        else:
            flow.tie(flow.axis(value, axis), flow.axis(onto, axis + offset))


def _batch_norm(flow: Flow) -> str:
    if flow.node.attributes.get_int("training_mode", 0):
        return "is in training mode"
    flow.same(flow.x, flow.y, range(rank(flow.x)))
    return _per_channel(flow)


def _instance_norm(flow: Flow) -> str:
    flow.same(flow.x, flow.y, (0, 1))
    return _per_channel(flow)


def _per_channel(flow: Flow) -> str:
    for vector in flow.inputs[1:]:
        assert vector is not None, "all inputs are required"  # noqa: S101 - for the type
        flow.tie(flow.axis(vector, 0), flow.axis(flow.x, 1))
    return "takes statistics over this axis"


def _layer_norm(flow: Flow) -> str:
    first = flow.node.attributes.get_int("axis", -1) % rank(flow.x)
    for output in flow.outputs:  # also the statistics
        flow.same(flow.x, output, range(first))
    return "takes statistics over this axis"


def _group_norm(flow: Flow) -> str:
    channels, groups = flow.axis(flow.x, 1), flow.node.attributes.get_int("num_groups", 1)
    flow.same(flow.x, flow.y, (0, 1))
    if channels is None or flow.atoms.is_open(channels):
        return flow.give_up("normalises channels of unknown number", channels)
    whole = flow.atoms.new(groups)
    flow.tie(channels, np.repeat(whole, len(channels) // groups))
    return _per_channel(flow)


def _along_one_axis(flow: Flow) -> str:
    axis = flow.node.attributes.get_int("axis", -1) % rank(flow.x)
    for output in flow.outputs:
        flow.same(flow.x, output, (i for i in range(rank(flow.x)) if i != axis))
    return "works along this axis"


def _cumulative(flow: Flow) -> str | None:
    axis = constant(flow[1])
    if axis is not None:
        flow.same(flow.x, flow.y, (i for i in range(rank(flow.x)) if i != int(axis.item()) % rank(flow.x)))
    return "works along this axis"


def _trilu(flow: Flow) -> str:
    flow.same(flow.x, flow.y, range(rank(flow.x) - 2))
    return "cuts a triangle out of this axis"


def _pool(flow: Flow) -> str:
    if len(flow.outputs) > 1 and (flow.outputs[1].uses() or flow.outputs[1].is_graph_output()):
        return "gives indices that count through channels"
    for output in flow.outputs:
        flow.same(flow.x, output, (0, 1))
    return "pools over this axis"


def _reduction(flow: Flow) -> str:
    axes = _reduced(flow)
    if axes is None:
        return "reduces axes that are known at run time only"
    to = 0
    for axis in range(rank(flow.x)):
        if axis not in axes:
            flow.tie(flow.axis(flow.x, axis), flow.axis(flow.y, to))
        to += axis not in axes or bool(flow.node.attributes.get_int("keepdims", 1))
    return "reduces this axis"


def _reduced(flow: Flow) -> frozenset[int] | None:
    """Give the axes that a reduction reduces; None where they are known at run time only."""
    attributes, ranks = flow.node.attributes, rank(flow.x)
    if flow.node.op_type.startswith("Arg"):
        return frozenset({attributes.get_int("axis", 0) % ranks})
    given = attributes.get_ints("axes", None) if flow[1] is None else constant(flow[1])
    if given is None and flow[1] is not None:
        return None
    if given is None or len(given) == 0:
        nothing = attributes.get_int("noop_with_empty_axes", 0)
        return frozenset() if nothing else frozenset(range(ranks))
    return frozenset(int(axis) % ranks for axis in given)


def _resize(flow: Flow) -> str:
    mode = flow.node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    if mode != "tf_crop_and_resize":
        given = {axis % rank(flow.x) for axis in flow.node.attributes.get_ints("axes", ())}
        same = (i for i in range(rank(flow.x)) if i not in given and size(flow.x, i) == size(flow.y, i))
        flow.same(flow.x, flow.y, same)
    return "resizes this axis"


def _gather(flow: Flow) -> str:
    data, indices = flow.x, flow.inputs[1]
    assert indices is not None, "all inputs are required"  # noqa: S101 - for the type
    axis, picked = flow.node.attributes.get_int("axis", 0) % rank(data), constant(indices)
    for i in range(rank(data)):
        to = i if i < axis else i + rank(indices) - 1
        if i != axis:
            flow.tie(flow.axis(data, i), flow.axis(flow.y, to))
            if is_weight(data):
                flow.makes(flow.axis(flow.y, to))
    if picked is not None and picked.ndim == 1 and size(data, axis) is not None:
        atoms = flow.axis(data, axis)
        flow.tie(None if atoms is None else atoms[picked], flow.axis(flow.y, axis))
    return "picks from this axis"


def _shape(flow: Flow) -> str:
    """Let all axes pass but those whose size is used for more than shaping other tensors; such tensors are reshaped."""
    ranks, attributes = rank(flow.x), flow.node.attributes
    first, last, _ = slice(attributes.get_int("start", 0), attributes.get_int("end", ranks)).indices(ranks)
    merged = frozenset(axis for axis in range(ranks) if size(flow.x, axis) is None)
    counted = sizes.counted(flow.x, flow.y, range(first, last), merged)
    for axis in set(range(ranks)) - counted:
        flow.axis(flow.x, axis)
    return "gives the size of this axis to a computation"


def _table() -> Mapping[str, Callable[[Flow], str | None]]:
    return (
        dict.fromkeys(_ELEMENTWISE, _elementwise)
        | dict.fromkeys(_POOLS, _pool)
        | dict.fromkeys((kind if kind.startswith("Arg") else f"Reduce{kind}" for kind in _REDUCTIONS), _reduction)
        | dict.fromkeys(_ALONG_ONE_AXIS, _along_one_axis)
        | {
            "BatchNormalization": _batch_norm,
            "CastLike": _cast_like,
            "Concat": layout.concat,
            "ConstantOfShape": layout.filled,
            "Conv": products.conv,
            "ConvTranspose": products.conv_transpose,
            "CumSum": _cumulative,
            "DepthToSpace": layout.depth_to_space,
            "Dropout": _dropout,
            "Expand": layout.expand,
            "Flatten": regroup.follow,
            "GRU": products.recurrent,
            "Gather": _gather,
            "Gemm": products.gemm,
            "GroupNormalization": _group_norm,
            "InstanceNormalization": _instance_norm,
            "LSTM": products.recurrent,
            "LayerNormalization": _layer_norm,
            "MatMul": products.matmul,
            "Pad": layout.pad,
            "RMSNormalization": _layer_norm,
            "RNN": products.recurrent,
            "Reshape": regroup.follow,
            "Resize": _resize,
            "Shape": _shape,
            "Slice": layout.cut,
            "SpaceToDepth": layout.space_to_depth,
            "Split": layout.split,
            "Squeeze": layout.squeeze,
            "Tile": layout.tile,
            "TopK": _along_one_axis,
            "Transpose": layout.transpose,
            "Trilu": _trilu,
            "Unsqueeze": layout.unsqueeze,
        }
    )


_RULES = _table()
