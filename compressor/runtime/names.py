"""Which node of a file a node of the optimised graph comes from.

Another name that ONNX Runtime gives is a branch of `_SUFFIX`, another operator of its own a line in `_OPERATORS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

Known = Mapping[str, "onnx.NodeProto"]
"""The nodes of a file by the names under which they can be found: their own and those of their outputs."""

_SUFFIX = re.compile(r"(_token_\d+|_nchwc|_quant|/duplicated|/\w+Fusion/?)$")
"""What is put behind the name of a node that is replaced or copied; behind that of an output where it is blocked."""
_OPERATORS = {
    "ConvInteger": "Conv",
    "DynamicQuantizeMatMul": "MatMul",
    "FusedConv": "Conv",
    "FusedGemm": "Gemm",
    "FusedMatMul": "MatMul",
    "MatMulInteger": "MatMul",
    "MatMulIntegerToFloat": "MatMul",
    "MatMulNBits": "MatMul",
    "QAttention": "Attention",
    "QGemm": "Gemm",
}
_BEHIND = 3
"""Nodes that fuse into the one before them: a normalisation, an addition, an activation."""


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Give the nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from nodes(inner)


def known(graph: onnx.GraphProto) -> Known:
    """Give the nodes by name; where names clash, that of a node wins over that of an output."""
    found = list(nodes(graph))
    outputs = {output: node for node in found for output in node.output if output}
    return {**outputs, **{node.name: node for node in found if node.name}}


def operator(kernel: str) -> str:
    """Give the operator that a kernel computes, as the ONNX standard calls it."""
    return _OPERATORS.get(kernel, kernel.removeprefix("QLinear"))


def origin(called: str, kernel: str, known: Known) -> onnx.NodeProto | None:
    """Give the node that a node of the optimised graph, by its name and operator, was made of; None where it is new."""
    while called not in known:
        shorter = _SUFFIX.sub("", called)
        if shorter == called:
            return None
        called = shorter
    found = node = known[called]
    for _ in range(_BEHIND):  # what fused is called by the output of the last node
        if node.op_type == operator(kernel):
            return node
        before = known.get(node.input[0]) if node.input else None
        if before is None:
            break
        node = before
    return found
