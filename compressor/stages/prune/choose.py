"""How many units of each group go, and which: the same share of all groups, rounded to what kernels like.

Another way to share the loss out among groups is another order of steps in `chosen`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
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
class Wish:
    """How much shall go: `ratio`, 0 to 1, of what `of` names. `multiple`: of channels that are left of a layer."""

    ratio: float
    multiple: int
    of: str


def chosen(groups: Sequence[tuple[int, Group]], scores: Array, cost: Cost, wish: Wish) -> frozenset[int]:
    """Give the units to remove, so that what goes comes as near to the wish as whole steps allow.

    Units that score 0 go first, whosever they are; then always that group takes a step which loses the smallest share
    of its units by it. A step beyond the wish is left out, and taken last if that comes nearer.

    Args:
        groups: Those that may lose units, with their places in the analysis.
        scores: Of all units, as `importance` gives them.
        cost: What is counted.
        wish: How much shall go.

    Raises:
        RungError: Not as much can go, or steps are so large that less than half or more than half too much would.
    """
    if not cost.total:
        raise RungError(_too_much(0.0, wish))
    ranked = {i: sorted(group.units, key=lambda unit: (scores[unit], unit)) for i, group in groups}
    steps = {i: _steps(group, wish.multiple) for i, group in groups}
    heap = [entry for i, _ in groups if (entry := _next(i, 0, steps[i], scores[ranked[i]]))]
    heapq.heapify(heap)
    removed, gone = np.zeros(cost.shares.shape[1], int), 0.0
    beyond: list[tuple[int, int]] = []
    while heap and gone < wish.ratio:
        *_, which, at = heapq.heappop(heap)
        further = _with(removed, which, steps[which][at])
        now = _gone(further, cost)
        if now > wish.ratio:  # others may have a smaller step
            beyond.append((which, steps[which][at]))
            continue
        removed, gone = further, now
        if entry := _next(which, at + 1, steps[which], scores[ranked[which]]):
            heapq.heappush(heap, entry)
    over = [_with(removed, *step) for step in beyond]
    removed = min((removed, *over), key=lambda r: _distance(r, cost, wish))
    if _distance(removed, cost, wish) > (wish.ratio / 2 if over else _ROUNDING):
        raise RungError(_too_coarse(gone, min(_gone(r, cost) for r in over), wish) if over else _too_much(gone, wish))
    return frozenset(unit for i, _ in groups for unit in ranked[i][: removed[i]])


def _with(removed: Array, which: int, units: int) -> Array:
    further = removed.copy()
    further[which] = units
    return further


def _distance(removed: Array, cost: Cost, wish: Wish) -> float:
    """Tell how far from the wish what goes is, as a share of all."""
    return abs(_gone(removed, cost) - wish.ratio)


def _gone(removed: Array, cost: Cost) -> float:
    """Give the share of the cost that goes."""
    return 1 - cost.left(removed) / cost.total


def _steps(group: Group, multiple: int) -> list[int]:
    """Give how many units may be removed, ascending: an eighth at least is left, in multiples of channels."""
    total = len(group.units)
    step = multiple // gcd(multiple, group.width)
    least = max(1, ceil(total * LEAST_KEPT))
    kept = [n for n in range(total - 1, least - 1, -1) if n % step == 0]
    return [total - n for n in kept]


def _next(which: int, at: int, steps: Sequence[int], scores: Array) -> tuple[bool, float, int, int] | None:
    """Say what taking a step would mean: whether it costs anything, and what share it leaves; None after the last."""
    if at == len(steps):
        return None
    last = steps[at - 1] if at else 0
    costs = bool(scores[last : steps[at]].any())
    return costs, steps[at] / len(scores), which, at


def _too_coarse(gone: float, further: float, wish: Wish) -> str:
    what = _WORDS.get(wish.of, wish.of)
    return (
        f"{wish.ratio:.0%} of the {what} cannot be pruned: in multiples of {wish.multiple} channels "
        f"{f'{gone:.1%} or ' if gone else ''}{further:.1%} goes; ask for that, or a smaller `multiple`"
    )


def _too_much(gone: float, wish: Wish) -> str:
    what = _WORDS.get(wish.of, wish.of)
    return (
        f"{wish.ratio:.0%} of the {what} cannot be pruned: {gone:.1%} is all that goes when each layer keeps an eighth "
        f"of its channels, in multiples of {wish.multiple}; ask for less, or a smaller `multiple`, or see `compress "
        "inspect --prune` for what stays and why"
    )
