"""Second moments of what a layer reads and should give, summed over samples, and least squares from them.

What is solved from moments is a function here.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from compressor import machine
from compressor.records import Array

RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""How strongly weights are held where they are, in parts of the mean power of what the layer reads."""
_ROWS_AT_ONCE = 2048
"""A product of fewer rows would cost more in calls than in arithmetic."""
_TINY = 1e-12
_EXACT = 1e-6  # of the variance: what float32 products leave of an error that is none
_ALONE = 1000
"""Features up to which one thread of BLAS does it: where others wait and spin, they take a CPU for nothing."""


def blas(features: int) -> AbstractContextManager[object]:
    """Give the threads of BLAS that matrices of so many features are worth, as a context."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(
        1 if features <= _ALONE else machine.cpus_usable(), user_api="blas"
    )
    return limits


class Moments:
    """Sums over rows of x [groups, rows, features] and y [groups, rows, outputs], in parts: to fit, and to check.

    If `centred` they are taken around means near the true ones, so that float32 products lose nothing to a large mean.
    """

    def __init__(self, *, centred: bool, parts: int = 2) -> None:
        """Begin with no rows."""
        self.centred = centred
        self.rows = np.zeros(parts, int)
        self._waiting: tuple[list[tuple[Array, Array]], ...] = tuple([] for _ in range(parts))

    def add(self, x: Array, y: Array, part: int = 0) -> None:
        """Add rows, float32."""
        self._waiting[part].append((x, y))
        if sum(x.shape[1] for x, _ in self._waiting[part]) >= _ROWS_AT_ONCE:
            self._sum(part)

    def _sum(self, part: int) -> None:
        if not self._waiting[part]:
            return
        x, y = (np.concatenate(arrays, axis=1) for arrays in zip(*self._waiting[part], strict=True))
        self._waiting[part].clear()
        if not self.rows.any():
            self._begin(x, y)
        with np.errstate(over="ignore", invalid="ignore"):
            x, y = x - self._about[0], y - self._about[1]
        turned = x.transpose(0, 2, 1)
        self.rows[part] += x.shape[1]
        with blas(x.shape[2]), np.errstate(over="ignore", invalid="ignore"):  # `fitted` asks whether all stayed finite
            self._x[part] += x.sum(1)
            self._y[part] += y.sum(1)
            self._xx[part] += turned @ x
            self._xy[part] += turned @ y
            self._yy[part] += float(np.square(y, dtype=np.float64).sum())

    def _begin(self, x: Array, y: Array) -> None:
        (groups, _, features), outputs, parts = x.shape, y.shape[2], len(self.rows)
        self._about = [a.mean(1, keepdims=True) * np.float32(self.centred) for a in (x, y)]
        self._x, self._y, self._yy = (
            np.zeros((parts, groups, features)),
            np.zeros((parts, groups, outputs)),
            np.zeros(parts),
        )
        self._xx, self._xy = (np.zeros((parts, groups, features, n)) for n in (features, outputs))

    def counted(self) -> Array:
        """Give the number of rows of each part."""
        for part in range(len(self.rows)):
            self._sum(part)
        return self.rows

    def of(self, *parts: int) -> Summed:
        """Give means and covariances over these parts; without `centred`, zeros and mean products."""
        for part in parts:
            self._sum(part)
        at = list(parts)
        n = max(int(self.rows[at].sum()), 1)
        with np.errstate(over="ignore", invalid="ignore"):
            x, y = (sums[at].sum(0) / n * self.centred for sums in (self._x, self._y))
            return Summed(
                mean_x=x + self._about[0][:, 0],
                mean_y=y + self._about[1][:, 0],
                xx=self._xx[at].sum(0) / n - x[:, :, None] * x[:, None],
                xy=self._xy[at].sum(0) / n - x[:, :, None] * y[:, None],
                yy=float(self._yy[at].sum() / n - np.square(y).sum()),
            )


@dataclass(frozen=True)
class Summed:
    """Means [groups, features or outputs], and covariances [groups, features, features or outputs]; `yy` over all."""

    mean_x: Array
    mean_y: Array
    xx: Array
    xy: Array
    yy: float

    @property
    def is_finite(self) -> bool:
        """Tell whether nothing overflowed, as of samples with huge values it can."""
        return all(np.isfinite(array).all() for array in (self.mean_x, self.mean_y, self.xx, self.xy, self.yy))

    def bias(self, weights: Array) -> Array:
        """Give the best bias [groups, outputs] for weights [groups, outputs, features]."""
        best: Array = self.mean_y - np.einsum("gof,gf->go", weights, self.mean_x)
        return best

    def error(self, weights: Array, bias: Array) -> float:
        """Give the mean squared error, summed over outputs."""
        spread = ((weights @ self.xx) * weights).sum() - 2 * (weights * self.xy.transpose(0, 2, 1)).sum()
        return float(spread + self.yy + np.square(self.bias(weights) - bias).sum())


@dataclass(frozen=True)
class Linear:
    """Weights [groups, outputs, features] and a bias [groups, outputs], float64."""

    weights: Array
    bias: Array

    def __call__(self, x: Array) -> Array:
        """Give what it makes of rows [groups, rows, features], float32."""
        made: Array = x @ self.weights.transpose(0, 2, 1).astype(np.float32) + self.bias[:, None].astype(np.float32)
        return made


def fitted(moments: Moments, now: Linear) -> Linear | None:
    """Give weights and bias that make more of y out of x than those now, by rows that they were not fitted to.

    Of ridge regressions towards the weights as they are, that whose error on the rows to check is least is fitted again
    to all rows. Weights stay, with another bias, where no regression helps; None where that does not either, where
    there are no rows to check on, or where sums overflowed.
    """
    if not moments.counted().all():
        return None
    fit, check = moments.of(0), moments.of(1)
    if not (fit.is_finite and check.is_finite):
        return None
    least = check.error(now.weights, now.bias)
    if least <= _EXACT * check.yy:
        return None
    best: tuple[float | None, Linear] | None = None
    for ridge in (None, *RIDGES):
        tried = _regressed(fit, now, ridge, centred=moments.centred)
        if tried is not None and (error := check.error(tried.weights, tried.bias)) < least:
            least, best = error, (ridge, tried)
    if best is None:
        return None
    return _regressed(moments.of(0, 1), now, best[0], centred=moments.centred) or best[1]


def _regressed(summed: Summed, towards: Linear, ridge: float | None, *, centred: bool) -> Linear | None:
    """Solve (xx + r) w = xy + r towards, r being `ridge` times the mean diagonal of xx; without, only the bias.

    None where so small a ridge leaves a system that is singular to rounding.
    """
    weights = towards.weights if ridge is None else _solved(summed, towards.weights, ridge)
    if weights is None:
        return None
    return Linear(weights, summed.bias(weights) if centred else towards.bias)


def _solved(summed: Summed, towards: Array, ridge: float) -> Array | None:
    from scipy import linalg

    features = summed.xx.shape[1]
    strength = max(ridge * float(np.trace(summed.xx, axis1=1, axis2=2).mean()) / features, _TINY)
    wanted = summed.xy + strength * towards.transpose(0, 2, 1)
    solved = np.empty_like(wanted)
    with blas(features):
        for xx, y, into in zip(summed.xx, wanted, solved, strict=True):
            np.fill_diagonal(system := xx.copy(), xx.diagonal() + strength)
            try:
                factor = linalg.cho_factor(system, overwrite_a=True, check_finite=False)
            except linalg.LinAlgError:
                return None
            into[:] = linalg.cho_solve(factor, y)
    turned: Array = solved.transpose(0, 2, 1)
    return turned
