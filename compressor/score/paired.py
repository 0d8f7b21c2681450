"""A metric of a model before and now on the same samples: its drop, resamples of it, and what no sample showed.

What else is to be learnt from both sides at once is a function here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from compressor.records import Array, Outputs
from compressor.score.difference import powers
from compressor.score.intervals import unseen
from compressor.score.metrics import Metric, mean
from compressor.score.truth import Truth, Values

_PLENTY = 30  # changed samples from which on the bootstrap is left alone
_SWAPS = 50
_VISIBLE = 0.001

_Index = npt.NDArray[np.intp]

Statistic = Callable[[_Index], Array]
"""From indices of samples to the metric before and now, [2]."""


@dataclass(frozen=True)
class Paired:
    """A metric, what it gives before and now, and the outputs before and now and the truth that it looked at."""

    metric: Metric
    sides: tuple[Values, Values]
    outputs: tuple[Outputs, Outputs]
    truth: Truth

    @property
    def n(self) -> int:
        """How many samples there are."""
        return len(next(iter(self.outputs[0].values())))

    @property
    def by_sample(self) -> bool:
        """Whether the metric gives a row for each sample, not one number for all."""
        return all(isinstance(side, np.ndarray) for side in self.sides)


class _Drawn(Mapping[str, Array]):
    """Outputs of some samples, taken when they are asked for: a metric reads few of them, hundreds of times."""

    def __init__(self, outputs: Outputs, index: _Index) -> None:
        self._outputs, self._index = outputs, index

    def __getitem__(self, name: str) -> Array:
        return self._outputs[name][self._index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)


def paired(metric: Metric, before: Outputs, now: Outputs, truth: Truth) -> Paired:
    """Apply a metric to both sides; the original model agrees with itself by definition, even where it gives NaN."""
    values = metric.of(now, truth)
    then = np.full_like(values, metric.perfect) if metric.reference else metric.of(before, truth)
    return Paired(metric, (then, values), (before, now), truth)


def whole(pair: Paired) -> Array:
    """Give the metric over all samples, before and now: [2]."""
    return np.array([_number(pair.metric, side) for side in pair.sides])


def drop(metric: Metric, pairs: Array) -> Array:
    """Give how much worse the second of each pair is, [..., 2]; infinite where that cannot be told.

    Where a lower value is better, it is the growth as a share of the first.
    """
    before, now = pairs[..., 0], pairs[..., 1]
    with np.errstate(invalid="ignore", divide="ignore"):  # infinite on both sides, an error that was 0
        found = (now - before) / np.abs(before) if metric.lower_is_better else before - now
    found = np.where((before == now) & np.isfinite(now), 0.0, found)
    return np.where(np.isnan(found), np.inf, found)


def statistic(pair: Paired) -> Statistic:
    """Give the function that a bootstrap resamples."""
    before, now = pair.sides
    if isinstance(before, np.ndarray) and isinstance(now, np.ndarray):
        return lambda index: np.array([pair.metric.over(before[index]), pair.metric.over(now[index])])

    def rerun(index: _Index) -> Array:
        some = _held(pair.truth, index)
        return np.array([_number(pair.metric, pair.metric.of(_Drawn(each, index), some)) for each in pair.outputs])

    return rerun


def hidden(pair: Paired, drops: Array, seed: int) -> float:
    """Give by how much to widen either side of the bootstrap of a drop for the changes that no sample happened to show.

    A bootstrap draws only what it saw: where no sample changed it has no width at all. Let m of n samples have changed.
    An exact interval of their share reaches further than a bootstrap of m of n does; for so many samples more (see
    `unseen`), each is taken to move the metric as one does whose output is swapped for another sample's: the largest
    of up to 50 such moves, infinite if none moves it. So where every change costs the same, the limit is the exact one
    of a share. From 30 changed samples on nothing is added, nor where the drop is infinite. m is how many rows differ
    (NaN from NaN, too); where rounding makes all of them differ, it is less: of a mean, those that moved it by over a
    thousandth of the largest swap's move; else as read off the resamples, of which exp(-m) hold no changed sample and
    do not drop.

    Source: the interval of Clopper and Pearson 1934, Biometrika 26:404, scaled from a share to a metric as auditors
    scale it from errors to amounts (Stringer 1963, Proceedings of the Business and Economic Statistics Section 405).
    """
    changed = _changed(pair, drops) if np.isfinite(drop(pair.metric, whole(pair))) else math.inf
    if changed == math.inf or (changed >= _PLENTY and not _is_mean(pair)):
        return 0.0
    worth = _worth(pair, min(_SWAPS, len(drops) // 4), seed)
    if _is_mean(pair) and worth < math.inf:
        changed = min(changed, _visible(pair, worth))
    share = unseen(changed, pair.n) if changed < _PLENTY else 0.0
    return share * pair.n * worth if share else 0.0


def _number(metric: Metric, side: Values) -> float:
    return metric.over(side) if isinstance(side, np.ndarray) else float(side)


def _held(truth: Truth, index: _Index) -> Truth:
    labels = None if truth.labels is None else truth.labels[index]
    return replace(truth, labels=labels, reference=_Drawn(truth.reference, index))


def _changed(pair: Paired, drops: Array) -> float:
    still = float((drops == 0).mean())
    return min(_differing(pair), -math.log(still) if still else math.inf)


def _is_mean(pair: Paired) -> bool:
    return pair.by_sample and pair.metric.over is mean


def _visible(pair: Paired, worth: float) -> int:
    """Count the samples that move a mean by more than rounding does."""
    before, now = map(np.asarray, pair.sides)
    scale = abs(float(before.mean())) if pair.metric.lower_is_better else 1.0
    return int((np.abs(now - before) > _VISIBLE * worth * scale * pair.n).sum())


def _differing(pair: Paired) -> int:
    """Count the samples whose rows differ, or where rows are no numbers, whose outputs do."""
    before, now = pair.sides
    if isinstance(before, np.ndarray) and isinstance(now, np.ndarray) and before.dtype != object:
        return int(_unlike(before, now).sum())
    then, since = pair.outputs
    noise = [powers(value, since[name])[1] for name, value in then.items()]
    return int(np.any(noise, axis=0).sum())


def _worth(pair: Paired, swaps: int, seed: int) -> float:
    """Give the most by which the drop moved when one sample got the output of another."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(pair.n)
    donors = np.empty_like(order)
    donors[order] = np.roll(order, 1)
    before, now = whole(pair)
    after = _swapped(pair, order, donors, swaps)
    drops = drop(pair.metric, np.stack([np.full_like(after, before), after], axis=1))
    return float(np.abs(drops - drop(pair.metric, np.array([before, now]))).max(initial=0)) or math.inf


def _swapped(pair: Paired, order: _Index, donors: _Index, swaps: int) -> Array:
    """Give the metric now over all samples, each time with the output of a donor for one sample: [swaps or fewer]."""
    metric, outputs, now = pair.metric, pair.outputs[1], pair.sides[1]
    few, everything = order[:swaps], np.arange(pair.n)
    if not isinstance(now, np.ndarray):
        each = (np.where(everything == place, donors, everything) for place in few)
        return np.array([_number(metric, metric.of(_Drawn(outputs, index), pair.truth)) for index in each])
    if metric.reference:  # a mean, of outputs that may be too large to be taken all at once
        rows = np.asarray(metric.of(_Drawn(outputs, donors[few]), _held(pair.truth, few)))
        return np.asarray(now.mean() + (rows - now[few]) / pair.n)
    rows = np.asarray(metric.of(_Drawn(outputs, donors), pair.truth))
    if now.dtype != object:  # of a rare class there is hardly one among few
        order = order[_unlike(now, rows)[order]]
    return np.array([metric.over(_replaced(now, place, rows[place])) for place in order[:swaps]])


def _unlike(before: Array, now: Array) -> npt.NDArray[np.bool_]:
    """Tell which rows differ."""
    return np.asarray((before != now).reshape(len(now), -1).any(axis=1))


def _replaced(rows: Array, place: int, row: Array) -> Array:
    changed = rows.copy()
    changed[place] = row
    return changed
