from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from compressor import graph
from compressor.stages.quantize import gemm

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 4)).astype(np.float32)
W, V = RNG.normal(size=(4, 3)).astype(np.float32), RNG.normal(size=(3, 3)).astype(np.float32)


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 1.0), (1.0, 0.25), (0.5, 3.0), (1.0, 0.0)])
def test_factors_go_into_the_constants(alpha: float, beta: float, make: Any, tmp_path: Path) -> None:
    bias = RNG.normal(size=3).astype(np.float32)
    text = f"g (float[2,4] x) => (float[2,3] y) {{ y = Gemm<alpha={alpha}, beta={beta}>(x, W, b) }}"
    assert settled(make(text, {"W": W, "b": bias}).path, tmp_path) == ((alpha != 1) + (beta != 1), 0)
    assert np.allclose(run(tmp_path, x=X)[0], alpha * X @ W + beta * bias, atol=1e-5)
    assert factors(tmp_path) == [(1.0, 1.0)]


def test_a_factor_does_not_reach_others_that_read_the_constant(make: Any, tmp_path: Path) -> None:
    text = "g (float[2,4] x) => (float[2,3] y, float[2,3] z) { y = Gemm<alpha=2.0>(x, W) \n z = MatMul(x, W) }"
    settled(make(text, {"W": W}).path, tmp_path)
    doubled, plain = run(tmp_path, x=X)
    assert np.allclose(doubled, 2 * X @ W, atol=1e-5)
    assert np.allclose(plain, X @ W, atol=1e-5)


def test_a_constant_left_side_takes_the_factor(make: Any, tmp_path: Path) -> None:
    model = make("g (float[2,4] x) => (float[5,4] y) { y = Gemm<alpha=2.0>(A, x) }", {"A": (5, 2)})
    left = onnx.numpy_helper.to_array(onnx.load(model.path).graph.initializer[0])
    assert settled(model.path, tmp_path) == (1, 0)
    assert np.allclose(run(tmp_path, x=X)[0], 2 * left @ X, atol=1e-5)


def test_a_factor_of_two_computed_sides_stays(make: Any, tmp_path: Path) -> None:
    model = make("g (float[2,4] x, float[4,3] w) => (float[2,3] y) { y = Gemm<alpha=2.0>(x, w) }", {})
    assert settled(model.path, tmp_path) == (0, 0)
    assert factors(tmp_path) == [(2.0, 1.0)]


@pytest.mark.parametrize("inputs", ["x, W", "x, w"])
def test_a_beta_without_a_bias_goes(inputs: str, make: Any, tmp_path: Path) -> None:
    text = f"g (float[2,4] x, float[4,3] w) => (float[2,3] y) {{ y = Gemm<beta=0.5>({inputs}) }}"
    assert settled(make(text, {"W": W}).path, tmp_path) == (1, 0)
    assert np.allclose(run(tmp_path, x=X, w=W)[0], X @ W, atol=1e-5)
    assert factors(tmp_path) == [(1.0, 1.0)]


def test_a_computed_bias_is_multiplied_by_beta_and_added(make: Any, tmp_path: Path) -> None:
    text = "g (float[2,4] x, float[2,3] c) => (float[2,3] y) { y = Gemm<alpha=2.0, beta=3.0>(x, W, c) }"
    assert settled(make(text, {"W": W}).path, tmp_path) == (1, 1)
    c = RNG.normal(size=(2, 3)).astype(np.float32)
    assert np.allclose(run(tmp_path, x=X, c=c)[0], 2 * X @ W + 3 * c, atol=1e-5)
    assert factors(tmp_path) == [(1.0, 1.0)]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 3)])
def test_a_bias_that_is_one_row_becomes_a_row(shape: tuple[int, ...], make: Any, tmp_path: Path) -> None:
    bias = np.asarray(RNG.normal(size=shape), np.float32)
    model = make("g (float[2,4] x) => (float[2,3] y) { y = Gemm(x, W, b) }", {"W": W, "b": bias})
    assert settled(model.path, tmp_path) == (0, 1)
    assert np.allclose(run(tmp_path, x=X)[0], X @ W + bias, atol=1e-5)
    made = onnx.load(tmp_path / "out.onnx").graph
    assert [node.op_type for node in made.node] == ["Gemm"]
    assert [list(t.dims) for t in made.initializer if t.name == made.node[0].input[2]] == [[3]]


@pytest.mark.parametrize("shape", [(2, 1), (2, 3)])
def test_any_other_bias_is_added_by_an_add(shape: tuple[int, ...], make: Any, tmp_path: Path) -> None:
    bias = RNG.normal(size=shape).astype(np.float32)
    model = make("g (float[2,4] x) => (float[2,3] y) { y = Gemm(x, W, b) \n }", {"W": W, "b": bias})
    assert settled(model.path, tmp_path) == (0, 1)
    assert np.allclose(run(tmp_path, x=X)[0], X @ W + bias, atol=1e-5)
    assert [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node] == ["Gemm", "Add"]


def test_a_bias_that_is_computed_is_added_by_an_add(make: Any, tmp_path: Path) -> None:
    text = "g (float[2,4] x, float[3] c) => (float[2,3] z) { y = Gemm(x, W, c) \n z = Gemm(y, V, v) }"
    model = make(text, {"W": W, "V": V, "v": np.zeros(3, np.float32)})
    assert settled(model.path, tmp_path) == (0, 1)
    c = RNG.normal(size=3).astype(np.float32)
    assert np.allclose(run(tmp_path, x=X, c=c)[0], (X @ W + c) @ V, atol=1e-5)
    assert [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node] == ["Gemm", "Add", "Gemm"]


def settled(path: Path, folder: Path) -> tuple[int, int]:
    model = graph.load(path)
    counts = gemm.scale(model), gemm.straighten(model)
    graph.save(model, folder / "out.onnx")
    onnx.checker.check_model(onnx.load(folder / "out.onnx"), full_check=True)
    return counts


def factors(folder: Path) -> list[tuple[float, float]]:
    found = []
    for node in onnx.load(folder / "out.onnx").graph.node:
        values = {a.name: a.f for a in node.attribute}
        if node.op_type == "Gemm":
            found.append((values.get("alpha", 1.0), values.get("beta", 1.0)))
    return found


def run(folder: Path, **feeds: np.ndarray) -> Any:
    return onnxruntime.InferenceSession(str(folder / "out.onnx"), providers=["CPUExecutionProvider"]).run(None, feeds)
