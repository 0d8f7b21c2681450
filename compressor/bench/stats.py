"""What samples of latency support: confidence limits of a percentile, and quantiles of the binomial and Student's t.

Add a statistic as a function of raw samples. Only numpy is used, for importing scipy.stats costs more than a second.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from compressor.records import Array, Bound, quantile_levels

FEWEST_INDEPENDENT = 40
"""Samples of a queue, were they independent, that show that it has an end: one without has up to 30 in a minute."""
_BLOCKS = 20
_UNCERTAIN = 19 / 13.716  # 19 over the quantile at 20 % of chi-square with 19 degrees of freedom
_FEWEST_TO_GROW = 30
_PRECISION = 1e-9
_THOUSANDTHS = 1000  # of a per cent, exact where numpy.percentile of numpy 2.4 may give the next sample


def bound(
    latencies_ms: Array, percentile: float, confidence: float, limit_ms: float | None = None, deff: float = 1.0
) -> Bound:
    """Give a percentile (0 to 100) with the exact one-sided limits that its samples, in call order, support.

    A limit is an order statistic and assumes nothing about the distribution. Samples that depend on each other count
    for as many as 1 in `deff` independent ones, see `design_effect`. Against `limit_ms`: the percentile is proved to be
    at or below it when `high_ms` is and the violations are steady, proved to be above it when `low_ms` is.
    Source: binomial order statistics, the rule of MLPerf LoadGen's early stopping.
    """
    ordered, n = np.sort(latencies_ms), len(latencies_ms)
    below, alpha = percentile / 100, 1 - confidence
    over, under = (_allowed_of(n, deff, share, alpha) for share in (1 - below, below))
    plain = Bound(
        percentile=percentile,
        confidence=confidence,
        value_ms=float(np.percentile(ordered, percentile, method="inverted_cdf")),
        low_ms=None if under is None else float(ordered[under]),
        high_ms=None if over is None else float(ordered[n - 1 - over]),
    )
    return plain if limit_ms is None else against(plain, latencies_ms, limit_ms)


def against(plain: Bound, latencies_ms: Array, limit_ms: float) -> Bound:
    """Hold a percentile's limits against `limit_ms`, by the samples, in call order, that they are of.

    The violations are steady if their share stays below what the percentile allows also where it is looked at in 20
    blocks, by Student's t.
    """
    violates = latencies_ms > limit_ms
    n, violations = len(violates), int(violates.sum())
    per_block = np.array([block.sum() for block in np.array_split(violates, _BLOCKS)])
    reach = spread(per_block / (n / _BLOCKS), plain.confidence) if n >= _BLOCKS else None
    room = 1 - plain.percentile / 100 - violations / n
    return replace(
        plain,
        limit_ms=limit_ms,
        violations=violations,
        dispersion=None if reach is None else _dispersion(per_block, n),
        steady=None if reach is None else reach <= room,
    )


def quantiles(latencies_ms: Array) -> tuple[float, ...]:
    """Give the distribution at `quantile_levels`, the first of the samples that so many reach, with five digits."""
    ordered, n = np.sort(latencies_ms), len(latencies_ms)
    reached = (-(-n * round(level * _THOUSANDTHS) // (100 * _THOUSANDTHS)) for level in quantile_levels(n))
    return tuple(float(f"{ordered[max(count, 1) - 1]:.5g}") for count in reached)


def design_effect(latencies: Array) -> float:
    """Give how many samples in a row tell no more than an independent one; at least 1.

    The variance of the means of 20 blocks over what it were if the samples' ranks came independently, or rather its
    upper limit at 80 %. Where samples depend on each other for longer than a block, about 14 of them are left.
    """
    if len(latencies) < _BLOCKS:
        return 1.0
    _, place, ties = np.unique(latencies, return_inverse=True, return_counts=True)
    ranks = (ties.cumsum() - ties / 2)[place]
    means = np.array([block.mean() for block in np.array_split(ranks, _BLOCKS)])
    size = len(latencies) / _BLOCKS
    return max(1.0, _UNCERTAIN * size * float(means.var(ddof=1) / ranks.var())) if len(ties) > 1 else 1.0


def grows(latencies_ms: Array, call_ms: float) -> bool:
    """Say whether requests wait longer in the last third than in the first: twofold, and by more than a call takes."""
    if len(latencies_ms) < _FEWEST_TO_GROW:
        return False
    thirds = np.array_split(latencies_ms, 3)
    first, last = float(np.median(thirds[0])), float(np.median(thirds[-1]))
    return last > max(2 * first, first + call_ms)


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
    """Give the largest t with P(Binomial(n, share) <= t) <= alpha, at most one half; None if even 0 is too many."""
    mean = n * share  # the median is within 1 of it, and what is 10 deviations below it as good as impossible
    low, high = max(-1, int(mean - 10 * math.sqrt(mean)) - 1), min(n, int(mean) + 2)
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


def spread_factor(confidence: float) -> float:
    """Give how many standard errors the mean over the blocks of `bound` is kept from its limit."""
    return student(confidence, _BLOCKS - 1)


def spread(values: Array, quantile: float) -> float:
    """Give by how much the mean of some values can be wrong: Student's t times the standard error."""
    return student(quantile, len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))


def _allowed_of(n: int, deff: float, share: float, alpha: float) -> int | None:
    """Give how many of n samples that depend on each other are allowed where only their frequency is known."""
    independent = max(1, int(n / deff))
    most = allowed(independent, share, alpha)
    return None if most is None else most * n // independent


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
