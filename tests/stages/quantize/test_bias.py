from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from compressor.records import Array
from compressor.stages.quantize.bias import corrected
from compressor.stages.quantize.statistics import Statistics

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
STEP = 0.02
"""Of the weights: coarse, so that they are far from the float ones."""
BIAS_STEP = 0.001


def weights(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def files(folder: Path, text: str, w: Array, bias: Array, *, integers: bool = True) -> tuple[Path, Path]:
    """Write a layer named `layer` that reads w and b, and the same with both quantized, weights always rounded down."""
    proto = onnx.parser.parse_model(HEAD + text)
    proto.graph.node[0].name = "layer"
    proto.graph.initializer.extend([numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "b")])
    onnx.save(proto, folder / "float.onnx")
    del proto.graph.initializer[:]
    constants: dict[str, Array] = {
        "wq": np.clip(np.floor(w / STEP), -128, 127).astype(np.int8),
        "ws": np.array(STEP, np.float32),
        "bq": np.rint(bias / BIAS_STEP).astype(np.int32),
        "bs": np.array(BIAS_STEP, np.float32),
    }
    dequantized = [onnx.helper.make_node("DequantizeLinear", [f"{x}q", f"{x}s"], [x]) for x in "wb"[: 1 + integers]]
    if not integers:
        constants["b"] = bias
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    nodes = [*dequantized, *proto.graph.node]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    onnx.save(proto, folder / "quantized.onnx")
    return folder / "float.onnx", folder / "quantized.onnx"


def run(path: Path, x: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize(
    ("text", "shape", "n"),
    [
        ("(float[1,6,9,9] x) => (float[1,4,7,7] y) { y = Conv(x, w, b) }", (4, 6, 3, 3), 4),
        ("(float[1,6,9,9] x) => (float[1,4,4,4] y) { y = Conv<group=2, strides=[2,2]>(x, w, b) }", (4, 3, 3, 3), 4),
        ("(float[1,6,9,9] x) => (float[1,12,7,7] y) { y = Conv<group=6>(x, w, b) }", (12, 1, 3, 3), 12),
        ("(float[1,6,9] x) => (float[1,4,7] y) { y = Conv(x, w, b) }", (4, 6, 3), 4),
        ("(float[1,6,5,5] x) => (float[1,4,5,5] y) { y = ConvTranspose(x, w, b) }", (6, 4, 1, 1), 4),
        (
            "(float[1,6,5,5] x) => (float[1,8,10,10] y) { y = ConvTranspose<group=2, strides=[2,2]>(x, w, b) }",
            (6, 4, 2, 2),
            8,
        ),
        ("(float[2,6] x) => (float[2,4] y) { y = Gemm(x, w, b) }", (6, 4), 4),
        ("(float[2,6] x) => (float[2,4] y) { y = Gemm<transB=1>(x, w, b) }", (4, 6), 4),
        ("(float[2,3,6] x) => (float[2,3,4] y) { m = MatMul(x, w)\n y = Add(m, b) }", (6, 4), 4),
    ],
)
def test_the_mean_error_of_constant_channels_vanishes(
    text: str, shape: tuple[int, ...], n: int, *, integers: bool, tmp_path: Path
) -> None:
    reference, quantized = files(tmp_path, text, weights(*shape), weights(n), integers=integers)
    dims = tuple(d.dim_value for d in onnx.load(reference).graph.input[0].type.tensor_type.shape.dim)
    axis = 1 if "Conv" in text else -1
    mean = np.random.default_rng(1).normal(2, 1, 6)
    along = [1] * len(dims)
    along[axis] = 6
    x = np.broadcast_to(mean.reshape(along), dims).astype(np.float32)
    before = quantized.read_bytes()
    corrected(reference, quantized, tmp_path / "out.onnx", Statistics({}, {("x", axis): mean}))
    assert quantized.read_bytes() == before
    others = tuple(place for place in range(len(dims)) if place != axis % len(dims))
    was, now = (np.abs((run(path, x) - run(reference, x)).mean(others)) for path in (quantized, tmp_path / "out.onnx"))
    assert was.max() > 20 * BIAS_STEP
    # the bias was rounded once when it was quantized, and once more now
    assert now.max() < (1.01 * BIAS_STEP if integers else 1e-4)


def test_weights_that_are_quantized_in_the_graph_count_too(tmp_path: Path) -> None:
    reference = HEAD + "(float[2,6] x) => (float[2,4] y) { y = Gemm(x, w, b) }"
    quantized = (
        HEAD + "(float[2,6] x) => (float[2,4] y) "
        "{ q = QuantizeLinear<axis=1>(w, s, z)\n d = DequantizeLinear<axis=1>(q, s, z)\n y = Gemm(x, d, b) }"
    )
    arrays = {
        "w": weights(6, 4),
        "b": weights(4),
        "s": np.array([0.1, 0.2, 0.3, 0.4], np.float32),
        "z": np.zeros(4, np.int8),
    }
    for name, text in (("float", reference), ("quantized", quantized)):
        proto = onnx.parser.parse_model(text)
        proto.graph.node[-1].name = "layer"
        used = {name for node in proto.graph.node for name in node.input}
        proto.graph.initializer.extend(numpy_helper.from_array(a, key) for key, a in arrays.items() if key in used)
        onnx.save(proto, tmp_path / f"{name}.onnx")
    x = np.tile(np.arange(6, dtype=np.float32), (2, 1))
    statistics = Statistics({}, {("x", -1): np.arange(6.0)})
    corrected(tmp_path / "float.onnx", tmp_path / "quantized.onnx", tmp_path / "out.onnx", statistics)
    np.testing.assert_allclose(run(tmp_path / "out.onnx", x), run(tmp_path / "float.onnx", x), rtol=1e-5, atol=1e-5)


def test_a_layer_without_mean_or_with_the_same_weights_is_left_alone(tmp_path: Path) -> None:
    text = "(float[2,6] x) => (float[2,4] y) { y = Gemm(x, w, b) }"
    reference, quantized = files(tmp_path, text, weights(6, 4), weights(4))
    corrected(reference, quantized, tmp_path / "out.onnx", Statistics({}, {}))
    assert constants(tmp_path / "out.onnx") == constants(quantized)
    corrected(reference, reference, tmp_path / "out.onnx", Statistics({}, {("x", -1): np.ones(6)}))
    assert constants(tmp_path / "out.onnx") == constants(reference)


def test_a_bias_that_two_layers_read_is_left_alone(make: Any, tmp_path: Path) -> None:
    text = "g (float[2,6] x) => (float[2,4] y, float[2,4] z) { y = Gemm(x, w, b)\n z = Gemm(x, v, b) }"
    model = make(text, {"w": (6, 4), "v": (6, 4), "b": (4,)})
    rounded = onnx.load(model.path)
    for tensor in rounded.graph.initializer:
        if tensor.name != "b":
            tensor.CopyFrom(numpy_helper.from_array(np.floor(numpy_helper.to_array(tensor) * 8) / 8, tensor.name))
    onnx.save(rounded, tmp_path / "rounded.onnx")
    known = Statistics({}, {("x", -1): np.ones(6)})
    corrected(model.path, tmp_path / "rounded.onnx", tmp_path / "out.onnx", known)
    assert constants(tmp_path / "out.onnx") == constants(tmp_path / "rounded.onnx")


@pytest.mark.parametrize(
    ("text", "shape", "bias"),
    [
        ("(float[1,16,6] x) => (float[1,16,16] y) { m = MatMul(x, w)\n y = Add(m, b) }", (6, 16), (16, 1)),
        ("(float[4,4,6] x) => (float[4,4,4] y) { m = MatMul(x, w)\n y = Add(m, b) }", (6, 4), (4, 1, 1)),
        ("(float[4,2,6] x) => (float[4,2,4] y) { m = MatMul(x, w)\n y = Add(m, b) }", (4, 6, 4), (4, 4, 1)),
        ("(float[1,2,6] x) => (float[1,2,4] y) { m = MatMul(x, w)\n y = Add(m, b) }", (1, 6, 4), (4,)),
    ],
)
def test_what_is_added_is_corrected_only_as_a_row_behind_a_matrix(
    text: str, shape: tuple[int, ...], bias: tuple[int, ...], tmp_path: Path
) -> None:
    reference, quantized = files(tmp_path, text, weights(*shape), weights(*bias), integers=False)
    corrected(reference, quantized, tmp_path / "out.onnx", Statistics({}, {("x", -1): np.ones(6)}))
    assert constants(tmp_path / "out.onnx") == constants(quantized)


def test_a_row_of_more_axes_is_corrected(tmp_path: Path) -> None:
    text = "(float[2,3,6] x) => (float[2,3,4] y) { m = MatMul(x, w)\n y = Add(m, b) }"
    reference, quantized = files(tmp_path, text, weights(6, 4), weights(1, 1, 4), integers=False)
    corrected(reference, quantized, tmp_path / "out.onnx", Statistics({}, {("x", -1): np.ones(6)}))
    x = np.ones((2, 3, 6), np.float32)
    np.testing.assert_allclose(run(tmp_path / "out.onnx", x), run(reference, x), rtol=1e-4, atol=1e-4)


def constants(path: Path) -> dict[str, tuple[tuple[int, ...], list[float]]]:
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
    return {name: (array.shape, array.ravel().tolist()) for name, array in arrays.items()}
