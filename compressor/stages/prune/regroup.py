"""How Flatten and Reshape pass indices on: axes that hold the same values on both sides, digit by digit.

An index of a merged axis is a number written in digits, one for each axis that was merged. Removing by one digit leaves
the others whole, so that axes which share digits are followed by one of these; which one is a `Choice`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd, prod
from typing import TYPE_CHECKING

import numpy as np

from compressor.stages.prune.atoms import UNKNOWN_SIZE, Choice, Flow, Option, rank, size
from compressor.stages.prune.constants import constant

if TYPE_CHECKING:
    import onnx_ir as ir

_MERGED = f"merges or splits it with {UNKNOWN_SIZE}, or so that no index of it stays whole"
_Size = int | str | None  # known, known by a name, not known
_Key = tuple["ir.Value", int]


@dataclass(frozen=True)
class _Digit:
    """A digit that axes on both sides are written in."""

    size: _Size
    left: _Key
    right: _Key


def flatten(flow: Flow) -> str:
    """Flatten: the axes before `axis` become the first, the others the second."""
    axis = flow.node.attributes.get_int("axis", 1)
    axis += rank(flow.x) if axis < 0 else 0
    _regroup(flow, range(axis), range(1))
    _regroup(flow, range(axis, rank(flow.x)), range(1, 2))
    return _MERGED


def reshape(flow: Flow) -> str:
    """Reshape: axes are followed whose digits can be matched from the last one on, or from the first one on."""
    _regroup(flow, range(rank(flow.x)), range(rank(flow.y)))
    return _MERGED


def _regroup(flow: Flow, left: Iterable[int], right: Iterable[int]) -> None:
    sides = _written(flow, flow.x, left), _written(flow, flow.y, right)
    if any(number == 0 for side in sides for _, number in side):
        return
    digits = _matched(flow, *sides)
    for run in _runs(digits):
        if all(_is_whole(flow, key, run) for digit in run for key in (digit.left, digit.right)):
            _follow(flow, run)


def _written(flow: Flow, value: ir.Value, axes: Iterable[int]) -> list[tuple[_Key, _Size]]:
    """Write axes in digits; those of size 1 say nothing of where a value lies."""
    digits: list[tuple[_Key, _Size]] = []
    for axis in axes:
        known = size(value, axis)
        name = None if known is not None else value.shape[axis].value
        digits += [((value, axis), n) for n in flow.atoms.merged.get(name or "", (name if known is None else known,))]
        if known == 1:
            flow.axis(value, axis)
    return [digit for digit in digits if digit[1] != 1]


def _matched(flow: Flow, left: list[tuple[_Key, _Size]], right: list[tuple[_Key, _Size]]) -> list[_Digit]:
    """Match digits from the last on, then from the first on, and give them in their order.

    If all that is left then is one axis of unknown size on the right, it is what is left on the left, merged.
    """
    last = _common(flow, left[::-1], right[::-1])
    first = _common(flow, last[1][::-1], last[2][::-1])
    between = []
    if first[1] and len(first[2]) == 1 and isinstance(name := first[2][0][1], str):
        sizes = tuple(number for _, number in first[1] if number is not None)
        if len(sizes) == len(first[1]):
            flow.atoms.merged[name] = sizes
            between = [_Digit(number, key, first[2][0][0]) for key, number in first[1]]
    return [*first[0], *between, *last[0][::-1]]


def _common(
    flow: Flow, left: list[tuple[_Key, _Size]], right: list[tuple[_Key, _Size]]
) -> tuple[list[_Digit], list[tuple[_Key, _Size]], list[tuple[_Key, _Size]]]:
    """Match digits from the first on as far as that goes; give them and what is left of either side."""
    digits: list[_Digit] = []
    left, right = left.copy(), right.copy()
    common: _Size
    while left and right:
        (one, a), (other, b) = left[0], right[0]
        if isinstance(a, int) and isinstance(b, int):
            common = gcd(a, b)
            rest = [(side, key, n // common) for side, key, n in ((left, one, a), (right, other, b))]
        elif (a == b and a is not None) or _is_copied(flow, one[1], other[1]):
            common, rest = a, [(left, one, 1), (right, other, 1)]
        else:
            break
        if common == 1:
            break
        digits.append(_Digit(common, one, other))
        for side, key, n in rest:
            side[:1] = [] if n == 1 else [(key, n)]
    return digits, left, right


def _is_copied(flow: Flow, left: int, right: int) -> bool:
    """Tell whether Reshape copies the size of an axis of its input, by a 0."""
    target = constant(flow[1]) if flow.node.op_type == "Reshape" else None
    return target is not None and left == right and target[right] == 0 and size(flow.x, left) is None


def _runs(digits: list[_Digit]) -> list[list[_Digit]]:
    """Put digits together that share an axis with the one before."""
    runs: list[list[_Digit]] = []
    for digit in digits:
        if runs and (runs[-1][-1].left == digit.left or runs[-1][-1].right == digit.right):
            runs[-1].append(digit)
        else:
            runs.append([digit])
    return runs


def _is_whole(flow: Flow, key: _Key, run: list[_Digit]) -> bool:
    """Tell whether a run holds all digits of an axis."""
    held = [digit.size for digit in run if key in {digit.left, digit.right}]
    dim = size(*key)
    if dim is not None:
        return None not in held and prod(n for n in held if isinstance(n, int)) == dim
    name = key[0].shape[key[1]].value
    return held in (list(flow.atoms.merged.get(name or "", ())), [name])


def _follow(flow: Flow, run: list[_Digit]) -> None:
    """Follow the axes of a run by one of their digits."""
    options = tuple(_option(flow, at, run) for at, digit in enumerate(run) if isinstance(digit.size, int))
    if len(options) == 1:
        flow.atoms.take(flow.node, options[0])
    elif options:
        flow.atoms.choices.append(Choice(flow.node, options))
    for digit in run:
        for key in (digit.left, digit.right):
            flow.axis(*key)


def _option(flow: Flow, at: int, run: list[_Digit]) -> Option:
    """Let the indices with the same value of a digit go together, and freeze the axes without that digit."""
    number = run[at].size
    assert isinstance(number, int), "only such digits are options"  # noqa: S101 - for the type
    one, ties = flow.atoms.new(number), {}
    for key in (run[at].left, run[at].right):
        behind = (digit.size for digit in run[at + 1 :] if key in {digit.left, digit.right})
        faster = prod(n for n in behind if isinstance(n, int))
        if (atoms := flow.axis(*key)) is not None:
            ties[key] = atoms, one[np.arange(len(atoms)) // faster % number]
    others = {key for digit in run for key in (digit.left, digit.right)} - ties.keys()
    stay = [
        atoms
        for value, axis in sorted(others, key=lambda key: (key[0] is flow.y, key[1]))
        if (atoms := flow.axis(value, axis)) is not None
    ]
    return Option(tuple(ties.values()), tuple(stay), frozenset(ties))
