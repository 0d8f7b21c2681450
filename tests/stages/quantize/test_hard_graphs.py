"""Graphs that quantizers get wrong, or refuse, each as small as it can be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest

from compressor.errors import RungError
from compressor.stages import Quantize

STATIC, NNCF = Quantize(scheme="static"), Quantize(backend="nncf")


@pytest.mark.parametrize("kind", ["float16", "double"])
def test_weights_that_are_not_float32_are_refused_with_what_to_do(kind: str, make: Any, apply: Any) -> None:
    weight = drawn_like((4, 3, 3, 3)).astype(np.float16 if kind == "float16" else np.float64)
    model = make(f"g ({kind}[1,3,8,8] x) => ({kind}[1,4,6,6] y) {{ y = Conv(x, W) }}", {"W": weight})
    for stage in (STATIC, NNCF):
        with pytest.raises(RungError, match=r"weight 'W' is float\d\d, .* export the model in float32"):
            apply(stage, model)


@pytest.mark.parametrize("attributes", ["alpha=2.0", "beta=0.5", "transA=1"])
@pytest.mark.parametrize("stage", [STATIC, NNCF], ids=["static", "nncf"])
def test_a_gemm_that_quantizers_get_wrong_stays_float(
    stage: Quantize, attributes: str, make: Any, apply: Any, db: Any
) -> None:
    model = make(
        f"""g (float[8,8] x) => (float[8,4] y) {{
          h = Gemm(x, W1, B1) \n r = Relu(h) \n [odd] y = Gemm<{attributes}>(r, W2, B2) }}""",
        {"W1": (8, 8), "B1": (8,), "W2": (8, 4), "B2": drawn_like((4,)) * 5},
    )
    made = apply(stage, model)
    assert "odd" in made.did.excluded
    assert db(model, made.path) > 20


@pytest.mark.parametrize("stage", [STATIC, NNCF], ids=["static", "nncf"])
def test_a_product_with_a_vector_stays_float(stage: Quantize, make: Any, apply: Any, db: Any) -> None:
    model = make(
        "g (float[4,8] x) => (float[4] y) { h = MatMul(x, W) \n [vector] y = MatMul(h, v) }",
        {"W": (8, 8), "v": (8,)},
    )
    made = apply(stage, model)
    assert made.did.excluded == {"vector": "MatMul with a vector: it has no channel axis"}
    assert db(model, made.path) > 20


def test_two_convolutions_may_share_weight_and_bias(make: Any, apply: Any, db: Any) -> None:
    model = make(
        "g (float[1,3,8,8] x) => (float[1,3,4,4] y) { a = Conv(x, W, B) \n s = Mul(a, by) \n y = Conv(s, W, B) }",
        {"W": (3, 3, 3, 3), "B": (3,), "by": np.float32([60])},
    )
    made = apply(STATIC, model)
    assert db(model, made.path) > 20


def test_an_activation_that_is_always_zero_is_no_division_by_zero(make: Any, apply: Any, db: Any) -> None:
    model = make(
        """g (float[1,3,8,8] x) => (float[1,4,6,6] y) {
          a = Conv(x, W, low) \n dead = Relu(a) \n b = Conv(x, V) \n y = Add(dead, b) }""",
        {"W": (4, 3, 3, 3), "V": drawn_like((4, 3, 3, 3)) * 2, "low": np.full(4, -100, np.float32)},
    )
    made = apply(STATIC, model)
    assert db(model, made.path) > 20


def test_nodes_around_infinite_values_stay_float(make: Any, apply: Any, db: Any) -> None:
    model = make(
        """g (float[1,8] x) => (float[1,8] y) {
          h = MatMul(x, W) \n r = Relu(h) \n [log] l = Log(r) \n [cut] y = Clip(l, low) }""",
        {"W": (8, 8), "low": np.array(-9, np.float32)},
    )
    made = apply(STATIC, model)
    assert made.did.excluded == dict.fromkeys(("log", "cut"), "its values are infinite or nearly so")
    assert math.isfinite(db(model, made.path))
    scales = [onnx.numpy_helper.to_array(t) for t in onnx.load(made.path).graph.initializer if "scale" in t.name]
    assert all(np.isfinite(scale).all() for scale in scales)


def test_an_empty_activation_gets_through(make: Any, apply: Any, db: Any) -> None:
    model = make(
        """g (float[1,3,8,8] x) => (float[1,4,6,6] y) {
          none = Slice(x, zero, zero, axes) \n c = Concat<axis=1>(x, none) \n y = Conv(c, W) }""",
        {"W": (4, 3, 3, 3), "zero": np.array([0]), "axes": np.array([1])},
    )
    assert db(model, apply(STATIC, model).path) > 20


def test_an_old_opset_is_quantized_once_raised(make: Any, apply: Any, db: Any) -> None:
    model = make(
        "g (float[1,3,8,8] x) => (float[1,4,5,5] y) { s = Slice<starts=[1], ends=[8], axes=[2]>(x) \n"
        " t = Slice<starts=[1], ends=[8], axes=[3]>(s) \n y = Conv(t, W) }",
        {"W": (4, 3, 3, 3)},
        opset=9,
    )
    assert db(model, apply(STATIC, model).path) > 20


@pytest.mark.parametrize("read", ["a", "b"])
def test_a_subgraph_reads_what_it_read_before(read: str, make: Any, apply: Any, db: Any) -> None:
    model = make(
        f"""g (float[1,3,8,8] x, bool up) => (float[1,4,6,6] y, float[1,4,6,6] z) {{
          [conv] a = Conv(x, W)
          [relu] b = Relu(a)
          z = Add(b, b)
          y = If(up) <then_branch = t () => (float[1,4,6,6] u) {{ u = Abs({read}) }},
                      else_branch = e () => (float[1,4,6,6] v) {{ v = Neg({read}) }}>
        }}""",
        {"W": (4, 3, 3, 3)},
    )
    made = apply(STATIC, model)
    assert list(made.did.excluded) == ["relu"]
    assert db(model, made.path) > 20


def drawn_like(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape, scale=0.3).astype(np.float32)
