import math
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from compressor.records import Array, Score
from compressor.score import METRICS, Wanted, metric, score
from compressor.score.paired import drop, hidden, paired
from compressor.score.truth import Truth

Sample = tuple[dict[str, Array], dict[str, Array], Array | None]
SHARES = (0.0, 0.01, 0.02, 0.03)


def flipped(generator: np.random.Generator, n: int, share: float) -> Sample:
    """Give classes of a model that is right on 90 %, of which a share turn into the other of two."""
    labels = np.r_[0, 1, generator.integers(0, 2, n - 2)]
    before = np.where(generator.random(n) < 0.9, labels, 1 - labels)
    return {"y": before}, {"y": np.where(generator.random(n) < share, 1 - before, before)}, labels


def mirrored(generator: np.random.Generator, n: int, share: float) -> Sample:
    """Give scores around 0 and 2, of which a share are mirrored at 1."""
    labels = np.r_[0, 1, generator.integers(0, 2, n - 2)]
    before = generator.standard_normal(n) + 2 * labels
    return {"y": before}, {"y": np.where(generator.random(n) < share, 2 - before, before)}, labels


def turned(generator: np.random.Generator, n: int, share: float) -> Sample:
    """Give directions in a plane, of which a share turn by up to a right angle."""
    angle = generator.uniform(0, 2 * math.pi, n)
    turn = np.where(generator.random(n) < share, generator.uniform(0, math.pi / 2, n), 0.0)
    before, now = ({"y": np.stack([np.cos(each), np.sin(each)], axis=1)} for each in (angle, angle + turn))
    return before, now, None


def lost_area(share: float) -> float:
    area = NormalDist().cdf(math.sqrt(2))  # of two normals 2 apart
    return area - ((1 - share) ** 2 * area + 2 * share * (1 - share) / 2 + share**2 * (1 - area))


@pytest.mark.parametrize("n", [50, 200])
@pytest.mark.parametrize(
    ("name", "draw", "truth"),
    [
        ("f1", flipped, lambda share: 0.8 * share),  # two balanced classes: f1 is the accuracy
        ("auc", mirrored, lost_area),
        ("cosine", turned, lambda share: share * (1 - 2 / math.pi)),
    ],
)
def test_the_interval_of_a_drop_covers_the_truth_where_few_samples_changed(
    name: str, draw: Callable[..., Sample], truth: Callable[[float], float], n: int
) -> None:
    missed = 0
    for seed in range(32):
        share = SHARES[seed % len(SHARES)]
        before, now, labels = draw(np.random.default_rng(seed), n, share)
        found = score(Wanted(name, seed), before, now, labels)
        assert found.drop_low is not None
        assert found.drop_high is not None
        missed += not found.drop_low <= truth(share) + 1e-12 <= found.drop_high + 2e-12
    assert missed <= 4  # of 32, where 1 in 20 is meant: more come up once in 45 times


def same(name: str) -> Score:
    labels = np.arange(60) % 2
    y = labels + np.linspace(0, 0.4, 60)
    return score(Wanted(name, 0), {"y": y}, {"y": y}, labels)


@pytest.mark.parametrize("name", ["auc", "spearman", "mae", "sqnr"])
def test_no_change_has_a_width(name: str) -> None:
    found = same(name)
    assert found.drop == 0
    assert found.drop_high is not None
    assert 0 < found.drop_high < math.inf


def test_no_change_of_a_share_is_as_uncertain_as_the_exact_interval_of_a_count() -> None:
    labels = np.arange(60) % 2
    found = score(Wanted("f1", 0), {"y": labels}, {"y": labels}, labels)
    one_wrong = 1 - (2 * 29 / 59 + 2 * 30 / 61) / 2
    limit = (1 - 0.025 ** (1 / 60)) * 60 * one_wrong
    assert (found.drop_low, found.drop_high) == pytest.approx((-limit, limit))


def test_a_class_that_is_rare_is_swapped_too() -> None:
    labels = (np.arange(1000) % 250 == 0).astype(int)
    found = score(Wanted("f1", 0), {"y": labels}, {"y": labels}, labels)
    lost = 1 - (2 * 3 / 7 + 2 * 996 / 1993) / 2  # one of its four samples
    gained = 1 - (2 * 4 / 9 + 2 * 995 / 1991) / 2
    limit = (1 - 0.025 ** (1 / 1000)) * 1000 * max(lost, gained)
    assert found.drop_high == pytest.approx(limit)


def test_rounding_that_moves_no_rank_is_no_change() -> None:
    labels = np.arange(60) % 2
    y = labels + np.linspace(0, 0.4, 60)
    noise = 1e-6 * np.random.default_rng(0).standard_normal(60)
    rounded = score(Wanted("auc", 0), {"y": y}, {"y": y + noise}, labels)
    assert (rounded.drop_low, rounded.drop_high) == pytest.approx((same("auc").drop_low, same("auc").drop_high))


def test_samples_that_cannot_tell_answers_apart_tell_nothing() -> None:
    labels = np.zeros(30, int)
    found = score(Wanted("f1", 0), {"y": labels}, {"y": labels}, labels)
    assert (found.drop_low, found.drop, found.drop_high) == (-math.inf, 0, math.inf)


def test_a_function_of_all_samples_is_widened_as_the_metric_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_share.py").write_text("def right(outputs, labels): return (outputs['y'] == labels).mean()")
    monkeypatch.syspath_prepend(tmp_path)
    labels = np.arange(80) % 2
    found = score(Wanted("own_share:right", 0), {"y": labels}, {"y": labels}, labels)
    limit = 1 - 0.025 ** (1 / 80)
    assert (found.drop_low, found.drop_high) == pytest.approx((-limit, limit))


def test_a_function_of_each_sample_is_only_ever_called_with_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import numpy as np\ndef right(outputs, labels): return outputs['y'] == np.arange(80) % 2"
    (tmp_path / "own_right.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    outputs = {"y": np.arange(80) % 2}
    limit = 1 - 0.025 ** (1 / 80)
    assert score(Wanted("own_right:right", 0), outputs, outputs, None).drop_high == pytest.approx(limit)


def test_against_the_original_only_the_worse_end_is_widened() -> None:
    y = np.random.default_rng(0).standard_normal((40, 3))
    found = score(Wanted("cosine", 0), {"y": y}, {"y": y}, None)
    assert (found.drop_low, found.high) == (0, 1)
    assert found.drop_high is not None
    assert found.drop_high > 0
    assert found.low == 1 - found.drop_high


@pytest.mark.parametrize("name", ["f1", "auc", "spearman", "mae", "sqnr"])
def test_the_bootstrap_is_left_alone_from_30_changed_samples_on(name: str) -> None:
    def widened(changed: int) -> float:
        labels = np.arange(400) % 2
        y = labels + np.random.default_rng(1).random(400)
        now: Any = np.where(np.arange(400) < changed, y + 3, y)
        if name == "f1":
            y, now = (y > 1).astype(int), np.where(np.arange(400) < changed, 1 - labels, labels)
        pair = paired(metric(name), {"y": y}, {"y": now}, Truth(labels, {"y": y}))
        return hidden(pair, np.ones(200), 0)

    assert widened(29) > 0
    assert widened(30) == 0


def test_a_drop_is_infinite_where_it_cannot_be_told() -> None:
    pairs = np.array([[0.5, np.nan], [np.nan, np.nan], [0.5, 0.25]])
    assert drop(METRICS["f1"], pairs).tolist() == [math.inf, math.inf, 0.25]
    assert drop(METRICS["mae"], np.array([0.5, 0.25])) == -0.5


def test_rounding_of_all_samples_hides_no_rare_failure() -> None:
    missed, runs, n, share = (
        0,
        40,
        300,
        0.005,
    )  # a failure is a cosine of 0 on average: the true drop is `share`
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        y = rng.normal(size=(n, 8))
        now = y + 1e-3 * rng.normal(size=y.shape)
        failed = rng.random(n) < share
        now[failed] = rng.normal(size=(int(failed.sum()), 8))
        found = score(Wanted("cosine", 0), {"y": y}, {"y": now}, None)
        missed += found.drop_high is not None and found.drop_high < share
    assert missed <= 4  # 1 expected at 2.5 %, sd 1; the plain bootstrap misses 6
