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
_SAME_NUMBERS = frozenset({"Cast", "Gather", "Slice", "Squeeze", "Unsqueeze"})
_COMBINED = frozenset({"Add", "Concat", "Div", "Mul", "Sub"})


def counted(x: ir.Value, shape: ir.Value, axes: Iterable[int], merged: frozenset[int]) -> set[int]:
    """Give those of the axes of `x` whose size, read by Shape, is used for more than the shape of other tensors.

    For `merged` axes, whose size pruning cannot write anew, every use counts; so does one for a tensor of which it is
    not known that it has this size.
    """
    sizes = tuple((axis, x.shape[axis] if isinstance(x.shape[axis], int) else None) for axis in axes)
    return set(_counted(shape, sizes, merged, arithmetic=False))


_Sizes = tuple[tuple[int, int | None], ...]


def _counted(value: ir.Value, sizes: _Sizes, merged: frozenset[int], *, arithmetic: bool) -> Iterator[int]:
    """Follow the sizes of axes to where they are used; pruning writes the known sizes of a tensor anew."""
    if value.is_graph_output():
        yield from (axis for axis, _ in sizes)
    for use in value.uses():
        node = use.node
        if node.graph is value.producer().graph and SHAPED_BY.get(node.op_type) == use.idx:
            dims = None if node.outputs[0].shape is None else list(node.outputs[0].shape)
            yield from (a for a, size in sizes if a in merged or not _is_written(size, dims, arithmetic=arithmetic))
        elif node.graph is value.producer().graph and (
            node.op_type in _COMBINED or (node.op_type in _SAME_NUMBERS and use.idx == 0)
        ):
            computed = arithmetic or (node.op_type in _COMBINED and node.op_type != "Concat")
            yield from _counted(node.outputs[0], _picked(node, value, sizes), merged, arithmetic=computed)
        else:  # a computation, or a graph inside an If or Loop, where nothing is written anew
            yield from (axis for axis, _ in sizes)


def _is_written(size: int | None, dims: list[object] | None, *, arithmetic: bool) -> bool:
    """Tell whether a size is among those known of a tensor that it shapes; an open one passes on at run time."""
    if dims is None:
        return False
    return all(isinstance(dim, int) for dim in dims) if arithmetic else size is None or size == 1 or size in dims


def _picked(node: ir.Node, value: ir.Value, axes: _Sizes) -> _Sizes:
    """Give the axes whose sizes are still among the numbers behind a node."""
    if value.producer().op_type != "Shape":
        return axes
    if node.op_type == "Gather" and (picks := constant(node.inputs[1])) is not None:
        return tuple(axes[int(i)] for i in np.ravel(picks))
    if node.op_type == "Slice" and (found := bounds(node, 1)) is not None:
        (_, start, end, step), *_ = found
        return axes[start:end:step]
    return axes
