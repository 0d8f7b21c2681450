from pathlib import Path

import numpy as np
import pytest

from compressor.errors import RungError
from compressor.records import Array, OutputError
from compressor.score import difference, errors


def error(before: Array, now: Array) -> OutputError:
    return errors({"y": before}, {"y": now})["y"]


def test_the_error_of_an_output_is_relative_for_each_sample() -> None:
    generator = np.random.default_rng(0)
    before = generator.normal(size=(40, 3, 5)).astype(np.float32)
    now = (before + generator.normal(size=before.shape) * 0.01).astype(np.float32)
    gap = now.astype(float) - before
    relative = [np.linalg.norm(g) / np.linalg.norm(b.astype(float)) for g, b in zip(gap, before, strict=True)]
    found = error(before, now)
    assert found.n == 40
    assert found.mean == pytest.approx(np.mean(relative))
    assert found.p95 == pytest.approx(sorted(relative)[38])  # at or above 95 % of the way from the 1st to the 40th
    assert found.max_abs == pytest.approx(np.abs(gap).max())
    assert found.sqnr_db == pytest.approx(10 * np.log10((before.astype(float) ** 2).sum() / (gap**2).sum()))


def test_equal_outputs_have_no_error() -> None:
    before = np.ones((4, 2), np.float16)
    assert error(before, before) == OutputError(4, 200, 0, 0, 0)


def test_only_floating_point_outputs_have_an_error() -> None:
    both = {"ids": np.arange(3), "mask": np.ones(3, bool), "y": np.ones(3)}
    assert list(errors(both, {**both, "new": np.ones(3)})) == ["y"]


@pytest.mark.parametrize("now", [{}, {"y": np.ones((3, 2))}])
def test_outputs_that_are_missing_or_changed_are_refused(now: dict[str, Array]) -> None:
    with pytest.raises(RungError, match="output 'y' has not the shape"):
        errors({"y": np.ones(3)}, now)


def test_a_sample_that_was_zero_counts_as_unchanged_or_as_wrong() -> None:
    before, now = np.zeros((2, 3)), np.array([[0.0, 0, 0], [0, 1e-3, 0]])
    assert error(before, now) == OutputError(2, -200, 0.5, 1, 1e-3)


def test_the_same_infinity_is_no_difference() -> None:
    masked = np.array([[-np.inf, 3.0, 4.0], [np.nan, 3, 4], [np.inf, 3, 4]])
    assert error(masked, masked) == OutputError(3, 200, 0, 0, 0)
    found = error(masked, masked + np.array([0, 0, 1]))
    assert (found.mean, found.max_abs) == pytest.approx((1 / 5, 1))


@pytest.mark.parametrize(("was", "found"), [(1.0, np.nan), (np.nan, 1.0), (1.0, np.inf), (np.inf, -np.inf)])
def test_a_value_that_is_finite_on_one_side_only_is_infinitely_wrong(was: float, found: float) -> None:
    before, now = np.ones((40, 2)), np.ones((40, 2))
    before[3, 0], now[3, 0] = was, found
    assert error(before, now) == OutputError(40, -200, np.inf, 0, np.inf)


def test_outputs_on_disk_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    sides = []
    for name in ("before", "now"):
        np.save(tmp_path / f"{name}.npy", generator.normal(size=(101, 7)))
        sides.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    whole = error(*map(np.array, sides))
    read: list[int] = []
    parts = difference._powers
    monkeypatch.setattr(difference, "_ELEMENTS", 70)
    monkeypatch.setattr(difference, "_powers", lambda a, b: read.append(a.size) or parts(a, b))
    assert error(*sides) == whole
    assert max(read) == 70
    assert sum(read) == 707
