from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from compressor import graph
from compressor.stages.quantize import constants

RNG = np.random.default_rng(0)
V = RNG.normal(size=(64, 32)).astype(np.float32)
"""8 kB: more than may be added to a file."""


@pytest.mark.parametrize(
    ("nodes", "weights", "expected"),
    [
        ("W = Transpose<perm=[1,0]>(V)", {"V": V}, V.T),
        ("W = Reshape(V, s)", {"V": V, "s": np.array([32, 64])}, V.reshape(32, 64)),
        (
            "n = ReduceL2<axes=[1], keepdims=1>(V) \n d = Div(V, n) \n g = Mul(d, s) \n W = Transpose(g)",
            {"V": V, "s": np.array(3, np.float32)},
            3 * (V / np.linalg.norm(V, axis=1, keepdims=True)).T,
        ),
        ("W = Concat<axis=0>(A, B)", {"A": V[:16].repeat(2, 1), "B": V[16:32].repeat(2, 1)}, V[:32].repeat(2, 1)),
        (
            "u = Unsqueeze(V, a) \n t = Transpose<perm=[2,1,0]>(u) \n W = Squeeze(t, b)",
            {"V": V, "a": np.array([0]), "b": np.array([2])},
            V.T,
        ),
        (
            "a, b = Split<axis=1>(Z) \n c = Sub(a, b) \n W = Transpose(c)",
            {"Z": np.hstack([V, V[::-1]])},
            (V - V[::-1]).T,
        ),
    ],
)
def test_a_computed_weight_is_stored(nodes: str, weights: Any, expected: Any, make: Any, tmp_path: Path) -> None:
    model = make(f"g (float[2,32] x) => (float[2,64] y) {{ {nodes} \n y = MatMul(x, W) }}", weights)
    assert folded(model.path, tmp_path) == len(nodes.splitlines())
    made = onnx.load(tmp_path / "out.onnx").graph
    assert [node.op_type for node in made.node] == ["MatMul"]
    (weight,) = made.initializer
    assert weight.name == "W"
    assert np.allclose(numpy_helper.to_array(weight), expected, atol=1e-6)


def test_an_embedding_whose_transpose_is_read_too_is_stored_once(make: Any, tmp_path: Path) -> None:
    text = "g (int64[3] i) => (float[3,64] y) { e = Gather(V, i) \n t = Transpose<perm=[1,0]>(V) \n y = MatMul(e, t) }"
    model = make(text, {"V": V})
    assert folded(model.path, tmp_path) == 0
    assert (tmp_path / "out.onnx").read_bytes() == model.path.read_bytes()


@pytest.mark.parametrize("nodes", ["z = ConstantOfShape(s) \n W = Add(z, one)", "W = Expand(one, s)"])
def test_what_is_large_and_computed_from_little_stays_computed(nodes: str, make: Any, tmp_path: Path) -> None:
    text = f"g (float[2,512] x) => (float[2,512] y) {{ {nodes} \n y = MatMul(x, W) }}"
    model = make(text, {"one": np.array(1, np.float32), "s": np.array([512, 512])})
    assert folded(model.path, tmp_path) == 0
    assert (tmp_path / "out.onnx").stat().st_size == model.path.stat().st_size


def test_a_constant_read_through_a_copy_is_read_itself(make: Any, tmp_path: Path) -> None:
    text = """g (float[2,64] x) => (float[2,32] y, float[2,32] z) {
      W = Identity(V) \n y = MatMul(x, V) \n z = MatMul(x, W) }"""
    assert folded(make(text, {"V": V}).path, tmp_path) == 1
    assert [list(node.input) for node in onnx.load(tmp_path / "out.onnx").graph.node] == [["x", "V"], ["x", "V"]]


@pytest.mark.parametrize(
    "node",
    [
        "w = RandomNormalLike(V)",
        "w = DequantizeLinear(Q, s)",
        "w = Bernoulli(V)",
        """w = If(c) <then_branch = t () => (float[64,32] a) { a = Exp(V) },
                     else_branch = e () => (float[64,32] b) { b = Neg(V) }>""",
    ],
)
def test_what_is_random_or_quantized_or_a_branch_stays(node: str, make: Any, tmp_path: Path) -> None:
    weights = {
        "V": np.clip(V, 0, 1),
        "Q": np.ones((64, 32), np.int8),
        "s": np.array(0.1, np.float32),
        "c": np.array(1, bool),
    }
    model = make(f"g (float[2,64] x) => (float[2,32] y) {{ {node} \n y = MatMul(x, w) }}", weights)
    assert folded(model.path, tmp_path) == 0


def test_an_output_stays_computed_and_what_branches_read_is_stored(make: Any, tmp_path: Path) -> None:
    text = """g (float[2,32] x, bool c) => (float[32,64] o, float[2,64] y) {
      o = Transpose(V) \n W = Neg(V) \n y = If(c) <
      then_branch = t () => (float[2,64] a) { t1 = Transpose(W) \n a = MatMul(x, t1) },
      else_branch = e () => (float[2,64] b) { t2 = Transpose(W) \n k = MatMul(x, t2) \n b = Neg(k) } > }"""
    model = make(text, {"V": np.vstack([V])})
    folded(model.path, tmp_path)
    x = RNG.normal(size=(2, 32)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(tmp_path / "out.onnx"), providers=["CPUExecutionProvider"])
    output, product = session.run(None, {"x": x, "c": np.array(1, bool)})
    assert (output == V.T).all()
    assert np.allclose(product, -x @ V.T, atol=1e-5)


def folded(path: Path, folder: Path) -> int:
    model = graph.load(path)
    gone = constants.fold(model)
    graph.save(model, folder / "out.onnx")
    onnx.checker.check_model(onnx.load(folder / "out.onnx"), full_check=True)
    return gone
