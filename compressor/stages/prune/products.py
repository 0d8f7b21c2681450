"""How operators that multiply weights pass indices on: convolutions, matrix products, recurrent layers.

The axis along which they sum goes with the axis of their input, the axis of what they make with that of their output.
Add such an operator here, and to the table in `rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from compressor.stages.prune.atoms import Choice, Flow, Option, rank, size
from compressor.stages.prune.constants import is_weight

if TYPE_CHECKING:
    import onnx_ir as ir

    from compressor.records import Array

_COMPUTED = "has weights that are computed while it runs"
_SPATIAL = "slides over this axis"
_TWO_ACTIVATIONS = "sums a product of two activations over this axis"
_GATES: Mapping[str, int] = {"GRU": 3, "LSTM": 4, "RNN": 1}
_STATES = (5, 6)  # inputs: initial hidden and cell state, last axis the hidden units
_PEEPHOLES = (7, 3)  # input of LSTM, and how often it repeats the hidden units


def conv(flow: Flow) -> str:
    """Conv: kernel [out, in / groups, ...]."""
    return _convolution(flow, summed=1)


def conv_transpose(flow: Flow) -> str:
    """ConvTranspose: kernel [in, out / groups, ...]."""
    return _convolution(flow, summed=0)


def _convolution(flow: Flow, summed: int) -> str:
    weights, bias = flow.inputs[1], flow[2]
    if weights is None or not is_weight(weights):
        return _COMPUTED
    groups, x, y = flow.node.attributes.get_int("group", 1), flow.axis(flow.x, 1), flow.axis(flow.y, 1)
    counted, within = flow.axis(weights, 0), flow.axis(weights, 1)
    outer, inner = (y, x) if summed else (x, y)  # the sides of which the kernel has all channels, and those of a group
    flow.tie(counted, outer)
    flow.reads(weights, summed)
    flow.makes(y)
    if bias is not None:
        flow.tie(flow.axis(bias, 0), y)
    if groups == 1:
        flow.tie(within, inner)
    elif inner is None or outer is None or within is None or any(map(flow.atoms.is_open, (inner, outer))):
        return flow.give_up("has groups of channels of unknown number", inner, outer, within)
    else:
        flow.atoms.choices.append(_grouped(flow, groups, (inner, outer), within))
    return _SPATIAL


def _grouped(flow: Flow, groups: int, sides: tuple[Array, Array], within: Array) -> Choice:
    """Remove whole groups, or the same places of each group.

    Args:
        flow: The node.
        groups: How many groups it has.
        sides: The channels of the side that the kernel's axis `within` counts inside a group, and of the other side.
        within: The kernel's axis.
    """
    inner, outer = sides
    whole = flow.atoms.new(groups)
    places = flow.atoms.new(len(outer) // groups)
    blocks = tuple((side, np.repeat(whole, len(side) // groups)) for side in sides)
    by_group = Option(blocks, frozen=(within,))
    by_place = Option(((inner, np.tile(within, groups)), (outer, np.tile(places, groups))))
    return Choice(flow.node, (by_group,) if len(within) == 1 else (by_group, by_place))


def gemm(flow: Flow) -> str | None:
    """Gemm: alpha * A @ B + beta * C, either matrix transposed."""
    a, b, bias = flow.x, flow.inputs[1], flow[2]
    assert b is not None, "all matrices are required"  # noqa: S101 - for the type
    transposed = [flow.node.attributes.get_int(name, 0) for name in ("transA", "transB")]
    rows, columns = flow.axis(flow.y, 0), flow.axis(flow.y, 1)
    flow.tie(flow.axis(a, transposed[0]), rows)
    flow.tie(flow.axis(b, 1 - transposed[1]), columns)
    _sum(flow, (a, 1 - transposed[0]), (b, transposed[1]))
    _made(flow, (a, rows), (b, columns))
    for axis in range(rank(bias)) if bias is not None else ():
        if size(bias, axis) == 1:
            flow.axis(bias, axis)
        else:
            flow.tie(flow.axis(bias, axis), (rows, columns)[axis + 2 - rank(bias)])
    return _TWO_ACTIVATIONS


def matmul(flow: Flow) -> str | None:
    """MatMul of any ranks: [..., rows, k] @ [..., k, columns], or one axis on either side."""
    a, b = flow.x, flow.inputs[1]
    assert b is not None, "both matrices are required"  # noqa: S101 - for the type
    batch = max(rank(a), rank(b), 2) - 2
    rows = flow.axis(flow.y, batch) if rank(a) > 1 else None
    columns = flow.axis(flow.y, -1) if rank(b) > 1 else None
    if rank(a) > 1:
        flow.tie(flow.axis(a, -2), rows)
    if rank(b) > 1:
        flow.tie(flow.axis(b, -1), columns)
    for value in (a, b):
        _batch(flow, value, batch)
    _sum(flow, (a, rank(a) - 1), (b, max(rank(b) - 2, 0)))
    _made(flow, (a, rows), (b, columns))
    return _TWO_ACTIVATIONS


def _batch(flow: Flow, value: ir.Value, batch: int) -> None:
    offset = batch + 2 - rank(value)
    both = not any(map(is_weight, flow.inputs))
    for axis in range(rank(value) - 2):
        if size(value, axis) == 1:
            flow.axis(value, axis)
            continue
        atoms = flow.axis(flow.y, axis + offset)
        flow.tie(flow.axis(value, axis), atoms)
        if both and atoms is not None:
            flow.atoms.heads.append(atoms)


def _sum(flow: Flow, left: tuple[ir.Value, int], right: tuple[ir.Value, int]) -> None:
    """Tie the axes that a product sums over; where no side is weights, nothing makes sure that removed terms are 0."""
    if not is_weight(left[0]) and not is_weight(right[0]):
        return
    flow.tie(flow.axis(*left), flow.axis(*right))
    for value, axis in (left, right):
        if is_weight(value):
            flow.reads(value, axis)


def _made(flow: Flow, *sides: tuple[ir.Value, Array | None]) -> None:
    for value, atoms in sides:
        if is_weight(value):
            flow.makes(atoms)


def recurrent(flow: Flow) -> str:
    """LSTM, GRU and RNN: W [directions, gates * hidden, in], R [directions, gates * hidden, hidden].

    Both directions have as many hidden units, so that a unit goes from both.
    """
    weights, recurrence = flow.inputs[1], flow.inputs[2]
    if not (is_weight(weights) and is_weight(recurrence)):
        return _COMPUTED
    assert weights is not None, "a weight is there"  # noqa: S101 - for the type
    gates = _GATES[flow.node.op_type]
    hidden = flow.atoms.new(flow.node.attributes.get_int("hidden_size", 0))
    flow.tie(flow.axis(flow.x, 2), flow.axis(weights, 2))
    flow.reads(weights, 2)
    flow.reads(recurrence, 2)
    flow.makes(hidden)
    # Repeats of the hidden units along each axis that holds them.
    last = {1: gates, 3: 2 * gates, **dict.fromkeys(_STATES, 1), **dict([_PEEPHOLES])}
    held = [(flow[index], 1 if index == 1 else -1, repeats) for index, repeats in last.items()]
    held += [(recurrence, 1, gates), (recurrence, 2, 1), *((output, -1, 1) for output in flow.outputs)]
    for value, axis, repeats in held:
        if value is not None:
            flow.tie(flow.axis(value, axis), np.tile(hidden, repeats))
    return "works through this axis in order"
