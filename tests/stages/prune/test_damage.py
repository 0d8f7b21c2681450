"""What is lost, by hand: squared changes over variances, measured on models whose outputs are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from exact import made_up
from finished import finish
from numpy.typing import NDArray

from compressor import graph
from compressor.records import Model
from compressor.stages.prune import damage
from compressor.stages.prune.choose import Wish, chosen
from compressor.stages.prune.cost import macs
from compressor.stages.prune.damage import Reference, curves, plain
from compressor.stages.prune.groups import analyse
from compressor.stages.prune.importance import readers
from compressor.stages.prune.layers import layers

Make = Callable[..., Model]
NET = """g (float[1,3,6,6] x) => (float[1,4,6,6] y) {
    a = Conv (x, w1, b1)
    b = Relu (a)
    y = Conv (b, w2, b2)
}"""
SHAPES = {"w1": [16, 3, 1, 1], "b1": [16], "w2": [4, 16, 1, 1], "b2": [4]}
TWO = "g (float[1,5] x) => (float[1,5] y, int64[1,1] z) { y = Mul (x, w) z = ArgMax <axis = 1> (y) }"


def drawn() -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(3)
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in SHAPES.items()}


def test_the_loss_is_the_change_as_a_share_of_the_variance(make: Make, tmp_path: Path) -> None:
    model = make(TWO, {"w": np.ones(5, np.float32)})
    samples, opened = made_up(model, 30), graph.load(model.path)
    reference = Reference(opened, samples, tmp_path)
    assert reference.loss(opened) == 0
    x = np.concatenate([feed["x"] for feed in samples])
    scale = np.array([1, 1, 0, 2, 1], np.float32)
    opened.graph.initializers["w"].const_value = ir.tensor(scale, name="w")
    of_y = np.square(x * (scale - 1)).sum() / np.square(x - x.mean(0)).sum()
    of_z = (x.argmax(1) != (x * scale).argmax(1)).mean()
    assert reference.loss(opened) == pytest.approx((of_y + of_z) / 2, rel=1e-5)


def test_what_is_not_finite_is_lost_altogether(make: Make, tmp_path: Path) -> None:
    model = make(TWO, {"w": np.ones(5, np.float32)})
    opened = graph.load(model.path)
    reference = Reference(opened, made_up(model, 3), tmp_path)
    opened.graph.initializers["w"].const_value = ir.tensor(np.full(5, np.nan, np.float32), name="w")
    assert reference.loss(opened) == np.inf


def test_a_curve_rises_and_is_0_as_long_as_what_goes_is_nothing(make: Make) -> None:
    weights = drawn()
    weights["w1"][[3, 7]], weights["b1"][[3, 7]] = 0, 0
    model = make(NET, weights)
    coupled = analyse(graph.load(model.path))
    (curve,) = finish(curves(coupled, [0], made_up(model, 50), 1, None)).values()
    assert curve.counts[0] == 0
    assert curve.counts[-1] == 14  # an eighth stays
    assert 2 in curve.counts
    assert set(curve.order[:2]) == {3, 7}
    losses = dict(zip(curve.counts, curve.losses, strict=True))
    assert losses[2] == 0
    assert list(curve.losses) == sorted(curve.losses)
    assert curve.losses[-1] > 0.01


def test_large_covariances_are_gathered_apart_and_nothing_changes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    text = NET.replace("y = Conv (b, w2, b2)", "c = Conv (b, w3) d = Relu (c) y = Conv (d, w2, b2)")
    model = make(text, {**drawn(), "w3": np.random.default_rng(1).normal(size=(16, 16, 1, 1)).astype(np.float32)})
    coupled, samples = analyse(graph.load(model.path)), made_up(model, 30)
    together = finish(curves(coupled, [0, 1], samples, 4, None))
    known = list(layers(coupled.model))
    read = {i: readers(coupled, group, known) for i, group in enumerate(coupled.groups)}
    assert len(list(damage._together(read))) == 1
    monkeypatch.setattr(damage, "_TOGETHER_BYTES", 16 * 16 * 8)
    assert len(list(damage._together(read))) == 2
    assert finish(curves(coupled, [0, 1], samples, 4, None)) == together
    assert all(count % 4 == 0 for curve in together.values() for count in curve.counts)


def test_of_large_models_fewer_samples_are_looked_at(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(NET, drawn())
    coupled, seen = analyse(graph.load(model.path)), []
    real = damage.Reference

    def watched(opened: Any, samples: Any, folder: Path) -> Reference:
        seen.append(len(samples))
        return real(opened, samples, folder)

    monkeypatch.setattr(damage, "Reference", watched)
    for counted in (None, 10**9, 2 * 10**10, 10**14):
        finish(curves(coupled, [0], made_up(model, 500), 4, counted))
    assert seen == [100, 100, 50, 16]  # a fifth is held out; 4 runs at 2e10: 4e12 / 8e10


def test_a_model_that_takes_long_is_measured_at_fewer_counts(make: Make) -> None:
    model = make(NET, drawn())
    coupled, samples = analyse(graph.load(model.path)), made_up(model, 30)
    (many,), (few,) = (finish(curves(coupled, [0], samples, 1, macs)).values() for macs in (1, 10**14))
    assert many.counts == (0, 1, 2, 3, 5, 7, 9, 10, 14)  # the nearest to these shares of 14; a quarter is 3.5
    assert few.counts == (0, 2, 3, 7, 14)
    assert few.order == many.order


def test_without_a_look_all_groups_lose_the_same_share(make: Make) -> None:
    """Of layers as unequal as 1 to 9 in what they save."""
    text = NET.replace("y = Conv (b, w2, b2)", "c = Conv (b, w3) d = Relu (c) y = Conv (d, w2, b2)")
    weights = drawn() | {"w3": np.random.default_rng(1).normal(size=(48, 16, 1, 1)).astype(np.float32)}
    weights["w2"] = np.ones((4, 48, 1, 1), np.float32)
    coupled = analyse(graph.load(make(text, weights).path))
    counted = macs(coupled, None)
    removed = chosen(coupled.groups, plain(coupled, [0, 1], 1, counted), counted, Wish(0.4, 1, "macs"))
    first, second = (len(removed & set(group.units)) for group in coupled.groups)
    assert first / 16 == pytest.approx(second / 48, abs=1 / 16)
