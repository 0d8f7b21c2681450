"""Quality before and now, with intervals, and whether it can be trusted.

A new question about a score is a function here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from compressor.errors import RungError
from compressor.records import Array, Outputs, Score
from compressor.score.metrics import Metric, Values, are_classes, classifier, index_of_class, metric

_RESAMPLES = 1000
_RESAMPLES_OF_FUNCTION = 200  # it runs anew on each resample
_TAIL = 0.025  # either side of a 95 % interval
_CHANCE = 0.01


class _Drawn(Mapping[str, Array]):
    """Outputs of some samples, taken when they are asked for: a metric reads few of them, hundreds of times."""

    def __init__(self, outputs: Outputs, index: npt.NDArray[np.intp]) -> None:
        self._outputs, self._index = outputs, index

    def __getitem__(self, name: str) -> Array:
        return self._outputs[name][self._index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)


_Statistic = Callable[[npt.NDArray[np.intp]], Array]
"""From indices of samples to the metric before and now, [2]."""


def score(metric_name: str, before: Outputs, now: Outputs, labels: Array | None, seed: int) -> Score:
    """Give the quality now and how far it dropped, each with a 95 % interval from one paired bootstrap.

    A drop is positive where quality got worse, and infinite where the metric is NaN before or now. Where a lower value
    is better, it is the growth as a share of the value before.

    Raises:
        InputError: The metric needs labels or outputs that are not there, or a function failed.
        RungError: An output is missing now, or has another shape.
    """
    chosen = metric(metric_name)
    statistic, resamples = _statistic(chosen, before, _alike(before, now), labels)
    n = len(next(iter(before.values())))
    generator = np.random.default_rng(seed)
    whole = statistic(np.arange(n))
    drawn = np.stack([statistic(generator.integers(n, size=n)) for _ in range(resamples)])
    low, high = _interval(drawn[:, 1])
    drop_low, drop_high = _interval(_drop(chosen, drawn))
    return Score(
        metric=metric_name,
        value=float(whole[1]),
        n=n,
        low=low,
        high=high,
        drop=float(_drop(chosen, whole)),
        drop_low=drop_low,
        drop_high=drop_high,
        reference=chosen.reference,
        relative=chosen.lower_is_better,
    )


def choose(outputs: Outputs, labels: Array | None, requested: str | None) -> str:
    """Give the metric that was asked for, or else the one that suits.

    It is top1 for labels that are classes, where an output scores them or is their index; without labels agreement for
    outputs that score classes or are whole numbers, else cosine. `outputs` are those of one feed.
    """
    if requested is not None:
        return requested
    if labels is not None and are_classes(labels):
        scores = classifier(outputs, int(labels.max()) + 1) is not None
        if scores or index_of_class(outputs, labels) is not None:
            return "top1"
    floats = any(value.dtype.kind == "f" for value in outputs.values())
    return "agreement" if classifier(outputs, 2) is not None or not floats else "cosine"


def broken(outputs: Outputs) -> str | None:
    """Say in how many samples an output is NaN, which no comparison sees; None if in none."""
    for name, value in outputs.items():
        if value.dtype.kind == "f" and (bad := int(np.isnan(value).reshape(len(value), -1).any(axis=1).sum())):
            return f"output {name!r} is NaN in {bad} of {len(value)} samples"
    return None


def near_chance(baseline: Score, labels: Array) -> str | None:
    """Say so if a model's top-1 accuracy is no better, at 99 % confidence, than always naming the commonest class.

    Source: exact one-sided binomial test.
    """
    if baseline.metric != "top1" or baseline.value == 1:
        return None
    share = float(np.unique_counts(labels).counts.max() / len(labels))
    if _tail(round(baseline.value * baseline.n), baseline.n, share) <= _CHANCE:
        return None
    return (
        f"the original model is right on {baseline.value:.1%} of {baseline.n} samples, no better than always naming "
        f"the commonest class ({share:.1%}): check data.preprocess (layout, mean and std, channel order) and the labels"
    )


def _alike(before: Outputs, now: Outputs) -> Outputs:
    """Give the outputs that there were before, so that both sides are scored on the same ones."""
    for name, value in before.items():
        if name not in now or now[name].shape != value.shape:
            raise RungError(f"output {name!r} has not the shape that the original model gives it for every sample")
    return {name: now[name] for name in before}


def _statistic(chosen: Metric, before: Outputs, now: Outputs, labels: Array | None) -> tuple[_Statistic, int]:
    values_now = chosen.of(now, before if chosen.reference else labels)
    # by definition the original model agrees with itself, even where it gives NaN
    values_before: Values = np.ones_like(values_now) if chosen.reference else chosen.of(before, labels)
    if isinstance(values_now, np.ndarray) and isinstance(values_before, np.ndarray):
        pair = np.stack([values_before, values_now])
        return lambda index: pair[:, index].mean(axis=1), _RESAMPLES

    def rerun(index: npt.NDArray[np.intp]) -> Array:
        some = None if labels is None else labels[index]
        parts = (_Drawn(each, index) for each in (before, now))
        return np.array([chosen.of(part, some) for part in parts])

    return rerun, _RESAMPLES_OF_FUNCTION


def _drop(chosen: Metric, pairs: Array) -> Array:
    before, now = pairs[..., 0], pairs[..., 1]
    with np.errstate(invalid="ignore", divide="ignore"):  # infinite on both sides, an error that was 0
        drop = (now - before) / np.abs(before) if chosen.lower_is_better else before - now
    drop = np.where((before == now) & np.isfinite(now), 0.0, drop)
    return np.where(np.isnan(drop), np.inf, drop)


def _interval(values: Array) -> tuple[float, float]:
    # no interpolation, which would make NaN of two infinite neighbours
    low, high = np.quantile(values, _TAIL, method="lower"), np.quantile(values, 1 - _TAIL, method="higher")
    return float(low), float(high)


def _tail(successes: int, n: int, share: float) -> float:
    """Give the probability of at least so many successes in n independent trials."""
    if share == 1:
        return 1.0
    logs = (_log_choose(n, k) + k * math.log(share) + (n - k) * math.log1p(-share) for k in range(successes, n + 1))
    return math.fsum(map(math.exp, logs))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
