"""Quality before and now, with intervals, and whether it can be trusted.

A new question about a score is a function here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from compressor.errors import InputError
from compressor.records import Array, ClassScore, Outputs, Score
from compressor.score.classes import are_classes, classifier, index_of_class
from compressor.score.difference import alike
from compressor.score.intervals import TAIL, Interval, at_least, bootstrap, percentiles, tango, wilson
from compressor.score.metrics import Metric, mean, metric
from compressor.score.paired import Paired, drop, hidden, paired, statistic, whole
from compressor.score.ragged import own
from compressor.score.text import symbols
from compressor.score.truth import Truth

_RESAMPLES = 1000
_RESAMPLES_OF_FUNCTION = 200  # it runs anew on each resample
_ENOUGH = 20  # samples of a class below which its score says little
_CHANCE = 0.01
_SAME = 1e-5  # relative; rounding of float32


@dataclass(frozen=True)
class Wanted:
    """How outputs are to be scored: by which metric, with which seed, and what the indices of text stand for.

    `alphabet` is a file in UTF-8 with one symbol a line: line i has index i. Index 0 is the blank of CTC, or padding;
    it stands in no line.
    """

    metric: str
    seed: int
    alphabet: Path | None = None


def score(wanted: Wanted, before: Outputs, now: Outputs, labels: Array | None, uneven: Collection[str] = ()) -> Score:
    """Give the quality now and how far it dropped on the same samples, each with a 95 % interval that fits the metric.

    Where each sample is right or wrong, that is Wilson's interval of the share and Tango's of the paired difference;
    against the original, which agrees with itself by definition, the drop is what is missing to 1. All else is one
    paired bootstrap: 1000 resamples of a mean, 200 of a metric of all samples at once, fewer where they would take
    longer than about 20 s (see `bootstrap`). Where few samples changed, the interval of the drop is widened by what
    so many samples may have missed (see `hidden`).

    A drop is positive where quality got worse, and infinite where the metric is NaN before or now. Where a lower value
    is better, it is the growth as a share of the value before.

    Args:
        wanted: The metric.
        before: The outputs of the original, a row a sample.
        now: Those that are scored.
        labels: One a sample.
        uneven: Outputs filled up with 0, because samples differ in shape. Two of the same shape differ by nothing there
            and are compared as if each had its own; scores of classes are not taken from them.

    Raises:
        InputError: The metric needs labels, outputs or an alphabet that are not there, or a function failed.
        MachineError: The package behind the metric is not installed.
        RungError: An output is missing now, or has another shape.
    """
    chosen = metric(wanted.metric)
    if chosen.even and uneven:
        before = _even(wanted.metric, before, uneven)
    truth = Truth(labels, before, symbols(wanted.alphabet) if wanted.alphabet else ())
    return _scored(wanted, paired(chosen, before, alike(before, now), truth), labels, reference=chosen.reference)


def contrast(
    wanted: Wanted,
    sides: tuple[Outputs, Outputs],
    labels: Array | None,
    original: Outputs,
    uneven: Collection[str] = (),
) -> tuple[Score, Score]:
    """Give the quality of two models on the same samples; the second's drop is what it loses against the first.

    A metric that refers to the original model holds both against `original`; the first is not taken for perfect.

    Raises:
        InputError: As for `score`.
        RungError: An output is missing, or has another shape.
    """
    chosen = metric(wanted.metric)
    if chosen.even and uneven:
        original = _even(wanted.metric, original, uneven)
    truth = Truth(labels, original, symbols(wanted.alphabet) if wanted.alphabet else ())
    first, second = (alike(original, side) for side in sides)
    absolute = replace(chosen, reference=False)
    one, two = (
        _scored(wanted, paired(absolute, first, now, truth), labels, reference=chosen.reference)
        for now in (first, second)
    )
    return replace(one, drop=None, drop_low=None, drop_high=None, worst=None), two


def choose(outputs: Outputs, labels: Array | None, requested: str | None, uneven: Collection[str] = ()) -> str:
    """Give the metric that was asked for, or else the one that suits.

    It is top1 for labels that are classes, where an output scores them or is their index; without labels agreement for
    outputs that score classes or are whole numbers, else cosine. `outputs` are those of one feed; those that are
    `uneven`, of another shape in other samples, neither score classes nor are the index of one.
    """
    if requested is not None:
        return requested
    even = {name: value for name, value in outputs.items() if name not in uneven}
    if labels is not None and are_classes(labels):
        scores = classifier(even, int(labels.max()) + 1) is not None
        if scores or index_of_class(even, labels) is not None:
            return "top1"
    floats = any(value.dtype.kind == "f" for value in outputs.values())
    return "agreement" if classifier(even, 2) is not None or not floats else "cosine"


def broken(outputs: Outputs) -> str | None:
    """Say in how many samples an output is NaN, which no comparison sees; None if in none."""
    for name, value in outputs.items():
        if value.dtype.kind == "f" and (bad := int(np.isnan(value).reshape(len(value), -1).any(axis=1).sum())):
            return f"output {name!r} is NaN in {bad} of {len(value)} samples"
    return None


def mute(outputs: Outputs, shapes: Mapping[str, Sequence[tuple[int, ...]]]) -> bool:
    """Tell whether no output of numbers tells one sample from another, or one class: agreeing with that is no merit.

    `shapes`: of each sample's own output, where rows were filled up.
    """
    numbers = {name: value for name, value in outputs.items() if value.dtype.kind in "fiub"}
    return not any(_tells(value, shapes.get(name, ())) for name, value in numbers.items())


def near_chance(baseline: Score, labels: Array) -> str | None:
    """Say so if a model's top-1 accuracy is no better, at 99 % confidence, than always naming the commonest class.

    Source: exact one-sided binomial test.
    """
    if baseline.metric != "top1" or baseline.value == 1:
        return None
    share = float(np.unique_counts(labels).counts.max() / len(labels))
    if at_least(round(baseline.value * baseline.n), baseline.n, share) <= _CHANCE:
        return None
    return (
        f"the original model is right on {baseline.value:.1%} of {baseline.n} samples, no better than always naming "
        f"the commonest class ({share:.1%}): check data.preprocess (layout, mean and std, channel order) and the labels"
    )


def _scored(wanted: Wanted, pair: Paired, labels: Array | None, *, reference: bool) -> Score:
    values = whole(pair)
    found = Score(
        metric=wanted.metric,
        value=float(values[1]),
        n=pair.n,
        low=None,
        high=None,
        drop=float(drop(pair.metric, values)),
        reference=reference,
        relative=pair.metric.lower_is_better,
    )
    if pair.metric.binary:
        return _counted(found, pair, labels)
    return _resampled(found, pair, wanted.seed)


def _even(name: str, outputs: Outputs, uneven: Collection[str]) -> Outputs:
    """Leave out what fills up would count; whole numbers that only have to be equal to the original's may stay."""
    equal = metric(name).reference
    held = {key: value for key, value in outputs.items() if key not in uneven or (equal and value.dtype.kind != "f")}
    if not held:
        found = ", ".join(map(repr, sorted(uneven)))
        raise InputError(
            f"data.metric: {name} needs an output of one shape in all samples, but that of {found} differs from sample "
            "to sample; use cosine or sqnr"
        )
    return held


def _tells(value: Array, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Look for two samples that differ, and for one whose numbers do: two are enough, and seldom far off."""
    if len(value) < 2:  # noqa: PLR2004 - one sample cannot differ
        return True
    first = next(own(value, shapes))
    differs = any(not _near(*_common(row, first)) for row in own(value, shapes))
    level = all(_near(row, row.flat[0]) for row in own(value, shapes) if row.size > 1)
    return differs and not (level and value.size > len(value))


def _near(one: Array, other: Array) -> bool:
    return np.allclose(one, other, rtol=_SAME, atol=0, equal_nan=True)


def _common(one: Array, other: Array) -> tuple[Array, Array]:
    """Give the parts of two arrays that both have."""
    place = tuple(slice(min(sizes)) for sizes in zip(np.shape(one), np.shape(other), strict=True))
    return np.asarray(one[place]), np.asarray(other[place])


def _counted(found: Score, pair: Paired, labels: Array | None) -> Score:
    before, now = map(np.asarray, pair.sides)
    low, high = wilson(int(now.sum()), found.n)
    drop_low, drop_high = (1 - high, 1 - low) if pair.metric.reference else _difference(before, now, TAIL)
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


def _resampled(found: Score, pair: Paired, seed: int) -> Score:
    most = _RESAMPLES if pair.metric.over is mean and pair.by_sample else _RESAMPLES_OF_FUNCTION
    drawn = bootstrap(statistic(pair), found.n, most, seed)
    drops = drop(pair.metric, drawn)
    (low, high), (drop_low, drop_high) = percentiles(drawn[:, 1]), percentiles(drops)
    wider = hidden(pair, drops, seed)
    drop_low, drop_high = max(drop_low - wider, _least(pair.metric)), drop_high + wider
    if pair.metric.reference:
        low, high = pair.metric.perfect - drop_high, pair.metric.perfect - drop_low
    return replace(found, low=low, high=high, drop_low=drop_low, drop_high=drop_high)


def _least(metric: Metric) -> float:
    """Give the drop below which none can be: nothing is better than the original itself, nor less than no error."""
    if metric.reference:
        return 0.0
    return -1.0 if metric.lower_is_better else -math.inf
