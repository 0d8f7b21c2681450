"""How many units of each group go: what loses least for what is saved, rounded to what kernels like.

Another way to share the loss out among groups is another price of a step in `_entry`.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, gcd

import numpy as np

from compressor.errors import RungError
from compressor.records import Array
from compressor.stages.prune.cost import Cost
from compressor.stages.prune.groups import Group
from compressor.units import write_fraction

LEAST_KEPT = 1 / 8
"""Share of its channels that a layer keeps at least: with fewer, nothing of what it computes is left."""
_WORDS = {"macs": "MACs"}
_ROUNDING = 1e-9
_OR_SMALLER = ", or a smaller `multiple`"


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
        raise RungError(_too_much(_gone(most, cost), wish, limited=len(which) < len(groups)))


def chosen(groups: Sequence[Group], curves: Mapping[int, Curve], cost: Cost, wish: Wish) -> frozenset[int]:
    """Give the units to remove, so that what goes comes as near to the wish as whole steps allow.

    Always that group takes a step which loses least for what it saves: the optimum of a Lagrangian where losses add up.
    Where a curve is not convex, what becomes cheaper further on is one step. One beyond the wish is taken apart, at
    what its parts lose; of parts that still are beyond it, one is taken last if that comes nearer.

    Args:
        groups: All of them.
        curves: Of those that may lose units, by their places.
        cost: What is counted.
        wish: How much shall go, no more than `check` lets pass.

    Raises:
        RungError: Steps are so large that less than half or more than half too much would go.
    """
    steps = {i: _priced(steps_of(groups[i], wish.multiple), curve) for i, curve in curves.items()}
    removed, beyond = _taken(steps, cost, wish.ratio)
    gone = _gone(removed, cost)
    nearest = min((removed, *beyond), key=lambda r: abs(_gone(r, cost) - wish.ratio))
    if abs(_gone(nearest, cost) - wish.ratio) > wish.ratio / 2:
        raise RungError(_too_coarse(gone, min(_gone(r, cost) for r in beyond), wish))
    return frozenset(unit for i, curve in curves.items() for unit in curve.order[: nearest[i]])


def share_gone(groups: Sequence[Group], removed: frozenset[int], cost: Cost) -> float:
    """Give the share of the cost that goes with these units."""
    return _gone(np.array([len(removed.intersection(group.units)) for group in groups], int), cost)


def steps_of(group: Group, multiple: int) -> list[int]:
    """Give how many units may be removed, ascending: an eighth at least is left, in multiples of channels."""
    total = len(group.units)
    step = multiple // gcd(multiple, group.width)
    least = max(1, ceil(total * LEAST_KEPT))
    kept = [n for n in range(total - 1, least - 1, -1) if n % step == 0]
    return [total - n for n in kept]


@dataclass(frozen=True)
class _Steps:
    """What a group loses by the units that are removed, and at which of these numbers steps may end first of all."""

    losses: Mapping[int, float]
    hull: Sequence[int]

    def after(self, units: int, *, single: bool = False) -> int | None:
        """Give where the next step ends; None behind the last."""
        return next((to for to in (self.losses if single else self.hull) if to > units), None)


def _priced(steps: Sequence[int], curve: Curve) -> _Steps:
    """Give what steps lose, and those on the lower convex hull: of a step that a cheaper one follows, both are one."""
    losses = np.interp((0, *steps), curve.counts, curve.losses)
    points = list(zip((0, *steps), losses.tolist(), strict=True))
    hull: list[tuple[int, float]] = []
    for point in points:
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) > _slope(hull[-1], point) * (1 + _ROUNDING):
            hull.pop()
        hull.append(point)
    return _Steps(dict(points), [units for units, _ in hull])


def _slope(first: tuple[int, float], second: tuple[int, float]) -> float:
    return (second[1] - first[1]) / (second[0] - first[0])


def _taken(steps: Mapping[int, _Steps], cost: Cost, ratio: float) -> tuple[Array, list[Array]]:
    """Take steps until the wish is reached; give what is removed then, and with each single step beyond the wish."""
    removed, beyond = np.zeros(cost.shares.shape[1], int), list[tuple[int, int]]()
    heap = [_entry((i, to), steps, (removed, cost)) for i in steps if (to := steps[i].after(0))]
    heapq.heapify(heap)
    while heap and _gone(removed, cost) < ratio:
        entry = heapq.heappop(heap)
        _, i, to = entry
        current = _entry((i, to), steps, (removed, cost))
        if heap and current > max(entry, heap[0]):  # what others lost made this step save less
            heapq.heappush(heap, current)
            continue
        if fits := _gone(_with(removed, i, to), cost) <= ratio + _ROUNDING:
            removed[i] = to
        following = steps[i].after(removed[i], single=not fits)
        if following == to:
            beyond.append((i, to))
        elif following:
            heapq.heappush(heap, _entry((i, following), steps, (removed, cost)))
    return removed, [_with(removed, *step) for step in beyond]


def _entry(step: tuple[int, int], steps: Mapping[int, _Steps], state: tuple[Array, Cost]) -> tuple[float, int, int]:
    """Give the price of a step of a group to so many units: what it loses for each share of the cost that it saves."""
    (i, to), (removed, cost) = step, state
    saved = _gone(_with(removed, i, to), cost) - _gone(removed, cost)
    return (steps[i].losses[to] - steps[i].losses[removed[i]]) / max(saved, _ROUNDING), i, to


def _with(removed: Array, which: int, units: int) -> Array:
    further = removed.copy()
    further[which] = units
    return further


def _gone(removed: Array, cost: Cost) -> float:
    """Give the share of the cost that goes."""
    return 1 - cost.left(removed) / cost.total


def _refused(wish: Wish) -> str:
    return f"{write_fraction(wish.ratio)} of the {_WORDS.get(wish.of, wish.of)} cannot be pruned"


def _nothing(wish: Wish, *, some: bool) -> str:
    why = (
        "`include` and `exclude` leave no channels that can be removed"
        if some
        else "this model has no channels that can be removed"
    )
    return f"{_refused(wish)}: {why}; see `compress inspect --prune` for what stays and why"


def _too_coarse(gone: float, further: float, wish: Wish) -> str:
    return (
        f"{_refused(wish)}: in {f'multiples of {wish.multiple}' if wish.multiple > 1 else 'whole'} channels "
        f"{f'{gone:.1%} or ' if gone else ''}{further:.1%} goes; ask for that{_OR_SMALLER * (wish.multiple > 1)}"
    )


def _too_much(gone: float, wish: Wish, *, limited: bool) -> str:
    most = floor(1000 * gone + _ROUNDING) / 1000  # asked for, it must go
    with_these = " with this `include` and `exclude`" if limited else ""
    when = f"{with_these} when each layer keeps an eighth of its channels"
    if wish.multiple > 1:
        when += f", in multiples of {wish.multiple}"
    if not most:
        return f"{_refused(wish)}: nothing goes{when}" + ("; set a smaller `multiple`" if wish.multiple > 1 else "")
    return (
        f"{_refused(wish)}: {most:.1%} is all that goes{when}; ask for less{_OR_SMALLER * (wish.multiple > 1)}, or see "
        "`compress inspect --prune` for what stays and why"
    )
