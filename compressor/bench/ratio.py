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
from compressor.records import Array, Speedup, Timing

MINIMUM_EFFECT = 1.02
"""Ratios of time closer to 1 are no difference."""

_FEWEST_ROUNDS = 3
_TRIMMED = 8  # of so many rounds, the highest and the lowest do not count
_CONFIDENCE = 0.95
_POWER = 0.9
_BLOCKS = 16  # of a single window, in place of rounds


@dataclass(frozen=True)
class Throughput:
    """Samples a second, with a two-sided 95 % interval where there is evidence for one."""

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


def detectable(speedup: Speedup) -> float:
    """Give the least true slow-down, as a share of time, that as many rounds would call slower nine times in ten.

    `speedup` has a 95 % interval. In logarithms: the minimum effect, plus the interval's reach, plus what chance may
    take from the estimate. Source: the sample size of a one-sided test of mean > minimum effect, solved for the mean.
    """
    reach = math.log(speedup.high / speedup.low) / 2
    error = reach / stats.student((1 + _CONFIDENCE) / 2, _kept(speedup.rounds) - 1)
    return math.expm1(math.log(MINIMUM_EFFECT) + reach + NormalDist().inv_cdf(_POWER) * error)


def throughput(windows: Sequence[Timing], samples: int) -> Throughput:
    """Give how many samples a second were answered, when each call answers so many.

    The interval is Student's t over windows, or over blocks of a single one; there is none below 3 of them.
    """
    calls = sum(len(window.latencies_ns) for window in windows)
    value = calls * samples / sum(window.seconds for window in windows)
    rates = [len(window.latencies_ns) / window.seconds for window in windows]
    if len(rates) < _FEWEST_ROUNDS:
        rates = [rate for window in windows for rate in _block_rates(window)]
    if len(rates) < _FEWEST_ROUNDS:
        return Throughput(value, None, None)
    reach = stats.spread(np.array(rates) * samples, (1 + _CONFIDENCE) / 2)
    return Throughput(value, max(0.0, value - reach), value + reach)


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


def _block_rates(window: Timing) -> list[float]:
    """Give calls a second in blocks of consecutive calls, scaled so that all together took the window's time."""
    blocks = np.array_split(_spans_ns(window), min(_BLOCKS, len(window.latencies_ns)))
    scale = window.seconds / sum(float(block.sum()) for block in blocks)
    return [len(block) / (float(block.sum()) * scale) for block in blocks if block.sum() > 0]


def _spans_ns(window: Timing) -> Array:
    """Give the time between answers, as if requests were due evenly; in a closed loop, what the calls took."""
    if window.offered_per_s is None:
        return window.latencies_ns
    due_ns = np.arange(len(window.latencies_ns)) * 1e9 / window.offered_per_s
    return np.diff(np.maximum.accumulate(due_ns + window.latencies_ns), prepend=0.0)
