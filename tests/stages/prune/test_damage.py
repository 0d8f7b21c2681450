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
from pruned import run

from compressor import graph
from compressor.records import Model
from compressor.samples import Samples, read
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


TANH = "a = Gemm (x, w1, b1) b = Tanh (a) y = Gemm (b, w2, b2)"


def loss(model: Model, samples: Samples, factor: float, folder: Path) -> tuple[float, list[NDArray[Any]]]:
    """Give the loss when the last weights are so many times as large, and all outputs y before and after."""
    opened = graph.load(model.path)
    reference = Reference(opened, samples, folder)
    last = opened.graph.initializers["w2"]
    array = last.const_value.numpy()
    last.const_value = ir.tensor(array * array.dtype.type(factor), name="w2")
    graph.save(opened, folder / "changed.onnx")
    given, n = [feed["x"] for feed in samples], len(samples)
    outputs = [
        np.concatenate([run(path, {"x": x})[0] for x in given]) for path in (model.path, folder / "changed.onnx")
    ]
    return reference.loss(opened), [array[:n].astype(np.float64) for array in outputs]


def fed(model: Model, x: NDArray[Any], batch: int = 1) -> Samples:
    path = model.path.parent / "fed.npz"
    np.savez(path, x=x)
    return read(path, model.inputs, {"x": (batch, *x.shape[1:])})


def mlp(**others: NDArray[Any]) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(3)
    shapes = {"w1": (6, 24), "b1": (24,), "w2": (24, 4), "b2": (4,)}
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()} | others


def test_an_infinity_of_one_sample_hides_nothing_of_the_others(make: Make, tmp_path: Path) -> None:
    body = TANH.replace("y =", "c =") + " l = Log (x) s = Slice (l, zero, four, one) y = Add (c, s)"
    numbers = {"zero": np.array([0]), "four": np.array([4]), "one": np.array([1])}
    model = make(f"g (float[1,6] x) => (float[1,4] y) {{ {body} }}", mlp(**numbers))
    x = np.abs(np.random.default_rng(0).normal(size=(40, 6))).astype(np.float32) + 0.1
    x[5, 2] = 0
    found, (before, after) = loss(model, fed(model, x), 0.5, tmp_path)
    assert np.isinf(before).sum() == 1
    finite = np.isfinite(before)
    mean = [before[finite[:, i], i].mean() for i in range(4)]
    wanted = np.square(after[finite] - before[finite]).sum() / np.square((before - mean)[finite]).sum()
    assert found == pytest.approx(wanted, rel=1e-4)


def test_what_overflows_float16_is_summed_in_double(make: Make, tmp_path: Path) -> None:
    weights = {name: array.astype(np.float16) for name, array in mlp().items()}
    weights["b2"][:] = 3000  # 32 of them are beyond float16
    weights["w2"] *= 100
    model = make(f"g (float16[32,6] x) => (float16[32,4] y) {{ {TANH} }}", weights)
    x = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float16)
    found, (before, after) = loss(model, fed(model, x, 32), 0.5, tmp_path)
    assert found == pytest.approx(np.square(after - before).sum() / np.square(before - before.mean(0)).sum(), rel=1e-3)


def test_an_output_that_only_rounding_moves_is_held_against_its_power(make: Make, tmp_path: Path) -> None:
    text = f"g (float[1,6] x) => (float[1,4] y, float[1,1] z) {{ {TANH} p = Softmax (y) z = ReduceSum (p, one) }}"
    model = make(text, mlp(one=np.array([1])))
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    found, (before, after) = loss(model, fed(model, x), 1.01, tmp_path)
    of_y = np.square(after - before).sum() / np.square(before - before.mean(0)).sum()
    assert found == pytest.approx(of_y / 2, rel=1e-3)  # z is 1, before and after


def test_what_fills_up_the_last_feed_does_not_count(make: Make, tmp_path: Path) -> None:
    model = make(f"g (float[8,6] x) => (float[8,4] y) {{ {TANH} }}", mlp())
    x = np.random.default_rng(0).normal(size=(19, 6)).astype(np.float32)
    x[-1] *= 9  # the sample that fills up counts five times over
    found, (before, after) = loss(model, fed(model, x, 8), 0.5, tmp_path)
    assert len(before) == 19
    assert found == pytest.approx(np.square(after - before).sum() / np.square(before - before.mean(0)).sum(), rel=1e-4)


def test_as_many_dead_units_as_steps_allow_are_looked_at() -> None:
    steps = [260 - kept for kept in range(256, 32, -8)]  # 4, 12, ... 68, 76, ...
    norms = np.ones(260)
    norms[:74] = 0
    assert 68 not in damage._levels(steps, (1 / 2, 1), np.ones(260))
    assert 68 in damage._levels(steps, (1 / 2, 1), norms)


def test_a_hopeless_loss_ends_the_look(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage.Reference, "loss", lambda _self, _model: 3.0)
    model = make(NET, drawn())
    (curve,) = finish(curves(analyse(graph.load(model.path)), [0], made_up(model, 30), 1, None)).values()
    assert curve.counts == (0, 1, 14)
    assert curve.losses == (0, 3, 3 * 14)
    assert len(set(curve.order)) == 14
