from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compressor.errors import InputError
from compressor.score import metric

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]], np.float32)


def values(name: str, outputs: dict[str, Any], against: Any) -> list[float]:
    return list(metric(name).of(outputs, against))  # type: ignore[arg-type]


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
        ("top1", {"y": SCORES}, None, "need labels that are classes"),
        ("top1", {"y": SCORES}, np.array([0.5, 1, 2]), "need labels that are classes"),
        ("top1", {"y": SCORES}, np.array([0, 1, 3]), "no output scores the classes 0 to 3"),
        ("top5", {"y": SCORES}, np.array([0, 1, 2]), "no output scores"),
        ("agreement", {"y": SCORES[0]}, {"y": SCORES[0]}, "use cosine"),
        ("cosine", {"y": np.array([1])}, {"y": np.array([1])}, "floating-point"),
        ("mae", {"y": SCORES}, np.zeros(3), "1 values a sample"),
        ("mae", {"y": SCORES}, None, "needs labels"),
        ("mae", {"y": SCORES}, np.array(["a", "b", "c"]), "needs labels that are numbers"),
        ("top5", {"class": np.array([0, 1, 2])}, np.array([0, 1, 2]), "no output scores"),
        ("top1", {"ids": np.zeros((3, 2), int)}, np.array([0, 1, 2]), "no output scores"),
        ("top1", {"y": np.zeros(3)}, np.array([0, 1, 2]), "no output scores"),
    ],
)
def test_a_metric_says_what_it_lacks(name: str, outputs: Any, against: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metric(name).of(outputs, against)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    source = """
limit = 3
def share(outputs, labels): return (outputs["y"].argmax(1) == labels).mean()
def each(outputs, labels): return outputs["y"][:, 0]
def odd(outputs, labels): return [1, 2]
def broken(outputs, labels): return outputs["z"]
def wordy(outputs, labels): raise ValueError("two\\nlines")
def leaves(outputs, labels): raise SystemExit(3)
"""
    (tmp_path / "own_metric.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    return "own_metric"


def test_a_function_gives_one_number_or_one_a_sample(module: str) -> None:
    assert metric(f"{module}:share").of({"y": SCORES}, np.array([1, 0, 2])) == pytest.approx(2 / 3)
    np.testing.assert_array_equal(metric(f"{module}:each").of({"y": SCORES}, None), SCORES[:, 0].astype(np.float64))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("odd", r"gave shape \(2,\), expected one number or 3"),
        ("broken", "KeyError: 'z'"),
        ("wordy", "ValueError: two lines$"),
        ("leaves", "SystemExit: 3$"),
    ],
)
def test_a_function_that_fails_is_named(module: str, function: str, message: str) -> None:
    with pytest.raises(InputError, match=f"own_metric:{function} .*{message}"):
        metric(f"{module}:{function}").of({"y": SCORES}, None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("top2", "expected one of top1, top5"),
        ("top1:", "expected one of"),
        ("no_such_package.x:f", "cannot import"),
        ("own_metric:absent", "cannot import"),
        ("own_metric:limit", "expected a function"),
    ],
)
@pytest.mark.usefixtures("module")
def test_a_name_that_leads_nowhere_is_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metric(name)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import sys\nsys.exit('done')", "SystemExit: done"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def (", "SyntaxError: "),
        ("raise RuntimeError('no model')", "RuntimeError: no model"),
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
    ],
)
def test_a_module_that_fails_on_import_is_refused_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, found: str
) -> None:
    (tmp_path / "failing_metric.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=rf"cannot import 'failing_metric:f' \({found}.*looked for beside the recipe"):
        metric("failing_metric:f")
