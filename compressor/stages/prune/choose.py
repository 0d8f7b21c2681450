"""How many units of each group go: what loses least for what is saved, rounded to what kernels like.

Another way to share the loss out among groups is another price of a step in `_entry`.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, gcd

import numpy as np

from compressor.errors import RungError
from compressor.records import Array
from compressor.stages.prune.cost import Cost
from compressor.stages.prune.groups import Group

LEAST_KEPT = 1 / 8
"""Share of its channels that a layer keeps at least: with fewer, nothing of what it computes is left."""
_WORDS = {"macs": "MACs"}
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Curve:
    """What going further in one group costs: units in the order in which they go, and the loss at some counts.

    `counts`: ascending, from 0. `losses`: in a unit that all groups share; between counts they are interpolated.
    """

    order: tuple[int, ...]
    counts: tuple[int, ...]
    losses: tuple[float, ...]


@dataclass(frozen=True)
class Wish:
    """How much shall go: `ratio`, 0 to 1, of what `of` names. `multiple`: of channels that are left of a layer."""

    ratio: float
    multiple: int
    of: str


def check(groups: Sequence[Group], which: Sequence[int], cost: Cost, wish: Wish) -> None:
    """Make sure that as much can go at all.

    Args:
        groups: All of them.
        which: Places of those that may lose units.
        cost: What is counted.
        wish: How much shall go.

    Raises:
        RungError: Not as much can go, or nothing.
    """
    most = np.zeros(cost.shares.shape[1], int)
    for i in which:
        most[i] = max(steps_of(groups[i], wish.multiple), default=0)
    if not which or not cost.total:
        raise RungError(_nothing(wish, some=bool(groups) and bool(cost.total)))
    if wish.ratio - _gone(most, cost) > _ROUNDING:
        raise RungError(_too_much(_gone(most, cost), wish))


def chosen(groups: Sequence[Group], curves: Mapping[int, Curve], cost: Cost, wish: Wish) -> frozenset[int]:
    """Give the units to remove, so that what goes comes as near to the wish as whole steps allow.

    Always that group takes a step which loses least for what it saves: the optimum of a Lagrangian where losses add up
    and are convex. A step beyond the wish is left out, and taken last if that comes nearer.

    Args:
        groups: All of them.
        curves: Of those that may lose units, by their places.
        cost: What is counted.
        wish: How much shall go, no more than `check` lets pass.

    Raises:
        RungError: Steps are so large that less than half or more than half too much would go.
    """
    steps = {i: _priced(steps_of(groups[i], wish.multiple), curve) for i, curve in curves.items()}
    removed, beyond = _taken(steps, cost, wish)
    gone = _gone(removed, cost)
    nearest = min((removed, *beyond), key=lambda r: abs(_gone(r, cost) - wish.ratio))
    if abs(_gone(nearest, cost) - wish.ratio) > wish.ratio / 2:
        raise RungError(_too_coarse(gone, min(_gone(r, cost) for r in beyond), wish))
    return frozenset(unit for i, curve in curves.items() for unit in curve.order[: nearest[i]])


def steps_of(group: Group, multiple: int) -> list[int]:
    """Give how many units may be removed, ascending: an eighth at least is left, in multiples of channels."""
    total = len(group.units)
    step = multiple // gcd(multiple, group.width)
    least = max(1, ceil(total * LEAST_KEPT))
    kept = [n for n in range(total - 1, least - 1, -1) if n % step == 0]
    return [total - n for n in kept]


@dataclass(frozen=True)
class _Step:
    """Removing `units` of a group in all, `loss` more than with the step before."""

    units: int
    loss: float


def _priced(steps: Sequence[int], curve: Curve) -> list[_Step]:
    """Give what steps lose, made convex: of a step that is followed by a cheaper one, both are one."""
    losses = np.interp(steps, curve.counts, curve.losses)
    hull = [(0, 0.0)]
    for units, loss in zip(steps, losses.tolist(), strict=True):
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], (units, loss)):
            hull.pop()
        hull.append((units, loss))
    along = np.interp((0, *steps), [units for units, _ in hull], [loss for _, loss in hull])
    return [_Step(units, float(more)) for units, more in zip(steps, np.diff(along), strict=True)]


def _slope(first: tuple[int, float], second: tuple[int, float]) -> float:
    return (second[1] - first[1]) / (second[0] - first[0])


def _taken(steps: Mapping[int, list[_Step]], cost: Cost, wish: Wish) -> tuple[Array, list[Array]]:
    """Take steps until the wish is reached; give what is removed then, and with each step beyond the wish."""
    removed, gone = np.zeros(cost.shares.shape[1], int), 0.0
    heap = [_entry(i, 0, steps[i], (removed, cost)) for i in steps if steps[i]]
    heapq.heapify(heap)
    beyond: list[tuple[int, int]] = []
    while heap and gone < wish.ratio:
        price, i, at = heapq.heappop(heap)
        current = _entry(i, at, steps[i], (removed, cost))
        if heap and current > max((price, i, at), heap[0]):  # what others lost made this step save less
            heapq.heappush(heap, current)
            continue
        further = _with(removed, i, steps[i][at].units)
        if (now := _gone(further, cost)) > wish.ratio:  # others may have a smaller step
            beyond.append((i, steps[i][at].units))
            continue
        removed, gone = further, now
        if at + 1 < len(steps[i]):
            heapq.heappush(heap, _entry(i, at + 1, steps[i], (removed, cost)))
    return removed, [_with(removed, *step) for step in beyond]


def _entry(i: int, at: int, steps: Sequence[_Step], state: tuple[Array, Cost]) -> tuple[float, int, int]:
    """Give the price of a step: what it loses for each share of the cost that it saves."""
    removed, cost = state
    saved = _gone(_with(removed, i, steps[at].units), cost) - _gone(removed, cost)
    return steps[at].loss / max(saved, _ROUNDING), i, at


def _with(removed: Array, which: int, units: int) -> Array:
    further = removed.copy()
    further[which] = units
    return further


def _gone(removed: Array, cost: Cost) -> float:
    """Give the share of the cost that goes."""
    return 1 - cost.left(removed) / cost.total


def _nothing(wish: Wish, *, some: bool) -> str:
    what = _WORDS.get(wish.of, wish.of)
    why = (
        "`include` and `exclude` leave no channels that can be removed"
        if some
        else "this model has no channels that can be removed"
    )
    return (
        f"{wish.ratio:.0%} of the {what} cannot be pruned: {why}; see `compress inspect --prune` for what stays and why"
    )


def _too_coarse(gone: float, further: float, wish: Wish) -> str:
    what = _WORDS.get(wish.of, wish.of)
    return (
        f"{wish.ratio:.0%} of the {what} cannot be pruned: in multiples of {wish.multiple} channels "
        f"{f'{gone:.1%} or ' if gone else ''}{further:.1%} goes; ask for that, or a smaller `multiple`"
    )


def _too_much(gone: float, wish: Wish) -> str:
    refused = f"{wish.ratio:.0%} of the {_WORDS.get(wish.of, wish.of)} cannot be pruned"
    keeping = f"each layer keeps an eighth of its channels, in multiples of {wish.multiple}"
    if gone < _ROUNDING:
        return f"{refused}: nothing goes when {keeping}; set a smaller `multiple`"
    return (
        f"{refused}: {gone:.1%} is all that goes when {keeping}; ask for less, or a smaller `multiple`, or see "
        "`compress inspect --prune` for what stays and why"
    )
