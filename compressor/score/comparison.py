"""Quality before and now, with intervals, and whether it can be trusted.

A new question about a score is a function here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from compressor.records import Array, ClassScore, Outputs, Score
from compressor.score.classes import are_classes, classifier, index_of_class
from compressor.score.difference import alike
from compressor.score.intervals import TAIL, Interval, bootstrap, percentiles, tango, wilson
from compressor.score.metrics import Metric, mean, metric
from compressor.score.text import symbols
from compressor.score.truth import Truth, Values

_RESAMPLES = 1000
_RESAMPLES_OF_FUNCTION = 200  # it runs anew on each resample
_ENOUGH = 20  # samples of a class below which its score says little
_CHANCE = 0.01


@dataclass(frozen=True)
class Wanted:
    """How outputs are to be scored: by which metric, with which seed, and what the indices of text stand for."""

    metric: str
    seed: int
    alphabet: Path | None = None


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


def score(wanted: Wanted, before: Outputs, now: Outputs, labels: Array | None) -> Score:
    """Give the quality now and how far it dropped on the same samples, each with a 95 % interval that fits the metric.

    Where each sample is right or wrong, that is Wilson's interval of the share and Tango's of the paired difference;
    against the original, which agrees with itself by definition, the drop is what is missing to 1. All else is one
    paired bootstrap: 1000 resamples of a mean, 200 of a metric of all samples at once, fewer where they would take
    longer than about 20 s (see `bootstrap`).

    A drop is positive where quality got worse, and infinite where the metric is NaN before or now. Where a lower value
    is better, it is the growth as a share of the value before.

    Raises:
        InputError: The metric needs labels, outputs or an alphabet that are not there, or a function failed.
        MachineError: The package behind the metric is not installed.
        RungError: An output is missing now, or has another shape.
    """
    chosen = metric(wanted.metric)
    now = alike(before, now)
    truth = Truth(labels, before, symbols(wanted.alphabet) if wanted.alphabet else ())
    sides = _sides(chosen, before, now, truth)
    whole = np.array([_number(chosen, side) for side in sides])
    found = Score(
        metric=wanted.metric,
        value=float(whole[1]),
        n=len(next(iter(before.values()))),
        low=None,
        high=None,
        drop=float(_drop(chosen, whole)),
        reference=chosen.reference,
        relative=chosen.lower_is_better,
    )
    if chosen.binary:
        return _counted(found, np.asarray(sides[0]), np.asarray(sides[1]), labels)
    most = _RESAMPLES if chosen.over is mean and isinstance(sides[1], np.ndarray) else _RESAMPLES_OF_FUNCTION
    drawn = bootstrap(_statistic(chosen, sides, (before, now), truth), found.n, most, wanted.seed)
    return _resampled(found, drawn[:, 1], _drop(chosen, drawn))


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


def _sides(chosen: Metric, before: Outputs, now: Outputs, truth: Truth) -> tuple[Values, Values]:
    values = chosen.of(now, truth)
    # by definition the original model agrees with itself, even where it gives NaN
    return (np.full_like(values, chosen.perfect) if chosen.reference else chosen.of(before, truth)), values


def _number(chosen: Metric, side: Values) -> float:
    return chosen.over(side) if isinstance(side, np.ndarray) else float(side)


def _drop(chosen: Metric, pairs: Array) -> Array:
    before, now = pairs[..., 0], pairs[..., 1]
    with np.errstate(invalid="ignore", divide="ignore"):  # infinite on both sides, an error that was 0
        drop = (now - before) / np.abs(before) if chosen.lower_is_better else before - now
    drop = np.where((before == now) & np.isfinite(now), 0.0, drop)
    return np.where(np.isnan(drop), np.inf, drop)


def _counted(found: Score, before: Array, now: Array, labels: Array | None) -> Score:
    low, high = wilson(int(now.sum()), found.n)
    drop_low, drop_high = (1 - high, 1 - low) if found.reference else _difference(before, now, TAIL)
    worst = None if found.reference or labels is None else _worst(before, now, labels)
    return replace(found, low=low, high=high, drop_low=drop_low, drop_high=drop_high, worst=worst)


def _difference(before: Array, now: Array, tail: float) -> Interval:
    return tango(int((before > now).sum()), int((before < now).sum()), len(now), tail)


def _worst(before: Array, now: Array, labels: Array) -> ClassScore | None:
    """Give the class, of those with at least 20 samples, whose score dropped most; None if none dropped.

    Its interval is as wide as if each of them had been picked (Bonferroni).
    """
    classes, position, n = np.unique(labels, return_inverse=True, return_counts=True)
    drops = np.where(n >= _ENOUGH, np.bincount(position, before - now) / n, -np.inf)
    worst = int(drops.argmax())
    if drops[worst] <= 0:
        return None
    then, since = before[position == worst], now[position == worst]
    low, high = _difference(then, since, TAIL / int((n >= _ENOUGH).sum()))
    return ClassScore(
        label=int(classes[worst]),
        n=int(n[worst]),
        before=mean(then),
        value=mean(since),
        drop=float(drops[worst]),
        drop_low=low,
        drop_high=high,
    )


def _statistic(
    chosen: Metric, sides: tuple[Values, Values], outputs: tuple[Outputs, Outputs], truth: Truth
) -> _Statistic:
    before, now = sides
    if isinstance(before, np.ndarray) and isinstance(now, np.ndarray):
        return lambda index: np.array([chosen.over(before[index]), chosen.over(now[index])])

    def rerun(index: npt.NDArray[np.intp]) -> Array:
        some = truth if truth.labels is None else replace(truth, labels=truth.labels[index])
        return np.array([_number(chosen, chosen.of(_Drawn(each, index), some)) for each in outputs])

    return rerun


def _resampled(found: Score, values: Array, drops: Array) -> Score:
    low, high = percentiles(values)
    drop_low, drop_high = percentiles(drops)
    return replace(found, low=low, high=high, drop_low=drop_low, drop_high=drop_high)


def _tail(successes: int, n: int, share: float) -> float:
    """Give the probability of at least so many successes in n independent trials."""
    if share == 1:
        return 1.0
    logs = (_log_choose(n, k) + k * math.log(share) + (n - k) * math.log1p(-share) for k in range(successes, n + 1))
    return math.fsum(map(math.exp, logs))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
