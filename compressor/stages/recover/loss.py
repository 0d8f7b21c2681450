"""How far the outputs of a changed model are from those of the original, as a number that training can lower.

Another way of comparing an output is a `_Kind` and its line in `_far`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from compressor.errors import RungError
from compressor.records import Array, Outputs

if TYPE_CHECKING:
    from compressor.stages.recover.call import Tensor

_Kind = Literal["logits", "probabilities", "values"]
_MOST_CLASSES = 100_000
_TEMPERATURE = 2.0
_SMALLEST = 1e-7
"""Probabilities below count as this."""
_WIDEST = -_TEMPERATURE * math.log(_SMALLEST)
"""A logit further than this below the largest has a smaller probability."""
_MOST = 1 / 2
"""Of feeds or rows: what holds for fewer is an exception."""
_ROUNDING = 1e-3
_CONSTANT = 1e-6
"""What deviates by a smaller share of its largest value is rounding."""
_MATRIX = 2


@dataclass(frozen=True)
class Loss:
    """What is compared: kind and variance of each output that is.

    The divergence of logits is KL(original || changed) at temperature 2, times 4, and that of probabilities KL;
    to these and for all other outputs the mean squared error is added as a share of the variance of the original's.
    Source: Hinton et al., Distilling the Knowledge in a Neural Network, 2015.
    """

    outputs: Mapping[str, tuple[_Kind, float]]

    def __call__(self, wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> Tensor:
        """Give the divergence, summed over the outputs, averaged over the samples.

        Raises:
            RungError: An output has another shape.
        """
        import torch

        total = torch.zeros(())
        for name, (kind, variance) in self.outputs.items():
            if wanted[name].shape != found[name].shape:
                raise RungError(f"output {name!r} has shape {(*found[name].shape,)}, expected {(*wanted[name].shape,)}")
            one, two = wanted[name].float(), found[name].float()
            total = total + _far(kind, one, two) + (one - two).square().mean() / variance
        return total

    def hears(self, wanted: Outputs) -> bool:
        """Tell whether the original's outputs can be compared: there is something in each, and all is finite."""
        return all(_says(wanted[name]) for name in self.outputs)


def of_outputs(answers: Iterable[Outputs]) -> Loss:
    """Choose by what the original gives for some feeds how each of its outputs is compared.

    Left out are those that are no floats, are not finite for half of the feeds, or do not vary. A matrix is taken for
    logits, one row a sample, unless most rows spread so far that a softmax would not see their least values, as
    coordinates do.
    """
    seen: dict[str, list[_Looks | None]] = {}
    for outputs in answers:
        for name, array in outputs.items():
            seen.setdefault(name, []).append(_looks(array) if _says(array) else None)
    found = {}
    for name, all_looks in seen.items():
        looks = [each for each in all_looks if each]
        if len(looks) >= len(all_looks) * _MOST and (variance := _variance(looks)):
            found[name] = _kind(looks), variance
    return Loss(found)


class _Looks(NamedTuple):
    """What an output looks like for one feed; a row goes along the last axis, and is one value where there is none.

    `wide`: rows that are no logits; `off`: how far the sum of one is from 1; `shortest`, `longest`: their norms.
    """

    axes: int
    columns: int
    rows: int
    mean: float
    variance: float
    low: float
    high: float
    wide: int
    off: float
    shortest: float
    longest: float


def _says(array: Array) -> bool:
    return bool(array.dtype.kind == "f" and array.size and np.isfinite(array).all())


def _looks(array: Array) -> _Looks:
    rows = array.astype(np.float64).reshape(-1, *array.shape[-1:] or (1,))
    norms = np.linalg.norm(rows, axis=1)
    return _Looks(
        *(array.ndim, rows.shape[1], len(rows), float(rows.mean()), float(rows.var())),
        *(float(rows.min()), float(rows.max()), int((np.ptp(rows, axis=1) > _WIDEST).sum())),
        *(float(np.abs(rows.sum(1) - 1).max()), float(norms.min()), float(norms.max())),
    )


def _variance(looks: Sequence[_Looks]) -> float:
    """Give the variance over all feeds; 0 where it is no more than rounding."""
    sizes, means = np.array([each.rows * each.columns for each in looks]), np.array([each.mean for each in looks])
    inside = np.array([each.variance for each in looks])
    around = means - np.average(means, weights=sizes)
    variance = float(np.average(inside + around**2, weights=sizes))
    largest = max(max(-each.low, each.high) for each in looks)
    return variance if math.sqrt(variance) > _CONSTANT * largest else 0.0


def _kind(looks: Sequence[_Looks]) -> _Kind:
    (axes, columns), *others = {(each.axes, each.columns) for each in looks}
    if others or axes < _MATRIX or not 1 < columns <= _MOST_CLASSES:
        return "values"
    unit = all(each.low >= 0 and each.high <= 1 + _ROUNDING for each in looks)
    if unit and max(each.off for each in looks) <= _ROUNDING:
        return "probabilities"
    rows = sum(each.rows for each in looks)
    normed = max(each.longest for each in looks) - min(each.shortest for each in looks) <= _ROUNDING and rows > 1
    wide = sum(each.wide for each in looks) > rows * _MOST
    return "values" if unit or normed or wide or axes > _MATRIX else "logits"


def _far(kind: _Kind, wanted: Tensor, found: Tensor) -> Tensor | float:
    from torch.nn import functional

    if kind == "values":
        return 0.0
    rows, others = (each.reshape(-1, each.shape[-1]) for each in (wanted, found))
    if kind == "probabilities":
        return functional.kl_div(others.clamp_min(_SMALLEST).log(), rows, reduction="batchmean")
    sure, unsure = ((each / _TEMPERATURE).log_softmax(-1) for each in (rows, others))
    return functional.kl_div(unsure, sure, reduction="batchmean", log_target=True) * _TEMPERATURE**2
