"""Least squares from second moments, against least squares on the rows themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from compressor.stages.prune.moments import RIDGES, Linear, Moments, fitted

Array = NDArray[Any]


def drawn(groups: int, rows: int, features: int, outputs: int, noise: float = 0.1) -> tuple[Array, Array, Array, Array]:
    """Give x with a large mean and related features, y, and the weights and bias that made it."""
    rng = np.random.default_rng(groups + features)
    mix = rng.normal(size=(groups, features, features))
    x = rng.normal(size=(groups, rows, features)) @ mix + 20
    weights, bias = rng.normal(size=(groups, outputs, features)), rng.normal(size=(groups, outputs))
    y = x @ weights.transpose(0, 2, 1) + bias[:, None] + noise * rng.normal(size=(groups, rows, outputs))
    return x.astype(np.float32), y.astype(np.float32), weights, bias


def summed(x: Array, y: Array, *, centred: bool = True, parts: int = 2) -> Moments:
    """Add rows in pieces of 7, every fifth to the second part."""
    moments = Moments(centred=centred, parts=parts)
    for piece, start in enumerate(range(0, x.shape[1], 7)):
        moments.add(x[:, start : start + 7], y[:, start : start + 7], int(piece % 5 == 4) if parts == 2 else 0)
    return moments


@pytest.mark.parametrize("groups", [1, 3])
def test_means_and_covariances_are_those_of_the_rows(groups: int) -> None:
    x, y, *_ = drawn(groups, 5000, 4, 2)
    found = summed(x, y).of(0, 1)
    for g in range(groups):
        both = np.cov(np.hstack([x[g], y[g]]).T.astype(np.float64), bias=True)
        assert np.allclose(found.xx[g], both[:4, :4], rtol=1e-3, atol=1e-3)
        assert np.allclose(found.xy[g], both[:4, 4:], rtol=1e-3, atol=1e-3)
        assert np.allclose(found.mean_x[g], x[g].mean(0), rtol=1e-5)
    assert found.yy == pytest.approx(
        sum(float(np.var(y[g], axis=0, dtype=np.float64).sum()) for g in range(groups)), rel=1e-3
    )


@pytest.mark.parametrize("centred", [True, False])
def test_the_error_is_that_on_the_rows(*, centred: bool) -> None:
    x, y, weights, _ = drawn(2, 3000, 5, 3)
    found = summed(x, y, centred=centred, parts=1).of(0)
    tried = weights + 0.1
    bias = np.full((2, 3), 0.5 * centred)
    wanted = np.square(x @ tried.transpose(0, 2, 1) + bias[:, None] - y.astype(np.float64)).sum((0, 2)).mean()
    assert found.error(tried, bias) == pytest.approx(wanted, rel=2e-3)


def test_what_is_fitted_is_a_ridge_regression_towards_the_weights_now() -> None:
    """On the rows themselves: with a row for each weight that holds it where it is."""
    x, y, weights, bias = drawn(1, 400, 6, 2, noise=3.0)
    now = Linear(weights + np.random.default_rng(0).normal(size=weights.shape), bias)
    found = fitted(summed(x, y), now)
    assert found is not None
    x0, y0 = (a[0].astype(np.float64) - a[0].mean(0, dtype=np.float64) for a in (x, y))
    power = np.square(x0).sum(0).mean()
    solutions = []
    for ridge in RIDGES:
        held = np.sqrt(ridge * power) * np.eye(6)
        rows, wanted = np.vstack([x0, held]), np.vstack([y0, held @ now.weights[0].T])
        solutions.append(np.linalg.lstsq(rows, wanted, rcond=None)[0].T)
    assert min(np.abs(found.weights[0] - s).max() for s in solutions) < 1e-2
    assert np.allclose(found.bias[0], y[0].mean(0) - found.weights[0] @ x[0].mean(0), atol=1e-2)


def test_the_true_weights_are_found() -> None:
    x, y, weights, bias = drawn(2, 4000, 5, 3, noise=1e-3)
    found = fitted(summed(x, y), Linear(np.zeros_like(weights), np.zeros_like(bias)))
    assert found is not None
    assert np.allclose(found.weights, weights, atol=1e-2)


def test_weights_that_are_right_stay() -> None:
    x, _, weights, bias = drawn(1, 2000, 5, 3)
    y = x @ weights.transpose(0, 2, 1).astype(np.float32) + bias[:, None].astype(np.float32)
    assert fitted(summed(x, y), Linear(weights, bias)) is None


def test_what_does_not_help_on_other_rows_is_not_done() -> None:
    """y has nothing to do with x beyond its mean, so only the bias moves."""
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(1, 60, n)).astype(np.float32) for n in (40, 3))
    found = fitted(summed(x, y + 5), Linear(np.zeros((1, 3, 40)), np.zeros((1, 3))))
    assert found is not None
    assert np.abs(found.weights).max() < 0.05
    assert np.allclose(found.bias, 5, atol=0.5)


def test_without_bias_the_bias_stays() -> None:
    x, y, weights, _ = drawn(1, 2000, 5, 3, noise=0.01)
    y = (x @ weights.transpose(0, 2, 1)).astype(np.float32)
    found = fitted(summed(x, y, centred=False), Linear(weights * 0.5, np.zeros((1, 3))))
    assert found is not None
    assert (found.bias == 0).all()
    assert np.allclose(found.weights, weights, atol=1e-2)


def test_features_that_are_always_zero_do_no_harm() -> None:
    x, y, weights, bias = drawn(1, 2000, 5, 3)
    x[:, :, 2] = 0
    found = fitted(summed(x, y), Linear(weights * 0, bias))
    assert found is not None
    assert np.isfinite(found.weights).all()
    assert np.abs(found.weights[0, :, 2]).max() < 1e-6
