from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from compressor.stages import Quantize
from compressor.stages.quantize.nncf import unsigned

SIGNED = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,3,8,8] x) => (float[1,4,6,6] y)
<float sx = {0.03}, int8 zx = {5}, float sy = {0.02}, int8 zy = {-7}, float sw = {0.01}, int8 zw = {0}> {
  qx = QuantizeLinear(x, sx, zx)
  dx = DequantizeLinear(qx, sx, zx)
  qw = QuantizeLinear(W, sw, zw)
  dw = DequantizeLinear(qw, sw, zw)
  c = Conv(dx, dw)
  qy = QuantizeLinear(c, sy, zy)
  y = DequantizeLinear(qy, sy, zy)
}"""


@pytest.fixture
def signed() -> onnx.ModelProto:
    model = onnx.parser.parse_model(SIGNED)
    weight = np.random.default_rng(0).normal(size=(4, 3, 3, 3), scale=0.3).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "W"))
    return model


def test_unsigned_codes_give_equal_numbers(signed: onnx.ModelProto) -> None:
    x = np.random.default_rng(1).normal(size=(1, 3, 8, 8), scale=3).astype(np.float32)
    before = onnx.reference.ReferenceEvaluator(signed).run(None, {"x": x})[0]
    after = onnx.reference.ReferenceEvaluator(unsigned(signed)).run(None, {"x": x})[0]
    np.testing.assert_array_equal(before, after)
    assert len(np.unique(before)) > 50


def test_activations_become_unsigned_and_weights_stay_signed(signed: onnx.ModelProto) -> None:
    changed = unsigned(signed)
    points = {t.name: onnx.numpy_helper.to_array(t) for t in changed.graph.initializer}
    used = {n.output[0]: points[n.input[2]] for n in changed.graph.node if n.op_type != "Conv"}
    assert {name: (point.dtype.name, int(point)) for name, point in used.items()} == {
        **dict.fromkeys(("qx", "dx"), ("uint8", 133)),
        **dict.fromkeys(("qw", "dw"), ("int8", 0)),
        **dict.fromkeys(("qy", "y"), ("uint8", 121)),
    }


def test_the_model_that_is_given_does_not_change(signed: onnx.ModelProto) -> None:
    before = signed.SerializeToString(deterministic=True)
    unsigned(signed)
    assert signed.SerializeToString(deterministic=True) == before


def test_onnx_runtime_fuses_what_nncf_made_to_integer_kernels(make: Any, apply: Any, fused: Any, db: Any) -> None:
    model = make(
        """g (float[1,3,8,8] x) => (float[1,4] y) {
          a = Conv<pads=[1,1,1,1]>(x, W1) \n ra = Relu(a)
          b = Conv<pads=[1,1,1,1], group=8>(ra, W2) \n s = Add(b, ra)
          c = Conv(s, W3) \n rc = Relu(c) \n p = GlobalAveragePool(rc) \n y = Flatten(p) }""",
        {"W1": (8, 3, 3, 3), "W2": (8, 1, 3, 3), "W3": (4, 8, 1, 1)},
    )
    made = apply(Quantize(backend="nncf"), model)
    assert fused(made.path).count("QLinearConv") == 3
    assert db(model, made.path) > 20


def test_the_overflow_fix_keeps_weights_within_seven_bits(make: Any, apply: Any) -> None:
    model = make("g (float[1,3,8,8] x) => (float[1,8,6,6] y) { a = Conv(x, W) \n y = Relu(a) }", {"W": (8, 3, 3, 3)})
    largest = []
    for reduced in (False, True):
        made = onnx.load(apply(Quantize(backend="nncf", reduce_range=reduced), model).path)
        weights = [onnx.numpy_helper.to_array(t) for t in made.graph.initializer if len(t.dims) == 4]
        assert {w.dtype.name for w in weights} == {"int8"}
        largest.append(max(int(np.abs(w.astype(int)).max()) for w in weights))
    assert largest[0] > 100
    assert largest[1] <= 64
