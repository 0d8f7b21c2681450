"""How operators that move and regroup values pass indices on: concatenation, slices, padding, transposition.

Add such an operator here, and to the table in `rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from compressor.stages.prune.atoms import Flow, rank, size
from compressor.stages.prune.constants import constant

if TYPE_CHECKING:
    import onnx_ir as ir

_AT_RUN_TIME = "takes numbers that are computed while it runs"


def concat(flow: Flow) -> str:
    """Concat: ranges of the output's axis, one behind the other."""
    axis = flow.node.attributes.get_int("axis", 0) % rank(flow.y)
    parts = [value for value in flow.inputs if value is not None]
    _join(flow, parts, flow.y, axis)
    return "joins tensors of unknown size along this axis"


def split(flow: Flow) -> str:
    """Split: the reverse of Concat."""
    axis = flow.node.attributes.get_int("axis", 0) % rank(flow.x)
    if flow[1] is not None and constant(flow[1]) is None:
        return _AT_RUN_TIME
    _join(flow, flow.outputs, flow.x, axis)
    return "splits this axis into parts of unknown size"


def _join(flow: Flow, parts: Sequence[ir.Value], whole: ir.Value, axis: int) -> None:
    for part in parts:
        flow.same(part, whole, (i for i in range(rank(whole)) if i != axis))
    sizes = [size(part, axis) for part in parts]
    if None not in sizes and size(whole, axis) is not None and len(flow.outputs) == len(flow.node.outputs):
        atoms = [a for part in parts if (a := flow.axis(part, axis)) is not None]
        flow.tie(np.concatenate(atoms), flow.axis(whole, axis))


def bounds(node: ir.Node, ranks: int) -> list[tuple[int, int, int, int]] | None:
    """Give axis, start, end and step of each axis that Slice cuts; None where they are not constants."""
    starts, ends = constant(node.inputs[1]), constant(node.inputs[2])
    given = [node.inputs[i] if len(node.inputs) > i else None for i in (3, 4)]
    if starts is None or ends is None or any(value is not None and constant(value) is None for value in given):
        return None
    axes = np.arange(len(starts)) if given[0] is None else constant(given[0])
    steps = np.ones(len(starts), int) if given[1] is None else constant(given[1])
    assert axes is not None, "checked above"  # noqa: S101 - for the type
    assert steps is not None, "checked above"  # noqa: S101 - for the type
    return [(int(a) % ranks, int(b), int(c), int(d)) for a, b, c, d in zip(axes, starts, ends, steps, strict=True)]


def cut(flow: Flow) -> str:
    """Slice: a range of the input's axis."""
    found = bounds(flow.node, rank(flow.x))
    if found is None:
        return _AT_RUN_TIME
    sliced = {axis for axis, *_ in found}
    flow.same(flow.x, flow.y, (i for i in range(rank(flow.x)) if i not in sliced))
    for axis, start, end, step in found:
        length = size(flow.x, axis)
        if step == 1 and length is not None:
            atoms = flow.axis(flow.x, axis)
            assert atoms is not None, "its size is known"  # noqa: S101 - for the type
            flow.tie(atoms[slice(start, end)], flow.axis(flow.y, axis))
    return "takes every so many-th index of this axis, or indices counted from an end that is not known"


def padding(node: ir.Node, ranks: int) -> list[tuple[int, int, int]] | None:
    """Give axis, indices before and indices behind, negative where they are cut off; None where not constants."""
    pads = constant(node.inputs[1])
    given = node.inputs[3] if len(node.inputs) > 3 else None  # noqa: PLR2004 - Pad's input `axes`
    axes = np.arange(ranks) if given is None else constant(given)
    if pads is None or axes is None:
        return None
    half = len(pads) // 2
    return [(int(a) % ranks, int(b), int(c)) for a, b, c in zip(axes, pads[:half], pads[half:], strict=True)]


def pad(flow: Flow) -> str:
    """Pad: the input's axis lies inside the output's; constants around it may go as channels go."""
    found = padding(flow.node, rank(flow.x))
    if found is None:
        return _AT_RUN_TIME
    padded = {axis: (before, behind) for axis, before, behind in found if before or behind}
    flow.same(flow.x, flow.y, (i for i in range(rank(flow.x)) if i not in padded))
    for axis, (before, behind) in padded.items():
        inner, outer = flow.axis(flow.x, axis), flow.axis(flow.y, axis)
        known = size(flow.x, axis) is not None
        if (
            not known
            or flow.node.attributes.get_string("mode", "constant") != "constant"
            or inner is None
            or outer is None
        ):
            for atoms in (inner, outer):
                if atoms is not None:
                    flow.freeze(atoms, "pads this axis with its own values, or has no known size")
            continue
        kept = inner[max(0, -before) : len(inner) - max(0, -behind)]
        flow.tie(kept, outer[max(0, before) : len(outer) - max(0, behind)])
    return _AT_RUN_TIME


def transpose(flow: Flow) -> None:
    """Transpose: the same axes in another order."""
    ranks = rank(flow.x)
    for to, axis in enumerate(flow.node.attributes.get_ints("perm", None) or range(ranks)[::-1]):
        flow.tie(flow.axis(flow.x, axis), flow.axis(flow.y, to))


def squeeze(flow: Flow) -> str | None:
    """Squeeze: axes of size 1 are dropped."""
    return _one_to_one(flow, flow.x, flow.y)


def unsqueeze(flow: Flow) -> str | None:
    """Unsqueeze: axes of size 1 are put in."""
    return _one_to_one(flow, flow.y, flow.x)


def _one_to_one(flow: Flow, longer: ir.Value, shorter: ir.Value) -> str | None:
    axes = flow.node.attributes.get_ints("axes", None) if flow[1] is None else constant(flow[1])
    if axes is None and (flow[1] is not None or None in (size(longer, i) for i in range(rank(longer)))):
        return _AT_RUN_TIME
    if axes is None:
        axes = [i for i in range(rank(longer)) if size(longer, i) == 1]
    gone = {int(axis) % rank(longer) for axis in axes}
    left = (i for i in range(rank(longer)) if i not in gone)
    for to, axis in enumerate(left):
        flow.tie(flow.axis(longer, axis), flow.axis(shorter, to))
    return None


def tile(flow: Flow) -> str:
    """Tile: an axis comes several times."""
    repeats = constant(flow.inputs[1])
    for axis, times in enumerate(repeats if repeats is not None else ()):
        atoms = flow.axis(flow.x, axis)
        flow.tie(None if atoms is None else np.tile(atoms, int(times)), flow.axis(flow.y, axis))
    return _AT_RUN_TIME


def expand(flow: Flow) -> str:
    """Expand: axes of size 1 are repeated."""
    offset = rank(flow.y) - rank(flow.x)
    for axis in range(rank(flow.x)):
        if size(flow.x, axis) == 1:
            flow.axis(flow.x, axis)
        else:
            flow.tie(flow.axis(flow.x, axis), flow.axis(flow.y, axis + offset))
    for axis in range(rank(flow.y)):  # copies of one index: any number of them will do
        flow.axis(flow.y, axis)
    return "repeats this axis"


def filled(flow: Flow) -> None:
    """ConstantOfShape: all indices are alike."""
    for axis in range(rank(flow.y)):
        flow.axis(flow.y, axis)


def depth_to_space(flow: Flow) -> str:
    """DepthToSpace: each channel of the output has as many of the input as a block has places."""
    return _blocks(flow, flow.x, flow.y, last=flow.node.attributes.get_string("mode", "DCR") == "DCR")


def space_to_depth(flow: Flow) -> str:
    """SpaceToDepth: the reverse; channels count fastest."""
    return _blocks(flow, flow.y, flow.x, last=True)


def _blocks(flow: Flow, deep: ir.Value, wide: ir.Value, *, last: bool) -> str:
    places = flow.node.attributes.get_int("blocksize", 1) ** 2
    one = flow.axis(wide, 1)
    many = None if one is None else np.tile(one, places) if last else np.repeat(one, places)
    flow.tie(many, flow.axis(deep, 1))
    flow.same(deep, wide, (0,))
    return "moves this axis into channels or out of them"
