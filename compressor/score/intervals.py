"""Two-sided intervals for shares, for differences of shares, and for anything that can be drawn anew.

A new kind of interval is a function here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from compressor.records import Array

Interval = tuple[float, float]
TAIL = 0.025
"""What lies on either side of a 95 % interval."""

_BISECTIONS = 60  # the width of 2 shrinks below the resolution of a double
_SECONDS = 20.0
_FEWEST_RESAMPLES = 50


def wilson(successes: int, n: int, tail: float = TAIL) -> Interval:
    """Give the interval of a share, within 0 and 1.

    Source: Wilson 1927, Journal of the American Statistical Association 22:209.
    """
    share, z2 = successes / n, NormalDist().inv_cdf(1 - tail) ** 2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    # exact at the ends, where rounding would leave a trace
    return (max(0.0, middle - half) if successes else 0.0), (min(1.0, middle + half) if successes < n else 1.0)


def tango(lost: int, gained: int, n: int, tail: float = TAIL) -> Interval:
    """Give the interval of the share lost less the share gained, of n pairs in which nothing else changed.

    It holds every difference that a score test does not reject; at a difference of 0 that is McNemar's test. It has a
    width even where no pair changed.

    Source: Tango 1998, Statistics in Medicine 17:891.
    """
    return -_upper(gained, lost, n, tail), _upper(lost, gained, n, tail)


def unseen(changed: float, n: int) -> float:
    """Give how much further the share of `changed` of n reaches by its exact interval than by a bootstrap.

    With none of n it is 1 - 0.025 ** (1 / n), about 3.7 / n.

    Source: Clopper and Pearson 1934, Biometrika 26:404; a bootstrap draws a binomial count at the share found.
    """
    from scipy.special import bdtrik, betaincinv

    if changed >= n:
        return 0.0
    drawn = math.ceil(bdtrik(1 - TAIL, n, changed / n)) if changed else 0
    return max(0.0, float(betaincinv(changed + 1, n - changed, 1 - TAIL)) - drawn / n)


def at_least(successes: int, n: int, share: float) -> float:
    """Give the probability of at least so many successes in n independent trials."""
    from scipy.special import bdtrc

    return float(bdtrc(successes - 1, n, share))


def bootstrap(statistic: Callable[[npt.NDArray[np.intp]], Array], n: int, most: int, seed: int) -> Array:
    """Give a statistic of [2] for samples drawn anew, with replacement: [resamples, 2].

    There are `most` resamples, halved until they take about 20 s as measured on the first, but no fewer than 50.
    """
    generator = np.random.default_rng(seed)
    begin = time.perf_counter()
    first = statistic(generator.integers(n, size=n))
    count = resamples(time.perf_counter() - begin, most)
    return np.stack([first, *(statistic(generator.integers(n, size=n)) for _ in range(count - 1))])


def resamples(each_s: float, most: int) -> int:
    """Give how many resamples are affordable; in halves, so that the same machine draws as many each time."""
    count = most
    while count > _FEWEST_RESAMPLES and count * each_s > _SECONDS:
        count = max(_FEWEST_RESAMPLES, count // 2)
    return count


def percentiles(values: Array) -> Interval:
    """Give the interval that leaves out the tails of resampled values."""
    # no interpolation, which would make NaN of two infinite neighbours
    low, high = np.quantile(values, TAIL, method="lower"), np.quantile(values, 1 - TAIL, method="higher")
    return float(low), float(high)


def _upper(lost: int, gained: int, n: int, tail: float) -> float:
    z2 = NormalDist().inv_cdf(1 - tail) ** 2
    inside, outside = (lost - gained) / n, 1.0
    for _ in range(_BISECTIONS):
        middle = (inside + outside) / 2
        if (lost - gained - n * middle) ** 2 <= z2 * _variance(lost, gained, n, middle):
            inside = middle
        else:
            outside = middle
    return inside


def _variance(lost: int, gained: int, n: int, difference: float) -> float:
    """Give the variance of lost - gained if the shares truly differ so, at the likeliest share gained."""
    spread = difference * (1 - difference)
    b = (2 * n - lost + gained) * difference - lost - gained
    root = math.sqrt(max(0.0, b * b + 8 * n * gained * spread))
    return n * (2 * max(0.0, root - b) / (4 * n) + spread)
