"""Where the sizes of axes go that Shape reads: into shapes of other tensors, which pruning writes anew, or elsewhere.

Another operator that makes a tensor of a given shape is a line in `SHAPED_BY`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from compressor.stages.prune.constants import constant
from compressor.stages.prune.layout import bounds

if TYPE_CHECKING:
    import onnx_ir as ir

SHAPED_BY = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Resize": 3}
"""Operators that make a tensor of a given shape, and the input that gives it."""
_SAME_NUMBERS = frozenset({"Cast", "Gather", "Identity", "Slice", "Squeeze", "Unsqueeze"})
_COMBINED = frozenset({"Add", "Concat", "Div", "Mul", "Sub"})


def counted(shape: ir.Value, axes: Iterable[int], merged: frozenset[int]) -> set[int]:
    """Give those of the axes whose size, read by Shape, is used for more than the shape of other tensors.

    For `merged` axes, whose size pruning cannot write anew, every use counts.
    """
    return set(_counted(shape, tuple(axes), merged, arithmetic=False))


def _counted(value: ir.Value, axes: tuple[int, ...], merged: frozenset[int], *, arithmetic: bool) -> Iterator[int]:
    """Follow numbers to where they are used; pruning writes the known sizes of a tensor made by them anew."""
    if value.is_graph_output():
        yield from axes
    for use in value.uses():
        node = use.node
        if node.graph is not value.producer().graph:  # inside an If or Loop nothing is written anew
            yield from axes
        elif SHAPED_BY.get(node.op_type) == use.idx:
            shape = node.outputs[0].shape
            known = shape is not None and not (arithmetic and any(not isinstance(dim, int) for dim in shape))
            yield from (axis for axis in axes if axis in merged or not known)
        elif node.op_type in _COMBINED or (node.op_type in _SAME_NUMBERS and use.idx == 0):
            computed = arithmetic or (node.op_type in _COMBINED and node.op_type != "Concat")
            yield from _counted(node.outputs[0], _picked(node, value, axes), merged, arithmetic=computed)
        else:
            yield from axes


def _picked(node: ir.Node, value: ir.Value, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Give the axes whose sizes are still among the numbers behind a node."""
    if value.producer().op_type != "Shape":
        return axes
    if node.op_type == "Gather" and (picks := constant(node.inputs[1])) is not None:
        return tuple(axes[int(i)] for i in np.ravel(picks))
    if node.op_type == "Slice" and (found := bounds(node, 1)) is not None:
        (_, start, end, step), *_ = found
        return axes[start:end:step]
    return axes
