from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from compressor.stages.quantize import ort
from compressor.stages.quantize.job import Job

Given = Callable[..., Job]
RNG = np.random.default_rng(0)
WEIGHTS = {"W": (6, 5), "b": RNG.normal(size=5).astype(np.float32), "V": (5, 3)}
TWO_LAYERS = """g (float[N,6] x) => (float[N,3] y) {
  h = Gemm(x, W, b) \n a = Relu(h) \n y = MatMul(a, V) }"""
RANGES = {"x": (-2.0, 3.0), "h": (-3.0, 2.5), "a": (0.0, 2.5), "y": (-4.0, 3.0)}

RESIDUAL = """g (float[1,3,8,8] x) => (float[1,5] y) {
  a = Conv<pads=[1,1,1,1]>(x, C, c) \n r = Relu(a) \n d = Conv<pads=[1,1,1,1]>(r, D) \n s = Add(d, r)
  p = GlobalAveragePool(s) \n f = Flatten(p) \n y = Gemm(f, G, g) }"""
BIASES = {"c": RNG.normal(size=4).astype(np.float32), "g": RNG.normal(size=5).astype(np.float32)}


@pytest.fixture
def given(make: Any, tmp_path: Path) -> Given:
    """Describe the quantization of a model given in ONNX text, with nothing excluded unless said."""

    def _given(text: str, weights: Any, **settings: Any) -> Job:
        return Job(make(text, weights).path, tmp_path / "out.onnx", **{"excluded": {}, **settings})

    return _given


def test_static_computes_what_the_codes_of_its_ranges_stand_for(given: Given) -> None:
    for activations in ("u8", "s8"):
        job = given(TWO_LAYERS, WEIGHTS, ranges=RANGES, activations=activations)
        ort.static(job)
        x = RNG.normal(size=(50, 6), scale=1.5).astype(np.float32)  # some values beyond the range
        w = constants(job.model)
        bias_step = 5 / 255 * steps(w["W"])
        hidden = coded(x, RANGES["x"]) @ rounded(w["W"], steps(w["W"])) + rounded(w["b"], bias_step)
        expected = coded(coded(hidden, RANGES["a"]) @ rounded(w["V"], steps(w["V"])), RANGES["y"])
        found = run(job.out, x=x)
        assert np.mean(np.abs(found - expected) < 1e-5) > 0.98  # the others round to the neighbouring code
        assert np.abs(found - expected).max() < 1.01 * 7 / 255 * 2
        assert {q.dtype.name for q in zero_points(job.out)} == {"uint8" if activations == "u8" else "int8"}


def test_reduced_weights_stay_within_seven_bits(given: Given) -> None:
    largest = []
    for reduced in (False, True):
        job = given(TWO_LAYERS, WEIGHTS, ranges=RANGES, reduce_range=reduced)
        ort.static(job)
        codes = [array for array in constants(job.out).values() if array.dtype == np.int8 and array.ndim == 2]
        largest.append(max(int(np.abs(array.astype(int)).max()) for array in codes))
    assert largest == [127, 64]


def test_weights_have_a_scale_for_each_output_channel(given: Given) -> None:
    text = """g (float[1,3,8,8] x) => (float[1,9] y) {
      a = Conv(x, C) \n b = ConvTranspose(a, T) \n p = GlobalAveragePool(b) \n f = Flatten(p)
      d = Gemm<transB=1>(f, G) \n y = MatMul(d, M) }"""
    job = given(
        text,
        {"C": (4, 3, 3, 3), "T": (4, 5, 3, 3), "G": (7, 5), "M": (7, 9)},
        ranges=dict.fromkeys("xabpfdy", (-4.0, 4.0)),
    )
    ort.static(job)
    assert weight_scales(job.out) == {(4, 3, 3, 3): (0, 4), (4, 5, 3, 3): (1, 5), (7, 5): (0, 7), (7, 9): (1, 9)}


def test_excluded_nodes_stay_float(given: Given) -> None:
    for scheme in (ort.static, ort.dynamic, ort.weights):
        job = given(TWO_LAYERS, WEIGHTS, ranges=RANGES)
        names = [node.name for node in nodes(job.model) if node.op_type in {"Gemm", "MatMul"}]
        assert len(names) == 2
        for kept, stored in zip(names, ("W", "V"), strict=True):
            job = given(TWO_LAYERS, WEIGHTS, ranges=RANGES, excluded={kept: "because"})
            scheme(job)
            floats = [array for array in constants(job.out).values() if array.dtype == np.float32 and array.ndim == 2]
            assert [array.tolist() for array in floats if array.shape in {(6, 5), (5, 3)}] == [
                constants(job.model)[stored].tolist()
            ]


def test_core_leaves_other_kinds_float(given: Given) -> None:
    text = "g (float[1,6] x) => (float[1,3] y) { h = MatMul(x, W) \n s = Sigmoid(h) \n y = MatMul(s, V) }"
    quantized = {}
    for operators in ("all", "core"):
        ranges = {"x": (-2, 2), "h": (-3, 3), "s": (0, 1), "y": (-4, 4)}
        job = given(text, WEIGHTS, ranges=ranges, operators=operators)
        ort.static(job)
        readers = {name: node.op_type for node in nodes(job.out) for name in node.input}
        quantized[operators] = {readers.get(n.output[0]) for n in nodes(job.out) if n.op_type == "DequantizeLinear"}
    assert "Sigmoid" in quantized["all"]
    assert quantized["core"] == {"MatMul", "Sigmoid", None}


@pytest.mark.parametrize("missing", ["x", "h", "y"])
@pytest.mark.parametrize("bound", [None, np.inf, np.nan, 1e39])
def test_nodes_around_a_tensor_without_a_finite_range_stay_float(
    given: Given, missing: str, bound: float | None
) -> None:
    ranges = {name: pair for name, pair in RANGES.items() if name != missing}
    job = given(TWO_LAYERS, WEIGHTS, ranges=ranges if bound is None else {**ranges, missing: (0.0, bound)})
    ort.static(job)
    quantized = {name for node in nodes(job.out) if node.op_type == "QuantizeLinear" for name in node.input[:1]}
    assert quantized == ({"x", "a"} if missing == "y" else {"a", "y_QuantizeLinear_Input"})
    assert np.isfinite(run(job.out, x=np.ones((1, 6), np.float32))).all()


def test_what_is_left_float_for_its_range_is_told_with_the_reason(given: Given) -> None:
    text = """g (float[N,6] x, float[N,6] lost) => (float[N,5] y, float[N,5] h, float[N,6] z) {
      [dense] h = Gemm(x, W, b) \n [relu] r = Relu(h) \n [clip] y = Clip(r, half) \n [good] g = Relu(x)
      [odd] z = Add(g, lost) \n [tanh] t = Tanh(lost) }"""
    ranges = {"x": (-4.0, 4.0), "h": (-8.0, 8.0), "r": (0.0, 8.0), "y": (0.5, 8.0), "g": (0.0, 4.0), "z": (0.0, 5.0)}
    job = given(text, {**WEIGHTS, "half": np.array(0.5, np.float32)}, ranges=ranges, operators="core")
    found = ort.unquantizable(job)
    assert found.keys() == {"relu", "clip", "odd"}  # no Tanh is quantized among the core
    assert "output of the graph" in found["relu"]
    assert "cuts off" in found["clip"]
    assert "no finite values" in found["odd"]
    ort.static(job)
    assert {"relu", "clip", "odd"} <= {node.name for node in nodes(job.out)}


@pytest.mark.parametrize("activations", ["u8", "s8"])
def test_a_relu_that_was_always_zero_still_cuts_off_below_zero(given: Given, activations: str) -> None:
    job = given(
        "g (float[N,6] x) => (float[N,5] y) { h = Gemm(x, W, b) \n y = Relu(h) }",
        WEIGHTS,
        ranges={"x": (-2.0, 3.0), "h": (-4.0, -0.5), "y": (0.0, 0.0)},
        activations=activations,
    )
    ort.static(job)
    x = RNG.normal(size=(50, 6)).clip(-2, 3).astype(np.float32)
    expected = np.clip(x @ constants(job.model)["W"] + constants(job.model)["b"], 0, 1)
    np.testing.assert_allclose(run(job.out, x=x), expected, atol=0.06)


@pytest.mark.parametrize(
    ("clip", "least", "greatest"),
    [
        ("Clip(h, half, six)", 0.5, 6.0),  # a range holds 0, so none can cut off at 0.5
        ("Clip(h, six_below, half_below)", -6.0, -0.5),
        ("Clip(h, zero, six)", 0.0, 6.0),
        ("Clip(h, , half)", -np.inf, 0.5),
    ],
)
def test_a_clip_cuts_off_where_it_did(given: Given, clip: str, least: float, greatest: float) -> None:
    bounds = {"half": 0.5, "six": 6.0, "zero": 0.0, "six_below": -6.0, "half_below": -0.5}
    scalars = {name: np.array(value, np.float32) for name, value in bounds.items() if name in clip.replace(",", " ")}
    seen = (max(least, -6.0), min(greatest, 6.0))
    job = given(
        f"g (float[N,6] x) => (float[N,5] y) {{ h = Gemm(x, W, b) \n y = {clip} }}",
        {**WEIGHTS, **scalars},
        ranges={"x": (-4.0, 4.0), "h": (-8.0, 8.0), "y": seen},
    )
    ort.static(job)
    x = RNG.normal(size=(200, 6), scale=3).clip(-4, 4).astype(np.float32)
    w = constants(job.model)
    hidden = x @ w["W"] + w["b"]
    inside = np.abs(hidden).max(axis=1) < 5.9
    expected = np.clip(hidden, least, greatest)
    assert ((hidden < least) | (hidden > greatest)).mean() > 0.1
    np.testing.assert_allclose(run(job.out, x=x)[inside], expected[inside], atol=0.2)


def test_a_clip_whose_bound_is_an_input_stays(given: Given) -> None:
    job = given(
        "g (float[1,6] x, float top) => (float[1,5] y) { h = Gemm(x, W, b) \n y = Clip(h, , top) }",
        WEIGHTS,
        ranges={"x": (-4.0, 4.0), "h": (-8.0, 8.0), "y": (-8.0, 8.0), "top": (0.0, 8.0)},
    )
    ort.static(job)
    y = run(job.out, x=np.full((1, 6), 3, np.float32), top=np.array(-2, np.float32))
    assert y.max() <= -1.9


def test_an_output_of_the_graph_that_a_relu_reads_keeps_its_own_range(given: Given) -> None:
    job = given(
        "g (float[N,6] x) => (float[N,5] h, float[N,5] y) { h = Gemm(x, W, b) \n y = Relu(h) }",
        WEIGHTS,
        ranges={"x": (-4.0, 4.0), "h": (-8.0, 8.0), "y": (0.0, 8.0)},
    )
    ort.static(job)
    x = RNG.normal(size=(20, 6)).astype(np.float32)
    w = constants(job.model)
    expected = x @ w["W"] + w["b"]
    assert expected.min() < -1
    np.testing.assert_allclose(run(job.out, x=x), expected, atol=0.15)


def test_two_convolutions_that_share_a_weight_keep_their_numbers(given: Given) -> None:
    text = """g (float[1,4,8,8] x) => (float[1,4,4,4] y) { a = Conv(x, C, b) \n r = Relu(a) \n y = Conv(r, C, b) }"""
    ranges = {"x": (-3.0, 3.0), "a": (-4.0, 4.0), "r": (0.0, 4.0), "y": (-4.0, 4.0)}
    job = given(text, {"C": (4, 4, 3, 3), "b": RNG.normal(size=4).astype(np.float32)}, ranges=ranges)
    ort.static(job)
    x = RNG.normal(size=(1, 4, 8, 8)).astype(np.float32)
    expected = run(job.model, x=x)
    np.testing.assert_allclose(run(job.out, x=x), expected, atol=0.15)
    assert np.std(expected) > 0.3


class TestTheFormForTensorRT:
    @pytest.fixture
    def out(self, given: Given) -> Path:
        shapes = {"C": (4, 3, 3, 3), "D": (4, 4, 3, 3), "G": (4, 5)}
        ranges = dict.fromkeys("xadrspfy", (-9.0, 9.0)) | {"x": (-3.0, 2.0), "r": (0.0, 4.0), "f": (-1.0, 3.0)}
        job = given(RESIDUAL, {**shapes, **BIASES}, ranges=ranges, symmetric=True)
        ort.static(job)
        return job.out

    def test_has_signed_codes_around_zero_only(self, out: Path) -> None:
        points = zero_points(out)
        assert {point.dtype.name for point in points} == {"int8"}
        assert not any(point.any() for point in points)

    def test_quantizes_no_bias(self, out: Path) -> None:
        arrays = constants(out)
        assert not any(array.dtype == np.int32 for array in arrays.values())
        for name, bias in BIASES.items():
            np.testing.assert_array_equal(arrays[name], bias)

    def test_has_a_scale_for_each_output_channel(self, out: Path) -> None:
        assert weight_scales(out) == {(4, 3, 3, 3): (0, 4), (4, 4, 3, 3): (0, 4), (4, 5): (1, 5)}

    def test_quantizes_the_inputs_of_what_has_weights_and_nothing_else(self, out: Path) -> None:
        assert {n.input[0] for n in nodes(out) if n.op_type == "QuantizeLinear"} == {"x", "r", "f"}
        assert [n.op_type for n in nodes(out)].count("Relu") == 1

    def test_covers_the_larger_side_of_each_range(self, out: Path) -> None:
        arrays = constants(out)
        scales = {n.input[0]: arrays[n.input[1]].item() for n in nodes(out) if n.op_type == "QuantizeLinear"}
        assert scales == pytest.approx({"x": 3 / 127, "r": 4 / 127, "f": 3 / 127})


def test_the_same_job_gives_the_same_bytes(given: Given) -> None:
    for scheme in (ort.static, ort.dynamic, ort.weights):
        made = set()
        for _ in range(2):
            job = given(TWO_LAYERS, WEIGHTS, ranges=RANGES)
            scheme(job)
            made.add(job.out.read_bytes())
        assert len(made) == 1


def test_metadata_and_interface_stay(given: Given) -> None:
    for scheme in (ort.static, ort.dynamic, ort.weights):
        job = given(TWO_LAYERS, WEIGHTS, ranges=RANGES)
        scheme(job)
        before, after = onnx.load(job.model), onnx.load(job.out)
        for field in ("model_version", "domain", "doc_string", "metadata_props"):
            assert getattr(after, field) == getattr(before, field)
        assert (after.graph.input, after.graph.output) == (before.graph.input, before.graph.output)
        onnx.checker.check_model(after)


def test_dynamic_computes_what_codes_of_the_range_at_hand_stand_for(given: Given) -> None:
    job = given("g (float[N,6] x) => (float[N,5] y) { y = MatMul(x, W) }", WEIGHTS)
    ort.dynamic(job)
    x = RNG.normal(size=(20, 6)).astype(np.float32)
    w = constants(job.model)["W"]
    expected = coded(x, (float(x.min()), float(x.max()))) @ rounded(w, steps(w))
    np.testing.assert_allclose(run(job.out, x=x), expected, atol=1e-5)
    assert "MatMulInteger" in [node.op_type for node in nodes(job.out)]


def test_weights_only_stores_codes_by_blocks_and_leaves_activations_float(given: Given) -> None:
    weights = {"W": (96, 5), "b": (5,), "V": (5, 40)}
    job = given("g (float[N,96] x) => (float[N,40] y) { h = Gemm(x, W, b) \n y = MatMul(h, V) }", weights)
    ort.weights(job)
    made = [node for node in nodes(job.out) if node.op_type == "MatMulNBits"]
    arrays = constants(job.out)
    for node, name in zip(made, "WV", strict=True):
        float_weight = constants(job.model)[name].T
        scales = arrays[node.input[2]].reshape(len(float_weight), -1, 1)
        stored = (arrays[node.input[1]].astype(np.float32) - 128) * scales
        stored = stored.reshape(len(float_weight), -1)[:, : float_weight.shape[1]]
        assert np.abs(stored - float_weight).max() <= np.abs(scales).max() * 1.01
    x = RNG.normal(size=(20, 96)).astype(np.float32)
    expected = run(job.model, x=x)
    noise = np.square(run(job.out, x=x) - expected).sum() / np.square(expected).sum()
    assert -10 * np.log10(noise) > 30


def coded(x: Any, pair: tuple[float, float]) -> Any:
    """Emulate Q/DQ: 256 codes over the range, one of them exactly 0."""
    step = (pair[1] - pair[0]) / 255
    zero = np.round(-pair[0] / step)
    return (np.clip(np.round(x / step) + zero, 0, 255) - zero) * step


def steps(weight: Any) -> Any:
    """Give the steps of a matrix [inputs, outputs], one for each output."""
    return np.abs(weight).max(axis=0) / 127


def rounded(x: Any, step: Any) -> Any:
    return np.round(x / step) * step


def run(path: Path, **feeds: Any) -> Any:
    """Give the first output, computed without graph optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]


def nodes(path: Path) -> Any:
    return onnx.load(path).graph.node


def constants(path: Path) -> dict[str, Any]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


def zero_points(path: Path) -> list[Any]:
    arrays = constants(path)
    return [arrays[node.input[2]] for node in nodes(path) if node.op_type == "QuantizeLinear"]


def weight_scales(path: Path) -> dict[tuple[int, ...], tuple[int, int]]:
    """Give the axis and number of scales of each quantized weight, by its shape."""
    arrays = constants(path)
    found = [node for node in nodes(path) if node.op_type == "DequantizeLinear" and node.input[0] in arrays]
    shapes = {node.input[0]: arrays[node.input[0]].shape for node in found}
    return {
        shapes[node.input[0]]: (node.attribute[0].i, arrays[node.input[1]].size)
        for node in found
        if len(shapes[node.input[0]]) > 1
    }
