from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from compressor.stages.quantize import nncf
from compressor.stages.quantize.job import Job

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
RESIDUAL = """g (float[1,3,8,8] x) => (float[1,4] y) {
  a = Conv<pads=[1,1,1,1]>(x, W1) \n ra = Relu(a)
  b = Conv<pads=[1,1,1,1], group=8>(ra, W2) \n s = Add(b, ra)
  c = Conv(s, W3) \n rc = Relu(c) \n p = GlobalAveragePool(rc) \n y = Flatten(p) }"""
SHAPES = {"W1": (8, 3, 3, 3), "W2": (8, 1, 3, 3), "W3": (4, 8, 1, 1)}
RANGES = {"x": (-3.0, 2.5), "ra": (0.0, 3.5), "b": (-2.0, 3.0), "s": (-2.5, 5.0), "rc": (0.0, 4.0), "p": (0.0, 2.0)}
FEED = {"x": np.random.default_rng(2).normal(size=(1, 3, 8, 8)).astype(np.float32)}


@pytest.fixture
def signed() -> onnx.ModelProto:
    model = onnx.parser.parse_model(SIGNED)
    weight = np.random.default_rng(0).normal(size=(4, 3, 3, 3), scale=0.3).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "W"))
    return model


@pytest.fixture
def quantized(make: Any, tmp_path: Path) -> Callable[..., Job]:
    """Quantize a small residual network with a depthwise convolution."""

    def _quantized(**settings: Any) -> Job:
        job = Job(make(RESIDUAL, SHAPES).path, tmp_path / "out.onnx", **{"excluded": {}, "ranges": RANGES, **settings})
        nncf.static(job, [FEED])
        return job

    return _quantized


def test_without_ranges_the_numbers_stay_in_either_codes(signed: onnx.ModelProto) -> None:
    x = np.random.default_rng(1).normal(size=(1, 3, 8, 8), scale=3).astype(np.float32)
    before = ReferenceEvaluator(signed).run(None, {"x": x})[0]
    assert len(np.unique(before)) > 50
    for into in (True, False):
        after = ReferenceEvaluator(nncf.with_ranges(signed, {}, signed=into)).run(None, {"x": x})[0]
        np.testing.assert_array_equal(before, after)


def test_activations_take_the_codes_that_are_asked_for_and_weights_stay_signed(signed: onnx.ModelProto) -> None:
    changed = nncf.with_ranges(signed, {"x": (-1.0, 3.0)}, signed=False)
    found = {output: (point.dtype.name, int(point)) for output, (_, point) in parameters(changed).items()}
    assert found == {
        **dict.fromkeys(("qx", "dx"), ("uint8", 64)),  # 255 * 1 / 4
        **dict.fromkeys(("qw", "dw"), ("int8", 0)),
        **dict.fromkeys(("qy", "y"), ("uint8", 121)),
    }


@pytest.mark.parametrize(
    ("pair", "scale", "code"),
    [
        ((-1.0, 3.0), 4 / 255, 64),
        ((0.5, 3.0), 3 / 255, 0),
        ((-3.0, -0.5), 3 / 255, 255),
        ((0.0, 0.0), 1 / 255, 0),
        ((0.0, np.inf), 0.03, 133),  # kept
        ((np.nan, 1.0), 0.03, 133),
    ],
)
def test_ranges_become_scales_and_zero_points(
    signed: onnx.ModelProto, pair: tuple[float, float], scale: float, code: int
) -> None:
    for into, offset in ((False, 0), (True, 128)):
        found_scale, point = parameters(nncf.with_ranges(signed, {"x": pair}, signed=into))["qx"]
        assert float(found_scale) == pytest.approx(scale)
        assert int(point) == code - offset


def test_the_model_that_is_given_does_not_change(signed: onnx.ModelProto) -> None:
    before = signed.SerializeToString(deterministic=True)
    nncf.with_ranges(signed, {"x": (-1.0, 3.0)}, signed=False)
    assert signed.SerializeToString(deterministic=True) == before


def test_every_activation_takes_the_range_of_the_job(quantized: Callable[..., Job]) -> None:
    made = onnx.load(quantized().out)
    scales = {
        node.input[0]: float(parameters(made)[node.output[0]][0])
        for node in made.graph.node
        if node.op_type == "QuantizeLinear"
    }
    assert {"x", "ra", "b", "s"} <= scales.keys()
    assert scales == pytest.approx({name: (RANGES[name][1] - RANGES[name][0]) / 255 for name in scales})


@pytest.mark.parametrize("ranges", [RANGES, {}], ids=["ours", "its own"])
def test_the_symmetric_form_has_signed_codes_around_zero_and_no_quantized_bias(
    ranges: Any, make: Any, tmp_path: Path
) -> None:
    biased = RESIDUAL.replace("Conv(s, W3)", "Conv(s, W3, B3)")
    job = Job(make(biased, {**SHAPES, "B3": (4,)}).path, tmp_path / "out.onnx", {}, ranges, symmetric=True)
    nncf.static(job, [FEED])
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(job.out).graph.initializer}
    linear = [node for node in onnx.load(job.out).graph.node if node.op_type.endswith("quantizeLinear")]
    linear += [node for node in onnx.load(job.out).graph.node if node.op_type == "QuantizeLinear"]
    assert {arrays[node.input[2]].dtype.name for node in linear} == {"int8"}
    assert not any(arrays[node.input[2]].any() for node in linear)
    assert not any(array.dtype == np.int32 for array in arrays.values())
    assert any(array.dtype == np.float32 and array.shape == (4,) for array in arrays.values())
    scales = {n.input[0]: arrays[n.input[1]].item() for n in linear if n.op_type == "QuantizeLinear" and ranges}
    assert scales == pytest.approx({name: max(map(abs, RANGES[name])) / 127 for name in scales})
    x = FEED["x"].clip(-3, 2.5)
    wanted, found = run(job.model, x=x), run(job.out, x=x)
    assert 10 * np.log10(np.square(wanted).sum() / np.square(found - wanted).sum()) > 20


def test_one_feed_is_enough_for_good_numbers(quantized: Callable[..., Job]) -> None:
    job = quantized()
    rng = np.random.default_rng(3)
    signal = noise = 0.0
    for _ in range(16):
        x = rng.normal(size=(1, 3, 8, 8)).clip(-3, 2.5).astype(np.float32)
        wanted, found = run(job.model, x=x), run(job.out, x=x)
        signal, noise = signal + np.square(wanted).sum(), noise + np.square(found - wanted).sum()
    assert 10 * np.log10(signal / noise) > 25


def test_onnx_runtime_fuses_what_nncf_made_to_integer_kernels(quantized: Callable[..., Job], fused: Any) -> None:
    assert fused(quantized().out).count("QLinearConv") == 3


def test_excluded_nodes_stay_float(quantized: Callable[..., Job]) -> None:
    model = onnx.load(quantized().model)
    depthwise = next(node for node in model.graph.node if node.op_type == "Conv" and node.input[1] == "W2")
    job = quantized(excluded={depthwise.name: "because"})
    assert {shape: array.dtype.name for shape, array in weights(job.out).items()} == {
        (8, 3, 3, 3): "int8",
        (8, 1, 3, 3): "float32",
        (4, 8, 1, 1): "int8",
    }


def test_the_overflow_fix_keeps_weights_that_are_summed_over_channels_within_seven_bits(
    quantized: Callable[..., Job],
) -> None:
    largest = {
        reduced: [int(np.abs(weights(job.out)[SHAPES[name]].astype(int)).max()) for name in ("W1", "W3")]
        for reduced in (False, True)
        for job in [quantized(reduce_range=reduced)]
    }
    assert min(largest[False]) > 100
    assert max(largest[True]) <= 64


def test_the_same_job_gives_the_same_bytes(quantized: Callable[..., Job]) -> None:
    assert quantized().out.read_bytes() == quantized().out.read_bytes()


def test_metadata_and_interface_stay(quantized: Callable[..., Job]) -> None:
    job = quantized()
    before, after = onnx.load(job.model), onnx.load(job.out)
    for field in ("model_version", "domain", "doc_string", "metadata_props"):
        assert getattr(after, field) == getattr(before, field)
    assert (after.graph.input, after.graph.output) == (before.graph.input, before.graph.output)
    onnx.checker.check_model(after)


def weights(path: Path) -> dict[tuple[int, ...], Any]:
    arrays = [numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer]
    return {array.shape: array for array in arrays if array.ndim == 4}


def parameters(model: onnx.ModelProto) -> dict[str, tuple[Any, Any]]:
    """Give scale and zero point of each Q/DQ node, by what it gives."""
    arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    linear = [node for node in model.graph.node if node.op_type in {"QuantizeLinear", "DequantizeLinear"}]
    return {node.output[0]: (arrays[node.input[1]], arrays[node.input[2]]) for node in linear}


def run(path: Path, **feeds: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
