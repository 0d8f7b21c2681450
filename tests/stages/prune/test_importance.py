"""Scores by norms of weights, against loops over units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from exact import made_up
from finished import finish
from numpy.typing import NDArray

from compressor import graph
from compressor.records import Model
from compressor.stages.prune import importance
from compressor.stages.prune.groups import Coupled, analyse
from compressor.stages.prune.layers import layers

Make = Callable[..., Model]
Arrays = Mapping[str, NDArray[Any]]
CONVS = """g (float[n,3,6,6] x) => (float[n,2,6,6] y) {
    a = Conv (x, w1, b1)
    b = Relu (a)
    y = Conv (b, w2)
}"""


def weights(**shapes: list[int]) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(7)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def scores(make: Make, text: str, given: Arrays, node: str) -> list[float]:
    coupled = analyse(graph.load(make(text, given).path))
    (group,) = (group for group in coupled.groups if group.name == node)
    return importance.by_norm(coupled)[list(group.units)].tolist()


def norm(*parts: NDArray[Any]) -> float:
    return float(np.linalg.norm(np.concatenate([np.ravel(part).astype(np.float64) for part in parts])))


def test_two_layers(make: Make) -> None:
    w = weights(w1=[8, 3, 1, 1], b1=[8], w2=[2, 8, 1, 1])
    wanted = [norm(w["w1"][u], w["b1"][u]) * norm(w["w2"][:, u]) for u in range(8)]
    assert scores(make, CONVS, w, "Conv_a") == pytest.approx(wanted)


def test_a_residual_sum_has_two_makers_and_two_readers(make: Make) -> None:
    text = """g (float[n,3,6,6] x) => (float[n,2,6,6] y) {
        a = Conv (x, w1)
        c = Conv (a, wc)
        b = Add (a, c)
        y = Conv (b, w2)
    }"""
    w = weights(w1=[8, 3, 1, 1], wc=[8, 8, 1, 1], w2=[2, 8, 1, 1])
    wanted = [norm(w["w1"][u], w["wc"][u]) * norm(w["wc"][:, u], w["w2"][:, u]) for u in range(8)]
    assert scores(make, text, w, "Conv_a") == pytest.approx(wanted)


def test_a_depthwise_kernel_makes(make: Make) -> None:
    text = """g (float[n,3,6,6] x) => (float[n,2,4,4] y) {
        a = Conv (x, w1)
        b = Conv <group: int = 4> (a, wd, bd)
        y = Conv (b, w2)
    }"""
    w = weights(w1=[4, 3, 1, 1], wd=[8, 1, 3, 3], bd=[8], w2=[2, 8, 1, 1])
    wanted = []
    for u in range(4):
        pair = [2 * u, 2 * u + 1]
        wanted.append(norm(w["w1"][u], w["wd"][pair], w["bd"][pair]) * norm(w["w2"][:, pair]))
    assert scores(make, text, w, "Conv_a") == pytest.approx(wanted)


def test_hidden_units_of_an_lstm(make: Make) -> None:
    text = """g (float[3,2,4] x) => (float[3,2,2] y) {
        h = LSTM <hidden_size: int = 6> (x, wx, wh, bias)
        b = Squeeze (h, direction)
        y = MatMul (b, w2)
    }"""
    w = weights(wx=[1, 24, 4], wh=[1, 24, 6], bias=[1, 48], w2=[6, 2])
    wanted = []
    for u in range(6):
        rows = [u + 6 * gate for gate in range(4)]
        makes = norm(w["wx"][0][rows], w["wh"][0][rows], w["bias"][0][rows], w["bias"][0][[r + 24 for r in rows]])
        wanted.append(makes * norm(w["wh"][0][:, u], w["w2"][u]))
    given = {**w, "direction": np.array([1])}
    assert scores(make, text, given, "LSTM_h") == pytest.approx(wanted)


@pytest.mark.parametrize("side", ["made", "read"])
def test_a_unit_that_nothing_makes_or_nothing_reads_scores_nothing(make: Make, side: str) -> None:
    w = weights(w1=[8, 3, 1, 1], b1=[8], w2=[2, 8, 1, 1])
    if side == "made":
        w["w1"][5], w["b1"][5] = 0, 0
    else:
        w["w2"][:, 5] = 0
    found = scores(make, CONVS, w, "Conv_a")
    assert [u for u, score in enumerate(found) if score == 0] == [5]


def test_a_bias_alone_is_not_nothing(make: Make) -> None:
    w = weights(w1=[8, 3, 1, 1], b1=[8], w2=[2, 8, 1, 1])
    w["w1"][5] = 0
    assert scores(make, CONVS, w, "Conv_a")[5] == pytest.approx(abs(w["b1"][5]) * norm(w["w2"][:, 5]))


@pytest.mark.parametrize(("word", "dtype"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_half_precision_is_summed_in_double(make: Make, word: str, dtype: Any) -> None:
    text = CONVS.replace("float[", f"{word}[")
    drawn = weights(w1=[8, 3, 1, 1], b1=[8], w2=[2, 8, 1, 1])
    w = {name: (300 * array).astype(dtype) for name, array in drawn.items()}
    wanted = [norm(w["w1"][u], w["b1"][u]) * norm(w["w2"][:, u]) for u in range(8)]  # squares beyond float16
    assert min(wanted) ** 2 > float(np.finfo(np.float16).max)
    assert scores(make, text, w, "Conv_a") == pytest.approx(wanted)


def test_there_is_a_score_for_each_unit_and_nothing_is_changed(make: Make) -> None:
    w = weights(w1=[8, 3, 1, 1], b1=[8], w2=[2, 8, 1, 1])
    path = make(CONVS, w).path
    coupled: Coupled = analyse(graph.load(path))
    before = {n: v.const_value.numpy().copy() for n, v in coupled.model.graph.initializers.items()}
    assert importance.by_norm(coupled).shape == (8,)
    assert importance.by_norm(coupled).dtype == np.float64
    after = {n: v.const_value.numpy() for n, v in coupled.model.graph.initializers.items()}
    assert all(np.array_equal(before[n], after[n]) for n in before)
    assert onnx.load(path).graph.initializer[0].name in before


CHAIN = """g (float[1,3,6,6] x) => (float[1,4,6,6] y) {
    a = Conv (x, w1, b1)
    b = Relu (a)
    y = Conv <pads: ints = [1,1,1,1]> (b, w2, b2)
}"""


def spread_of(features: int) -> importance.Spread:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(500, features)) @ rng.normal(size=(features, features)) + rng.normal(size=features)
    return importance.Spread(rows.mean(0), np.cov(rows.T, bias=True))


def read_by_y(coupled: Coupled) -> tuple[Any, list[importance.Reader]]:
    """Give the model, and the only layer that reads its only group."""
    (group,) = coupled.groups
    return coupled.model, importance.readers(coupled, group, layers(coupled.model))


def left(w: NDArray[Any], covariance: NDArray[Any], kept: list[int]) -> tuple[NDArray[Any], float]:
    """Give the weights [out, features] that come nearest to w with these features alone, and the squared change."""
    ridge = 1e-2 * np.trace(covariance) / len(covariance)
    held = covariance + ridge * np.eye(len(covariance))
    best = np.zeros_like(w)
    best[:, kept] = np.linalg.solve(held[np.ix_(kept, kept)], held[kept] @ w.T).T
    return best, float(np.trace((w - best) @ held @ (w - best).T))


def test_the_unit_goes_that_costs_least_when_others_make_up_for_it_and_they_do(make: Make) -> None:
    w = weights(w1=[6, 3, 1, 1], b1=[6], w2=[4, 6, 3, 3], b2=[4])
    coupled = analyse(graph.load(make(CHAIN, w).path))
    spread = spread_of(54)
    found = list(importance.cutbacks(*read_by_y(coupled), {"Conv_y": spread}, np.ones(6), [1, 2, 3]))
    matrix, alive = w["w2"].reshape(4, 54).astype(np.float64), list(range(6))
    for cutback in found:
        options = {u: [9 * v + k for v in alive if v != u for k in range(9)] for u in alive}
        costs = {u: left(matrix, spread.covariance, kept)[1] for u, kept in options.items()}
        gone = min(costs, key=lambda unit: costs[unit])
        assert cutback.removed[-1] == gone
        wanted, _ = left(matrix, spread.covariance, options[gone])
        assert np.allclose(cutback.weights["Conv_y"], wanted, atol=1e-6)
        assert np.allclose(cutback.bias["Conv_y"], (matrix - wanted) @ spread.mean, atol=1e-6)
        alive.remove(gone)


def test_what_a_layer_reads_is_what_its_features_are(make: Make) -> None:
    w = weights(w1=[6, 3, 1, 1], b1=[6], w2=[4, 6, 3, 3], b2=[4])
    model = make(CHAIN, w)
    coupled, samples = analyse(graph.load(model.path)), made_up(model, 40)
    _, (reader,) = read_by_y(coupled)
    found = finish(importance.spreads(coupled.model, [reader.layer], samples))["Conv_y"]
    rows = []
    for feed in samples:
        a = np.einsum("oi,nihw->nohw", w["w1"][:, :, 0, 0], feed["x"]) + w["b1"][:, None, None]
        b = np.pad(np.maximum(a, 0), ((0, 0), (0, 0), (1, 1), (1, 1)))[0]
        rows += [b[:, i : i + 3, j : j + 3].ravel() for i in range(6) for j in range(6)]
    assert np.allclose(found.mean, np.mean(rows, 0), atol=1e-3)
    assert np.allclose(found.covariance, np.cov(np.array(rows).T, bias=True), atol=1e-3)


def test_what_weights_say_is_nothing_goes_before_what_samples_say_is_nothing(make: Make) -> None:
    w = weights(w1=[6, 3, 1, 1], b1=[6], w2=[4, 6, 3, 3], b2=[4])
    w["w1"][4], w["b1"][4] = 0, 0
    coupled = analyse(graph.load(make(CHAIN, w).path))
    spread = spread_of(54)
    spread.covariance[:9] = spread.covariance[:, :9] = 0  # of unit 0 no sample makes anything
    spread.mean[:9] = 0
    norms = importance.by_norm(coupled)
    found = list(importance.cutbacks(*read_by_y(coupled), {"Conv_y": spread}, norms, [1, 2]))
    assert found[-1].removed == (4, 0)


def test_behind_a_global_pool_few_samples_do_not_make_a_layer_seem_free(make: Make) -> None:
    """12 rows fit any 32 features; what lies before the pool shows that they are independent."""
    text = """g (float[1,3,6,6] x) => (float[1,4] y) {
        a = Conv (x, w1, b1)
        b = Relu (a)
        p = GlobalAveragePool (b)
        f = Flatten (p)
        y = Gemm <transB = 1> (f, w2, b2)
    }"""
    model = make(text, weights(w1=[32, 3, 1, 1], b1=[32], w2=[4, 32], b2=[4]))
    coupled = analyse(graph.load(model.path))
    _, (reader,) = read_by_y(coupled)
    covariance = finish(importance.spreads(coupled.model, [reader.layer], made_up(model, 12)))["Gemm_y"].covariance
    assert np.linalg.matrix_rank(covariance, tol=1e-5 * np.trace(covariance)) > 11


def test_of_two_that_stand_in_for_each_other_one_stays_though_several_go_at_once(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = weights(w1=[32, 3, 1, 1], b1=[32], w2=[4, 32, 1, 1], b2=[4])
    w["w2"][:, 16:] = w["w2"][:, :16]
    coupled = analyse(graph.load(make(CHAIN.replace("<pads: ints = [1,1,1,1]>", ""), w).path))
    rng = np.random.default_rng(2)
    rows = np.tile(rng.normal(size=(500, 16)), 2) + 0.05 * rng.normal(size=(500, 32))
    spread = {"Conv_y": importance.Spread(rows.mean(0), np.cov(rows.T, bias=True))}

    def removed() -> tuple[int, ...]:
        (found,) = importance.cutbacks(*read_by_y(coupled), spread, np.ones(32), [8])
        return found.removed

    alone = removed()
    monkeypatch.setattr(importance, "_ONE_BY_ONE", 4)  # of 32 units, 8 at once
    together = removed()
    assert len({unit % 16 for unit in together}) == 8
    assert set(together) == set(alone)


def test_scores_are_sums_in_the_order_of_the_graph(make: Make) -> None:
    """Else units alike score differently by rounding, and which go depends on how Python hashes names."""
    rng = np.random.default_rng(0)
    kernels = rng.normal(size=(4, 1, 3, 3)).astype(np.float32)
    orders = np.array([rng.permutation(4) for _ in range(64)])
    w = {f"w{i}": np.ascontiguousarray(kernels[orders[:, i]]) for i in range(4)}
    w["w4"] = np.ones((2, 64, 1, 1), np.float32)
    group = "<group: int = 64>"
    text = f"""g (float[1,1,9,9] x) => (float[1,2,1,1] y) {{
        a = Conv (x, w0) b = Conv {group} (a, w1) c = Conv {group} (b, w2) d = Conv {group} (c, w3) y = Conv (d, w4)
    }}"""
    coupled = analyse(graph.load(make(text, w).path))
    made = np.zeros(64)
    for i in range(4):
        made = made + np.square(w[f"w{i}"], dtype=np.float64).sum((1, 2, 3))
    assert len(set(made)) > 1  # by rounding
    assert np.array_equal(importance.by_norm(coupled), np.sqrt(made * 2.0))
