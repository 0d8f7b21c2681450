from typing import Any

import numpy as np
import pytest

from compressor.errors import InputError
from compressor.records import Array
from compressor.score import Wanted, metric, score
from compressor.score.truth import Truth

THRESHOLDS = np.linspace(0.5, 0.95, 10)
BOX, FAR, PADDING = [0.0, 0, 10, 10], [50.0, 50, 60, 60], [-1.0, 0, 0, 0, 0]


def one_output(images: list[list[list[float]]]) -> dict[str, Array]:
    return {"found": np.array(images, np.float32)}


def precision(outputs: dict[str, Array], labels: Any) -> float:
    chosen = metric("map")
    return chosen.over(chosen.of(outputs, Truth(np.array(labels))))  # type: ignore[arg-type]


def test_boxes_that_lie_exactly_have_precision_1() -> None:
    labels = [[[0, *BOX], [1, *FAR]], [[1, *BOX], PADDING]]
    found = [[[*BOX, 0.9, 0], [*FAR, 0.8, 1]], [[*BOX, 0.7, 1], [*FAR, 0.0, -1]]]
    assert precision(one_output(found), labels) == pytest.approx(1)


def test_a_box_that_overlaps_by_so_much_counts_at_the_thresholds_below() -> None:
    overlap = 10 * 7.3 / 100  # 0 to 7.3 of 10: at 5 of the 10 thresholds
    assert (overlap >= THRESHOLDS).sum() == 5
    assert precision(one_output([[[0, 0, 10, 7.3, 0.9, 0]]]), [[[0, *BOX]]]) == pytest.approx(0.5)


def test_a_false_box_that_scores_higher_halves_the_precision() -> None:
    found = [[[*FAR, 0.9, 0], [*BOX, 0.8, 0]]]
    assert precision(one_output(found), [[[0, *BOX]]]) == pytest.approx(1 / 2)
    found[0][0][4] = 0.7  # now it comes after all that is to be found
    assert precision(one_output(found), [[[0, *BOX]]]) == pytest.approx(1)


def test_half_of_the_boxes_found_is_precision_1_up_to_half_the_recall() -> None:
    found = [[[*BOX, 0.9, 0]]]
    assert precision(one_output(found), [[[0, *BOX], [0, *FAR]]]) == pytest.approx(51 / 101)  # recalls 0, 0.01 ... 0.5


def test_precision_is_the_mean_over_the_classes_of_the_labels() -> None:
    labels = [[[0, *BOX], [7, *FAR]]]
    found = [[[*BOX, 0.9, 0], [*FAR, 0.8, 3]]]  # class 3 stands in no label
    assert precision(one_output(found), labels) == pytest.approx(1 / 2)


@pytest.mark.parametrize(("name", "dtype"), [("labels", np.int64), ("detection_classes", np.float32), ("3", np.int32)])
def test_boxes_scores_and_classes_may_be_three_outputs(name: str, dtype: type) -> None:
    outputs = {
        name: np.array([[1, 0]], dtype),
        "boxes": np.array([[BOX, FAR]], np.float32),
        "scores": np.array([[0.9, 0.8]], np.float32),
    }
    assert precision(outputs, [[[1, *BOX], [0, *FAR]]]) == pytest.approx(1)
    assert precision(outputs, [[[0, *BOX], [1, *FAR]]]) == 0


def test_a_box_that_is_not_finite_is_none() -> None:
    found = [[[np.nan, 0, 10, 10, 0.9, 0], [*FAR, np.nan, 0], [*BOX, 0.5, 0]]]
    assert precision(one_output(found), [[[0, *BOX]]]) == pytest.approx(1)
    assert precision(one_output([[[np.nan] * 6]]), [[[0, *BOX]]]) == 0


def test_images_drawn_anew_score_as_if_they_were_evaluated_anew() -> None:
    generator = np.random.default_rng(0)
    corners = generator.uniform(0, 50, (12, 3, 2))
    boxes = np.concatenate([corners, corners + generator.uniform(5, 20, (12, 3, 2))], axis=2)
    classes = generator.integers(0, 3, (12, 3, 1))
    labels = np.concatenate([classes, boxes], axis=2)
    moved = boxes + generator.normal(0, 1, boxes.shape)
    found = np.concatenate([moved, generator.random((12, 3, 1)), classes], axis=2)
    chosen, index = metric("map"), generator.integers(0, 12, 12)
    rows = np.asarray(chosen.of({"y": found}, Truth(labels)))
    assert chosen.over(rows[index]) == pytest.approx(precision({"y": found[index]}, labels[index]))
    assert 0 < chosen.over(rows) < 1


def test_nothing_is_printed_and_the_drop_has_an_interval(capsys: pytest.CaptureFixture[str]) -> None:
    labels = np.array([[[0, *BOX]]] * 30)
    before, now = (one_output([[[*BOX, 0.9, 0]]] * (30 - lost) + [[[*FAR, 0.1, 0]]] * lost) for lost in (0, 15))
    result = score(Wanted("map", 0), before, now, labels)
    assert result.drop == pytest.approx(1 - 51 / 101)
    assert 0 < result.drop_low < result.drop < result.drop_high < 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("outputs", "labels", "message"),
    [
        ({"y": np.zeros((1, 2, 6))}, None, r"labels of shape \[n, boxes, 5\]"),
        ({"y": np.zeros((1, 2, 6))}, np.zeros((1, 2, 4)), r"labels of shape \[n, boxes, 5\]"),
        ({"y": np.zeros((1, 2, 6))}, np.full((1, 2, 5), -1), "all are padding"),
        ({"y": np.zeros((1, 2, 7))}, np.zeros((1, 2, 5)), r"boxes \[n, k, 4\]"),
        ({"y": np.zeros((1, 2, 4)), "a": np.zeros((1, 2))}, np.zeros((1, 2, 5)), r"boxes \[n, k, 4\]"),
    ],
)
def test_map_says_what_it_lacks(outputs: dict[str, Array], labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metric("map").of(outputs, Truth(labels))
