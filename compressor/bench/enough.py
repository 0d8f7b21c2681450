"""How many samples would decide what those at hand do not.

Add what else a number of samples is planned for as a function here.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable

from compressor.bench import stats
from compressor.bench.looks import stricter
from compressor.records import Bound

_POWER = 0.9
_POWER_SD = 1.2816  # the quantile of the normal distribution at it
_SIZES = tuple(digits * 10**power for power in range(6) for digits in range(10, 100))


def enough(bound: Bound, n: int, deff: float, share: Callable[[int], float]) -> int | None:
    """Give, in two digits, how many samples decide nine times in ten if violations stay as frequent as in `n` samples.

    `share`: of the permitted error, what the last look spends where so many samples are made; for `deff` see
    `stats.design_effect`. None where not even 9.9 million are enough.
    """
    low, high = bisect_right(_SIZES, n) - 1, len(_SIZES)
    while high - low > 1:
        middle = (low + high) // 2
        confidence = stricter(bound.confidence, share(_SIZES[middle]))
        low, high = (low, middle) if _decides(bound, n, _SIZES[middle], deff, confidence) else (middle, high)
    return _SIZES[high] if high < len(_SIZES) else None


def _decides(bound: Bound, n: int, size: int, deff: float, confidence: float) -> bool:
    """Say whether so many samples decide often enough; in one look, at so strict a confidence."""
    violating, permitted = (bound.violations or 0) / n, 1 - bound.percentile / 100
    independent = int(size / deff)
    if independent < stats.FEWEST_INDEPENDENT:
        return False
    if violating >= permitted:
        return _is_likely(independent, 1 - violating, 1 - permitted, confidence)
    variance = max(1.0, bound.dispersion or 0.0) * violating * (1 - violating)
    reach = (stats.spread_factor(confidence) + _POWER_SD) * math.sqrt(variance / size)
    return reach <= permitted - violating and _is_likely(independent, violating, permitted, confidence)


def _is_likely(n: int, share: float, limit: float, confidence: float) -> bool:
    """Say whether so many samples of a share likely prove that it is below a limit."""
    most = stats.allowed(n, limit, 1 - confidence)
    return most is not None and (share == 0 or stats.binomial_cdf(most, n, share) >= _POWER)
