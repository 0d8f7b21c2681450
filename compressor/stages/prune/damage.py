"""What a model loses when units of one group go: its outputs on samples that nothing was learnt from.

The loss is measured, not derived: on samples that a fit has seen it can seem a hundred times too small. Another measure
of it is another sum in `Reference.loss`.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor import graph, runtime
from compressor.records import Array, Progress, Work
from compressor.samples import Samples
from compressor.stages.prune.choose import Curve, steps_of
from compressor.stages.prune.groups import Coupled
from compressor.stages.prune.importance import Cutback, Spread, by_norm, cutbacks, readers, spreads
from compressor.stages.prune.layers import Layer, bias_of, layers, write
from compressor.stages.prune.surgery import zeroed
from compressor.stages.prune.walk import Spool

if TYPE_CHECKING:
    import onnx_ir as ir

_FRACTIONS = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 1)
"""Shares of a group's channels, up to all that may go, at which the loss is measured."""
_HOPELESS = 2.0
"""Outputs off by more than twice their variance: how much more does not matter any longer."""
_CHECKED = 5
"""A fifth of the samples measures the loss, what is learnt is learnt from the others."""
_FEWEST, _MOST = 16, 256
_ARITHMETIC = 4e12
"""Multiply-accumulates that measuring may take in all; of large models fewer samples are looked at."""
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
    norms = by_norm(coupled)
    levels = {i: _levels(steps_of(coupled.groups[i], multiple), norms[list(coupled.groups[i].units)]) for i in which}
    levels = {i: counts for i, counts in levels.items() if counts}
    learnt, checked = _divided(samples)
    runs = sum(map(len, levels.values())) + 1
    n = min(max(int(_ARITHMETIC / (max(macs or 1, 1) * runs)), _FEWEST), _MOST)
    found: dict[int, Curve] = {}
    with tempfile.TemporaryDirectory() as folder:
        reference = Reference(coupled.model, checked.take(n, 0), Path(folder))
        for together in _together(coupled, list(levels)):
            wanted = {r.layer.node: r.layer for i in together for r in readers(coupled, coupled.groups[i])}
            spread = (yield from spreads(coupled.model, list(wanted.values()), learnt)) if wanted else {}
            for i in together:
                yield Progress("measuring what groups of channels are worth", len(found), len(levels))
                found[i] = _curve(coupled, i, levels[i], spread, reference)
    return found


def plain(coupled: Coupled, which: Sequence[int], multiple: int) -> dict[int, Curve]:
    """Give curves by which all groups lose the same share, by the norm of their weights, without a look at samples."""
    scores = by_norm(coupled)
    found = {}
    for i in which:
        group = coupled.groups[i]
        order = tuple(sorted(group.units, key=lambda unit: (scores[unit], unit)))
        counts = (0, *steps_of(group, multiple))
        losses = tuple((n / len(order)) ** 2 if scores[list(order[:n])].any() else 0.0 for n in counts)
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
        self._samples, self._folder = samples, folder
        self._spools: dict[str, Spool] = {}
        self._means: dict[str, Array] = {}
        feeds = 0
        for outputs in self._run(model):
            feeds += 1
            for name, value in outputs.items():
                if name not in self._spools:
                    self._spools[name] = Spool(folder / f"{len(self._spools)}.reference")
                    self._means[name] = np.zeros(value.shape)
                self._spools[name].add(value)
                if value.dtype.kind == "f":
                    self._means[name] += value
        self._means = {name: total / max(feeds, 1) for name, total in self._means.items()}

    def loss(self, model: ir.Model) -> float:
        """Give the squared change of the outputs as a share of their variance over samples, the mean of all outputs.

        Of outputs that are no floating-point numbers, the share that differs. Infinite where one is not finite.
        """
        noise, power = dict.fromkeys(self._spools, 0.0), dict.fromkeys(self._spools, 0.0)
        references = (
            dict(zip(self._spools, arrays, strict=True)) for arrays in zip(*self._spools.values(), strict=True)
        )
        for wanted, found in zip(references, self._run(model), strict=True):
            for name, value in found.items():
                reference = wanted[name]
                if value.dtype.kind != "f":
                    noise[name] += float(np.count_nonzero(value != reference))
                    power[name] += value.size
                    continue
                noise[name] += float(np.square(np.subtract(value, reference, dtype=np.float64)).sum())
                power[name] += float(np.square(reference - self._means[name]).sum())
        shares = [noise[name] / power[name] if power[name] else float(noise[name] > 0) for name in self._spools]
        mean = sum(shares) / max(len(shares), 1)
        return mean if math.isfinite(mean) else math.inf

    def _run(self, model: ir.Model) -> Iterator[Mapping[str, Array]]:
        graph.save(model, path := self._folder / "model.onnx")
        with closing(runtime.load(path, runtime.options(1, spinning=False))) as session:
            for feed in self._samples:
                yield session(feed)


def _divided(samples: Samples) -> tuple[Samples, Samples]:
    held_out = len(samples) // _CHECKED
    return samples.split(len(samples) - held_out, 0) if held_out else (samples, samples)


def _levels(steps: Sequence[int], norms: Array) -> list[int]:
    """Give some of the steps, the last among them, close to each other where little goes, and one for what is dead."""
    if not steps:
        return []
    near = {min(steps, key=lambda step: abs(step - fraction * steps[-1])) for fraction in _FRACTIONS}
    dead = int(np.count_nonzero(norms == 0))
    return sorted(near | {step for step in steps if step <= dead < step + steps[0]})


def _together(coupled: Coupled, which: Sequence[int]) -> Iterator[list[int]]:
    """Divide groups so that the covariances of what reads them fit into memory."""
    batch: list[int] = []
    held: set[str] = set()
    size = 0
    for i in which:
        new = {
            r.layer.node: 8 * r.layer.n_features**2
            for r in readers(coupled, coupled.groups[i])
            if r.layer.node not in held
        }
        if batch and size + sum(new.values()) > _TOGETHER_BYTES:
            yield batch
            batch, held, size = [], set(), 0
            new = {r.layer.node: 8 * r.layer.n_features**2 for r in readers(coupled, coupled.groups[i])}
        batch.append(i)
        held |= set(new)
        size += sum(new.values())
    if batch:
        yield batch


def _curve(
    coupled: Coupled, i: int, levels: Sequence[int], spread: Mapping[str, Spread], reference: Reference
) -> Curve:
    known = {layer.node: layer for layer in layers(coupled.model)}
    counts, losses = [0], [0.0]
    order: tuple[int, ...] = ()
    for cutback in cutbacks(coupled, coupled.groups[i], spread, levels):
        order = cutback.removed
        if losses[-1] < _HOPELESS:
            loss = reference.loss(_cut_back(coupled, known, cutback))
        else:
            loss = losses[-1] * len(order) / counts[-1]
        counts.append(len(order))
        losses.append(min(max(loss, losses[-1]), 1e6))
    return Curve(order, tuple(counts), tuple(losses))


def _cut_back(coupled: Coupled, known: Mapping[str, Layer], cutback: Cutback) -> ir.Model:
    """Give the model without the units, of its old size, with what read them making up for it."""
    model = zeroed(coupled, frozenset(cutback.removed))
    for node, weights in cutback.weights.items():
        layer = known[node]
        write(model, layer, weights[None], bias_of(coupled.model, layer) + cutback.bias[node])
    return model
