"""Repair makes good what can be made good: where the right weights are known, and on samples it has not seen."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact import made_up
from finished import finish
from numpy.typing import NDArray
from pruned import run

from compressor import graph
from compressor.records import Model
from compressor.stages.prune.groups import Coupled, analyse
from compressor.stages.prune.reconstruct import reconstruct
from compressor.stages.prune.surgery import shrunk

Make = Callable[..., Model]
Array = NDArray[Any]
MODULE = import_module("compressor.stages.prune.reconstruct")  # the package gives the function that name
CONV = "Conv <pads: ints = [1,1,1,1]>"


def image(body: str) -> str:
    return f"g (float[1,3,6,6] x) => (float[1,4,6,6] y) {{ {body} }}"


def repaired(make: Make, text: str, weights: dict[str, Array], gone: dict[str, tuple[int, ...]], tmp_path: Path) -> Any:
    """Remove units, by the name of the node that makes their group, and repair; give dB before and after."""
    model = make(text, weights)
    coupled = analyse(graph.load(model.path))
    removed = frozenset(_named(coupled, name).units[place] for name, places in gone.items() for place in places)
    cut = shrunk(coupled, removed)
    better, layers = finish(reconstruct(coupled, removed, cut, made_up(model, 200)))
    for name, one in (("cut", cut), ("better", better)):
        graph.save(one, tmp_path / f"{name}.onnx")
    return _db(model.path, tmp_path / "cut.onnx"), _db(model.path, tmp_path / "better.onnx"), layers


def _named(coupled: Coupled, name: str) -> Any:
    return next(group for group in coupled.groups if name in group.makers)


def _db(original: Path, other: Path) -> float:
    rng = np.random.default_rng(99)
    signal = noise = 0.0
    for _ in range(50):
        given = {"x": rng.normal(size=(1, 3, 6, 6)).astype(np.float32)}
        wanted, found = run(original, given)[0], run(other, given)[0]
        signal += float(np.square(wanted, dtype=np.float64).sum())
        noise += float(np.square(wanted.astype(np.float64) - found).sum())
    return float(10 * np.log10(signal / noise))


def drawn(**shapes: list[int]) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    return {name: rng.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}


def twins(weights: dict[str, Array], *made: str) -> dict[str, Array]:
    """Make unit 5 a copy of unit 2, so that one of them can be made up for."""
    for name in made:
        weights[name][5] = weights[name][2]
    return weights


def test_what_a_twin_can_take_over_it_takes_over(make: Make, tmp_path: Path) -> None:
    text = image(f"a = {CONV} (x, w1, b1) b = Relu (a) y = {CONV} (b, w2, b2)")
    weights = twins(drawn(w1=[8, 3, 3, 3], b1=[8], w2=[4, 8, 3, 3], b2=[4]), "w1", "b1")
    before, after, layers = repaired(make, text, weights, {"Conv_a": (5,)}, tmp_path)
    assert before < 20
    assert after > 45
    assert layers == 1


def test_a_depthwise_layer_is_looked_through(make: Make, tmp_path: Path) -> None:
    text = image(
        f"a = {CONV} (x, w1, b1) b = Relu (a) c = Conv <group = 8, pads: ints = [1,1,1,1]> (b, wd, bd) d = Relu (c)"
        "y = Conv (d, w2, b2)"
    )
    weights = drawn(w1=[8, 3, 3, 3], b1=[8], wd=[8, 1, 3, 3], bd=[8], w2=[4, 8, 1, 1], b2=[4])
    before, after, _ = repaired(make, text, twins(weights, "w1", "b1", "wd", "bd"), {"Conv_a": (5,)}, tmp_path)
    assert before < 20
    assert after > 45


def test_a_branch_repairs_the_trunk(make: Make, tmp_path: Path) -> None:
    """The first branch loses what it cannot make good; the second sees all that it needs for that."""
    text = image(
        f"p = Conv (x, ws, bs) a = {CONV} (p, w1, b1) b = Conv (a, w2, b2) c = Add (p, b)"
        f"d = {CONV} (p, w3, b3) e = Conv (d, w4, b4) f = Add (c, e) y = Conv (f, w5, b5)"
    )
    shapes = {"ws": [6, 3, 1, 1], "w1": [4, 6, 3, 3], "w2": [6, 4, 1, 1], "w3": [54, 6, 3, 3], "w4": [6, 54, 1, 1]}
    weights = drawn(**shapes, w5=[4, 6, 1, 1], bs=[6], b1=[4], b2=[6], b3=[54], b4=[6], b5=[4])
    for feature in range(54):  # what the second branch sees is all of a 3 x 3 patch
        weights["w3"][feature] = 0
        weights["w3"][feature].flat[feature] = 1
    alone, together, layers = repaired(make, text, weights, {"Conv_a": (0, 1)}, tmp_path)
    assert layers >= 2
    assert alone < 20
    assert together > 40


def test_behind_a_relu_only_what_passes_counts(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = image(f"a = {CONV} (x, w1, b1) b = Relu (a) c = {CONV} (b, w2, b2) d = Relu (c) y = Conv (d, w3, b3)")
    weights = drawn(w1=[12, 3, 3, 3], b1=[12], w2=[8, 12, 3, 3], b2=[8], w3=[4, 8, 1, 1], b3=[4])
    weights["w2"] *= 3
    gone = {"Conv_a": (1, 4, 6, 9)}
    _, with_bounds, _ = repaired(make, text, weights, gone, tmp_path)
    monkeypatch.setattr(MODULE, "_bounds", lambda _value: None)
    _, without, _ = repaired(make, text, weights, gone, tmp_path)
    assert with_bounds > without


@pytest.mark.parametrize("bounds", [(0.0, np.inf), (0.0, 6.0), (-np.inf, 1.0), (-1.0, 1.0)])
def test_a_target_beyond_a_bound_is_anything_beyond_it(bounds: tuple[float, float]) -> None:
    low, high = bounds
    wanted, given = (a.astype(np.float32) for a in np.meshgrid(np.linspace(-3, 9, 49), np.linspace(-3, 9, 49)))
    found = MODULE._within(wanted, given, bounds)
    assert np.array_equal(np.clip(found, low, high), np.clip(wanted, low, high))  # what passes is the same
    same = np.clip(given, low, high) == np.clip(wanted, low, high)
    assert np.array_equal(found[same], given[same])  # nothing is asked for where nothing would come of it
    nearest = np.clip(wanted, low, high)  # else the least change that is enough
    assert np.array_equal(found[~same], nearest[~same])


def test_a_matrix_product_without_bias_is_repaired_too(make: Make, tmp_path: Path) -> None:
    text = """g (float[1,3,6,6] x) => (float[1,3,6,4] y) {
        a = MatMul (x, w1)
        b = Sigmoid (a)
        y = MatMul (b, w2)
    }"""
    weights = drawn(w1=[6, 8], w2=[8, 4])
    weights["w1"][:, 5] = weights["w1"][:, 2]
    before, after, layers = repaired(make, text, weights, {"MatMul_a": (5,)}, tmp_path)
    assert (before < 30, after > 45, layers) == (True, True, 1)


def test_layers_that_the_cut_does_not_reach_stay_as_they_are(make: Make, tmp_path: Path) -> None:
    text = image(
        f"p = {CONV} (x, w0, b0) a = {CONV} (p, w1, b1) b = Relu (a) c = Conv (b, w2, b2) d = {CONV} (x, w3, b3)"
        "e = Tanh (d) y = Add (c, e)"
    )
    weights = drawn(w0=[5, 3, 3, 3], b0=[5], w1=[8, 5, 3, 3], b1=[8], w2=[4, 8, 1, 1], b2=[4], w3=[4, 3, 3, 3], b3=[4])
    repaired(make, text, weights, {"Conv_a": (1,)}, tmp_path)
    left = {name: v.const_value.numpy() for name, v in graph.load(tmp_path / "better.onnx").graph.initializers.items()}
    for name in ("w0", "b0", "w3", "b3"):
        assert np.array_equal(left[name], weights[name])
    assert np.array_equal(left["w1"], np.delete(weights["w1"], 1, axis=0))
    assert not np.array_equal(left["w2"], np.delete(weights["w2"], 1, axis=1))


def test_the_model_that_was_cut_is_left_alone(make: Make) -> None:
    model = make(image(f"a = {CONV} (x, w1) b = Relu (a) y = {CONV} (b, w2)"), drawn(w1=[8, 3, 3, 3], w2=[4, 8, 3, 3]))
    coupled = analyse(graph.load(model.path))
    removed = frozenset(coupled.groups[0].units[:2])
    cut = shrunk(coupled, removed)
    before = {name: value.const_value.numpy().copy() for name, value in cut.graph.initializers.items()}
    finish(reconstruct(coupled, removed, cut, made_up(model, 20)))
    assert before.keys() == cut.graph.initializers.keys()
    assert all(np.array_equal(before[name], v.const_value.numpy()) for name, v in cut.graph.initializers.items())


def test_what_is_added_in_another_shape_is_no_part_of_the_target(make: Make, tmp_path: Path) -> None:
    text = image(
        f"q = GlobalAveragePool (x) o = Conv (q, w4) a = {CONV} (x, w1, b1) b = Relu (a) c = {CONV} (b, w2, b2)"
        "d = Add (c, o) y = Conv (d, w3)"
    )
    weights = drawn(w1=[8, 3, 3, 3], b1=[8], w2=[4, 8, 3, 3], b2=[4], w3=[4, 4, 1, 1], w4=[4, 3, 1, 1])
    before, after, layers = repaired(make, text, twins(weights, "w1", "b1"), {"Conv_a": (5,)}, tmp_path)
    assert before < 20
    assert after > 45
    assert layers == 1
