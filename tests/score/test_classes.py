from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

from compressor.errors import InputError
from compressor.score import metric
from compressor.score.truth import Truth

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]], np.float32)


def truth(against: Any) -> Truth:
    """Hold outputs against the original's, if they are a mapping, or else against labels."""
    return Truth(reference=against) if isinstance(against, dict) else Truth(against)


def values(name: str, outputs: dict[str, Any], against: Any) -> list[float]:
    return list(metric(name).of(outputs, truth(against)))  # type: ignore[arg-type]


def test_top1_is_argmax_with_ties_to_the_lower_class() -> None:
    assert values("top1", {"y": SCORES}, np.array([1, 2, 0])) == [1, 0, 1]
    assert values("top1", {"y": SCORES}, np.array([1, 0, 1])) == [1, 1, 0]


def test_top5_counts_the_five_best() -> None:
    scores = np.random.default_rng(0).standard_normal((50, 12))
    labels = np.random.default_rng(1).integers(0, 12, 50)
    expected = [label in row.argsort()[::-1][:5] for row, label in zip(scores, labels, strict=True)]
    assert values("top5", {"y": scores}, labels) == expected


def test_the_output_that_scores_all_classes_is_the_one_scored() -> None:
    outputs = {"count": np.ones((3, 8), np.int64), "few": SCORES[:, :2], "map": np.zeros((3, 8, 8)), "y": SCORES}
    assert values("top1", outputs, np.array([1, 2, 0])) == [1, 0, 1]


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_row_that_is_not_finite_is_wrong_even_where_argmax_would_hit(broken: float) -> None:
    scores = SCORES.copy()
    scores[0, 1] = broken
    assert scores[0].argmax() == 1
    assert values("top1", {"y": scores}, np.array([1, 0, 0])) == [0, 1, 1]
    assert values("agreement", {"y": scores}, {"y": SCORES}) == [0, 1, 1]
    assert values("agreement", {"y": scores}, {"y": scores}) == [0, 1, 1]
    assert values("agreement", {"y": SCORES}, {"y": scores}) == [0, 1, 1]


def test_minus_infinity_only_masks_a_class() -> None:
    scores = SCORES.copy()
    scores[:, 2] = -np.inf
    assert values("top1", {"y": scores}, np.array([1, 0, 0])) == [1, 1, 1]


def test_agreement_compares_the_best_class_with_the_reference() -> None:
    assert values("agreement", {"y": SCORES[::-1]}, {"y": SCORES}) == [0, 1, 0]


def test_agreement_without_class_scores_asks_that_every_whole_number_is_the_same() -> None:
    then = {"ids": np.array([[1, 2], [3, 4], [5, 6]]), "mask": np.array([True, False, True])}
    now = {"ids": np.array([[1, 2], [3, 9], [5, 6]]), "mask": np.array([True, False, False])}
    assert values("agreement", now, then) == [1, 0, 0]
    assert values("agreement", then, then) == [1, 1, 1]
    assert values("agreement", {"ids": now["ids"]}, {"ids": then["ids"]}) == [1, 0, 1]


def test_agreement_on_whole_numbers_does_not_look_at_floats_beside_them() -> None:
    then, now = ({"ids": np.array([1, 2]), "y": np.array([[value], [value]])} for value in (0.5, 0.75))
    assert values("agreement", now, then) == [1, 1]


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_top1_of_an_output_that_is_the_class_itself_is_equality(shape: tuple[int, ...], dtype: str) -> None:
    outputs = {"count": np.ones((3, 2), np.int64), "class": np.array([4, 1, 2], dtype).reshape(shape)}
    assert values("top1", outputs, np.array([4, 0, 2])) == [1, 0, 1]


def test_scores_of_the_classes_come_before_an_index_of_the_class() -> None:
    outputs = {"class": np.array([0, 0, 0]), "y": SCORES}
    assert values("top1", outputs, np.array([1, 0, 0])) == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "outputs", "against", "message"),
    [
        ("top1", {"y": SCORES}, None, "need labels that are classes"),
        ("top1", {"y": SCORES}, np.array([0.5, 1, 2]), "need labels that are classes"),
        ("top1", {"y": SCORES}, np.array([0, 1, 3]), "no output scores the classes 0 to 3"),
        ("top5", {"y": SCORES}, np.array([0, 1, 2]), "no output scores"),
        ("agreement", {"y": SCORES[0]}, {"y": SCORES[0]}, "use cosine"),
        ("top5", {"class": np.array([0, 1, 2])}, np.array([0, 1, 2]), "no output scores"),
        ("top1", {"ids": np.zeros((3, 2), int)}, np.array([0, 1, 2]), "no output scores"),
        ("top1", {"y": np.zeros(3)}, np.array([0, 1, 2]), "no output scores"),
        ("f1", {"y": SCORES}, None, "f1 needs labels that are classes"),
        ("f1", {"y": SCORES}, np.array([0, 1, 3]), "no output scores the classes 0 to 3"),
        ("auc", {"y": SCORES}, np.array([0.0, 1, 0]), "auc needs labels that are classes"),
        ("auc", {"y": SCORES}, np.array([1, 1, 1]), "at least two classes, all are 1"),
        ("auc", {"y": np.zeros((3, 5, 5))}, np.array([0, 1, 1]), "no output scores the classes 0 to 1"),
    ],
)
def test_a_metric_says_what_it_lacks(name: str, outputs: Any, against: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metric(name).of(outputs, truth(against))


def whole(name: str, outputs: dict[str, Any], against: Any) -> float:
    chosen = metric(name)
    return chosen.over(chosen.of(outputs, truth(against)))  # type: ignore[arg-type]


def test_f1_is_the_mean_over_the_classes_of_the_labels() -> None:
    labels, found = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 3, 3])
    expected = (2 * 2 / (3 + 2) + 2 * 1 / (2 + 2) + 0) / 3  # 2 hits / (labels + found); class 3 stands in no label
    assert whole("f1", {"class": found}, labels) == pytest.approx(expected)
    assert whole("f1", {"y": np.eye(4)[found]}, labels) == pytest.approx(expected)


@pytest.mark.parametrize("classes", [1, 2, 7, 300])
def test_f1_is_that_of_scikit_learn(classes: int) -> None:
    generator = np.random.default_rng(classes)
    labels = generator.integers(0, classes, 200)
    found = np.where(generator.random(200) < 0.7, labels, generator.integers(-1, classes + 2, 200))
    expected = f1_score(labels, found, labels=np.unique(labels), average="macro", zero_division=0)
    assert whole("f1", {"class": found}, labels) == pytest.approx(expected, abs=1e-12)


def test_a_row_that_is_not_finite_names_no_class() -> None:
    labels = np.array([0, 0, 1, 1])
    scores = np.eye(2)[labels]
    scores[0, 0] = np.nan
    assert whole("f1", {"y": scores}, labels) == pytest.approx((2 * 1 / (2 + 1) + 1) / 2)


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_auc_of_one_score_counts_the_pairs_in_order(shape: tuple[int, ...]) -> None:
    labels, scores = np.array([0, 1, 0, 1, 1]), np.array([0.1, 0.4, 0.4, 3.0, -1.0])
    # of the 6 pairs: 0.4 beats 0.1 and ties 0.4, 3.0 beats both, -1.0 none
    assert whole("auc", {"y": scores.reshape(shape)}, labels) == pytest.approx(3.5 / 6)


def test_auc_of_two_scores_is_that_of_their_difference() -> None:
    labels = np.array([0, 1, 0, 1])
    logits = np.array([[0.0, 1.0], [9.0, 11.0], [3.0, 2.0], [1.0, 1.5]])  # 1, 2, -1, 0.5: only the last falls behind
    assert whole("auc", {"y": logits}, labels) == pytest.approx(3 / 4)


def test_auc_of_more_classes_is_the_mean_of_each_against_the_rest() -> None:
    labels = np.array([0, 1, 2, 0, 1, 2])
    probabilities = np.random.default_rng(0).dirichlet([1, 1, 1, 1], 6)  # nothing is of class 3
    pairs = [np.mean(probabilities[labels == c, c][:, None] > probabilities[labels != c, c][None]) for c in range(3)]
    assert whole("auc", {"y": probabilities}, labels) == pytest.approx(np.mean(pairs))
    assert whole("auc", {"y": np.log(probabilities) - 7}, labels) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("classes", [2, 3])
def test_auc_of_a_score_that_is_not_finite_is_nan(bad: float, classes: int) -> None:
    scores = np.eye(classes)[[0, 1, 1, classes - 1]]
    scores[2, 1] = bad
    assert np.isnan(whole("auc", {"y": scores}, np.array([0, 1, 0, classes - 1])))


def test_auc_takes_minus_infinity_as_the_lowest_score() -> None:
    assert whole("auc", {"y": np.array([-np.inf, 1.0, 2.0])}, np.array([0, 0, 1])) == 1


def test_auc_of_two_scores_that_are_both_masked_is_nan() -> None:
    assert np.isnan(whole("auc", {"y": np.array([[-np.inf, -np.inf], [0, 1], [1, 0]])}, np.array([0, 1, 0])))
