"""What is odd about the samples of a run, in sentences: too few, constant, or calibration unlike evaluation.

Another doubt is a generator of sentences called in `doubts`, its conditions constants with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np

from compressor.records import Array
from compressor.samples.dataset import Samples

_LOOKED_AT = 64
"""Samples that are read of each set: enough for means and ranges that differ by factors."""
_VALUES = 4096
"""Values that are read of one sample of an input."""
_FEW = 16
"""With fewer, one new sample in 17 or more exceeds the range of each tensor."""
_OUTSIDE = 0.5
"""Share of values beyond the calibration range, above which the two sets cannot come from one distribution."""
_SCALE = 8.0
"""Factor between spreads that no choice of samples explains; a forgotten division by 255 or by a deviation does."""
_SHIFT = 3.0
"""Difference of means, in spreads of the calibration, that no choice of samples explains."""


def doubts(calibration: Samples, evaluation: Samples | None) -> tuple[str, ...]:
    """Give a sentence for each oddity; of floating-point inputs alone are the values compared."""
    seen = _values(calibration)
    found = [*_few(calibration), *_constant(calibration, seen)]
    if evaluation is not None:
        found += _unlike(calibration, evaluation, seen)
    return tuple(found)


def _values(samples: Samples) -> dict[str, Array]:
    """Give values of each floating-point input, float64: all of a small one, evenly spaced ones of a large one."""
    found: dict[str, list[Array]] = {}
    for feed in islice(samples, _LOOKED_AT):
        for name, array in feed.items():
            if array.dtype.kind == "f" and array.size:
                step = -(-array.size // _VALUES)
                found.setdefault(name, []).append(array.reshape(-1)[::step].astype(np.float64))
    return {name: np.concatenate(pieces) for name, pieces in found.items()}


def _few(samples: Samples) -> Iterator[str]:
    distinct = len(samples.digests())
    if distinct < _FEW:
        few = f"only {distinct} distinct of {len(samples)} calibration samples"
        yield f"{samples.origin.source}: {few}; ranges seen in fewer than {_FEW} are often too narrow, give more"


def _constant(samples: Samples, seen: Mapping[str, Array]) -> Iterator[str]:
    for name, values in seen.items():
        if len(samples) > 1 and np.ptp(values) == 0:
            where = f"{samples.origin.source}: input {name!r}"
            yield f"{where} is {values[0]:g} in all samples, so nothing is learnt of others; check its array"


def _unlike(calibration: Samples, evaluation: Samples, seen: Mapping[str, Array]) -> Iterator[str]:
    """Say which inputs of the evaluation are unlike those of the calibration, by the first sign of it."""
    where = f"{evaluation.origin.source}: input"
    for name, values in _values(evaluation).items():
        if name in seen and np.ptp(seen[name]) > 0 and (what := _difference(seen[name], values)):
            yield f"{where} {name!r} is unlike that in {calibration.origin.source}: {what}; prepare both alike"


def _difference(one: Array, other: Array) -> str:
    """Say how the second values differ from the first, which vary; nothing where they are much the same."""
    low, high = one.min(), one.max()
    outside = np.mean((other < low) | (other > high))
    if outside > _OUTSIDE:
        return f"{outside:.0%} of its values lie outside {low:g} to {high:g}, the range of the calibration"
    ratio = other.std() / one.std()
    if not 1 / _SCALE < ratio < _SCALE:
        return f"its values spread {ratio:.3g} times as wide as those of the calibration"
    if abs(other.mean() - one.mean()) > _SHIFT * one.std():
        return f"its mean is {other.mean():.3g}, that of the calibration {one.mean():.3g}"
    return ""
