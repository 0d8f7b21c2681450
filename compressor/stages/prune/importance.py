"""How much units matter: in what order the units of a group go, and what is left of their readers' weights then.

Optimal brain surgeon for structures: of the layers that read a group, each unit's removal costs the least squared
change of their outputs that is possible when their other weights make up for it. Units that no such layer reads go by
the norm of their weights.
Source: Hassibi & Stork 1993; Kurtic et al. 2023 (ZipLM).
Another score is another class like `_Surgeon`.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor.records import Array, Progress, Work
from compressor.samples import Samples
from compressor.stages.prune.constants import constant
from compressor.stages.prune.groups import STAYS, Coupled, Group
from compressor.stages.prune.layers import Layer, sampled, weights_of
from compressor.stages.prune.moments import Moments
from compressor.stages.prune.walk import Walk

if TYPE_CHECKING:
    import onnx_ir as ir

_RIDGE = 1e-2
"""Added to a covariance, in parts of its mean diagonal: samples are few, and features often linear in each other."""
_TINY = 1e-12
_DEAD = -1.0
"""What a unit costs that weights say is nothing: others may only be nothing for these samples."""
_FEW_ROWS = 8
"""With fewer rows a feature, a covariance fits the samples rather than the layer."""
_ONE_BY_ONE = 256
_POOLS = frozenset({"GlobalAveragePool", "ReduceMean"})
_PASSED = frozenset({"Dropout", "Flatten", "Identity", "Reshape", "Squeeze"})


@dataclass(frozen=True)
class Reader:
    """A layer that sums over the units of a group. `blocks`: int [units, features of each]."""

    layer: Layer
    blocks: Array


@dataclass(frozen=True)
class Spread:
    """Of what a layer reads: mean [features] and covariance [features, features], over places of samples."""

    mean: Array
    covariance: Array


@dataclass(frozen=True)
class Cutback:
    """What is left of the layers that read a group when some units are gone: `removed`, places in the group, in order.

    `weights`: by layer, [out, features], 0 where it read them; `bias`: what to add to its bias, [out].
    """

    removed: tuple[int, ...]
    weights: Mapping[str, Array]
    bias: Mapping[str, Array]


def by_norm(coupled: Coupled) -> Array:
    """Score units by their weights: L2 norm of what makes a unit times that of what reads it, float64 [units].

    A unit that nothing makes, or nothing reads, scores 0. A unit that only one side has weights for is scored by that.
    Comparable within a group only.
    """
    n = sum(len(group.units) for group in coupled.groups)
    squares, there = np.zeros((2, n)), np.zeros((2, n), bool)  # of what makes a unit, of what reads it
    for name, axis in dict.fromkeys(key for group in coupled.groups for key in group.slices):  # sums need an order
        array = constant(coupled.model.graph.initializers[name])
        if array is None or array.dtype.kind not in "fV":  # V: bfloat16, as numpy sees it
            continue
        side = int((name, axis) in coupled.summed)
        units = coupled.units[name, axis]
        held = units != STAYS
        squares[side] += np.bincount(units[held], _squares(array, axis)[held], minlength=n)
        there[side, units[held]] = True
    scores: Array = np.sqrt(np.where(there, squares, 1.0).prod(0))
    return scores


def readers(coupled: Coupled, group: Group, known: Iterable[Layer]) -> list[Reader]:
    """Give those of the known layers that sum over units of a group and can make up for those that go."""
    found = []
    for layer in known:
        key = (layer.weights, layer.summed)
        if key in group.slices and key in coupled.summed and layer.groups == 1:
            units = np.repeat(coupled.units[key], layer.kernel)
            found.append(Reader(layer, np.stack([np.flatnonzero(units == unit) for unit in group.units])))
    return found


def spreads(model: ir.Model, wanted: Sequence[Layer], samples: Samples) -> Work[Mapping[str, Spread]]:
    """Give what layers read in a model, by node, in one pass over the samples."""
    pools = {layer.node: before for layer in wanted if (before := _before_pool(model, layer))}
    names = list(dict.fromkeys([name for layer in wanted for name in (layer.x, layer.y)] + [*pools.values()]))
    read, unpooled = ({layer.node: Moments(centred=layer.biased, parts=1) for layer in wanted} for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        walk = Walk(model, samples, Path(folder))
        for feed, found in enumerate(walk.run(names, 0)):
            yield Progress("looking at what layers read", feed, walk.feeds)
            for layer in wanted:
                places = sampled(layer, found[layer.y], walk.feeds, feed)
                _add(read[layer.node], layer.features(found[layer.x], places))
                if layer.node in pools:
                    whole = found[pools[layer.node]]
                    _add(unpooled[layer.node], np.moveaxis(whole, 1, -1).reshape(1, -1, whole.shape[1]))
    return {node: _spread(read[node], unpooled[node] if node in pools else None) for node in read}


def cutbacks(
    model: ir.Model, read: Sequence[Reader], spread: Mapping[str, Spread], norms: Array, levels: Sequence[int]
) -> Iterator[Cutback]:
    """Remove the units of a group, always those that cost least, and give what is left at these counts.

    All are scored again for each that goes; of more than 256 only those next in turn, so that it does not take hours.

    Args:
        model: What the group is of.
        read: The layers that read it.
        spread: What those read.
        norms: How much the weights of each unit matter, [units]; those of 0 go first.
        levels: Ascending.
    """
    surgeons = [_Surgeon(model, reader, spread[reader.layer.node]) for reader in read]

    def costs(units: Sequence[int]) -> Array:
        at = np.array(units)
        found = sum((surgeon.costs(at) for surgeon in surgeons), np.zeros(len(at))) if surgeons else norms[at]
        return np.where(norms[at], found, _DEAD)

    left, order = set(range(len(norms))), list[int]()
    for level in levels:
        while len(order) < level:
            for unit in _cheapest(sorted(left), costs, min(max(len(norms) // _ONE_BY_ONE, 1), level - len(order))):
                for surgeon in surgeons:
                    surgeon.remove(unit)
                left.remove(unit)
                order.append(unit)
        weights = {surgeon.node: surgeon.weights.copy() for surgeon in surgeons}
        yield Cutback(tuple(order), weights, {surgeon.node: surgeon.bias() for surgeon in surgeons})


def _cheapest(units: Sequence[int], costs: Callable[[Sequence[int]], Array], n: int) -> Iterator[int]:
    """Give n units, each to be removed before the next is asked for: then what those cost that stood in for it rises.

    A unit is scored again when its turn comes, and waits if others are now cheaper.
    """
    heap = sorted(zip(costs(units).tolist(), units, strict=True))
    yield heapq.heappop(heap)[1]
    while n > 1:
        unit = heapq.heappop(heap)[1]
        now = (float(costs([unit])[0]), unit)
        if heap and now > heap[0]:
            heapq.heappush(heap, now)
        else:
            n -= 1
            yield unit


class _Surgeon:
    """The weights of one layer, with the inverse of its inputs' covariance, from which units are taken."""

    def __init__(self, model: ir.Model, reader: Reader, spread: Spread) -> None:
        self.node, self._blocks, self._mean = reader.layer.node, reader.blocks, spread.mean
        self._before = weights_of(model, reader.layer)[0]
        self.weights = self._before.copy()
        covariance = spread.covariance
        ridge = _RIDGE * max(float(np.trace(covariance)) / len(covariance), _TINY)
        self._inverse = np.linalg.inv(covariance + ridge * np.eye(len(covariance)))
        self._energy = max(float(((self._before @ covariance) * self._before).sum()), _TINY)

    def costs(self, units: Array) -> Array:
        """Give what the removal of each of these units costs, as a share of the power of the output."""
        blocks = self._blocks[units]
        inner = self._inverse[blocks[:, :, None], blocks[:, None, :]]
        weights = self.weights[:, blocks].transpose(1, 2, 0)  # [units, features, out]
        costs: Array = (weights * np.linalg.solve(inner, weights)).sum((1, 2)) / self._energy
        return costs

    def remove(self, unit: int) -> None:
        """Take a unit away, and let the weights of all others make up for it."""
        block = self._blocks[unit]
        rows = np.linalg.solve(self._inverse[np.ix_(block, block)], self._inverse[block])
        self.weights -= self.weights[:, block] @ rows
        self._inverse -= self._inverse[:, block] @ rows
        self.weights[:, block] = 0

    def bias(self) -> Array:
        """Give what the bias must take over so that the outputs' means stay."""
        moved: Array = (self._before - self.weights) @ self._mean
        return moved


def _add(moments: Moments, x: Array) -> None:
    moments.add(x.astype(np.float32, copy=False), np.empty((1, x.shape[1], 0), np.float32))


def _spread(read: Moments, unpooled: Moments | None) -> Spread:
    """Give mean and covariance; of few rows behind a pool with that of what lies before it, as if places were many."""
    found = read.of(0)
    covariance = found.xx[0]
    if unpooled and read.rows[0] < _FEW_ROWS * len(covariance):
        before = unpooled.of(0)
        covariance = covariance + before.xx[0] * read.rows[0] / unpooled.rows[0]
    return Spread(found.mean_x[0], covariance)


def _before_pool(model: ir.Model, layer: Layer) -> str | None:
    """Give the value of which a layer reads the mean over all places; None where it reads something else."""
    if layer.window is not None:
        return None
    node = next(node for node in model.graph if node.name == layer.node).inputs[0].producer()
    while node is not None and node.op_type in _PASSED:
        node = node.inputs[0].producer()
    if node is None or node.op_type not in _POOLS:
        return None
    value = node.inputs[0]
    if value.shape is None or len(value.shape.dims) < 3 or value.shape[1] != layer.n_features:  # noqa: PLR2004
        return None
    return str(value.name) if node.op_type == "GlobalAveragePool" or _averages_places(node) else None


def _averages_places(node: ir.Node) -> bool:
    """Tell whether a ReduceMean leaves batch and channels, and nothing else."""
    ranks = len(node.inputs[0].shape.dims)
    given = node.attributes.get_ints("axes", None)
    if given is None and len(node.inputs) > 1 and (array := constant(node.inputs[1])) is not None:
        given = array.tolist()
    return given is not None and {axis % ranks for axis in given} == set(range(2, ranks))


def _squares(array: Array, axis: int) -> Array:
    """Sum the squares of each index of an axis, float64 [size of the axis]."""
    others = tuple(i for i in range(array.ndim) if i != axis)
    sums: Array = np.square(array, dtype=np.float64).sum(others)
    return sums
