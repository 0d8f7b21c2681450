"""What ONNX Runtime makes of a model: which nodes it computes with integers, and what did not fuse and why.

Another count of the optimised graph is a field of `records.Audit`, filled here.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compressor.records import Audit
from compressor.runtime import names
from compressor.runtime.session import load

if TYPE_CHECKING:
    import onnx

_INTEGER = {
    "ConvInteger",
    "DynamicQuantizeLSTM",
    "DynamicQuantizeMatMul",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "MatMulNBits",
    "QAttention",
    "QEmbedLayerNormalization",
    "QGemm",
}
_FLOAT = {"Conv", "ConvTranspose", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "GRU", "LSTM", "MatMul", "RNN"}
_QDQ = {"QuantizeLinear", "DequantizeLinear"}
_HAVE_KERNELS = {
    *("Add", "ArgMax", "AveragePool", "Concat", "Conv", "Expand", "Gather", "Gemm", "GlobalAveragePool", "LeakyRelu"),
    *("MatMul", "MaxPool", "Mul", "Resize", "Sigmoid", "Slice", "Softmax", "Split", "Where"),
}
"""Operators that ONNX Runtime 1.32 computes with integers between Q/DQ on a CPU, under some conditions."""
_MOVE = {"Cast", "Flatten", "Identity", "ReorderInput", "ReorderOutput"} | {
    *("Reshape", "Squeeze", "Transpose", "Unsqueeze"),
}
"""They only move values, and many are put in by ONNX Runtime: what stands behind them is what blocks."""

_APART = {
    "session.optimized_model_external_initializers_file_name": "weights",
    "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
}
"""Nobody reads the weights of the optimised graph, and with them it may be more than protobuf's 2 GiB."""
_COPIED = "/duplicated"
_MOVED = re.compile(r"(_pre_q|_post_dq)$")


def audit(path: Path, settings: Mapping[str, str], excluded: Mapping[str, str]) -> Audit:
    """Count what ONNX Runtime computes with integers once its graph optimisations ran on this machine.

    `excluded` (node name: reason) explains pairs around nodes that were left float on purpose. Pairs at the boundary,
    which turn inputs of the model into integers and the last integers into outputs, are needed: nothing blocks them.
    """
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        optimised = Path(folder) / "optimised.onnx"
        load(path, {**settings, "optimized_model_filepath": str(optimised), **_APART}).close()
        made = onnx.load(optimised, load_external_data=False).graph
    given = onnx.load(path, load_external_data=False).graph
    kinds = Counter(node.op_type for node in made.node)
    integer = {kind: n for kind, n in sorted(kinds.items()) if kind in _INTEGER or kind.startswith("QLinear")}
    return Audit(
        integer_nodes=sum(integer.values()),
        float_nodes=sum(n for kind, n in kinds.items() if kind in _FLOAT),
        qdq_left=sum(n for kind, n in kinds.items() if kind in _QDQ),
        excluded=excluded,
        integer=integer,
        blocked=dict(_Blocked(made, given, excluded).pairs()),
    )


class _Blocked:
    """Looks for what blocks the Q/DQ nodes of an optimised graph."""

    def __init__(self, made: onnx.GraphProto, given: onnx.GraphProto, excluded: Mapping[str, str]) -> None:
        self._made, self._excluded = made, excluded
        self._given, self._given_readers = names.known(given), _readers(given)
        self._sources = {output: node for node in made.node for output in node.output}
        self._readers = _readers(made)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Give the tensor of each pair that is left, and why it is; for a pair left whole, its reader's reason last."""
        for node in self._made.node:
            blocker, side = self._blocker(node)
            if blocker is not None:
                yield self._tensor(node), self._why(node, blocker, side)

    def _blocker(self, node: onnx.NodeProto) -> tuple[onnx.NodeProto | None, str]:
        if node.op_type == "QuantizeLinear":
            return self._source(node.input[0]), "source"
        if node.op_type == "DequantizeLinear":
            return self._reader(node.output[0]), "reader"
        return None, ""

    def _source(self, tensor: str) -> onnx.NodeProto | None:
        """Give the node that computes the values of a tensor; None for an input of the model."""
        node = self._sources.get(tensor)
        while node is not None and node.op_type in _MOVE:
            node = self._sources.get(node.input[0])
        return node

    def _reader(self, tensor: str) -> onnx.NodeProto | None:
        """Give a node that computes with the values of a tensor; None where it is only an output of the model."""
        for node in self._readers.get(tensor, ()):
            found = self._reader(node.output[0]) if node.op_type in _MOVE else node
            if found is not None:
                return found
        return None

    def _why(self, left: onnx.NodeProto, blocker: onnx.NodeProto, side: str) -> str:
        if blocker.op_type in _QDQ:
            return "it is quantized again, with another scale or type"
        called = blocker.name or blocker.output[0]
        origin = names.origin(called, blocker.op_type, self._given) or self._neighbour(left, side)
        operator = origin.op_type if origin is not None else names.operator(blocker.op_type)
        name = (origin.name if origin is not None else "") or called
        if reason := self._excluded.get(name):
            return f"its {side} {name} ({operator}) was left float ({reason})"
        if operator in _HAVE_KERNELS:
            return f"its {side} {name} ({operator}) stays float"
        return f"{operator} has no integer kernel"

    def _neighbour(self, left: onnx.NodeProto, side: str) -> onnx.NodeProto | None:
        """Give the node beside a pair in the file: of an operator that is a function, ONNX Runtime sees the pieces."""
        given = self._as_given(left)
        if given is None:
            return None
        if side == "source":
            return self._given.get(given.input[0])
        return next(iter(self._given_readers.get(given.output[0], ())), None)

    def _tensor(self, left: onnx.NodeProto) -> str:
        """Give the name of the float tensor, or of the constant, as it stands in the file."""
        given = self._as_given(left)
        if given is None:  # moved by ONNX Runtime to the other side of a node
            return _MOVED.sub("", left.input[0] if left.op_type == "QuantizeLinear" else left.output[0])
        source = self._given.get(given.input[0])
        return str(source.input[0] if source is not None and source.op_type == "QuantizeLinear" else given.input[0])

    def _as_given(self, left: onnx.NodeProto) -> onnx.NodeProto | None:
        found = (self._given.get(name) for name in (left.name.removesuffix(_COPIED), left.output[0]))
        return next((one for one in found if one is not None and one.op_type == left.op_type), None)


def _readers(graph: onnx.GraphProto) -> dict[str, list[onnx.NodeProto]]:
    found: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            found.setdefault(name, []).append(node)
    return found
