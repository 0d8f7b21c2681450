"""Repair without labels: after channels were cut out, layer after layer is solved again for what the original gives.

Each layer's inputs are those of the pruned model, with all layers before it repaired already, its target is what the
original gives there: errors are made good downstream instead of adding up. Behind an addition the target is the
original's sum less what the other branch gives now, so that a branch repairs the trunk. Where what follows saturates
(Relu, Clip), a second regression spends nothing on values that it does not let through.
Source: He et al. 2017 (channel pruning by least squares), Luo et al. 2017 (ThiNet), Zhang et al. 2015 (targets behind a
Relu), GRAIL (CPAL 2026).
What decides about a single layer is in `moments`; another target of a layer is a branch of `_target`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor.graph import shapes
from compressor.records import Array, Progress, Shapes, Work
from compressor.samples import Samples
from compressor.stages.prune.constants import constant
from compressor.stages.prune.groups import Coupled, captured
from compressor.stages.prune.layers import Layer, bias_of, layers, sampled, weights_of, write
from compressor.stages.prune.moments import Linear, Moments, fitted
from compressor.stages.prune.surgery import Cut
from compressor.stages.prune.walk import Walk

if TYPE_CHECKING:
    import onnx_ir as ir

_CHECKED = 5
"""Every fifth feed is held out to choose how much is changed; of fewer than two such, every fifth row."""
_Bounds = tuple[float, float]


def reconstruct(
    coupled: Coupled, removed: frozenset[int], pruned: ir.Model, samples: Samples
) -> Work[tuple[ir.Model, int]]:
    """Give the smaller model with the layers behind the cut solved again, and how many were changed.

    Args:
        coupled: What was cut.
        removed: The units that are gone.
        pruned: What is left.
        samples: What both are run on.
    """
    repaired, first = pruned.clone(), next(iter(samples))
    with tempfile.TemporaryDirectory() as folder:
        walks = tuple(Walk(model, samples, Path(folder)) for model in (coupled.model, repaired))
        cut = Cut(coupled, removed)
        repair = _Repair(cut, repaired, walks)
        todo = _targets(coupled, cut, repaired, {name: array.shape for name, array in first.items()})
        changed = 0
        for number, (layer, target) in enumerate(todo):
            yield Progress("repairing layers", number, len(todo))
            changed += repair.solve(layer, target)
    return repaired, changed


@dataclass(frozen=True)
class _Target:
    """What a layer should give.

    `whole`: the value of the original that holds it; `other`: the value of the smaller model that is added to what the
    layer gives, if any. `bounds`: beyond them what follows lets no difference through.
    """

    whole: str
    other: str | None
    bounds: _Bounds | None


def _targets(coupled: Coupled, cut: Cut, pruned: ir.Model, static: Shapes) -> list[tuple[Layer, _Target]]:
    """Give the layers that read, or whose output is added to, something else than in the original, in order."""
    known = {layer.node for layer in layers(coupled.model)}
    found = {layer.node: layer for layer in layers(pruned) if layer.node in known}
    differs = {name for name, axis in coupled.summed if cut.shrinks(name, axis)}
    values = {output.name: output for node in shapes.settled(pruned, static).graph for output in node.outputs}
    there = {value.name for value in pruned.graph.inputs}
    todo = []
    for node in pruned.graph:
        read = {value.name for value in (*node.inputs, *captured(node)) if value is not None}
        layer = found.get(node.name)
        y = values.get(layer.y) if layer else None
        target = _target(y, there) if y is not None else None
        if read & differs or (target and target.other in differs):
            differs |= {output.name for output in node.outputs}
            todo += [(layer, target)] if layer and target else []
        there |= {output.name for output in node.outputs}
    return todo


def _target(y: ir.Value, there: Collection[str]) -> _Target:
    """Say what the layer that gives `y` should give, when the values `there` have been computed."""
    uses = y.uses()
    if len(uses) == 1 and not y.is_graph_output() and uses[0].node.op_type == "Add":
        other, whole = uses[0].node.inputs[1 - uses[0].idx], uses[0].node.outputs[0]
        if other.name in there and _is_static(y) and other.shape == y.shape:
            return _Target(str(whole.name), str(other.name), _bounds(whole))
    return _Target(str(y.name), None, _bounds(y))


class _Repair:
    """Steps through the original and the smaller model side by side."""

    def __init__(self, cut: Cut, pruned: ir.Model, walks: tuple[Walk, ...]) -> None:
        self._cut, self._pruned, self._feeds = cut, pruned, walks[0].feeds
        self._original, self._smaller = walks

    def solve(self, layer: Layer, target: _Target) -> bool:
        """Solve one layer, and write it; tell whether that changes it."""
        weights = weights_of(self._pruned, layer)
        start = Linear(weights, bias_of(self._pruned, layer).reshape(weights.shape[:2]))
        found = fitted(self._moments(layer, target, None), start)
        if found and target.bounds:
            found = fitted(self._moments(layer, target, found), start) or found
        if found:
            write(self._pruned, layer, found.weights, found.bias.reshape(-1))
        return found is not None

    def _moments(self, layer: Layer, target: _Target, now: Linear | None) -> Moments:
        """Sum over the samples; with weights that there are now, towards targets that only count within the bounds."""
        moments = Moments(centred=layer.biased)
        for feed, (x, whole, other) in enumerate(self._seen(layer, target)):
            places = sampled(layer, whole, self._feeds, feed)
            features, wanted = layer.features(x, places), layer.rows(whole, places)
            added = layer.rows(other, places) if other is not None else np.float32(0)
            if now is not None and target.bounds:
                wanted = _within(wanted, now(features) + added, target.bounds)
            self._add(moments, (features, wanted - added), feed)
        return moments

    def _add(self, moments: Moments, rows: tuple[Array, Array], feed: int) -> None:
        x, y = rows
        if self._feeds >= 2 * _CHECKED:
            moments.add(x, y, int(feed % _CHECKED == _CHECKED - 1))
            return
        aside = np.arange(x.shape[1]) % _CHECKED == _CHECKED - 1
        for part, those in enumerate((~aside, aside)):
            if those.any():
                moments.add(x[:, those], y[:, those], part)

    def _seen(self, layer: Layer, target: _Target) -> Iterator[tuple[Array, Array, Array | None]]:
        """Give for each feed what the layer reads now, the original's value with what is kept, and the other branch."""
        y = self._original.value(layer.y)
        kept = {axis: k for axis in range(len(y.shape.dims)) if (k := self._cut.kept(y, axis)) is not None}
        old = self._original.run([target.whole], self._original.place(layer.node))
        names = [layer.x] if target.other is None else [layer.x, target.other]
        new = self._smaller.run(names, self._smaller.place(layer.node))
        for before, now in zip(old, new, strict=True):
            whole = before[target.whole]
            for axis, those in kept.items():
                whole = np.compress(those, whole, axis)
            yield now[layer.x], whole, now.get(target.other or "")


def _is_static(value: ir.Value) -> bool:
    return value.shape is not None and all(isinstance(dim, int) for dim in value.shape)


def _bounds(value: ir.Value) -> _Bounds | None:
    """Give between which values what follows tells numbers apart; None where it does so everywhere."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    node = uses[0].node
    if node.op_type == "Relu":
        return 0.0, np.inf
    if node.op_type != "Clip":
        return None
    given = [constant(node.inputs[i]) if i < len(node.inputs) else None for i in (1, 2)]
    low, high = (side if array is None else array.item() for side, array in zip((-np.inf, np.inf), given, strict=True))
    return low, high


def _within(wanted: Array, given: Array, bounds: _Bounds) -> Array:
    """Move targets beyond the bounds to what is given, where that lies beyond the same bound."""
    low, high = (np.float32(bound) for bound in bounds)
    below = np.where(wanted <= low, np.minimum(given, low), wanted)
    return np.where(wanted >= high, np.maximum(given, high), below)
