from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from compressor import graph
from compressor.stages.quantize import ort
from compressor.stages.quantize.compact import compact
from compressor.stages.quantize.job import Job

LEVELS = onnxruntime.GraphOptimizationLevel
TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,3,8,8] image) => (float[1,5] logits)
<float s1 = {0.02}, uint8 z1 = {100}, float s2 = {0.02}, uint8 z2 = {100}, float s3 = {0.05}, uint8 z3 = {100}> {
  image_Q = QuantizeLinear(image, s1, z1) \n image_DQ = DequantizeLinear(image_Q, s1, z1)
  C_DQ = DequantizeLinear<axis=0>(C, C_scale, C_zero) \n c = DequantizeLinear<axis=0>(c_quantized, c_scale, c_zero)
  [first] hidden = Conv(image_DQ, C_DQ, c)
  hidden_Q = QuantizeLinear(hidden, s2, z2) \n hidden_DQ = DequantizeLinear(hidden_Q, s2, z2)
  pooled = GlobalAveragePool(hidden_DQ)
  pooled_Q = QuantizeLinear(pooled, s2, z2) \n pooled_DQ = DequantizeLinear(pooled_Q, s2, z2)
  flat = Flatten(pooled_DQ)
  flat_Q = QuantizeLinear(flat, s2, z2) \n flat_DQ = DequantizeLinear(flat_Q, s2, z2)
  G_DQ = DequantizeLinear<axis=1>(G, G_scale, G_zero) \n g = DequantizeLinear<axis=0>(g_quantized, g_scale, g_zero)
  [last] raw = Gemm(flat_DQ, G_DQ, g)
  raw_Q = QuantizeLinear(raw, s3, z3) \n logits = DequantizeLinear(raw_Q, s3, z3)
}"""


@pytest.fixture(params=range(5))
def model(request: pytest.FixtureRequest) -> onnx.ModelProto:
    """Draw a network with Q/DQ pairs as quantizers write them."""
    rng = np.random.default_rng(request.param)
    proto = onnx.parser.parse_model(TEXT)
    for name, shape, axis in (("C", (4, 3, 3, 3), 0), ("G", (4, 5), 1)):
        codes = rng.integers(-127, 128, shape).astype(np.int8)
        scale = rng.uniform(0.001, 0.01, shape[axis]).astype(np.float32)
        bias = rng.integers(-2000, 2000, shape[axis]).astype(np.int32)
        arrays = {name: codes, f"{name}_scale": scale, f"{name}_zero": np.zeros(shape[axis], np.int8)}
        low = name.lower()
        arrays |= {f"{low}_quantized": bias, f"{low}_scale": np.float32(0.02) * scale, f"{low}_zero": bias * 0}
        proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    return proto


def test_numbers_stay_bit_for_bit(model: onnx.ModelProto) -> None:
    small = compact(model)
    image = np.random.default_rng(9).normal(size=(1, 3, 8, 8)).astype(np.float32)
    for level in (LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_ALL):
        before, after = run(model, level, image=image), run(small, level, image=image)
        np.testing.assert_array_equal(before, after)
        assert len(np.unique(before)) > 2


def test_onnx_runtime_makes_the_same_kernels_of_it(model: onnx.ModelProto, fused: Any, tmp_path: Path) -> None:
    found = []
    for index, proto in enumerate((model, compact(model))):
        onnx.save(proto, tmp_path / f"{index}.onnx")
        found.append(fused(tmp_path / f"{index}.onnx"))
    assert found[0] == found[1]
    assert {"QLinearConv", "QGemm"} <= set(found[1])


def test_the_result_is_valid_and_smaller_and_the_given_model_does_not_change(model: onnx.ModelProto) -> None:
    before = model.SerializeToString(deterministic=True)
    small = compact(model)
    onnx.checker.check_model(small, full_check=True)
    assert model.SerializeToString(deterministic=True) == before
    assert small.ByteSize() < 0.9 * model.ByteSize()
    assert compact(small) == small


def test_original_names_stay_and_those_of_quantizers_are_short(model: onnx.ModelProto) -> None:
    small = compact(model).graph
    others = [node for node in small.node if "Linear" not in node.op_type]
    assert [node.output[0] for node in others] == ["hidden", "pooled", "flat", "raw"]
    assert [node.name for node in others if node.name] == ["first", "last"]
    assert (small.input, small.output) == (model.graph.input, model.graph.output)
    made = [node for node in small.node if "Linear" in node.op_type]
    names = [name for node in made for name in (node.name, *node.output)] + [t.name for t in small.initializer]
    assert all(len(name) <= 3 for name in names if name != "logits")
    assert len({t.name for t in small.initializer}) == len(small.initializer)


def test_zero_points_of_0_go_except_where_onnx_runtime_needs_them(model: onnx.ModelProto) -> None:
    small = compact(model).graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in small.initializer}
    points = {arrays[n.input[0]].shape: len(n.input) for n in small.node if n.input[0] in arrays}
    assert points == {(4, 3, 3, 3): 2, (4,): 2, (4, 5): 3, (5,): 2}
    (zero_point,) = (tensor for tensor in model.graph.initializer if tensor.name == "C_zero")
    zero_point.CopyFrom(numpy_helper.from_array(np.full(4, 3, np.int8), "C_zero"))
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in compact(model).graph.initializer}
    assert any(array.tolist() == [3, 3, 3, 3] for array in arrays.values())


def test_equal_scalars_are_stored_once_and_unequal_ones_stay_apart(model: onnx.ModelProto) -> None:
    scalars = [numpy_helper.to_array(t).item() for t in compact(model).graph.initializer if not t.dims]
    assert sorted(scalars) == pytest.approx([0.02, 0.05, 100])


def test_short_names_avoid_those_that_are_taken(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [{"hidden": "q0", "flat": "q3"}.get(name, name) for name in names]
    image = np.ones((1, 3, 8, 8), np.float32)
    before = run(model, LEVELS.ORT_DISABLE_ALL, image=image)
    np.testing.assert_array_equal(run(compact(model), LEVELS.ORT_DISABLE_ALL, image=image), before)


def test_declared_shapes_of_what_is_gone_go_and_others_stay(model: onnx.ModelProto) -> None:
    shapes = {"hidden": [1, 4, 6, 6], "hidden_DQ": [1, 4, 6, 6], "long_gone": [1]}
    model.graph.value_info.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims) for name, dims in shapes.items()
    )
    assert [value.name for value in compact(model).graph.value_info] == ["hidden"]


def test_names_that_a_branch_reads_stay() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (bool c, float[2] x) => (float[2] y)
    <float s = {0.5}, int8 z = {0}, int8[2] w = {3, -4}> {
      x_Q = QuantizeLinear(x, s, z) \n x_DQ = DequantizeLinear(x_Q, s, z) \n w_DQ = DequantizeLinear(w, s, z)
      y = If(c) <then_branch = a () => (float[2] p) { p = Add(x_DQ, w_DQ) },
                 else_branch = b () => (float[2] q) { t = DequantizeLinear(w, s, z) \n q = Mul(t, x_DQ) }>
    }"""
    model = onnx.parser.parse_model(text)
    x = np.array([1.2, -3.4], np.float32)
    for condition, expected in ((True, [2.5, -5.5]), (False, [1.5, 7.0])):
        found = run(compact(model), LEVELS.ORT_DISABLE_ALL, c=np.array(condition), x=x)
        assert found.tolist() == expected


@pytest.mark.shared
@pytest.mark.parametrize("name", ["resnet20_cifar10", "mlperf_tiny_resnet8_cifar10", "crepe_tiny"])
def test_real_models_keep_their_bits_and_become_much_smaller(shared: Path, tmp_path: Path, name: str) -> None:
    normal, out = tmp_path / "normal.onnx", tmp_path / "out.onnx"
    graph.normalise(shared / "models" / f"{name}.onnx", normal)
    shape = [1, *(n for n in graph.open_model(normal).inputs[0].shape[1:])]
    feed = {graph.open_model(normal).inputs[0].name: np.random.default_rng(0).normal(size=shape).astype(np.float32)}
    ort.static(Job(normal, out, {}, ranges=seen(normal, feed)))
    made = onnx.load(out)
    small = compact(made)
    for level in (LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_ALL):
        np.testing.assert_array_equal(run(made, level, **feed), run(small, level, **feed))
    assert normal.stat().st_size / small.ByteSize() > (3.3 if "resnet8" in name else 3.6)


def seen(path: Path, feed: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Give the range of every tensor over one feed."""
    model = onnx.load(path)
    model.graph.output.extend(v for v in model.graph.value_info if v.type.tensor_type.elem_type == 1)
    names = [value.name for value in model.graph.output]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    arrays = {**dict(zip(names, session.run(names, feed), strict=True)), **feed}
    return {name: (float(array.min()), float(array.max())) for name, array in arrays.items()}


def run(model: onnx.ModelProto, level: Any, **feeds: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]
