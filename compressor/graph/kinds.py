"""What kind of network a file holds, as far as its operators tell, and which of them do the work.

A new kind is a line in `_KINDS` and a test in `kind`, before those that it is a special case of.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from compressor.graph import count, facts, files, shapes

if TYPE_CHECKING:
    import onnx_ir as ir

    from compressor.records import Shapes

Kind = Literal["quantized", "detector", "transformer", "recurrent", "mobile", "frames", "images", "products", "other"]
_BOXES = re.compile(r"box|bbox|rois|det(ection)?s?\b|anchors", re.IGNORECASE)
_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
_FEW_DEPTHWISE = 0.2
"""Share of the convolutions from which on a network counts as one of depthwise convolutions."""
_LINE = 3
"""Axes of the kernel of a convolution along one axis."""


def kind(path: Path) -> Kind:
    """Tell what kind of network it is."""
    model = files.load(path)
    operators = count.operators(model)
    convolutions = [node for node in count.nodes(model) if node.op_type == "Conv"]
    if count.is_quantized(model):
        return "quantized"
    if "NonMaxSuppression" in operators or (convolutions and _finds_boxes(model)):
        return "detector"
    if facts.looks_like_transformer(path):
        return "transformer"
    if operators.keys() & _RECURRENT:
        return "recurrent"
    if convolutions:
        return _of_convolutions(convolutions)
    return "products" if facts.has_products(path) else "other"


def shares(path: Path, static: Shapes) -> Mapping[str, float]:
    """Give the share of the multiply-accumulates that each operator does, the largest first; none where unsettled."""
    model = files.load(path)
    model.graph.sort()  # or onnx_ir cannot copy it
    found: Counter[str] = Counter()
    for node in shapes.settled(model, static).graph:
        found[node.op_type] += count.node_macs(node) or 0
    return {operator: macs / found.total() for operator, macs in found.most_common() if macs}


def _of_convolutions(convolutions: list[ir.Node]) -> Kind:
    depthwise = sum(node.attributes.get_int("group", 1) > 1 and _inputs(node) == 1 for node in convolutions)
    if depthwise > _FEW_DEPTHWISE * len(convolutions):
        return "mobile"
    return "frames" if all(map(_is_along_one_axis, convolutions)) else "images"


def _finds_boxes(model: ir.Model) -> bool:
    """Tell whether an output is called so, and has four numbers for each box or does not say how many."""
    named = (value for value in model.graph.outputs if _BOXES.search(value.name or ""))
    return len(model.graph.outputs) > 1 and any(
        value.shape is None or not isinstance(value.shape[-1], int) or value.shape[-1] % 4 == 0 for value in named
    )


def _inputs(convolution: ir.Node) -> int | None:
    """Give the input channels of each group."""
    dims = _kernel(convolution)
    return dims[1] if dims else None


def _is_along_one_axis(convolution: ir.Node) -> bool:
    dims = _kernel(convolution)
    return len(dims) == _LINE or (len(dims) > _LINE and 1 in dims[2:] and dims[2:] != (1,) * (len(dims) - 2))


def _kernel(convolution: ir.Node) -> tuple[int, ...]:
    import onnx_ir as ir

    kernel = convolution.inputs[1]
    tensor = None if kernel is None else ir.convenience.get_const_tensor(kernel)
    return () if tensor is None else tuple(int(dim) for dim in tensor.shape)
