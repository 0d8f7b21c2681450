from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from compressor import graph

Make = Callable[..., Path]
Run = Callable[..., list[np.ndarray]]

NORM = {
    "s": np.array([0.5, -2.0, 3.0, 1.0], np.float32),
    "b": np.array([1.0, 0.0, -1.0, 2.0], np.float32),
    "m": np.array([0.1, -0.2, 0.3, 5.0], np.float32),
    "v": np.array([0.01, 1.0, 4.0, 0.5], np.float32),
}
FEEDS = {"x": np.random.default_rng(0).normal(size=(2, 4, 6, 6)).astype(np.float32)}


def graph_of(body: str, outputs: str = "float[N,4,H,K] y") -> str:
    return f"g (float[2,4,6,6] x) => ({outputs}) {{ {body} }}"


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.mark.parametrize(
    ("conv", "weights"),
    [
        ("c = Conv(x, W)", {"W": (4, 4, 3, 3)}),
        ("c = Conv <pads = [1, 1, 1, 1]> (x, W, B)", {"W": (4, 4, 3, 3), "B": (4,)}),
        ("c = Conv <group = 4> (x, W, B)", {"W": (4, 1, 3, 3), "B": (4,)}),
        ("c = Conv <group = 2, strides = [2, 2]> (x, W)", {"W": (4, 2, 3, 3)}),
        ("c = ConvTranspose(x, W, B)", {"W": (4, 4, 2, 2), "B": (4,)}),
        ("c = ConvTranspose <group = 2, strides = [2, 2]> (x, W)", {"W": (4, 2, 3, 3)}),
        ("c = ConvTranspose <group = 4> (x, W)", {"W": (4, 1, 3, 3)}),
    ],
)
def test_a_folded_convolution_computes_the_same(
    make: Make, run: Run, tmp_path: Path, conv: str, weights: dict[str, tuple[int, ...]]
) -> None:
    path = make(graph_of(f"{conv} y = BatchNormalization <epsilon = 0.01> (c, s, b, m, v)"), weights | NORM)
    did = graph.normalise(path, tmp_path / "out.onnx")
    assert "olded 1 BatchNormalization" in did.what
    assert len(operators(tmp_path / "out.onnx")) == 1
    for before, after in zip(run(path, FEEDS), run(tmp_path / "out.onnx", FEEDS), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)


def test_folding_leaves_no_trace_of_the_statistics(make: Make, tmp_path: Path) -> None:
    path = make(
        graph_of("c = Conv(x, W, B) y = BatchNormalization(c, s, b, m, v)"), NORM | {"W": (4, 4, 3, 3), "B": (4,)}
    )
    graph.normalise(path, tmp_path / "out.onnx")
    out = onnx.load(tmp_path / "out.onnx").graph
    assert {tensor.name for tensor in out.initializer} == {"W", "B"}
    assert not {value.name for value in out.value_info} & {"c", "s", "b", "m", "v"}
    assert [value.name for value in out.output] == ["y"]


def test_a_weight_that_others_read_is_not_changed_for_them(make: Make, run: Run, tmp_path: Path) -> None:
    body = """c = Conv(x, W, B) p = BatchNormalization(c, s, b, m, v)
              d = Conv(x, W, B) q = BatchNormalization(d, s, m, b, v)
              e = Conv(x, W, B) y = Sum(p, q, e)"""
    path = make(graph_of(body), NORM | {"W": (4, 4, 3, 3), "B": (4,)})
    graph.normalise(path, tmp_path / "out.onnx")
    assert operators(tmp_path / "out.onnx") == ["Conv", "Conv", "Conv", "Sum"]
    np.testing.assert_allclose(run(tmp_path / "out.onnx", FEEDS)[0], run(path, FEEDS)[0], rtol=1e-4, atol=1e-4)


def test_a_new_tensor_never_takes_the_name_of_another(make: Make, run: Run, tmp_path: Path) -> None:
    body = "c = Conv(x, W) n = BatchNormalization(c, s, b, m, v) c_bias = Relu(n) y = Neg(c_bias)"
    path = make(graph_of(body), NORM | {"W": (4, 4, 3, 3)})
    graph.normalise(path, tmp_path / "out.onnx")
    assert operators(tmp_path / "out.onnx") == ["Conv", "Relu", "Neg"]
    np.testing.assert_allclose(run(tmp_path / "out.onnx", FEEDS)[0], run(path, FEEDS)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("c = Conv(x, W) n = BatchNormalization(c, s, b, m, v) y = Add(n, c)", "float[N,4,H,K] y"),
        ("c = Conv(x, W) y = BatchNormalization(c, s, b, m, v)", "float[N,4,H,K] y, float[N,4,H,K] c"),
        ("c = Conv(x, W) r = Relu(c) y = BatchNormalization(r, s, b, m, v)", "float[N,4,H,K] y"),
        ("c = Conv(x, W) y, i, j = BatchNormalization <training_mode = 1> (c, s, b, m, v)", "float[N,4,H,K] y"),
        ("c = Conv(x, W) z = Abs(s) y = BatchNormalization(c, z, b, m, v)", "float[N,4,H,K] y"),
        ("K = Abs(W) c = Conv(x, K) y = BatchNormalization(c, s, b, m, v)", "float[N,4,H,K] y"),
    ],
    ids=["read twice", "an output", "not adjacent", "training", "computed scale", "computed weight"],
)
def test_what_cannot_be_folded_exactly_is_left(make: Make, run: Run, tmp_path: Path, body: str, outputs: str) -> None:
    path = make(graph_of(body, outputs), NORM | {"W": (4, 4, 3, 3)})
    graph.normalise(path, tmp_path / "out.onnx")
    assert operators(tmp_path / "out.onnx") == operators(path)
    for before, after in zip(run(path, FEEDS), run(tmp_path / "out.onnx", FEEDS), strict=True):
        np.testing.assert_array_equal(after, before)


def test_a_variance_below_zero_is_left(make: Make, tmp_path: Path) -> None:
    body = "c = Conv(x, W) y = BatchNormalization(c, s, b, m, v)"
    path = make(graph_of(body), NORM | {"W": (4, 4, 3, 3), "v": -np.ones(4, np.float32)})
    graph.normalise(path, tmp_path / "out.onnx")
    assert operators(tmp_path / "out.onnx") == ["Conv", "BatchNormalization"]


def test_half_precision_is_left(make: Make, tmp_path: Path) -> None:
    text = "g (float16[2,4,6,6] x) => (float16[2,4,4,4] y) { c = Conv(x, W) y = BatchNormalization(c, s, b, m, v) }"
    weights = {key: value.astype(np.float16) for key, value in (NORM | {"W": np.ones((4, 4, 3, 3))}).items()}
    graph.normalise(make(text, weights), tmp_path / "out.onnx")
    assert operators(tmp_path / "out.onnx") == ["Conv", "BatchNormalization"]


def test_a_pair_inside_a_branch_is_folded(make: Make, run: Run, tmp_path: Path) -> None:
    text = """g (bool f, float[2,4,6,6] x) => (float[2,4,4,4] y) {
        y = If (f) <then_branch = t () => (float[2,4,4,4] n) { c = Conv(x, W) n = BatchNormalization(c, s, b, m, v) },
                    else_branch = e () => (float[2,4,4,4] o) { o = Conv(x, W) }> }"""
    path = make(text, NORM | {"W": (4, 4, 3, 3)})
    did = graph.normalise(path, tmp_path / "out.onnx")
    assert "olded 1 BatchNormalization" in did.what
    for branch in (True, False):
        feeds = FEEDS | {"f": np.array(branch)}
        np.testing.assert_allclose(run(tmp_path / "out.onnx", feeds)[0], run(path, feeds)[0], rtol=1e-4, atol=1e-5)
