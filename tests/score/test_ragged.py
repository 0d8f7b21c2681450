"""Outputs that are filled up, because samples differ in shape, are worth what each sample's own output is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from compressor.errors import InputError
from compressor.records import Array
from compressor.score import Wanted, choose, errors, mute, score
from compressor.score.ragged import own

RNG = np.random.default_rng(0)
LENGTHS = [5, 9, 7, 3] * 5 + [20]
SHAPES = [(length,) for length in LENGTHS]
LABELS = RNG.integers(0, 3, len(LENGTHS))


def negative() -> list[Array]:
    """Give rows whose largest value is below what they are filled up with."""
    return [-1 - RNG.random(length) for length in LENGTHS]


def filled(rows: list[Array]) -> Array:
    return np.array([np.pad(row, (0, max(LENGTHS) - len(row))) for row in rows])


BEFORE, NOW = negative(), negative()


def scored(metric: str, labels: Array | None = None) -> float:
    before, now = ({"y": filled(rows)} for rows in (BEFORE, NOW))
    return score(Wanted(metric, seed=0), before, now, labels, {"y"}).value


def test_a_cosine_is_that_of_each_samples_own_output() -> None:
    cosines = [a @ b / math.sqrt((a @ a) * (b @ b)) for a, b in zip(BEFORE, NOW, strict=True)]
    assert scored("cosine") == pytest.approx(np.mean(cosines))


def test_errors_are_those_of_each_samples_own_output() -> None:
    pairs = list(zip(BEFORE, NOW, strict=True))
    assert scored("sqnr") == pytest.approx(np.mean([10 * math.log10(a @ a / ((a - b) @ (a - b))) for a, b in pairs]))
    found = errors({"y": filled(BEFORE)}, {"y": filled(NOW)})["y"]
    assert found.mean == pytest.approx(np.mean([np.linalg.norm(a - b) / np.linalg.norm(a) for a, b in pairs]))
    assert found.max_abs == max(np.abs(a - b).max() for a, b in pairs)


@pytest.mark.parametrize("metric", ["top1", "top5", "f1", "auc", "agreement", "mae", "spearman"])
def test_a_metric_that_would_count_what_fills_up_is_refused(metric: str) -> None:
    with pytest.raises(InputError, match=rf"^data\.metric: {metric} needs .* 'y' differs from sample to sample; use"):
        scored(metric, LABELS)


def test_classes_are_taken_from_an_output_of_one_shape_beside() -> None:
    classes = np.eye(3)[LABELS]
    before, now = {"y": filled(BEFORE), "c": classes}, {"y": filled(NOW), "c": classes[::-1]}
    same = (LABELS[::-1] == LABELS).mean()
    assert score(Wanted("agreement", 0), before, now, None, {"y"}).value == pytest.approx(same)
    assert score(Wanted("top1", 0), before, now, LABELS, {"y"}).value == pytest.approx(same)


def test_whole_numbers_agree_where_all_of_a_sample_are_equal() -> None:
    before = filled([np.arange(length) for length in LENGTHS])
    now = before.copy()
    now[0, 4] += 1
    found = score(Wanted("agreement", 0), {"ids": before}, {"ids": now}, None, {"ids"})
    assert found.value == pytest.approx(1 - 1 / len(LENGTHS))


@pytest.mark.parametrize(
    ("uneven", "labels", "chosen"),
    [
        ((), None, "agreement"),
        (("y",), None, "cosine"),
        (("y",), LABELS, "cosine"),
        ((), LABELS, "top1"),
    ],
)
def test_no_class_is_read_by_default_where_shapes_differ(
    uneven: tuple[str, ...], labels: Array | None, chosen: str
) -> None:
    assert choose({"y": np.zeros((1, 9))}, labels, None, uneven) == chosen


def test_an_index_that_differs_in_shape_is_no_class_but_must_be_equal() -> None:
    assert choose({"ids": np.zeros((1, 1), int)}, LABELS, None, ("ids",)) == "agreement"


def test_what_fills_up_makes_no_output_tell_samples_apart() -> None:
    ones = [np.ones(length) for length in LENGTHS]
    assert mute({"y": filled(ones)}, {"y": SHAPES})
    ramps = [np.arange(1.0, length + 1) for length in LENGTHS]
    assert mute({"y": filled(ramps)}, {"y": SHAPES})
    assert not mute({"y": filled(BEFORE)}, {"y": SHAPES})


def test_rows_are_cut_to_their_own_shape() -> None:
    for row, wanted in zip(own(filled(BEFORE), SHAPES), BEFORE, strict=True):
        np.testing.assert_array_equal(row, wanted)
