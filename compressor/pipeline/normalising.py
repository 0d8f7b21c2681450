"""How 8-bit images become inputs, as far as labels tell: the usual normalisations are tried, and the original scored.

Another that is usual is a line in `_USUAL`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from compressor import runtime, score
from compressor.errors import CompressorError
from compressor.records import Array, Session
from compressor.samples import Preprocess, Samples
from compressor.score.truth import Truth

_SAMPLES = 256
_CLEARLY = 0.05
"""By so much a normalisation must score better than values as they are: over a standard error of 256 samples."""
_METRIC = "top1"
_USUAL: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {
    "x / 255": ((0,), (255,)),
    "(x - 127.5) / 127.5": ((127.5,), (127.5,)),
    "(x - 127) / 128": ((127,), (128,)),
    "mean and std of ImageNet": ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
}
_AS_IT_IS = "as they are"


@dataclass(frozen=True)
class Normalised:
    """What to do to images, None for nothing, and what the original scores with each normalisation that was tried."""

    preprocess: Preprocess | None
    scores: Mapping[str, float] = field(default_factory=dict)


def normalised(path: Path, evaluation: Samples | None, before: Preprocess | None, metric: str | None) -> Normalised:
    """Choose the normalisation with which the original is right most often; none without labels that are classes.

    Values stay as they are unless another normalisation is clearly better.
    """
    if evaluation is None or metric != _METRIC or (labels := evaluation.labels()) is None:
        return Normalised(before)
    few = evaluation.take(_SAMPLES, 0)
    labels = few.labels()
    tried = {_AS_IT_IS: before, **_candidates(before or Preprocess(), few)}
    with closing(runtime.load(path, runtime.options(1, spinning=False))) as session:
        scores = {name: _score(session, _prepared(few, one), labels) for name, one in tried.items()}
    best = max(scores, key=lambda name: scores[name])
    if scores[best] - scores[_AS_IT_IS] < _CLEARLY:
        best = _AS_IT_IS
    return Normalised(tried[best], scores)


def _candidates(before: Preprocess, samples: Samples) -> Mapping[str, Preprocess]:
    sizes = {size for fit in samples.fits for size in fit.column.shape[1:]}
    return {
        name: before.model_copy(update={"mean": tuple(mean), "std": tuple(std)})
        for name, (mean, std) in _USUAL.items()
        if len(mean) == 1 or len(mean) in sizes
    }


def _prepared(samples: Samples, preprocess: Preprocess | None) -> Samples:
    fits = (
        replace(f, preprocess=preprocess if np.dtype(f.column.dtype) == np.uint8 else f.preprocess)
        for f in samples.fits
    )
    return replace(samples, fits=tuple(fits))


def _score(session: Session, samples: Samples, labels: Array | None) -> float:
    """Give the share of samples that the model is right on; 0 where it does not run or cannot be scored."""
    found: dict[str, list[Array]] = {}
    try:
        for feeds in samples:
            for name, value in score.rows(session(feeds), samples.per_feed).items():
                found.setdefault(name, []).append(value)
        outputs = {name: np.concatenate(values)[: len(samples)] for name, values in found.items()}
        return float(np.mean(score.metric(_METRIC).of(outputs, Truth(labels))))
    except (CompressorError, ValueError):
        return 0.0
