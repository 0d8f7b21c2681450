"""What samples of latency support: confidence limits of a percentile, and quantiles of the binomial and Student's t.

Add a statistic as a function of raw samples. Only numpy is used, for importing scipy.stats costs more than a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from compressor.records import Array, Bound

_BURST_BLOCKS = 20
_MOST_SAMPLES = 10_000_000
_PRECISION = 1e-9


def bound(latencies_ms: Array, percentile: float, confidence: float, limit_ms: float | None = None) -> Bound:
    """Give a percentile (0 to 100) with the exact one-sided limits that its samples, in call order, support.

    A limit is an order statistic and assumes nothing about the distribution. Against `limit_ms`: the percentile is
    proved to be at or below it when `high_ms` is and the violations are steady, proved to be above it when `low_ms` is.
    Source: binomial order statistics, the rule of MLPerf LoadGen's early stopping.
    """
    ordered, n = np.sort(latencies_ms), len(latencies_ms)
    below, alpha = percentile / 100, 1 - confidence
    over, under = allowed(n, 1 - below, alpha), allowed(n, below, alpha)
    plain = Bound(
        percentile=percentile,
        confidence=confidence,
        value_ms=float(np.percentile(ordered, percentile, method="inverted_cdf")),
        low_ms=None if under is None else float(ordered[under]),
        high_ms=None if over is None else float(ordered[n - 1 - over]),
    )
    return plain if limit_ms is None else _against(plain, latencies_ms > limit_ms, limit_ms)


def decided(bound: Bound) -> bool:
    """Say whether the percentile is proved to be on one side of the bound's `limit_ms`."""
    if bound.limit_ms is None:
        return False
    met = bound.high_ms is not None and bound.high_ms <= bound.limit_ms and bound.steady is not False
    return met or (bound.low_ms is not None and bound.low_ms > bound.limit_ms)


def clean_samples(percentile: float, confidence: float) -> int:
    """Give the least number of samples without a violation that prove a percentile."""
    return math.ceil(math.log(1 - confidence) / math.log(percentile / 100))


def allowed(n: int, share: float, alpha: float) -> int | None:
    """Give the largest t with P(Binomial(n, share) <= t) <= alpha; None if even 0 is too many."""
    low, high = -1, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if binomial_cdf(middle, n, share) <= alpha else (low, middle)
    return None if low < 0 else low


def binomial_cdf(t: int, n: int, share: float) -> float:
    """Give P(Binomial(n, share) <= t), summed over the terms that matter; share strictly between 0 and 1."""
    if t >= n:
        return 1.0
    log_odds = math.log(share) - math.log1p(-share)
    log_choices = math.lgamma(n + 1) - math.lgamma(t + 1) - math.lgamma(n - t + 1)
    log_term = log_choices + t * log_odds + n * math.log1p(-share)
    mean = n * share
    lowest = max(0, int(min(t, mean) - 10 * math.sqrt(mean)))  # a tail beyond it weighs less than exp(-50)
    k = np.arange(t, lowest, -1)
    log_terms = log_term + np.cumsum(np.log(k / (n - k + 1)) - log_odds)
    return min(1.0, math.exp(log_term) + float(np.exp(log_terms).sum()))


def student(quantile: float, freedom: int) -> float:
    """Give a quantile, above one half, of Student's t with so many degrees of freedom."""
    low, high = 0.0, 1.0
    while _student_cdf(high, freedom) < quantile:
        low, high = high, 2 * high
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _student_cdf(middle, freedom) < quantile else (low, middle)
    return high


def spread(values: Array, quantile: float) -> float:
    """Give by how much the mean of some values can be wrong: Student's t times the standard error."""
    return student(quantile, len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))


def _against(plain: Bound, violates: Array, limit_ms: float) -> Bound:
    n, violations = len(violates), int(violates.sum())
    per_block = np.array([block.sum() for block in np.array_split(violates, _BURST_BLOCKS)])
    reach = spread(per_block / (n / _BURST_BLOCKS), plain.confidence) if n >= _BURST_BLOCKS else None
    room = 1 - plain.percentile / 100 - violations / n
    judged = replace(
        plain,
        limit_ms=limit_ms,
        violations=violations,
        dispersion=None if reach is None else _dispersion(per_block, n),
        steady=None if reach is None else reach <= room,
    )
    return judged if decided(judged) else replace(judged, needed=_needed(judged, n, reach or 0.0))


def _dispersion(per_block: Array, n: int) -> float | None:
    """Give the variance of the counts of violations over that of independent ones; None if none or all violate."""
    share = float(per_block.sum()) / n
    return float(per_block.var(ddof=1) / (per_block.mean() * (1 - share))) if 0 < share < 1 else None


def _student_cdf(t: float, freedom: int) -> float:
    """Give P(T <= t) for t >= 0. Source: Abramowitz and Stegun 26.7.3 and 26.7.4, which are exact."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    steps = np.arange(1 + odd, freedom - 1, 2)
    factors = np.concatenate([[1.0], steps / (steps + 1) * math.cos(angle) ** 2])
    series = float(factors.cumprod().sum()) * math.sin(angle)
    if not odd:
        return (1 + series) / 2
    return 0.5 + (angle + (series * math.cos(angle) if freedom > 1 else 0.0)) / math.pi


def _needed(judged: Bound, n: int, spread: float) -> int | None:
    """Give how many samples would decide at the same share of violations, and the same spread over longer blocks."""
    violations, share, alpha = judged.violations or 0, 1 - judged.percentile / 100, 1 - judged.confidence

    def decides(size: int) -> bool:
        if violations / n < share:
            return binomial_cdf(-(-violations * size // n), size, share) <= alpha
        return binomial_cdf(-(-(n - violations) * size // n), size, 1 - share) <= alpha

    by_count = _first(decides, n)
    if by_count is None or violations / n >= share:
        return by_count
    by_spread = math.ceil(n * (spread / (share - violations / n)) ** 2)
    return max(by_count, by_spread) if by_spread <= _MOST_SAMPLES else None


def _first(holds: Callable[[int], bool], start: int) -> int | None:
    """Give the least number from `start` on that holds, found by doubling and halving; None beyond 10 million."""
    high = start
    while not holds(high):
        high *= 2
        if high > _MOST_SAMPLES:
            return None
    low = max(high // 2, start - 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
