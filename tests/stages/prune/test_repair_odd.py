"""Pruning with repair on what is not the plain case: batches, few samples, odd outputs, types, shapes and sharing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from exact import made_up
from finished import finish
from numpy.typing import NDArray

from compressor import graph
from compressor.errors import RungError
from compressor.records import Model
from compressor.samples import read
from compressor.stages import Prune
from compressor.stages.prune.groups import analyse
from compressor.stages.prune.importance import readers, spreads
from compressor.stages.prune.layers import layers

Make = Callable[..., Model]
Apply = Callable[..., Any]
Array = NDArray[Any]
LATE = Prune(ratio="25%", of="channels", multiple=1)


def drawn(**shapes: list[int]) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


MLP = "a = Gemm (x, w1, b1) b = Tanh (a) y = Gemm (b, w2, b2)"


def mlp(batch: int) -> tuple[str, dict[str, Array]]:
    return f"g (float[{batch},6] x) => (float[{batch},4] y) {{ {MLP} }}", drawn(w1=[6, 24], b1=[24], w2=[24, 4], b2=[4])


def test_a_static_batch_loses_what_single_samples_do(make: Make, apply: Apply) -> None:
    """The samples of a feed are samples, not one."""
    found = []
    for batch in (1, 8):
        model = make(*mlp(batch))
        _, did = apply(LATE, model, made_up(model, 200), f"out{batch}.onnx")
        found.append(did.pruned.repaired)
    one, many = found
    assert many.layers == one.layers == 1
    assert many.after == pytest.approx(one.after, rel=0.5)
    assert many.before == pytest.approx(one.before, rel=0.5)
    assert many.after < many.before / 4


@pytest.mark.parametrize("n", [1, 2, 4, 7])
def test_few_samples_do_no_harm_and_are_mentioned(make: Make, apply: Apply, db: Any, n: int) -> None:
    text = "g (float[1,3,6,6] x) => (float[1,4,6,6] y) { a = Conv (x, w1, b1) b = Tanh (a) y = Conv (b, w2, b2) }"
    model = make(text, drawn(w1=[16, 3, 1, 1], b1=[16], w2=[4, 16, 1, 1], b2=[4]))
    few, did = apply(LATE, model, made_up(model, n))
    plain, _ = apply(LATE.model_copy(update={"repair": False}), model, made_up(model, n), "plain.onnx")
    assert db(model, few) > db(model, plain) - 1
    assert any("too few to hold any out" in note for note in did.notes)


def test_a_product_without_bias_does_not_lose_its_mean(make: Make) -> None:
    """Nothing can take the mean over, so it is part of what must be made good."""
    text = "g (float[1,8,12] x) => (float[1,8,4] y) { a = MatMul (x, w1) b = Relu (a) y = MatMul (b, w2) }"
    model = make(text, drawn(w1=[12, 16], w2=[16, 4]))
    coupled = analyse(graph.load(model.path))
    (reader,) = readers(coupled, coupled.groups[0], layers(coupled.model))
    found = finish(spreads(coupled.model, [reader.layer], made_up(model, 30)))[reader.layer.node]
    assert (found.mean == 0).all()
    assert np.trace(found.covariance) > 0


def test_layers_are_repaired_though_height_and_width_are_open(make: Make, apply: Apply) -> None:
    text = """g (float[1,3,h,v] x) => (float[1,4,i,j] y) {
        a = Conv <auto_pad = "SAME_UPPER", strides = [2,2]> (x, w1, b1)
        b = Relu (a)
        p = Conv <pads = [1,1,1,1]> (b, w2, b2)
        q = Add (a, p)
        y = Conv (q, w3, b3)
    }"""
    weights = drawn(w1=[16, 3, 3, 3], b1=[16], w2=[16, 16, 3, 3], b2=[16], w3=[4, 16, 1, 1], b3=[4])
    model = make(text, weights)
    assert len(list(layers(analyse(graph.load(model.path)).model))) == 3
    _, did = apply(LATE, model, made_up(model, 30, sizes=9))
    assert did.pruned.repaired.layers == 2
    assert did.pruned.repaired.after < did.pruned.repaired.before


def test_rows_that_are_pruned_stay_beside_their_targets(make: Make, apply: Apply) -> None:
    """Heads are rows of the last product: one of them goes, and so does its target."""
    text = """g (float[1,5,8] x) => (float[1,5,8] y) {
        s = MatMul (x, w0)
        t = Tanh (s)
        u = MatMul (t, w1)
        r = Reshape (u, split)
        h = Transpose <perm = [0,2,1,3]> (r)
        m = MatMul (h, w2)
        n = Tanh (m)
        o = Transpose <perm = [0,2,1,3]> (n)
        f = Reshape (o, merge)
        y = MatMul (f, w3)
    }"""
    weights = drawn(w0=[8, 12], w1=[12, 16], w2=[4, 4], w3=[16, 8])
    model = make(text, {**weights, "split": np.array([0, 0, 4, 4]), "merge": np.array([0, 0, 16])})
    _, did = apply(Prune(ratio="40%", of="channels", multiple=1), model, made_up(model, 60))
    cut = {group.name for group in did.pruned.groups if group.kept is not None and group.kept < group.channels}
    assert len(cut) >= 1
    assert did.pruned.repaired.after < did.pruned.repaired.before


def test_two_products_that_share_a_bias_get_one_each(make: Make, apply: Apply) -> None:
    text = """g (float[1,6] x) => (float[1,4] y, float[1,4] z) {
        a = MatMul (x, w1)
        b = Tanh (a)
        c = MatMul (b, w2)
        y = Add (c, bias)
        d = MatMul (b, w3)
        z = Add (bias, d)
    }"""
    model = make(text, drawn(w1=[6, 24], w2=[24, 4], w3=[24, 4], bias=[4]))
    path, did = apply(LATE, model, made_up(model, 60))
    onnx.checker.check_model(str(path), full_check=True)
    assert did.pruned.repaired.layers == 2


@pytest.mark.parametrize(
    ("outputs", "body"),
    [
        ("int64[1,1] z", "z = ArgMax <axis = 1> (y)"),
        ("string[1,4] z", "z = Cast <to = 8> (y)"),
        ("float[1,4] z", "z = Div (y, zeros)"),  # infinite, before and after
    ],
)
def test_odd_outputs_are_no_obstacle(make: Make, apply: Apply, outputs: str, body: str) -> None:
    text = f"g (float[1,6] x) => (float[1,4] y, {outputs}) {{ {MLP} {body} }}"
    weights = drawn(w1=[6, 24], b1=[24], w2=[24, 4], b2=[4])
    if "zeros" in body:
        weights["zeros"] = np.zeros(4, np.float32)
    model = make(text, weights)
    _, did = apply(LATE, model, made_up(model, 60))
    assert did.pruned.channels == (28, 22)
    assert did.pruned.repaired.layers == 1


def test_outputs_whose_size_depends_on_the_data_cannot_be_compared(make: Make, apply: Apply) -> None:
    text = f"g (float[1,6] x) => (float[1,4] y, int64[2,k] z) {{ {MLP} p = Relu (y) z = NonZero (p) }}"
    model = make(text, drawn(w1=[6, 24], b1=[24], w2=[24, 4], b2=[4]))
    with pytest.raises(RungError, match=r"outputs cannot be held against its own.*'z' has shape"):
        apply(LATE, model, made_up(model, 60))


def test_bounds_of_one_element_are_bounds(make: Make, apply: Apply) -> None:
    text = """g (float[1,3,6,6] x) => (float[1,4,6,6] y) {
        a = Conv (x, w1, b1)
        b = Clip (a, low, high)
        c = Conv (b, w2, b2)
        d = Clip (c, low, high)
        y = Conv (d, w3, b3)
    }"""
    weights = drawn(w1=[16, 3, 1, 1], b1=[16], w2=[8, 16, 1, 1], b2=[8], w3=[4, 8, 1, 1], b3=[4])
    bounds = {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}
    _, did = apply(LATE, make(text, {**weights, **bounds}))
    assert did.pruned.repaired.layers >= 1


def test_by_latency_takes_time_where_it_is_spent(make: Make, apply: Apply) -> None:
    text = """g (float[1,3,64,64] x) => (float[1,4,1,1] y) {
        a = Conv <pads = [1,1,1,1]> (x, w1, b1)
        b = Relu (a)
        c = Conv <pads = [1,1,1,1]> (b, w2, b2)
        d = GlobalAveragePool (c)
        e = Conv (d, w3, b3)
        f = Relu (e)
        y = Conv (f, w4, b4)
    }"""
    weights = drawn(
        w1=[32, 3, 3, 3], b1=[32], w2=[32, 32, 3, 3], b2=[32], w3=[256, 32, 1, 1], b3=[256], w4=[4, 256, 1, 1], b4=[4]
    )
    path, did = apply(Prune(ratio="30%", of="latency", multiple=8), make(text, weights))
    kept = {group.name: group.kept / group.channels for group in did.pruned.groups if group.kept}
    assert min(kept["Conv_a"], kept["Conv_c"]) < 1
    assert path.exists()


@pytest.mark.parametrize("huge", [1e20, -3.4e38])
def test_huge_values_in_a_sample_cost_repair_and_not_the_run(
    make: Make, apply: Apply, tmp_path: Path, huge: float
) -> None:
    model = make(f"g (float[1,6] x) => (float[1,4] y) {{ {MLP.replace('Tanh', 'Relu')} }}", mlp(1)[1])
    given = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    given[3] = huge
    np.savez(tmp_path / "huge.npz", x=given)
    shapes = {"x": (1, 6)}
    _, did = apply(LATE, model, read(tmp_path / "huge.npz", model.inputs, shapes))
    assert did.pruned.channels == (28, 22)
    assert did.pruned.repaired.layers == 0


def test_text_among_the_inputs_is_passed_on(make: Make, apply: Apply, tmp_path: Path) -> None:
    text = f"g (float[1,6] x, string[1,1] t) => (float[1,4] y, string[1,1] u) {{ {MLP} u = Identity (t) }}"
    model = make(text, mlp(1)[1])
    words = np.array([["aé"], ["bcd"]] * 20)
    np.savez(tmp_path / "text.npz", x=np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32), t=words)
    given = read(tmp_path / "text.npz", model.inputs, {"x": (1, 6), "t": (1, 1)})
    _, did = apply(LATE, model, given)
    assert did.pruned.repaired.layers == 1
