"""Nodes that decide by values rather than compute with them: they read what was, not what a Q/DQ pair rounded.

Another operator that decides is a name in `_DECIDING`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_DECIDING = frozenset(
    {"ArgMax", "ArgMin", "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less"}
    | {"LessOrEqual", "NonMaxSuppression", "NonZero", "Round", "Sign", "TopK", "Unique"}
)


def undo_rounding(main: onnx.GraphProto) -> None:
    """Let nodes that decide read the tensor before its Q/DQ pair, where float arithmetic or the caller gives that.

    onnxruntime 1.32 redirects every reader of a tensor that it quantizes for one of them. A threshold then falls on the
    other side, and with it the length of an output. What an integer kernel gives stays: in float it would cost time.
    """
    rounded = {name for node in main.node if node.op_type == "DequantizeLinear" for name in node.output}
    given_by = {name: node for node in main.node for name in node.output}
    readers = defaultdict(list)
    for node in main.node:
        for name in node.input:
            readers[name].append(node)
    for name in rounded - {output.name for output in main.output}:
        pair = given_by.get(given_by[name].input[0])
        if pair is None or pair.op_type != "QuantizeLinear":
            continue
        producer = given_by.get(pair.input[0])
        deciding = [node for node in readers[name] if node.op_type in _DECIDING]
        if len(deciding) == len(readers[name]) or (producer is not None and rounded & {*producer.input}):
            continue
        for node in deciding:
            replaced = [pair.input[0] if each == name else each for each in node.input]
            del node.input[:]
            node.input.extend(replaced)
