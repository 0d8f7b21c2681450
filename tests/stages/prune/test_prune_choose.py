"""Which units go: as many as wished, the same share of every layer, in steps that kernels like."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pytest
from numpy.typing import NDArray

from compressor.errors import RungError
from compressor.stages.prune.choose import Curve, Wish, check, chosen, share_gone
from compressor.stages.prune.cost import Cost
from compressor.stages.prune.groups import Group

Floats = NDArray[np.float64]


class Layers:
    """Groups of so many units (and so many channels each), and a cost to which each gives so much."""

    def __init__(self, units: Sequence[int], width: int = 1, amounts: Sequence[float] = ()) -> None:
        first = [0, *accumulate(units)]
        self.groups = tuple(
            Group(f"n{i}", tuple(range(first[i], first[i] + n)), width, (f"n{i}",), {(f"w{i}", 0): width})
            for i, n in enumerate(units)
        )
        self.units, self.amounts = np.array(units), np.array(amounts or units, np.float64)
        self.scores = np.random.default_rng(0).uniform(1, 2, sum(units))

    def chosen(self, ratio: float, multiple: int = 1, scores: Floats | None = None, of: str = "macs") -> frozenset[int]:
        wish = Wish(ratio, multiple, of)
        check(self.groups, range(len(self.groups)), self.cost, wish)
        return chosen(self.groups, self.curves(self.scores if scores is None else scores), self.cost, wish)

    @property
    def cost(self) -> Cost:
        shares = np.vstack([np.diag(1 / self.units), np.zeros(len(self.units))])
        return Cost(self.amounts, np.arange(len(self.units))[:, None], shares)

    def curves(self, scores: Floats) -> dict[int, Curve]:
        """Give losses that grow as the square of the share that goes, times what the layer costs."""
        found = {}
        for i, group in enumerate(self.groups):
            order = sorted(group.units, key=lambda unit: (scores[unit], unit))
            dead = int(np.count_nonzero(scores[order] == 0))
            losses = [float(n > dead) * self.amounts[i] * (n / len(order)) ** 2 for n in range(len(order) + 1)]
            found[i] = Curve(tuple(order), tuple(range(len(order) + 1)), tuple(losses))
        return found

    def gone(self, removed: frozenset[int]) -> list[int]:
        return [len(removed & set(group.units)) for group in self.groups]

    def share(self, removed: frozenset[int]) -> float:
        return float(self.amounts @ (np.array(self.gone(removed)) / self.units) / self.amounts.sum())


@pytest.mark.parametrize(
    ("units", "width", "multiple", "ratio", "gone"),
    [
        (67, 1, 8, 0.04, 3),  # 64 left
        (67, 1, 8, 0.15, 11),  # 56 left
        (12, 1, 8, 0.3, 4),  # 8 left
        (8, 32, 8, 0.125, 1),  # a head of 32 channels is a multiple of 8 by itself
        (8, 12, 8, 0.3, 2),  # two of 12 channels are 24, one is none
        (16, 4, 32, 0.5, 8),  # eight of 4 channels are 32
        (100, 1, 1, 0.33, 33),
        (64, 1, 8, 0.875, 56),  # an eighth is left
        (64, 1, 32, 0.5, 32),
    ],
)
def test_layers_keep_a_multiple_of_channels(units: int, width: int, multiple: int, ratio: float, gone: int) -> None:
    layers = Layers([units], width)
    removed = layers.chosen(ratio, multiple)
    assert layers.gone(removed) == [gone]
    assert (units - gone) * width % multiple == 0
    ranked = np.argsort(layers.scores, kind="stable")
    assert removed == frozenset(ranked[:gone].tolist())


@pytest.mark.parametrize("ratio", [0.1, 0.2, 0.37, 0.5, 0.8])
@pytest.mark.parametrize("multiple", [1, 8])
def test_of_one_layer_the_nearest_number_goes(ratio: float, multiple: int) -> None:
    layers = Layers([256])
    possible = [n / 256 for n in range(0, 225, multiple)]
    wanted = min(possible, key=lambda share: abs(share - ratio))
    assert layers.share(layers.chosen(ratio, multiple)) == pytest.approx(wanted)


@pytest.mark.parametrize("ratio", [0.2, 0.4, 0.6])
def test_all_layers_lose_the_same_share_but_for_what_is_too_large_at_the_end(ratio: float) -> None:
    layers = Layers([32, 64, 96, 128, 256, 512], amounts=[900, 100, 1, 700, 400, 50])
    removed = layers.chosen(ratio, 1)
    shares = np.array(layers.gone(removed)) / layers.units
    assert shares.max() - shares.min() <= 2 / 32 + 1e-9
    largest = (layers.amounts / layers.units).max() / layers.amounts.sum()
    assert abs(layers.share(removed) - ratio) <= largest / 2


def test_a_layer_narrower_than_a_multiple_stays_whole() -> None:
    layers = Layers([4, 64, 8])
    removed = layers.chosen(0.4, 8)
    assert layers.gone(removed) == [0, 32, 0]
    with pytest.raises(RungError, match="in multiples of 8"):
        Layers([4, 8]).chosen(0.2, 8)


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_units_that_score_nothing_go_first_whosever_they_are(dead: int) -> None:
    layers = Layers([16, 32, 48])
    scores = layers.scores.copy()
    zero = layers.groups[dead].units[2:10]
    scores[list(zero)] = 0
    assert layers.chosen(8 / 96, 1, scores) == frozenset(zero)
    assert layers.chosen(8 / 96, 8, scores) == frozenset(zero)
    assert layers.chosen(0.5, 8, scores) > frozenset(zero)


def test_an_eighth_of_each_layer_stays_even_of_units_that_score_nothing() -> None:
    layers = Layers([16, 64])
    scores = layers.scores.copy()
    scores[:16] = 0
    assert layers.gone(layers.chosen(14 / 80, 1, scores)) == [14, 0]
    assert layers.gone(layers.chosen(0.5, 1, scores)) == [14, 26]


@pytest.mark.parametrize(("of", "word"), [("macs", "MACs"), ("parameters", "parameters"), ("channels", "channels")])
def test_more_than_can_go_is_refused_with_what_can(of: str, word: str) -> None:
    layers = Layers([64, 64], amounts=[3, 1])
    assert layers.gone(layers.chosen(0.875, 8)) == [56, 56]
    with pytest.raises(RungError) as refused:
        layers.chosen(0.899, 8, of=of)
    assert f"89.9% of the {word} cannot be pruned: 87.5% is all that goes" in str(refused.value)
    assert "in multiples of 8" in str(refused.value)


def test_what_cannot_shrink_counts_in_the_whole() -> None:
    layers = Layers([64, 64])
    only = Layers([64, 64])
    only.groups = only.groups[:1]
    assert only.gone(only.chosen(0.25)) == [32]
    assert layers.gone(layers.chosen(0.25)) == [16, 16]
    with pytest.raises(RungError, match=r"43\.7% is all that goes"):  # 7/8 of a half
        only.chosen(0.5)


def test_never_nothing_goes() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        layers = Layers(rng.integers(2, 40, 3).tolist(), amounts=rng.uniform(1, 9, 3).tolist())
        ratio, multiple = float(rng.uniform(0.01, 0.6)), int(rng.choice([1, 4, 8]))
        try:
            removed = layers.chosen(ratio, multiple)
        except RungError:
            continue
        assert removed
        assert all(n <= u - max(1, -(-u // 8)) for n, u in zip(layers.gone(removed), layers.units, strict=True))
        assert abs(layers.share(removed) - ratio) <= ratio / 2 + 1e-9


def test_a_wish_smaller_than_any_step_is_refused_in_words_that_help() -> None:
    with pytest.raises(RungError) as refused:
        Layers([16]).chosen(0.05, 8)
    assert "ask for less" not in str(refused.value)  # less would not help


def test_what_scores_alike_goes_in_order_and_the_same_every_time() -> None:
    layers = Layers([16, 16])
    even = np.ones(32)
    assert layers.chosen(0.25, 1, even) == frozenset([0, 1, 2, 3, 16, 17, 18, 19])
    assert layers.chosen(3 / 32, 1, even) == frozenset([0, 1, 16])  # the first layer first


def test_what_is_offered_can_go_and_a_multiple_of_1_has_no_smaller_one() -> None:
    only = Layers([64, 64])
    only.groups = only.groups[:1]
    for multiple, smaller in ((8, True), (1, False)):
        with pytest.raises(RungError, match=r"^43\.8% of the MACs cannot be pruned: 43\.7% is all") as refused:
            only.chosen(0.438, multiple)
        assert ("multiple" in str(refused.value)) == smaller
    assert only.gone(only.chosen(0.437)) == [56]  # 7/16


def test_a_step_that_a_cheaper_one_follows_is_one_with_it_or_costs_what_it_loses() -> None:
    """Of the first layer 4 lose as much as 12; nothing is 4 of it with a third of that loss."""
    layers = Layers([16, 16])
    curves = {
        0: Curve(tuple(range(16)), (0, 4, 8, 12), (0.0, 1.0, 1.0, 1.0)),
        1: Curve(tuple(range(16, 32)), (0, 4, 8, 12), (0.0, 0.4, 0.9, 1.5)),
    }
    wanted = {4: [0, 4], 8: [0, 8], 12: [12, 0], 16: [12, 4]}  # 0.4, 0.9, 1.0, 1.4 are least
    for units, gone in wanted.items():
        assert layers.gone(chosen(layers.groups, curves, layers.cost, Wish(units / 32, 4, "macs"))) == gone
    only = {0: curves[0]}
    assert layers.gone(chosen(layers.groups, only, layers.cost, Wish(4 / 32, 4, "macs"))) == [4, 0]


def test_a_step_is_priced_by_what_it_saves_now() -> None:
    """The first layer saves half as much once half of the second, on which its cost depends too, is gone."""
    layers = Layers([8, 8, 8])
    shares = np.vstack([np.eye(3) / 8, np.zeros(3)])
    cost = Cost(np.array([100.0, 100.0]), np.array([[0, 1], [2, 3]]), shares)
    per_unit = [1.0, 0.0, 1.5]
    curves = {
        i: Curve(group.units, tuple(range(8)), tuple(loss * n if i != 1 or n <= 4 else 99.0 for n in range(8)))
        for i, (group, loss) in enumerate(zip(layers.groups, per_unit, strict=True))
    }
    wish = Wish(0.3125, 1, "macs")  # a quarter of all for nothing, then a unit of the third, or two of the first
    assert layers.gone(chosen(layers.groups, curves, cost, wish)) == [0, 4, 1]


def test_the_share_that_went_is_of_what_was_asked_for() -> None:
    layers = Layers([16, 64], amounts=[3, 1])
    removed = frozenset(range(4)) | frozenset(range(16, 32))
    assert share_gone(layers.groups, removed, layers.cost) == pytest.approx((3 / 4 + 1 / 4) / 4)
