from __future__ import annotations

import numpy as np
import pytest

from compressor.records import Array
from compressor.stages.quantize.ranges import ENDLESS, error, ranges, usable
from compressor.stages.quantize.statistics import Seen, Statistics


def seen(values: Array, held_out: Array | None = None, unclean: int = 0) -> Seen:
    values = values.astype(np.float32)
    low, high = (-np.inf, np.inf) if unclean else (float(values.min()), float(values.max()))
    return Seen(low, high, unclean, values, values if held_out is None else held_out.astype(np.float32))


def fitted(one: Seen, method: str, *, symmetric: bool = False) -> tuple[tuple[float, float], bool]:
    """Give the range, and whether it is narrower than what was seen."""
    found = ranges(Statistics({"t": one}, {}), method, symmetric=symmetric)  # type: ignore[arg-type]
    return found.ranges["t"], "t" in found.clipped


def normal(n: int = 30_000, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=n)


def table(low: float, high: float) -> Array:
    """The 256 values that unsigned 8 bits can hold over a range, its zero point rounded."""
    scale = (high - low) / 255
    return np.asarray((np.arange(256) - np.rint(-low / scale)) * scale)


@pytest.mark.parametrize(("low", "high"), [(0, 6), (-1.3, 2), (-3, 0)])
def test_the_error_is_that_to_the_nearest_of_256_values(low: float, high: float) -> None:
    values = normal(2000).astype(np.float32)
    nearest = np.abs(values[:, None] - table(low, high)).min(axis=1)
    assert error(values, low, high) == pytest.approx(np.square(nearest).mean(), rel=1e-4)


def test_the_symmetric_error_is_that_to_the_nearest_of_255_values_around_zero() -> None:
    values = normal(2000).astype(np.float32)
    nearest = np.abs(values[:, None] - np.arange(-127, 128) * (2 / 127)).min(axis=1)
    assert error(values, -1, 2, symmetric=True) == pytest.approx(np.square(nearest).mean(), rel=1e-4)


def test_minmax_covers_everything_and_zero() -> None:
    assert fitted(seen(np.array([2.0, 5.0])), "minmax") == ((0, 5), False)
    assert fitted(seen(np.array([-2.0, -1.0])), "minmax") == ((-2, 0), False)


def test_percentile_leaves_out_the_last_values_of_either_end() -> None:
    values = np.concatenate([np.linspace(-1, 1, 32_766), [-1000, 1000]])
    (low, high), clipped = fitted(seen(values), "percentile")
    assert clipped
    assert -1 <= low < -0.99
    assert 0.99 < high <= 1


def test_mse_is_about_as_good_as_any_range() -> None:
    values = np.random.default_rng(0).laplace(size=30_000)
    one = seen(values)
    (low, high), clipped = fitted(one, "mse")
    best = min(error(one.values, a, b) for a in np.linspace(one.low, -1, 30) for b in np.linspace(1, one.high, 30))
    assert clipped
    assert error(one.values, low, high) < 1.03 * best


def test_mse_keeps_the_extremes_where_clipping_costs_more() -> None:
    values = np.random.default_rng(0).uniform(-1, 1, 30_000)
    assert fitted(seen(values), "mse")[1] is False


def test_symmetric_mse_stays_within_what_was_seen() -> None:
    values = np.abs(np.random.default_rng(0).laplace(size=30_000))
    (low, high), clipped = fitted(seen(values), "mse", symmetric=True)
    assert (low, clipped) == (0, True)
    assert high < values.max()


def test_tensor_by_tensor_clips_an_outlier_that_is_not_seen_again_and_keeps_one_that_is() -> None:
    spoilt = np.concatenate([normal(), [1000.0]])
    (_, high), clipped = fitted(seen(spoilt, held_out=normal(seed=1)), "tensor")
    assert clipped
    assert high < 200
    again = np.concatenate([normal(seed=1), np.full(300, 1000.0)])
    assert fitted(seen(spoilt, held_out=again), "tensor") == ((float(np.float32(spoilt.min())), 1000), False)


def test_tensor_by_tensor_keeps_the_extremes_for_a_small_gain() -> None:
    one = seen(normal(), held_out=normal(seed=1))
    pair = fitted(one, "mse")[0]
    assert error(one.held_out, *pair) < error(one.held_out, one.low, one.high)
    assert fitted(one, "tensor")[1] is False


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "tensor"])
def test_no_range_is_empty_or_endless(method: str) -> None:
    ones = np.ones(100)
    tensors = {
        "zero": seen(ones * 0),
        "tiny": seen(np.array([0, 1e-42])),
        "constant": seen(ones * 3),
        "negative": seen(ones * -3),
        "wide": seen(np.array([-3e38, 3e38])),
        "unclean": seen(np.array([1, np.nan, np.inf]), unclean=1),
        "unclean later": seen(normal(100), held_out=np.array([np.nan, np.inf, 1])),
        "never held out": seen(normal(100), held_out=np.empty(0)),
        "nearly always zero": seen(np.concatenate([np.zeros(30_000), [1.0]])),
    }
    for symmetric in (False, True):
        found = ranges(Statistics(tensors, {}), method, symmetric=symmetric).ranges  # type: ignore[arg-type]
        assert all(low <= 0 <= high and low < high for low, high in found.values())
        assert all(np.isfinite(pair).all() for pair in found.values())
        assert found["zero"] == found["tiny"] == (0, 1)
        assert (found["constant"], found["negative"]) == ((0, 3), (-3, 0))
        assert found["wide"] == found["unclean"] == (-ENDLESS, ENDLESS)


def test_what_codes_cannot_cover_is_left_out_and_what_was_always_zero_gets_a_range() -> None:
    given = {
        "good": (-1.0, 2.0),
        "zero": (0.0, 0.0),
        "nan": (np.nan, 1.0),
        "endless": (0.0, np.inf),
        "far": (0.0, 1e39),
    }
    assert usable({**given, "tiny": (-1e-31, 0.0)}) == {"good": (-1, 2), "zero": (0, 1), "tiny": (0, 1)}
