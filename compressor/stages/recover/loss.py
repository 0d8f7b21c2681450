"""How far the outputs of a changed model are from those of the original, as a number that training can lower.

Another way of comparing an output is a `_Kind` and its line in `_far`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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


def of_outputs(outputs: Outputs) -> Loss:
    """Choose by what the original gives for some samples how each of its outputs is compared.

    Left out are those that are no floats, are not finite, or do not vary.
    """
    varying = {name: array for name, array in outputs.items() if _varies(array)}
    return Loss({name: (_kind(array), float(array.var(dtype=np.float64))) for name, array in varying.items()})


def _varies(array: Array) -> bool:
    if array.dtype.kind != "f" or not array.size or not np.isfinite(array).all():
        return False
    return bool(array.std(dtype=np.float64) > _CONSTANT * np.abs(array).max())


def _kind(array: Array) -> _Kind:
    if array.ndim < _MATRIX or not 1 < array.shape[-1] <= _MOST_CLASSES:
        return "values"
    unit = array.min() >= 0 and array.max() <= 1 + _ROUNDING
    if unit and np.abs(array.sum(-1) - 1).max() <= _ROUNDING:
        return "probabilities"
    normed = np.ptp(np.linalg.norm(array.astype(np.float64), axis=-1)) <= _ROUNDING and len(array) > 1
    return "values" if unit or normed or array.ndim > _MATRIX else "logits"


def _far(kind: _Kind, wanted: Tensor, found: Tensor) -> Tensor | float:
    from torch.nn import functional

    if kind == "values":
        return 0.0
    rows, others = (each.reshape(-1, each.shape[-1]) for each in (wanted, found))
    if kind == "probabilities":
        return functional.kl_div(others.clamp_min(_SMALLEST).log(), rows, reduction="batchmean")
    sure, unsure = ((each / _TEMPERATURE).log_softmax(-1) for each in (rows, others))
    return functional.kl_div(unsure, sure, reduction="batchmean", log_target=True) * _TEMPERATURE**2
