"""What a model loses when units of one group go: its outputs on samples that nothing was learnt from, if there are 5.

The loss is measured, not derived: on samples that a fit has seen it can seem a hundred times too small. Another measure
of it is another sum in `_compared`.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor import graph, runtime
from compressor.records import Array, Progress, Work
from compressor.samples import Samples
from compressor.stages.prune.choose import Curve, steps_of
from compressor.stages.prune.cost import Cost
from compressor.stages.prune.groups import Coupled, Group
from compressor.stages.prune.importance import Cutback, Reader, by_norm, cutbacks, readers, spreads
from compressor.stages.prune.layers import Layer, bias_of, layers, write
from compressor.stages.prune.surgery import zeroed
from compressor.stages.prune.walk import Spool

if TYPE_CHECKING:
    import onnx_ir as ir

_FRACTIONS = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 1)
"""Shares of a group's channels, up to all that may go, at which the loss is measured."""
_FEW_FRACTIONS = (1 / 8, 1 / 4, 1 / 2, 1)
"""The same where a model takes so long that more would take it too long."""
_HOPELESS = 2.0
"""Outputs off by more than twice their variance: how much more does not matter any longer."""
_CHECKED = 5
"""A fifth of the samples measures the loss, what is learnt is learnt from the others."""
_FEWEST, _MOST = 16, 256
_ARITHMETIC = 4e12
"""Multiply-accumulates that measuring may take in all; of large models fewer samples are looked at."""
_MOST_LOSS = 1e6
_CONSTANT = 1e-12
"""Variance that rounding alone makes, as a share of the power of an output."""
_TOGETHER_BYTES = 512 << 20
"""Covariances that are gathered in one pass."""


def curves(
    coupled: Coupled, which: Sequence[int], samples: Samples, multiple: int, macs: int | None
) -> Work[dict[int, Curve]]:
    """Give for these groups in which order their units go, and what the model loses by that.

    Args:
        coupled: What can be removed.
        which: Places of groups.
        samples: What is looked at; some of them measure the loss.
        multiple: Of channels that are left.
        macs: Of one inference.
    """
    known = list(layers(coupled.model))
    norms, read = by_norm(coupled), {i: readers(coupled, coupled.groups[i], known) for i in which}
    steps = {i: counts for i in which if (counts := steps_of(coupled.groups[i], multiple))}
    is_large = len(steps) * len(_FRACTIONS) * _FEWEST * (macs or 0) > _ARITHMETIC * samples.per_feed
    fractions = _FEW_FRACTIONS if is_large else _FRACTIONS
    levels = {i: _levels(steps[i], fractions, norms[list(coupled.groups[i].units)]) for i in steps}
    learnt, checked = _divided(samples)
    runs = sum(map(len, levels.values())) + 1
    n = min(max(int(_ARITHMETIC * samples.per_feed / (max(macs or 1, 1) * runs)), _FEWEST), _MOST)
    found: dict[int, Curve] = {}
    with tempfile.TemporaryDirectory() as folder:
        reference = Reference(coupled.model, checked.take(n, 0), Path(folder))
        for together in _together({i: read[i] for i in levels}):
            wanted = {reader.layer.node: reader.layer for i in together for reader in read[i]}
            spread = (yield from spreads(coupled.model, list(wanted.values()), learnt)) if wanted else {}
            for i in together:
                yield Progress("measuring what groups of channels are worth", len(found), len(levels))
                group = coupled.groups[i]
                heard = [reader for reader in read[i] if np.isfinite(spread[reader.layer.node].covariance).all()]
                cut = cutbacks(coupled.model, heard, spread, norms[list(group.units)], levels[i])
                losses = _losses(coupled, group, (cut, reference), {layer.node: layer for layer in known})
                found[i] = _curve(group, losses, norms, levels[i][-1])
    return found


def plain(coupled: Coupled, which: Sequence[int], multiple: int, cost: Cost) -> dict[int, Curve]:
    """Give curves by which all groups lose the same share, by the norm of their weights, without a look at samples."""
    whole = np.diag([len(group.units) for group in coupled.groups])
    scores = by_norm(coupled)
    found = {}
    for i in which:
        group = coupled.groups[i]
        order = tuple(sorted(group.units, key=lambda unit: (scores[unit], unit)))
        counts = (0, *steps_of(group, multiple))
        weight = (cost.total - cost.left(whole[i])) / len(order) ** 2
        losses = tuple(weight * n**2 if scores[list(order[:n])].any() else 0.0 for n in counts)
        found[i] = Curve(order, counts, losses)
    return found


class Reference:
    """What a model gives for samples, on disk, to hold others against."""

    def __init__(self, model: ir.Model, samples: Samples, folder: Path) -> None:
        """Run the model.

        Args:
            model: A model that repeats.
            samples: All of them are run each time.
            folder: Where to write.
        """
        self._samples, self._folder, self._path = samples, folder, folder / "model.onnx"
        self._spools: dict[str, Spool] = {}
        for outputs in self._run(model):
            for name, value in outputs.items():
                if name not in self._spools:
                    self._spools[name] = Spool(folder / f"{len(self._spools)}.reference")
                self._spools[name].add(value)
        self._means = {name: self._mean(spool) for name, spool in self._spools.items()}

    def loss(self, model: ir.Model) -> float:
        """Give the squared change of the outputs as a share of their variance over samples, the mean of all outputs.

        Of outputs that are no floating-point numbers, the share that differs. What is not finite in the original does
        not count; elsewhere it makes the loss infinite, as does another shape.
        """
        totals = {name: np.zeros(3) for name in self._spools}
        references = zip(*self._spools.values(), strict=True)
        for arrays, found in zip(references, self._run(model), strict=True):
            for name, wanted in zip(self._spools, arrays, strict=True):
                totals[name] = totals[name] + _compared(wanted, found[name], self._means[name])
        if not all(np.isfinite(sums).all() for sums in totals.values()):
            return math.inf
        return float(np.mean([_share(*sums) for sums in totals.values()])) if totals else 0.0

    def _mean(self, spool: Spool) -> Array:
        """Give the mean of what is finite of an output, float64; 0 where samples differ in shape or are no numbers."""
        sums: Array | None = None  # of the values, and how many they are
        for array in spool:
            if array.dtype.kind != "f":
                return np.zeros(())
            finite = np.isfinite(array)
            held = np.stack([np.where(finite, array, 0), finite], dtype=np.float64)
            held = held.sum(1, keepdims=True) if self._samples.per_feed > 1 and array.ndim else held
            if sums is not None and sums.shape != held.shape:
                return np.zeros(())
            sums = held if sums is None else sums + held
        return np.zeros(()) if sums is None else sums[0] / np.maximum(sums[1], 1)

    def _run(self, model: ir.Model) -> Iterator[Mapping[str, Array]]:
        """Give outputs; of the last feed, where they have a batch axis, without those of what fills it up."""
        graph.save(model, self._path)
        batch, left = self._samples.per_feed, len(self._samples)
        with closing(runtime.load(self._path, runtime.options(1, spinning=False))) as session:
            for feed in self._samples:
                found = {name: np.asarray(value) for name, value in session(feed).items()}
                yield {name: value[:left] if value.shape[:1] == (batch,) else value for name, value in found.items()}
                left -= batch


def _compared(wanted: Array, found: Array, mean: Array) -> Array:
    """Give the power of the change, of the output around its mean, and of the output."""
    if wanted.shape != found.shape:
        return np.array([math.inf, 0, 0])
    if wanted.dtype.kind != "f":
        return np.array([np.count_nonzero(wanted != found), wanted.size, wanted.size])
    finite, exact = np.isfinite(wanted), wanted.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.array([np.square(part[finite]).sum() for part in (found - exact, exact - mean, exact)])


def _share(noise: float, spread: float, power: float) -> float:
    """Give the change as a share of the variance; of an output that only rounding moves, of its power."""
    return noise / ((spread if spread > _CONSTANT * power else power) or 1.0)


def _divided(samples: Samples) -> tuple[Samples, Samples]:
    held_out = len(samples) // _CHECKED
    return samples.split(len(samples) - held_out, 0) if held_out else (samples, samples)


def _levels(steps: Sequence[int], fractions: Sequence[float], norms: Array) -> list[int]:
    """Give the steps nearest to these shares of the last one, and one for what is dead."""
    near = {min(steps, key=lambda step: abs(step - fraction * steps[-1])) for fraction in fractions}
    dead = int(np.count_nonzero(norms == 0))
    return sorted(near | set([step for step in steps if step <= dead][-1:]))


def _together(read: Mapping[int, Sequence[Reader]]) -> Iterator[list[int]]:
    """Divide groups so that the covariances of what reads them fit into memory, or those of a single group."""
    batch: list[int] = []
    held: dict[str, int] = {}
    for i, each in read.items():
        sizes = {reader.layer.node: 8 * reader.layer.n_features**2 for reader in each}
        if batch and sum((held | sizes).values()) > _TOGETHER_BYTES:
            yield batch
            batch, held = [], {}
        batch.append(i)
        held |= sizes
    if batch:
        yield batch


def _losses(
    coupled: Coupled, group: Group, looked: tuple[Iterator[Cutback], Reference], known: Mapping[str, Layer]
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Give units in the order in which they go, and what is lost then, as long as there is something left to lose."""
    cut, reference = looked
    for cutback in cut:
        order = tuple(group.units[place] for place in cutback.removed)
        model = zeroed(coupled, frozenset(order))
        for node, weights in cutback.weights.items():
            write(model, known[node], weights[None], bias_of(coupled.model, known[node]) + cutback.bias[node])
        loss = reference.loss(model)
        yield order, loss
        if loss > _HOPELESS:
            return


def _curve(group: Group, losses: Iterable[tuple[tuple[int, ...], float]], norms: Array, most: int) -> Curve:
    """Put a curve together; beyond what was looked at the loss goes on as before, in the order of weights' norms."""
    counts, found = [0], [0.0]
    order: tuple[int, ...] = ()
    for order, loss in losses:
        counts.append(len(order))
        found.append(min(max(loss, found[-1]), _MOST_LOSS))
    if counts[-1] < most:
        left = sorted(set(group.units) - set(order), key=lambda unit: (norms[unit], unit))
        order = (*order, *left[: most - len(order)])
        found.append(found[-1] * most / counts[-1])
        counts.append(most)
    return Curve(order, tuple(counts), tuple(found))
