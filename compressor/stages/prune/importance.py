"""How much a unit matters: scores by which the units of a group are ranked, the least first to go.

Another score is a function here.
"""

from __future__ import annotations

import numpy as np

from compressor.records import Array
from compressor.stages.prune.constants import constant
from compressor.stages.prune.groups import STAYS, Coupled


def by_norm(coupled: Coupled) -> Array:
    """Score units by their weights: L2 norm of what makes a unit times that of what reads it, float64 [units].

    A unit that nothing makes, or nothing reads, scores 0. A unit that only one side has weights for is scored by that.
    Comparable within a group only.
    """
    squares = {True: np.zeros(_count(coupled)), False: np.zeros(_count(coupled))}
    there = {side: np.zeros(_count(coupled), bool) for side in squares}
    for name, axis in {key for group in coupled.groups for key in group.slices}:
        array = constant(coupled.model.graph.initializers[name])
        if array is None or array.dtype.kind not in "fV":  # V: bfloat16, as numpy sees it
            continue
        reads = (name, axis) in coupled.summed
        units = coupled.units[name, axis]
        held = units != STAYS
        sums = _squares(array, axis)[held]
        squares[reads] += np.bincount(units[held], sums, minlength=len(squares[reads]))
        there[reads][units[held]] = True
    makes, reads_ = (np.where(there[side], squares[side], 1.0) for side in (False, True))
    scores: Array = np.sqrt(makes * reads_)
    return scores


def _count(coupled: Coupled) -> int:
    return sum(len(group.units) for group in coupled.groups)


def _squares(array: Array, axis: int) -> Array:
    """Sum the squares of each index of an axis, float64 [size of the axis]."""
    others = tuple(i for i in range(array.ndim) if i != axis)
    sums: Array = np.square(array, dtype=np.float64).sum(others)
    return sums
