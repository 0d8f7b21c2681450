"""What rounds of calls support: the speed-up of one session over another, and throughput, each with an interval.

Rounds, not calls, are the independent evidence: calls of one round share the memory layout and the placement of
threads of its sessions, and the state of the machine. Add a statistic that is taken over rounds here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from compressor.bench import stats
from compressor.bench.looks import stricter
from compressor.records import MINIMUM_EFFECT, Array, Speedup, Timing

_FEWEST_ROUNDS = 3
_TRIMMED = 8  # of so many rounds, the highest and the lowest do not count
_CONFIDENCE = 0.95
_POWER = 0.9


@dataclass(frozen=True)
class Throughput:
    """Samples a second, with a two-sided interval where there is evidence for one."""

    value_per_s: float
    low_per_s: float | None
    high_per_s: float | None


@dataclass(frozen=True)
class _Centre:
    value: float
    reach: float  # half of the interval's width


def speedup(rounds: Sequence[tuple[Array, Array]], confidence: float) -> Speedup | None:
    """Give how many times faster the candidate is than the baseline; None below 3 rounds.

    A round is the baseline's and the candidate's latencies; element i of both is one pair. Its value is the median of
    the pairs' ratios: what slows a moment down slows both of a pair. On recorded calls of two models on a busy machine
    it varied less from round to round than the mean over blocks of ten pairs in seven of eight recordings.
    """
    if len(rounds) < _FEWEST_ROUNDS:
        return None
    logs = np.array([np.median(np.log(baseline_ms / candidate_ms)) for baseline_ms, candidate_ms in rounds])
    centre = _trimmed(logs, confidence)
    return Speedup(
        ratio=math.exp(centre.value),
        low=math.exp(centre.value - centre.reach),
        high=math.exp(centre.value + centre.reach),
        rounds=len(rounds),
        lowest=math.exp(logs.min()),
        highest=math.exp(logs.max()),
    )


def detectable(speedup: Speedup, share: float) -> float:
    """Give the least true slow-down, as a share of time, that as many rounds would call slower nine times in ten.

    `speedup` has a 95 % interval; the look that calls may spend a `share` of its error. In logarithms: the minimum
    effect, plus the reach of that look's interval, plus what chance may take from the estimate.
    Source: the sample size of a one-sided test of mean > minimum effect, solved for the mean.
    """
    freedom = _kept(speedup.rounds) - 1
    error = math.log(speedup.high / speedup.low) / 2 / stats.student((1 + _CONFIDENCE) / 2, freedom)
    reach = error * stats.student((1 + stricter(_CONFIDENCE, share)) / 2, freedom)
    return math.expm1(math.log(MINIMUM_EFFECT) + reach + NormalDist().inv_cdf(_POWER) * error)


def throughput(windows: Sequence[Timing], samples: int, confidence: float) -> Throughput:
    """Give how many samples a second were answered, when each call answers so many.

    The interval is Student's t over the rounds' seconds per call, inverted. There is none below 3 rounds, nor in an
    open loop, which answers what it is offered; and no upper limit where the seconds per call may be 0.
    """
    calls, seconds = (sum(values) for values in zip(*((len(w.latencies_ns), w.seconds) for w in windows), strict=True))
    value = calls * samples / seconds
    if len(windows) < _FEWEST_ROUNDS or any(window.offered_per_s is not None for window in windows):
        return Throughput(value, None, None)
    taken_s = np.array([window.seconds / len(window.latencies_ns) for window in windows])
    reach_s, mean_s = stats.spread(taken_s, (1 + confidence) / 2), seconds / calls
    high = samples / (mean_s - reach_s) if reach_s < mean_s else None
    return Throughput(value, samples / (mean_s + reach_s), high)


def _trimmed(values: Array, confidence: float) -> _Centre:
    """Give the mean without the extremes, one value in 8 at each end, and the reach of its two-sided interval.

    A burst of foreign load spoils a round or two, whose weight in a plain mean hides a true difference of 5 %.
    Source: Tukey and McLaughlin 1963, Student's t with the winsorised standard deviation.
    """
    n, kept, ordered = len(values), _kept(len(values)), np.sort(values)
    cut = (n - kept) // 2
    winsorised = np.clip(ordered, ordered[cut], ordered[n - 1 - cut])
    error = float(winsorised.std(ddof=1)) * math.sqrt((n - 1) / (kept * (kept - 1)))
    return _Centre(float(ordered[cut : n - cut].mean()), stats.student((1 + confidence) / 2, kept - 1) * error)


def _kept(rounds: int) -> int:
    return rounds - 2 * (rounds // _TRIMMED)
