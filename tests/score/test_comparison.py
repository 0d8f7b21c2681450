import math
from pathlib import Path

import numpy as np
import pytest

from compressor.errors import InputError, RungError
from compressor.records import Array, Score
from compressor.score import Wanted, broken, choose, near_chance, score
from compressor.score.intervals import tango


def one_hot(classes: Array, n_classes: int = 10) -> dict[str, Array]:
    return {"y": np.eye(n_classes, dtype=np.float32)[classes]}


LABELS = np.random.default_rng(0).integers(0, 10, 1000)


def spoilt(share: float, seed: int = 1) -> Array:
    wrong = np.random.default_rng(seed).random(len(LABELS)) < share
    return np.where(wrong, (LABELS + 1) % 10, LABELS)


def test_value_drop_and_their_intervals_agree_with_the_normal_approximation() -> None:
    before, now = spoilt(0.10), np.where(spoilt(0.05, seed=2) != LABELS, (LABELS + 1) % 10, spoilt(0.10))
    result = score(Wanted("top1", 0), one_hot(before), one_hot(now), LABELS)
    right = np.stack([before == LABELS, now == LABELS]).astype(float)
    difference = right[0] - right[1]
    half = 1.96 * right[1].std() / math.sqrt(1000)
    half_drop = 1.96 * difference.std() / math.sqrt(1000)
    assert result.value == right[1].mean()
    assert result.drop == pytest.approx(difference.mean())
    assert (result.low, result.high) == pytest.approx((result.value - half, result.value + half), abs=0.003)
    assert result.drop_low == pytest.approx(difference.mean() - half_drop, abs=0.003)
    assert result.drop_high == pytest.approx(difference.mean() + half_drop, abs=0.003)
    assert half_drop < half  # pairing pays
    assert (result.n, result.reference) == (1000, False)


def test_the_interval_covers_the_truth_about_95_times_in_100() -> None:
    covered = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        labels = np.zeros(200, int)
        now = (generator.random(200) < 0.2).astype(int)
        result = score(Wanted("top1", seed), one_hot(labels, 2), one_hot(now, 2), labels)
        covered += result.drop_low <= 0.2 <= result.drop_high
    assert 52 <= covered <= 60


def test_the_same_seed_gives_the_same_interval() -> None:
    arguments = (one_hot(LABELS), one_hot(spoilt(0.1)), None)
    assert score(Wanted("cosine", 1), *arguments) == score(Wanted("cosine", 1), *arguments)
    assert score(Wanted("cosine", 1), *arguments) != score(Wanted("cosine", 2), *arguments)


def test_identical_outputs_drop_by_nothing_as_far_as_so_many_samples_can_tell() -> None:
    result = score(Wanted("top1", 0), one_hot(spoilt(0.3)), one_hot(spoilt(0.3)), LABELS)
    bound = 1.959964**2 / (1000 + 1.959964**2)  # Tango's interval where no pair changed
    assert (result.drop, result.drop_low, result.drop_high) == pytest.approx((0, -bound, bound))


def test_against_the_reference_the_drop_is_never_negative() -> None:
    result = score(Wanted("agreement", 0), one_hot(LABELS), one_hot(LABELS), None)
    assert (result.drop, result.drop_low) == (0, 0)
    assert result.drop_high == pytest.approx(1.959964**2 / (1000 + 1.959964**2))
    one_wrong = score(Wanted("agreement", 0), one_hot(LABELS), one_hot(np.r_[LABELS[0] ^ 1, LABELS[1:]]), None)
    assert 0 < one_wrong.drop_low < one_wrong.drop < one_wrong.drop_high


@pytest.mark.parametrize("name", ["agreement", "cosine"])
def test_against_the_reference_the_drop_is_what_is_missing_to_one(name: str) -> None:
    result = score(Wanted(name, 0), one_hot(LABELS), one_hot(spoilt(0.1)), None)
    assert result.reference
    assert result.value == pytest.approx((spoilt(0.1) == LABELS).mean())
    assert result.drop == pytest.approx(1 - result.value)
    assert (result.drop_low, result.drop_high) == pytest.approx((1 - result.high, 1 - result.low))


def test_outputs_of_nan_never_look_like_no_drop() -> None:
    no_numbers = {"y": np.full((1000, 10), np.nan, np.float32)}
    whole = one_hot(LABELS)
    assert score(Wanted("top1", 0), whole, no_numbers, LABELS).drop == 1
    assert score(Wanted("agreement", 0), whole, no_numbers, None).drop_low > 0.99
    assert score(Wanted("agreement", 0), no_numbers, no_numbers, None).drop == 1
    assert score(Wanted("cosine", 0), whole, no_numbers, None).drop == 1


def test_outputs_are_broken_where_a_sample_holds_nan() -> None:
    y = np.zeros((6, 2, 3), np.float32)
    y[2], y[4, 1, 1] = np.nan, np.nan
    said = broken({"ids": np.arange(6), "fine": np.zeros(6), "y": y})
    assert said == "output 'y' is NaN in 2 of 6 samples"


def test_outputs_without_nan_are_not_broken() -> None:
    assert broken({"ids": np.arange(6), "mask": np.ones(6, bool), "y": np.array([[-np.inf], [np.inf]])}) is None


def test_a_metric_of_nan_is_an_infinite_drop() -> None:
    labels = np.linspace(0, 1, 50)
    good = {"y": labels + 0.25}
    one_nan = {"y": np.where(np.arange(50) == 7, np.nan, labels)}
    result = score(Wanted("mae", 0), good, one_nan, labels)
    assert math.isnan(result.value)
    assert (result.drop, result.drop_high) == (math.inf, math.inf)
    assert result.drop_low == -1  # its error of 0.25 is all gone in resamples that miss the NaN
    infinite = {"y": np.where(np.arange(50) == 7, np.inf, labels)}
    assert score(Wanted("mae", 0), infinite, infinite, labels).drop == math.inf


@pytest.mark.parametrize(
    ("before", "now", "drop"),
    [(0.25, 1.0, 3.0), (0.001, 0.009, 8.0), (1.0, 0.75, -0.25), (0.0, 0.1, math.inf)],
)
def test_an_error_drops_by_its_growth_as_a_share_of_the_one_before(before: float, now: float, drop: float) -> None:
    labels = np.linspace(0, 1, 50)
    result = score(Wanted("mae", 0), {"y": labels + before}, {"y": labels - now}, labels)
    assert result.value == pytest.approx(now)
    # every sample errs alike, so every resample drops alike
    assert (result.drop, result.drop_low, result.drop_high) == pytest.approx((drop, drop, drop))


def test_an_error_that_stayed_may_grow_unseen_by_swapped_answers_but_not_shrink_below_nothing() -> None:
    labels = np.linspace(0, 1, 50)
    same = score(Wanted("mae", 0), {"y": labels + 0.5}, {"y": labels + 0.5}, labels)
    unseen = 1 - 0.025 ** (1 / 50)
    assert same.drop == 0
    assert 0 < same.drop_high <= unseen * 1.5 / 0.5  # answers are at most 1 apart, so errors at most 1.5
    assert same.drop_low == -same.drop_high
    none = score(Wanted("mae", 0), {"y": labels}, {"y": labels}, labels)
    assert (none.drop, none.drop_low, none.drop_high) == (0, -1, math.inf)


def test_only_an_error_drops_relative_to_the_one_before() -> None:
    labels = np.linspace(0, 1, 50)
    assert score(Wanted("mae", 0), {"y": labels + 1}, {"y": labels + 1}, labels).relative
    result = score(Wanted("top1", 0), one_hot(spoilt(0.5)), one_hot(spoilt(0.75)), LABELS)
    assert not result.relative
    assert result.drop == pytest.approx((spoilt(0.5) == LABELS).mean() - (spoilt(0.75) == LABELS).mean())


def test_a_function_of_all_samples_is_resampled_in_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def accuracy(outputs, labels): return (outputs['y'].argmax(1) == labels).mean()"
    (tmp_path / "whole_metric.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    own = score(Wanted("whole_metric:accuracy", 0), one_hot(LABELS), one_hot(spoilt(0.1)), LABELS)
    built_in = score(Wanted("top1", 0), one_hot(LABELS), one_hot(spoilt(0.1)), LABELS)
    assert (own.value, own.drop) == pytest.approx((built_in.value, built_in.drop))
    assert (own.drop_low, own.drop_high) == pytest.approx((built_in.drop_low, built_in.drop_high), abs=0.01)


def test_both_sides_are_scored_on_the_same_output() -> None:
    extra = {"new": np.zeros((1000, 10), np.float32), **one_hot(LABELS)}
    assert score(Wanted("top1", 0), one_hot(LABELS), extra, LABELS).drop == 0
    for now in ({}, {"y": np.zeros((1000, 9), np.float32)}):
        with pytest.raises(RungError, match="output 'y' has not the shape"):
            score(Wanted("top1", 0), one_hot(LABELS), now, LABELS)


def lost(classes: list[int], each: int) -> Array:
    """Give answers that miss so many samples of each of these classes."""
    answers = CLASSES.copy()
    for label in classes:
        answers[np.flatnonzero(label == CLASSES)[:each]] += 1
    return answers


CLASSES = np.repeat([0, 1, 2, 3], [100, 50, 20, 19])


def test_the_worst_class_is_the_one_that_dropped_most_of_those_with_enough_samples() -> None:
    now = np.where(CLASSES == 3, 0, lost([0, 1, 2], 5))  # class 3 is all wrong, but has only 19 samples
    worst = score(Wanted("top1", 0), one_hot(CLASSES), one_hot(now), CLASSES).worst
    assert (worst.label, worst.n, worst.before, worst.value, worst.drop) == (2, 20, 1, 0.75, 0.25)


def test_the_interval_of_the_worst_class_covers_all_classes_at_once() -> None:
    now = lost([1], 10)
    worst = score(Wanted("top5", 0), one_hot(CLASSES), one_hot(CLASSES), CLASSES).worst
    assert worst is None
    worst = score(Wanted("top1", 0), one_hot(CLASSES), one_hot(now), CLASSES).worst
    assert (worst.drop_low, worst.drop_high) == pytest.approx(tango(10, 0, 50, 0.025 / 3))
    alone = tango(10, 0, 50)
    assert worst.drop_low < alone[0] < alone[1] < worst.drop_high


@pytest.mark.parametrize(
    ("metric", "before", "labels"),
    [
        ("top1", lost([1], 10), CLASSES),  # better
        ("agreement", CLASSES, CLASSES),
        ("cosine", CLASSES, CLASSES),
        ("top1", CLASSES, np.arange(189) % 10),  # 18 or 19 of each
    ],
)
def test_there_is_no_worst_class(metric: str, before: Array, labels: Array) -> None:
    assert score(Wanted(metric, 0), one_hot(before), one_hot(CLASSES), labels).worst is None


@pytest.mark.parametrize(("name", "value"), [("f1", (2 / 3 + 0.8) / 2), ("spearman", 0.5), ("auc", 0.75)])
def test_a_metric_of_all_samples_has_an_interval_in_pairs(name: str, value: float) -> None:
    labels, before, now = small_set(name)
    result = score(Wanted(name, 0), {"y": before}, {"y": now}, labels)
    assert result.value == pytest.approx(value)
    assert result.drop == pytest.approx(1 - value)
    assert result.drop_low < result.drop < result.drop_high
    same = score(Wanted(name, 0), {"y": now}, {"y": now}, labels)
    assert same.drop == 0
    assert same.drop_low < 0 < same.drop_high


def small_set(name: str) -> tuple[Array, Array, Array]:
    """Give labels, perfect outputs, and outputs whose score is known, each 20 times over."""
    labels, now = {
        "f1": ([0, 1, 0, 1], [0, 1, 1, 1]),
        "spearman": ([1, 2, 3], [1, 3, 2]),
        "auc": ([0, 0, 1, 1], [1, 3, 2, 4]),
    }[name]
    labels, now = np.tile(labels, 20), np.tile(now, 20)
    if name == "f1":
        return labels, np.eye(2)[labels], np.eye(2)[now]
    return labels, labels.astype(float), now.astype(float)


def test_sqnr_of_the_original_itself_is_200_db() -> None:
    then = {"y": np.ones((30, 4), np.float32)}
    same = score(Wanted("sqnr", 0), then, then, None)
    assert (same.value, same.drop) == (200, 0)
    now = score(Wanted("sqnr", 0), then, {"y": then["y"] * 1.1}, None)
    assert now.value == pytest.approx(20, abs=1e-4)
    assert now.drop == pytest.approx(180, abs=1e-4)


def test_an_error_rate_of_text_is_scored_with_its_alphabet(tmp_path: Path) -> None:
    (tmp_path / "alphabet.txt").write_text("a\nb\n")
    wanted, labels = Wanted("cer", 0, tmp_path / "alphabet.txt"), np.array(["ab", "b", "a"] * 10)
    before, now = ({"ids": np.array(ids * 10)} for ids in ([[1, 2], [2, 0], [0, 0]], [[1, 1], [2, 0], [0, 0]]))
    result = score(wanted, before, now, labels)
    assert result.value == pytest.approx(2 / 4)
    assert result.drop == pytest.approx(1)  # twice the edits
    assert result.relative
    with pytest.raises(InputError, match=r"data\.alphabet"):
        score(Wanted("cer", 0), before, now, labels)


@pytest.mark.parametrize(
    ("outputs", "labels", "requested", "chosen"),
    [
        (one_hot(LABELS), LABELS, None, "top1"),
        (one_hot(LABELS), LABELS, "cosine", "cosine"),
        (one_hot(LABELS), None, None, "agreement"),
        (one_hot(LABELS), LABELS + 1, None, "agreement"),
        (one_hot(LABELS), LABELS - 1, None, "agreement"),
        (one_hot(LABELS), LABELS / 10, None, "agreement"),
        ({"y": np.zeros((1000, 1))}, None, None, "cosine"),
        ({"y": np.zeros((1000, 4, 4))}, LABELS, None, "cosine"),
        ({"class": LABELS}, LABELS, None, "top1"),
        ({"class": LABELS[:1, None]}, LABELS, None, "top1"),
        ({"class": LABELS, **one_hot(LABELS)}, LABELS, None, "top1"),
        ({"class": LABELS}, None, None, "agreement"),
        ({"class": LABELS}, LABELS / 10, None, "agreement"),
        ({"ids": np.zeros((1000, 4), int)}, LABELS, None, "agreement"),
        ({"mask": np.zeros((1000, 4), bool)}, None, None, "agreement"),
        ({"ids": np.zeros((1000, 4), int), "y": np.zeros((1000, 1))}, None, None, "cosine"),
    ],
)
def test_the_metric_suits_labels_and_outputs(
    outputs: dict[str, Array], labels: Array, requested: str, chosen: str
) -> None:
    assert choose(outputs, labels, requested) == chosen


def baseline(right: int, n: int, metric: str = "top1") -> Score:
    return Score(metric, right / n, n, None, None)


def test_near_chance_is_the_exact_binomial_test_at_one_percent() -> None:
    n = 60
    labels = np.repeat([0, 1, 2], 20)  # share 1/3
    tails = [sum(math.comb(n, k) * 2 ** (n - k) for k in range(right, n + 1)) / 3**n for right in range(n + 1)]
    beyond = next(right for right, tail in enumerate(tails) if tail <= 0.01)
    assert near_chance(baseline(beyond, n), labels) is None
    said = near_chance(baseline(beyond - 1, n), labels)
    assert said is not None
    assert "data.preprocess" in said
    assert "33.3%" in said


def test_near_chance_is_silent_about_other_metrics_and_perfect_models() -> None:
    labels = np.zeros(50, int)
    assert near_chance(baseline(0, 50, "cosine"), labels) is None
    assert near_chance(baseline(50, 50), labels) is None
    assert near_chance(baseline(10, 50), labels) is not None
