"""How Flatten and Reshape pass indices on: runs of axes that hold the same values on both sides, digit by digit.

An index of a merged axis is a number written in digits, one for each axis that was merged. Removing by one digit leaves
the others whole, so that a run is followed by one of its digits; which one is a `Choice`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from compressor.stages.prune.atoms import UNKNOWN_SIZE, Choice, Flow, Option, rank, size
from compressor.stages.prune.constants import constant

if TYPE_CHECKING:
    import onnx_ir as ir

    from compressor.records import Array

_MERGED = f"merges or splits it with {UNKNOWN_SIZE}"
_Axes = list[tuple[int, int | None]]
_Digit = tuple[int, tuple[tuple[int, int], tuple[int, int]]]


def flatten(flow: Flow) -> str:
    """Flatten: the axes before `axis` become the first, the others the second."""
    axis = flow.node.attributes.get_int("axis", 1)
    axis += rank(flow.x) if axis < 0 else 0
    _regroup(flow, range(axis), range(1))
    _regroup(flow, range(axis, rank(flow.x)), range(1, 2))
    return _MERGED


def reshape(flow: Flow) -> str:
    """Reshape: runs of axes whose sizes multiply to the same number are followed, the others stay."""
    _regroup(flow, range(rank(flow.x)), range(rank(flow.y)))
    return _MERGED


def _regroup(flow: Flow, left: Iterable[int], right: Iterable[int]) -> None:
    sides = [_sized(flow, flow.x, left), _sized(flow, flow.y, right)]
    if not any(number == 0 for side in sides for _, number in side):
        for run in _runs(flow, *sides):
            _follow(flow, *run)


def _sized(flow: Flow, value: ir.Value, axes: Iterable[int]) -> _Axes:
    """Give the axes with their sizes; those of size 1 say nothing of where a value lies."""
    sized = [(axis, size(value, axis)) for axis in axes]
    for axis, number in sized:
        if number == 1:
            flow.axis(value, axis)
    return [pair for pair in sized if pair[1] != 1]


def _runs(flow: Flow, left: _Axes, right: _Axes) -> list[tuple[list[int], list[int]]]:
    """Match axes of both sides from the last on as far as sizes are known, then from the first on."""
    runs = []
    for _ in ("from the last", "from the first"):
        left, right = left[::-1], right[::-1]
        while (ends := _run(flow, left, right)) is not None:
            runs.append((sorted(a for a, _ in left[: ends[0]]), sorted(a for a, _ in right[: ends[1]])))
            left, right = left[ends[0] :], right[ends[1] :]
    return runs


def _run(flow: Flow, left: _Axes, right: _Axes) -> tuple[int, int] | None:
    """Give how many axes of either side, from the first on, hold the same values; None where that is not known."""
    if not left or not right:
        return None
    if left[0][1] is None and right[0][1] is None:
        return (1, 1) if _same_unknown(flow, left[0][0], right[0][0]) else None
    products = _products(left), _products(right)
    common = next((product for product in products[0] if product in products[1]), None)
    return None if common is None else (products[0].index(common) + 1, products[1].index(common) + 1)


def _products(axes: _Axes) -> list[int]:
    """Multiply the sizes up to each axis, as far as they are known."""
    products: list[int] = []
    for _, number in axes:
        if number is None:
            break
        products.append(number * (products[-1] if products else 1))
    return products


def _same_unknown(flow: Flow, left: int, right: int) -> bool:
    """Tell whether two axes have the same size though it is not known: they have one name, or Reshape copies it."""
    names = [flow.x.shape[left].value, flow.y.shape[right].value]
    target = constant(flow[1]) if flow.node.op_type == "Reshape" else None
    copied = target is not None and left == right and target[right] == 0
    return copied or (names[0] == names[1] and names[0] is not None)


def _follow(flow: Flow, left: Sequence[int], right: Sequence[int]) -> None:
    """Follow one run by one of its digits."""
    keys = [(flow.x, axis) for axis in left], [(flow.y, axis) for axis in right]
    found = [(key, flow.axis(*key)) for side in keys for key in side]
    atoms = {key: a for key, a in found if a is not None}
    if len(atoms) < len(found):
        return  # one axis of unknown size on either side: nothing to remove
    digits = _digits(*([len(atoms[key]) for key in side] for side in keys))
    options = tuple(_option(flow, digit, keys, atoms) for digit in digits)
    if options:
        flow.atoms.choices.append(Choice(flow.node, options))
        return
    for a in atoms.values():
        flow.freeze(a, "regroups this axis so that no index stays whole")


_Keys = tuple[list[tuple["ir.Value", int]], list[tuple["ir.Value", int]]]


def _option(flow: Flow, digit: _Digit, keys: _Keys, atoms: dict[tuple[ir.Value, int], Array]) -> Option:
    """Let the indices with the same value of a digit go together, and freeze the axes without that digit."""
    number, places = digit
    one, ties = flow.atoms.new(number), {}
    for side, (place, faster) in zip(keys, places, strict=True):
        found = atoms[side[place]]
        ties[side[place]] = found, one[np.arange(len(found)) // faster % number]
    others = tuple(a for key, a in atoms.items() if key not in ties)
    return Option(tuple(ties.values()), others, frozenset(ties))


def _digits(*sides: Sequence[int]) -> list[_Digit]:
    """Write both sides in the same digits, the outermost first.

    A digit is its size, and for each side the axis that it is part of and how many indices count faster there.
    Empty where there are no such digits, as between [4, 3] and [3, 4].
    """
    rest, at = [side[0] for side in sides], [0, 0]
    digits: list[_Digit] = []
    while (number := gcd(*rest)) > 1:
        rest = [r // number for r in rest]
        digits.append((number, ((at[0], rest[0]), (at[1], rest[1]))))
        for i, side in enumerate(sides):
            if rest[i] == 1 and at[i] + 1 < len(side):
                at[i] += 1
                rest[i] = side[at[i]]
    return digits if rest == [1, 1] else []
