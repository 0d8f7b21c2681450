"""How Flatten and Reshape pass indices on: axes that hold the same values on both sides, digit by digit.

An index of a merged axis is a number written in digits, one for each axis that was merged. Removing by one digit leaves
the others whole, so that axes which share digits are followed by one of these; which one is a `Choice`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import gcd, prod
from typing import TYPE_CHECKING

import numpy as np

from compressor.stages.prune.atoms import UNKNOWN_SIZE, Atoms, Choice, Flow, Option, rank, size
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


def learn(node: ir.Node, atoms: Atoms) -> None:
    """Note the size of an axis that is known at run time only as a product, if it is the one that others are merged in.

    To be done for all nodes before any is followed: an axis must not gain atoms after a rule has passed it by.
    """
    if node.op_type not in _SPANS or any(value.shape is None for value in (node.inputs[0], node.outputs[0])):
        return
    flow = Flow(node, atoms)
    for span in _SPANS[node.op_type](flow):
        _, left, right = _matched(flow, *_sides(flow, span))
        sizes = tuple(number for _, number in left if number is not None)
        if left and len(sizes) == len(left) and len(right) == 1 and isinstance(name := right[0][1], str):
            atoms.merged[name] = sizes


def follow(flow: Flow) -> str:
    """Flatten and Reshape: axes are followed whose digits can be matched from the last one on, or from the first."""
    for span in _SPANS[flow.node.op_type](flow):
        digits, *_ = _matched(flow, *_sides(flow, span))
        for run in _runs(digits):
            if all(_is_whole(flow, key, run) for digit in run for key in (digit.left, digit.right)):
                _follow(flow, run)
    return _MERGED


_Span = tuple[Iterable[int], Iterable[int]]
_Digits = list[tuple[_Key, _Size]]


def _all_axes(flow: Flow) -> list[_Span]:
    return [(range(rank(flow.x)), range(rank(flow.y)))]


def _before_and_behind(flow: Flow) -> list[_Span]:
    """Flatten makes one axis of those before `axis`, and one of the others."""
    axis = flow.node.attributes.get_int("axis", 1)
    axis += rank(flow.x) if axis < 0 else 0
    return [(range(axis), range(1)), (range(axis, rank(flow.x)), range(1, 2))]


_SPANS: Mapping[str, Callable[[Flow], list[_Span]]] = {"Flatten": _before_and_behind, "Reshape": _all_axes}


def _sides(flow: Flow, span: _Span) -> tuple[_Digits, _Digits]:
    """Write the axes of both sides in digits; nothing where there is nothing to regroup."""
    sides = _written(flow, flow.x, span[0]), _written(flow, flow.y, span[1])
    return ([], []) if any(number == 0 for side in sides for _, number in side) else sides


def _written(flow: Flow, value: ir.Value, axes: Iterable[int]) -> _Digits:
    """Write axes in digits; those of size 1 say nothing of where a value lies."""
    digits: _Digits = []
    for axis in axes:
        known = size(value, axis)
        name = None if known is not None else value.shape[axis].value
        digits += [((value, axis), n) for n in flow.atoms.merged.get(name or "", (name if known is None else known,))]
        if known == 1:
            flow.axis(value, axis)
    return [digit for digit in digits if digit[1] != 1]


def _matched(flow: Flow, left: _Digits, right: _Digits) -> tuple[list[_Digit], _Digits, _Digits]:
    """Match digits from the last on, then from the first on; give them, and what is left of either side, in order."""
    last, *rest = _common(flow, left[::-1], right[::-1])
    first, *rest = _common(flow, rest[0][::-1], rest[1][::-1])
    return [*first, *last[::-1]], rest[0], rest[1]


def _common(flow: Flow, left: _Digits, right: _Digits) -> tuple[list[_Digit], _Digits, _Digits]:
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
