"""Scores by norms of weights, against loops over units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from compressor import graph
from compressor.records import Model
from compressor.stages.prune import importance
from compressor.stages.prune.groups import Coupled, analyse

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
