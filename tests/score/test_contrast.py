"""Two models on the same samples, of which neither is the original: what the second loses against the first."""

from __future__ import annotations

import math

import numpy as np
import pytest

from compressor.errors import InputError, RungError
from compressor.records import Array
from compressor.score import Wanted, contrast, score

RNG = np.random.default_rng(0)
N, CLASSES = 400, 5
LABELS = RNG.integers(0, CLASSES, N)


def one_hot(classes: Array) -> dict[str, Array]:
    return {"y": np.eye(CLASSES, dtype=np.float32)[classes]}


def spoilt(share: float, seed: int) -> Array:
    wrong = np.random.default_rng(seed).random(N) < share
    return np.where(wrong, (LABELS + 1) % CLASSES, LABELS)


ORIGINAL, CHAMPION, NOW = spoilt(0.05, 1), spoilt(0.1, 2), spoilt(0.25, 3)
TOP1 = Wanted("top1", 0)


def test_the_drop_is_what_the_second_loses_against_the_first() -> None:
    before, now = contrast(TOP1, (one_hot(CHAMPION), one_hot(NOW)), LABELS, one_hot(ORIGINAL))
    right = [(side == LABELS) for side in (CHAMPION, NOW)]
    assert before.value == pytest.approx(right[0].mean())
    assert now.value == pytest.approx(right[1].mean())
    difference = right[0].astype(float) - right[1].astype(float)
    half = 1.96 * difference.std() / math.sqrt(N)
    assert now.drop == pytest.approx(difference.mean())
    assert (now.drop_low, now.drop_high) == pytest.approx(
        (difference.mean() - half, difference.mean() + half), abs=4e-3
    )
    assert (before.drop, before.drop_low, before.drop_high, before.worst) == (None, None, None, None)
    assert (before.n, now.n, now.reference, now.relative) == (N, N, False, False)


def test_the_worst_class_is_that_of_the_pair() -> None:
    worse = np.where(LABELS == 3, 0, CHAMPION)
    _, now = contrast(TOP1, (one_hot(CHAMPION), one_hot(worse)), LABELS, one_hot(ORIGINAL))
    assert now.worst is not None
    of_3 = LABELS == 3
    assert (now.worst.label, now.worst.n, now.worst.value) == (3, of_3.sum(), 0.0)
    assert now.worst.before == pytest.approx((CHAMPION[of_3] == 3).mean())


def test_labels_make_the_original_s_outputs_irrelevant() -> None:
    sides = one_hot(CHAMPION), one_hot(NOW)
    assert contrast(TOP1, sides, LABELS, one_hot(ORIGINAL)) == contrast(TOP1, sides, LABELS, one_hot(NOW))


def test_a_better_one_has_a_drop_below_nothing() -> None:
    _, now = contrast(TOP1, (one_hot(NOW), one_hot(CHAMPION)), LABELS, one_hot(ORIGINAL))
    lost = (NOW == LABELS).mean() - (CHAMPION == LABELS).mean()
    assert now.drop == pytest.approx(lost)
    assert now.drop < 0
    assert now.drop_high < 0


def test_agreement_with_the_original_is_compared_and_the_first_is_not_taken_for_perfect() -> None:
    before, now = contrast(Wanted("agreement", 0), (one_hot(CHAMPION), one_hot(NOW)), None, one_hot(ORIGINAL))
    agrees = [(side == ORIGINAL) for side in (CHAMPION, NOW)]
    assert before.value == pytest.approx(agrees[0].mean())
    assert now.value == pytest.approx(agrees[1].mean())
    assert now.drop == pytest.approx(agrees[0].mean() - agrees[1].mean())
    assert before.value < 1
    assert now.reference
    lost, gained = (agrees[0] & ~agrees[1]).sum(), (~agrees[0] & agrees[1]).sum()
    half = 1.96 * math.sqrt((lost + gained) / N**2 - (lost - gained) ** 2 / N**3)
    assert (now.drop_low, now.drop_high) == pytest.approx((now.drop - half, now.drop + half), abs=4e-3)
    assert now.drop_low >= -1


def test_beside_the_original_itself_it_is_a_score() -> None:
    before, now = contrast(TOP1, (one_hot(ORIGINAL), one_hot(NOW)), LABELS, one_hot(ORIGINAL))
    assert now == score(TOP1, one_hot(ORIGINAL), one_hot(NOW), LABELS)
    assert before.value == score(TOP1, one_hot(ORIGINAL), one_hot(ORIGINAL), LABELS).value


def test_a_metric_that_refers_to_the_original_can_be_better_than_the_first_s() -> None:
    _, now = contrast(Wanted("agreement", 0), (one_hot(NOW), one_hot(ORIGINAL)), None, one_hot(ORIGINAL))
    assert (now.value, now.drop) == (1.0, pytest.approx((NOW == ORIGINAL).mean() - 1))


def noisy(scale: float, seed: int) -> dict[str, Array]:
    exact = np.random.default_rng(9).normal(0, 1, (N, 6))
    return {"y": (exact + np.random.default_rng(seed).normal(0, scale, (N, 6))).astype(np.float32)}


def cosines(one: Array, other: Array) -> Array:
    one, other = one.astype(np.float64), other.astype(np.float64)
    found: Array = (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    return found


def test_cosine_is_resampled_in_pairs() -> None:
    original, champion, later = noisy(0, 1), noisy(0.3, 2), noisy(0.6, 3)
    before, now = contrast(Wanted("cosine", 0), (champion, later), None, original)
    each = [cosines(side["y"], original["y"]) for side in (champion, later)]
    assert (before.value, now.value) == (pytest.approx(each[0].mean()), pytest.approx(each[1].mean()))
    difference = each[0] - each[1]
    half = 1.96 * difference.std() / math.sqrt(N)
    assert now.drop == pytest.approx(difference.mean())
    assert (now.drop_low, now.drop_high) == pytest.approx(
        (difference.mean() - half, difference.mean() + half), abs=0.2 * half
    )


def test_f1_is_that_of_both_sides() -> None:
    def f1(found: Array) -> float:
        shares = []
        for label in range(CLASSES):
            hit = ((found == label) & (label == LABELS)).sum()
            shares.append(2 * hit / ((found == label).sum() + (label == LABELS).sum()))
        return float(np.mean(shares))

    before, now = contrast(Wanted("f1", 0), (one_hot(CHAMPION), one_hot(NOW)), LABELS, one_hot(ORIGINAL))
    assert (before.value, now.value) == (pytest.approx(f1(CHAMPION)), pytest.approx(f1(NOW)))
    assert now.drop == pytest.approx(f1(CHAMPION) - f1(NOW))
    assert now.drop_low < now.drop < now.drop_high
    assert now.drop_low > 0


def test_an_error_grows_as_a_share_of_the_first_s() -> None:
    labels = RNG.normal(0, 1, N)
    champion, now = ({"y": (labels + shift)[:, None].astype(np.float32)} for shift in (0.1, 0.15))
    before, found = contrast(Wanted("mae", 0), (champion, now), labels, champion)
    assert (before.value, found.value) == (pytest.approx(0.1, rel=1e-3), pytest.approx(0.15, rel=1e-3))
    assert (found.drop, found.relative) == (pytest.approx(0.5, rel=1e-2), True)


def test_the_same_outputs_drop_by_nothing_and_so_many_samples_bound_it() -> None:
    for wanted in (TOP1, Wanted("agreement", 0), Wanted("cosine", 0)):
        before, now = contrast(wanted, (one_hot(CHAMPION), one_hot(CHAMPION)), LABELS, one_hot(ORIGINAL))
        assert (before.value, now.drop) == (now.value, 0)
        assert now.drop_low is not None
        assert now.drop_high is not None
        assert now.drop_low < 0 < now.drop_high < 0.05


@pytest.mark.parametrize("side", [0, 1])
def test_a_sample_that_is_no_number_is_worth_nothing_to_a_mean_of_samples(side: int) -> None:
    original, sides = noisy(0, 1), [noisy(0.3, 2), noisy(0.3, 3)]
    each = [cosines(found["y"], original["y"]) for found in sides]
    each[side][7] = 0
    sides[side]["y"][7] = np.nan
    before, now = contrast(Wanted("cosine", 0), (sides[0], sides[1]), None, original)
    assert (before.value, now.value) == (pytest.approx(each[0].mean()), pytest.approx(each[1].mean()))
    assert now.drop == pytest.approx(each[0].mean() - each[1].mean())


@pytest.mark.parametrize("side", [0, 1])
def test_an_error_that_is_no_number_makes_no_finite_drop(side: int) -> None:
    labels = RNG.normal(0, 1, N)
    sides = [{"y": (labels + shift)[:, None].astype(np.float32)} for shift in (0.1, 0.15)]
    sides[side]["y"][7] = np.nan
    before, now = contrast(Wanted("mae", 0), (sides[0], sides[1]), labels, sides[1 - side])
    assert not math.isfinite((before, now)[side].value)
    assert now.drop == math.inf


def test_an_output_that_is_missing_or_has_another_shape_is_named() -> None:
    other = {"z": one_hot(NOW)["y"]}
    with pytest.raises(RungError, match="output 'y' has not the shape"):
        contrast(TOP1, (other, one_hot(NOW)), LABELS, one_hot(ORIGINAL))
    with pytest.raises(RungError, match="output 'y' has not the shape"):
        contrast(TOP1, (one_hot(CHAMPION), {"y": np.zeros((N, 3), np.float32)}), LABELS, one_hot(ORIGINAL))
    more = {**one_hot(CHAMPION), "more": np.zeros(N)}
    assert contrast(TOP1, (more, one_hot(NOW)), LABELS, one_hot(ORIGINAL))[1].drop is not None


def test_rows_that_were_filled_up_do_not_count_for_a_metric_of_classes() -> None:
    with pytest.raises(InputError, match="needs an output of one shape in all samples"):
        contrast(Wanted("agreement", 0), (one_hot(CHAMPION), one_hot(NOW)), None, one_hot(ORIGINAL), ["y"])
