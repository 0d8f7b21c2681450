from typing import Any

import numpy as np
import pytest

from compressor.errors import InputError
from compressor.score import metric
from compressor.score.truth import Truth

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]], np.float32)


def truth(against: Any) -> Truth:
    """Hold outputs against the original's, if they are a mapping, or else against labels."""
    return Truth(reference=against) if isinstance(against, dict) else Truth(against)


def values(name: str, outputs: dict[str, Any], against: Any) -> list[float]:
    return list(metric(name).of(outputs, truth(against)))  # type: ignore[arg-type]


def test_cosine_is_the_mean_over_floating_outputs() -> None:
    then = {"a": np.array([[1.0, 0], [0, 2]]), "b": np.array([1.0, 1]), "ids": np.array([[7], [8]])}
    now = {"a": np.array([[1.0, 1], [0, 3]]), "b": np.array([2.0, -1]), "ids": np.array([[1], [1]])}
    np.testing.assert_allclose(values("cosine", now, then), [(0.5**0.5 + 1) / 2, 0])


def test_cosine_of_zero_and_of_nan_is_defined() -> None:
    now = {"a": np.array([[0.0, 0], [0, 0], [np.nan, 1]])}
    then = {"a": np.array([[0.0, 0], [1, 0], [1, 1]])}
    assert values("cosine", now, then) == [1, 0, 0]


def test_mae_is_per_sample_and_lower_is_better() -> None:
    outputs = {"index": np.array([5, 5]), "y": np.array([[1.0], [4.0]])}
    assert values("mae", outputs, np.array([1.5, 2.0])) == [0.5, 2]
    assert metric("mae").lower_is_better


@pytest.mark.parametrize(
    ("name", "outputs", "against", "message"),
    [
        ("cosine", {"y": np.array([1])}, {"y": np.array([1])}, "floating-point"),
        ("mae", {"y": SCORES}, np.zeros(3), "1 values a sample"),
        ("mae", {"y": SCORES}, None, "needs labels"),
        ("mae", {"y": SCORES}, np.array(["a", "b", "c"]), "needs labels that are numbers"),
        ("sqnr", {"y": np.array([1])}, {"y": np.array([1])}, "sqnr needs an output of floating-point"),
        ("spearman", {"y": np.zeros(3)}, None, "spearman needs labels that are numbers"),
        ("spearman", {"y": np.zeros((3, 2))}, np.eye(3, 2), "one label a sample, found 2"),
        ("spearman", {"y": np.zeros(3)}, np.ones(3), "needs labels that differ, all are 1"),
        ("spearman", {"y": SCORES}, np.arange(3), "1 values a sample"),
    ],
)
def test_a_metric_says_what_it_lacks(name: str, outputs: Any, against: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metric(name).of(outputs, truth(against))


def whole(name: str, outputs: dict[str, Any], against: Any) -> float:
    chosen = metric(name)
    return chosen.over(chosen.of(outputs, truth(against)))  # type: ignore[arg-type]


def test_sqnr_is_the_mean_over_outputs_of_decibels() -> None:
    then = {"a": np.array([[3.0, 4.0], [1.0, 0.0]]), "b": np.array([10.0, 10.0])}
    now = {"a": np.array([[3.5, 4.0], [1.0, 0.1]]), "b": np.array([11.0, 10.0])}
    assert values("sqnr", now, then) == pytest.approx([(20 + 20) / 2, (20 + 200) / 2])
    assert whole("sqnr", now, then) == pytest.approx((20 + 110) / 2)


def test_sqnr_of_an_output_that_broke_is_the_least() -> None:
    then = {"y": np.array([[1.0, 2], [0, 0], [0, 0], [-np.inf, 1]])}
    now = {"y": np.array([[np.nan, 2], [0, 0], [1, 0], [-np.inf, 1]])}
    assert values("sqnr", now, then) == [-200, 200, -200, 200]


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_spearman_is_the_correlation_of_ranks(shape: tuple[int, ...]) -> None:
    outputs, labels = np.array([0.1, 5, 3, 100, -2]), np.array([1, 3, 2, 4, 5])
    differences = np.array([2, 4, 3, 5, 1]) - labels
    expected = 1 - 6 * (differences**2).sum() / (5 * 24)
    assert whole("spearman", {"y": outputs.reshape(shape)}, labels.reshape(shape)) == pytest.approx(expected)


def test_spearman_gives_equal_values_their_mean_rank() -> None:
    ranks, labels = np.array([1.5, 1.5, 3, 4]), np.array([1.0, 2, 3, 4])
    expected = np.corrcoef(ranks, labels)[0, 1]
    assert whole("spearman", {"y": np.array([7.0, 7, 8, 9])}, labels) == pytest.approx(expected)


@pytest.mark.parametrize(("outputs", "expected"), [([1, 1, 1], 0), ([1, np.nan, 2], np.nan), ([1, np.inf, 2], np.nan)])
def test_spearman_of_an_output_that_ranks_nothing(outputs: list[float], expected: float) -> None:
    found = whole("spearman", {"y": np.array(outputs, np.float32)}, np.arange(3))
    np.testing.assert_equal(found, expected)


def test_cosine_of_what_did_not_change_is_just_one() -> None:
    y = np.random.default_rng(0).standard_normal((200, 7)).astype(np.float32)
    assert (np.asarray(metric("cosine").of({"y": y}, Truth(reference={"y": y}))) == 1).all()
