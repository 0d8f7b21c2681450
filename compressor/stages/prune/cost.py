"""What channels cost: multiply-accumulates, parameters, channels or time as a function of what is left of a model.

Another cost is a function that gives its terms, and a word in `Prune.of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from compressor.errors import RungError
from compressor.graph import count, shapes
from compressor.records import Array, Shapes
from compressor.stages.prune.constants import is_weight
from compressor.stages.prune.groups import STAYS, Coupled

if TYPE_CHECKING:
    import onnx_ir as ir

_Axis = tuple[str, int]


@dataclass(frozen=True)
class Term:
    """An amount that shrinks in proportion to each of its axes (name of a value, axis)."""

    amount: float
    axes: tuple[_Axis, ...] = ()


@dataclass(frozen=True)
class Cost:
    """A sum of products of shares, for any number of units removed from each group.

    `amounts`: float [terms]. `shares`: float [axes + 1, groups], of an axis what one unit of a group takes; the last
    row is an axis that nothing takes from. `places`: int [terms, axes of a term], rows of `shares`.
    """

    amounts: Array
    places: Array
    shares: Array

    @property
    def total(self) -> float:
        """Give the sum when nothing is removed."""
        return float(self.amounts.sum())

    def left(self, removed: Array) -> float:
        """Give the sum when that many units are removed from each group, int [groups]."""
        kept = 1 - self.shares @ removed
        return float(self.amounts @ np.prod(kept[self.places], axis=1))


def macs(coupled: Coupled, static: Shapes | None) -> Cost:
    """Give multiply-accumulates at these shapes of the inputs.

    Raises:
        RungError: The shapes do not settle them.
    """
    settled = shapes.settled(coupled.model, static)
    found: list[Term] = []
    for node in settled.graph:
        amount = count.node_macs(node)
        if amount is None:
            raise RungError(
                f"the multiply-accumulates of {node.op_type} {node.name!r} cannot be counted: "
                "write `of: parameters`, or give the shapes of the inputs"
            )
        found += _macs(node, amount)
    return _laid_out(coupled, found)


def latency(coupled: Coupled, static: Shapes | None, node_ms: Mapping[str, float]) -> Cost:
    """Give the time that nodes take, by name: of products in proportion to their size, else to that of their output."""
    settled = shapes.settled(coupled.model, static)
    found: list[Term] = []
    for node in settled.graph:
        if taken := node_ms.get(node.name):
            found += list(_macs(node, taken)) if count.node_macs(node) else [Term(taken, _all_axes(node.outputs[0]))]
    return _laid_out(coupled, [*found, Term(sum(node_ms.values()) - sum(term.amount for term in found))])


def parameters(coupled: Coupled) -> Cost:
    """Give the elements of the constants that nodes compute with."""
    weights = count.weights(coupled.model)
    return _laid_out(coupled, [Term(tensor.size, _all_axes(value)) for value, tensor in weights])


def channels(coupled: Coupled) -> Cost:
    """Give the channels that could be removed."""
    groups = coupled.groups
    shares = np.zeros((len(groups) + 1, len(groups)))
    np.fill_diagonal(shares, [1 / len(group.units) for group in groups])
    return Cost(np.array([group.channels for group in groups]), np.arange(len(groups))[:, None], shares)


def _laid_out(coupled: Coupled, terms: list[Term]) -> Cost:
    axes = sorted({axis for term in terms for axis in term.axes if _shrinks(coupled, axis)})
    place = {axis: i for i, axis in enumerate(axes)}
    group_of = np.repeat(np.arange(len(coupled.groups)), [len(group.units) for group in coupled.groups])
    shares = np.zeros((len(axes) + 1, len(coupled.groups)))
    for axis, i in place.items():
        units = coupled.units[axis]
        held = np.bincount(group_of[units[units != STAYS]], minlength=len(coupled.groups))
        shares[i] = held / [len(group.units) for group in coupled.groups] / len(units)
    most = max((len(term.axes) for term in terms), default=0)
    places = [[place.get(axis, len(axes)) for axis in term.axes] for term in terms]
    padded = np.array([row + [len(axes)] * (most - len(row)) for row in places], int).reshape(len(terms), most)
    return Cost(np.array([term.amount for term in terms]), padded, shares)


def _shrinks(coupled: Coupled, axis: _Axis) -> bool:
    units = coupled.units.get(axis)
    return units is not None and bool((units != STAYS).any())


def _macs(node: ir.Node, amount: float) -> Iterator[Term]:
    if node.op_type in {"Gemm", "MatMul"}:
        a = node.inputs[0]
        summed = 0 if node.attributes.get_int("transA", 0) else len(a.shape.dims) - 1
        yield Term(amount, ((a.name, summed), *_all_axes(node.outputs[0])))
        return
    matrices = [value for value in node.inputs[1:3] if is_weight(value) and len(value.shape.dims) > 1]
    sizes = [prod(value.shape.numpy()) for value in matrices]
    if amount and matrices:  # of a recurrent layer in proportion to both its matrices
        yield from (Term(amount * n / sum(sizes), _all_axes(value)) for value, n in zip(matrices, sizes, strict=True))
    elif amount:
        yield Term(amount)


def _all_axes(value: ir.Value) -> tuple[_Axis, ...]:
    return () if value.shape is None else tuple((value.name, axis) for axis in range(len(value.shape.dims)))
