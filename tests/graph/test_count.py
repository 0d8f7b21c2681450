from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path

import numpy as np
import onnx
import pytest

from compressor import graph
from compressor.graph import count

Make = Callable[..., Path]
Run = Callable[..., list[np.ndarray]]


@pytest.mark.parametrize(
    ("text", "weights", "macs"),
    [
        # 2 x 6 groups of outputs: each of the 6*6 positions of 8 channels sums 4/2 inputs of a 3x3 kernel
        (
            "g (float[1,4,8,8] x) => (float[1,8,6,6] y) { y = Conv <group = 2> (x, W, b) }",
            {"W": (8, 2, 3, 3), "b": (8,)},
            8 * 6 * 6 * 2 * 9,
        ),
        # every input element meets a 2x2 kernel for each of 10 / 2 outputs of its group
        (
            "g (float[1,4,3,3] x) => (float[1,10,4,4] y) { y = ConvTranspose <group = 2> (x, W) }",
            {"W": (4, 5, 2, 2)},
            4 * 3 * 3 * 5 * 4,
        ),
        ("g (float[5,7] x) => (float[7,3] y) { y = Gemm <transA = 1> (x, W) }", {"W": (5, 3)}, 7 * 3 * 5),
        ("g (float[2,4,5,7] x) => (float[2,4,5,3] y) { y = MatMul(x, W) }", {"W": (7, 3)}, 2 * 4 * 5 * 3 * 7),
        ("g (float[5,7] x) => (float[5] y) { y = MatMul(x, w) }", {"w": (7,)}, 5 * 7),
        (
            """g (float[4,8,5] x) => (float[4,8,5] y) {
                t = Transpose <perm = [0, 2, 1]> (x) u = MatMul(x, t) y = MatMul(u, x) }""",
            {},
            2 * 4 * 8 * 8 * 5,
        ),
        # 6 steps, batch 2, both directions, 4 gates of 5 units that each see 3 inputs and 5 states
        (
            """g (float[6,2,3] x) => (float[6,2,2,5] y) {
                y = LSTM <hidden_size = 5, direction = "bidirectional"> (x, W, R) }""",
            {"W": (2, 20, 3), "R": (2, 20, 5)},
            6 * 2 * 2 * 4 * 5 * (3 + 5),
        ),
        ("g (float[9] x) => (float[9] y) { y = Relu(x) }", {}, 0),
    ],
)
def test_multiply_accumulates_equal_a_count_by_hand(
    make: Make, text: str, weights: dict[str, tuple[int, ...]], macs: int
) -> None:
    model = graph.open_model(make(text, weights))
    assert model.macs == macs
    assert model.parameters == sum(prod(shape) for shape in weights.values())


def test_the_costliest_branch_of_an_if_counts(make: Make) -> None:
    text = """g (bool c, float[2,4] x) => (float[2,4] y) {
        y = If (c) <then_branch = t () => (float[2,4] a) { a = MatMul(x, W) },
                    else_branch = e () => (float[2,4] b) { h = MatMul(x, W) b = MatMul(h, W) }> }"""
    assert graph.open_model(make(text, {"W": (4, 4)})).macs == 2 * 2 * 4 * 4


def test_operators_without_a_rule_leave_the_count_open(make: Make) -> None:
    text = 'g (float[2,4] x) => (float[2,4] y) { y = Einsum <equation = "ij,jk->ik"> (x, W) }'
    assert graph.open_model(make(text, {"W": (4, 4)})).macs is None


def test_unknown_shapes_leave_the_count_open_until_they_are_given(make: Make) -> None:
    path = make("g (float[N,3,H,H] x) => (float[N,2,A,B] y) { y = Conv(x, W) }", {"W": (2, 3, 3, 3)})
    assert graph.open_model(path).macs is None
    assert graph.open_model(path, {"x": (5, 3, 7, 7)}).macs == 5 * 2 * 5 * 5 * 3 * 9


def test_sizes_computed_from_constants_are_followed(make: Make) -> None:
    text = """g (float[1,3,4,4] x) => (float[1,2,A,B] y) {
        two = Constant <value = int64[1] {2}> ()
        ones = ConstantOfShape <value = int64[1] {1}> (two)
        twice = Concat <axis = 0> (zeros, ones, zeros, ones)
        wide = Pad(x, twice)
        y = Conv(wide, W) }"""
    path = make(text, {"W": (2, 3, 3, 3), "zeros": np.zeros(2, np.int64)})
    assert graph.open_model(path).macs == 2 * 4 * 4 * 3 * 9


def test_weights_count_wherever_they_are_written_and_once(make: Make) -> None:
    text = """g (float[1,2] x) => (float[1,2] y) {
        C = Constant <value = float[2,2] {1.0, 2.0, 3.0, 4.0}> ()
        a = MatMul(x, C)
        b = MatMul(a, W)
        y = MatMul(b, W) }"""
    assert graph.open_model(make(text, {"W": (2, 2)})).parameters == 8


def test_sizes_bounds_scales_and_unread_tensors_are_no_parameters(make: Make) -> None:
    text = """g (float[1,1,2,2] x) => (float[1,1,4,4] y) {
        r = Resize(x, roi, scales)
        c = Clip(r, low)
        q = QuantizeLinear(c, scale)
        y = DequantizeLinear(q, scale) }"""
    weights = {
        "roi": np.zeros(0, np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "low": np.float32(0).reshape(()),
        "scale": np.float32(0.1).reshape(()),
        "unread": (7, 7),
    }
    weights = {k: np.asarray(v) if not isinstance(v, tuple) else v for k, v in weights.items()}
    assert graph.open_model(make(text, weights)).parameters == 0


def test_a_quantized_weight_counts_as_much_as_its_original(make: Make) -> None:
    text = """g (float[2,8] x) => (float[2,4] y) {
        W = DequantizeLinear <axis = 1> (Q, scale, zero)
        y = MatMul(x, W) }"""
    weights = {
        "Q": np.ones((8, 4), np.int8),
        "scale": np.ones(4, np.float32),
        "zero": np.zeros(4, np.int8),
    }
    model = graph.open_model(make(text, weights))
    assert model.parameters == 32
    assert model.macs == 2 * 8 * 4


def test_operators_are_counted_in_subgraphs_too_most_frequent_first(make: Make) -> None:
    text = """g (bool c, float[2] x) => (float[2] y) {
        z = Neg(x)
        y = If (c) <then_branch = t () => (float[2] a) { a = Relu(z) },
                    else_branch = e () => (float[2] b) { h = Relu(z) b = Relu(h) }> }"""
    assert list(count.operators(graph.load(make(text))).items()) == [("Relu", 3), ("If", 1), ("Neg", 1)]


@pytest.mark.shared
def test_resnet20_costs_what_its_layers_add_up_to(shared: Path) -> None:
    stem = 3 * 16 * 9 * 32 * 32
    stages = [6 * 16 * 16 * 9 * 32 * 32] + [
        (channels // 2 + 5 * channels) * channels * 9 * size * size for channels, size in ((32, 16), (64, 8))
    ]
    path = shared / "models" / "resnet20_cifar10.onnx"
    assert graph.open_model(path, {"input": (1, 3, 32, 32)}).macs == stem + sum(stages) + 64 * 10


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("efficientnet_lite0", (1, 3, 224, 224)),
        ("mlperf_tiny_kws_dscnn_bn", (2, 1, 49, 10)),
        ("ultraface_rfb320", (1, 3, 240, 320)),
    ],
)
def test_the_cost_follows_the_shapes_that_a_runtime_produces(
    shared: Path, tmp_path: Path, run: Run, name: str, shape: tuple[int, ...]
) -> None:
    path = shared / "models" / f"{name}.onnx"
    proto = onnx.load(path)
    feed = proto.graph.input[0].name
    nodes = [node for node in proto.graph.node if node.op_type in {"Conv", "Gemm", "MatMul"}]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=node.output[0]) for node in nodes)
    onnx.save(proto, tmp_path / "taps.onnx")
    outputs = run(tmp_path / "taps.onnx", {feed: np.zeros(shape, np.float32)})
    kernels = {t.name: tuple(t.dims) for t in proto.graph.initializer}
    per_output = [prod(kernels[n.input[1]][1:]) if n.op_type != "MatMul" else kernels[n.input[1]][0] for n in nodes]
    assert graph.open_model(path, {feed: shape}).macs == sum(
        output.size * each for output, each in zip(outputs, per_output, strict=True)
    )


@pytest.mark.shared
@pytest.mark.parametrize(
    ("case", "parameters"),
    [("09_weights_as_constant_nodes", 8 * 3 * 9 + 8 + 32), ("55_unused_initializer_and_input", 4 * 27)],
)
def test_cases_have_the_parameters_their_manifest_says(shared: Path, case: str, parameters: int) -> None:
    assert graph.open_model(shared / "cases" / f"{case}.onnx").parameters == parameters
