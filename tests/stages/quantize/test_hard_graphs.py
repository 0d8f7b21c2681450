"""Graphs that quantizers get wrong, or refuse: small ones, and those of public bug reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from by_ranges import Feeds, db, normal, quantized
from onnx import numpy_helper

from compressor import graph
from compressor.stages.quantize.prepare import prepare

VECTOR = "MatMul with a vector: it has no channel axis"
INFINITE = "its values are infinite or nearly so"
GROUPS = "ConvTranspose in groups with a bias: weights have a scale for each channel of a group, the bias needs all"
CASES: Mapping[str, Mapping[str, str]] = {
    "01_shared_weight_bias_two_convs": {},
    "03_convtranspose_cin3_cout5": {},
    "05_gemm_alpha2": {},
    "07_matmul_1d_weight": {"mm_vec": VECTOR},
    "09_weights_as_constant_nodes": {},
    "13_tied_embedding_head": {},
    "18_resize_empty_roi_initializer": {},
    "19_zero_size_activation": {},
    "21_dead_channels_with_bias": {},
    "22_u8s8_saturation_avx2": {},
    "25_float16_everywhere": {},
    "28_opset9_slice_attributes": {},
    "30_opset21_gelu_groupnorm": {},
    "47_attention_mask_float_min": dict.fromkeys(("addmask", "neg", "softmax"), ""),
    "49_always_zero_activation": {},
}
"""Bug reports about quantizing, with the nodes that stay float and why."""
PARTLY_QUANTIZED = "23_partly_qdq_already"

KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "a bias that is computed": (
        "g (float[1,4,6,6] x, float[8] b) => (float[1,8,6,6] y) { c = Mul(b, h) \n y = Conv(x, W, c) }",
        {"W": (8, 4, 1, 1), "h": np.array(0.5, np.float32)},
    ),
    "a kernel that is computed": (
        "g (float[1,4,6,6] x, float[8,4,1,1] w) => (float[1,8,6,6] y) { k = Relu(w) \n y = Conv(x, k, b) }",
        {"b": (8,)},
    ),
    "a weight that is also a factor": (
        "g (float[4,4] x) => (float[4,4] y) { a = MatMul(x, W) \n b = Mul(a, W) \n y = Add(b, W) }",
        {"W": (4, 4)},
    ),
    "a weight on both sides": (
        "g (float[4,4] x) => (float[4,4] y) { a = MatMul(x, W) \n y = MatMul(W, a) }",
        {"W": (4, 4)},
    ),
    "a weight that is also a table": (
        "g (float[3,2] x) => (float[3,16] y) { i = ArgMax<axis=1>(x) \n e = Gather(W, i) \n y = MatMul(e, W) }",
        {"W": (16, 16)},
    ),
    "a table that is also a transposed weight": (
        """g (float[3,2] x) => (float[3,40] y) {
          i = ArgMax<axis=1, keepdims=0>(x) \n e = Gather(W, i) \n y = Gemm<transB=1>(e, W) }""",
        {"W": (40, 16)},
    ),
    "a kernel of a Conv and of a ConvTranspose": (
        "g (float[1,4,6,6] x) => (float[1,4,6,6] y) { a = Conv(x, W, d) \n b = Relu(a) \n y = ConvTranspose(b, W, c) }",
        {"W": (8, 4, 1, 1), "c": (4,), "d": (8,)},
    ),
    "a scale and shift of two norms": (
        """g (float[3,8] x) => (float[3,8] y) {
          a = LayerNormalization(x, s, b) \n c = MatMul(a, W) \n y = LayerNormalization(c, s, b) }""",
        {"W": (8, 8), "s": (8,), "b": (8,)},
    ),
    "a bias that is added too": (
        "g (float[1,8,4,4] x) => (float[1,8,4,4] y) { a = InstanceNormalization(x, s, b) \n y = Conv(a, W, b) }",
        {"W": (8, 8, 1, 1), "s": (8,), "b": (8,)},
    ),
    "a Relu whose input is an output": (
        "g (float[1,4,6,6] x) => (float[1,8,6,6] y, float[1,8,6,6] z) { z = Conv(x, W) \n y = Relu(z) }",
        {"W": (8, 4, 1, 1)},
    ),
    "a Clip with a computed bound": (
        "g (float[1,4,6,6] x, float high) => (float[1,8,6,6] y) { z = Conv(x, W) \n y = Clip(z, , high) }",
        {"W": (8, 4, 1, 1)},
    ),
    "a padding of infinity": (
        """g (float[1,4,6,6] x) => (float[1,4,7,7] y) {
          s = Pad(x, p, i) \n m = MaxPool<kernel_shape=[2,2]>(s) \n y = Conv(m, W) }""",
        {"W": (4, 4, 1, 1), "p": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "i": np.array(-np.inf, np.float32)},
    ),
    "a bias far beyond the product": (
        "g (float[2,4] x) => (float[2,4] y) { s = Mul(x, t) \n y = Gemm(s, W, b) }",
        {"W": (4, 4), "b": np.array([1e4, -1e4, 3e3, 1], np.float32), "t": np.array(1e-6, np.float32)},
    ),
    "weights of zero": (
        "g (float[8,4] x) => (float[8,4] y) { s = MatMul(x, W) \n y = Add(s, x) }",
        {"W": np.zeros((4, 4), np.float32)},
    ),
    "weights of many axes": (
        "g (float[2,3,4] x) => (float[2,3,4] y) { a = MatMul(x, W) \n y = MatMul(a, W) }",
        {"W": (2, 4, 4)},
    ),
    "kernels of different sizes in groups": (
        """g (float[1,4,4,4] x) => (float[1,4,8,8] y) {
          y = ConvTranspose<strides=[2,2], kernel_shape=[2,2], group=4>(x, W) }""",
        {"W": np.array([1e-3, 1, 10, 100], np.float32).reshape(4, 1, 1, 1) * np.ones((4, 1, 2, 2), np.float32)},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_was_found_wrong_once_stays_within_20_db(kind: str, make: Any, tmp_path: Path) -> None:
    model = make(*KINDS[kind])
    feeds = [{t.name: normal(t.shape, seed) for t in model.inputs} for seed in range(8)]
    made = quantized(model.path, feeds, tmp_path)
    assert quantized_nodes(made.path)
    assert db(model.path, made.path, feeds) >= 20


@pytest.mark.parametrize("beta", [1.0, 0.25])
@pytest.mark.parametrize("shape", [(4,), (1,), (), (1, 4), (8, 1), (8, 4)])
def test_a_gemm_with_any_bias_and_factors_is_quantized(
    shape: tuple[int, ...], beta: float, make: Any, tmp_path: Path
) -> None:
    text = f"g (float[8,6] x) => (float[8,4] y) {{ y = Gemm<alpha=2.0, beta={beta}>(x, W, b) }}"
    model = make(text, {"W": (6, 4), "b": np.asarray(5 * normal(shape, 1), np.float32)})
    feeds = [{"x": normal((8, 6), seed)} for seed in range(8)]
    made = quantized(model.path, feeds, tmp_path)
    assert not made.excluded
    assert "Gemm" in quantized_nodes(made.path)
    assert db(model.path, made.path, feeds) > 30


def test_a_gemm_with_a_beta_for_no_bias_is_quantized(make: Any, tmp_path: Path) -> None:
    model = make("g (float[8,6] x) => (float[8,4] y) { y = Gemm<beta=0.5>(x, W) }", {"W": (6, 4)})
    feeds = [{"x": normal((8, 6), seed)} for seed in range(8)]
    made = quantized(model.path, feeds, tmp_path)
    assert not made.excluded
    assert "Gemm" in quantized_nodes(made.path)
    assert db(model.path, made.path, feeds) > 30


@pytest.mark.parametrize(
    ("text", "weights", "reason"),
    [
        ("g (float[4] x) => (float[8] y) { [odd] y = MatMul(x, W) }", {"W": (4, 8)}, VECTOR),
        ("g (float[4,4] x) => (float[4] y) { a = Exp(x) \n [odd] y = MatMul(a, v) }", {"v": (4,)}, VECTOR),
        (
            "g (float[1,4,4,4] x) => (float[1,4,5,5] y) { [odd] y = ConvTranspose<group=2>(x, W, b) }",
            {"W": (4, 2, 2, 2), "b": (4,)},
            GROUPS,
        ),
        (
            "g (float[4,4] x, float[4,4] w) => (float[4,4] y) { [odd] y = Gemm<alpha=2.0>(x, w) }",
            {},
            "Gemm with alpha or beta other than 1: the quantizer does not scale its bias",
        ),
        (
            "g (float[4,4] x) => (float[4,4] y) { [odd] y = Gemm<transA=1>(x, W) }",
            {"W": (4, 4)},
            "Gemm with transA: no integer kernel",
        ),
    ],
)
def test_what_no_rewriting_mends_stays_float(text: str, weights: Any, reason: str, make: Any, tmp_path: Path) -> None:
    model = make(text, weights)
    feeds = [{t.name: normal(t.shape, 0) for t in model.inputs}]
    made = quantized(model.path, feeds, tmp_path)
    assert made.excluded == {"odd": reason}
    assert db(model.path, made.path, feeds) > 100


def test_an_activation_that_is_always_zero_hides_no_negative_values(make: Any, tmp_path: Path) -> None:
    model = make(
        """g (float[1,3,8,8] x) => (float[1,4,6,6] y) {
          a = Conv(x, W, low) \n dead = Relu(a) \n b = Conv(x, V) \n y = Add(dead, b) }""",
        {"W": (4, 3, 3, 3), "V": (4, 3, 3, 3), "low": np.full(4, -100, np.float32)},
    )
    feeds = [{"x": normal((1, 3, 8, 8), seed)} for seed in range(8)]
    assert db(model.path, quantized(model.path, feeds, tmp_path).path, feeds) > 20


def test_nodes_around_infinite_values_stay_float(make: Any, tmp_path: Path) -> None:
    model = make(
        """g (float[1,8] x) => (float[1,8] y) {
          h = MatMul(x, W) \n r = Relu(h) \n [log] l = Log(r) \n [cut] y = Clip(l, low) }""",
        {"W": (8, 8), "low": np.array(-9, np.float32)},
    )
    feeds = [{"x": normal((1, 8), seed)} for seed in range(8)]
    made = quantized(model.path, feeds, tmp_path)
    assert made.excluded == dict.fromkeys(("log", "cut"), INFINITE)
    assert math.isfinite(db(model.path, made.path, feeds))


@pytest.mark.parametrize("read", ["a", "b"])
def test_a_subgraph_reads_what_it_read_before(read: str, make: Any, tmp_path: Path) -> None:
    model = make(
        f"""g (float[1,3,8,8] x, bool up) => (float[1,4,6,6] y, float[1,4,6,6] z) {{
          [conv] a = Conv(x, W) \n [relu] b = Relu(a) \n z = Add(b, b)
          y = If(up) <then_branch = t () => (float[1,4,6,6] u) {{ u = Abs({read}) }},
                      else_branch = e () => (float[1,4,6,6] v) {{ v = Neg({read}) }}> }}""",
        {"W": (4, 3, 3, 3)},
    )
    feeds = [{"x": normal((1, 3, 8, 8), seed), "up": np.array(seed % 2 == 0)} for seed in range(8)]
    made = quantized(model.path, feeds, tmp_path)
    assert list(made.excluded) == ["relu"]
    assert db(model.path, made.path, feeds) > 20


@pytest.mark.shared
@pytest.mark.parametrize("case", CASES)
def test_a_bug_report_stays_within_20_db(case: str, shared: Path, tmp_path: Path) -> None:
    path, feeds = opened(shared, case, tmp_path)
    made = quantized(path, feeds, tmp_path)
    assert made.excluded.keys() == CASES[case].keys()
    assert all(made.excluded[name] == reason for name, reason in CASES[case].items() if reason)
    assert quantized_nodes(made.path)
    assert db(path, made.path, feeds) >= 20


@pytest.mark.shared
def test_every_bug_report_about_quantizing_is_among_these(shared: Path) -> None:
    kinds = {"quant-graph", "quant-numeric", "calib", "opset", "dtype"}
    found = {entry["file"].removesuffix(".onnx") for entry in manifest(shared) if entry["kind"] in kinds}
    assert found == {*CASES, PARTLY_QUANTIZED}


@pytest.mark.shared
def test_one_that_is_quantized_in_part_is_told_and_not_prepared(shared: Path, tmp_path: Path) -> None:
    path, _ = opened(shared, PARTLY_QUANTIZED, tmp_path)
    assert graph.is_quantized(path)
    assert prepare(path, tmp_path / "out.onnx") == ()


@pytest.mark.shared
def test_a_shared_weight_costs_no_accuracy(shared: Path, tmp_path: Path) -> None:
    path, feeds = opened(shared, "01_shared_weight_bias_two_convs", tmp_path)
    apart = onnx.load(path)
    for number, node in enumerate(node for node in apart.graph.node if node.op_type == "Conv"):
        for index in (1, 2):
            tensor = next(t for t in apart.graph.initializer if t.name == node.input[index])
            node.input[index] = f"own_{number}_{index}"
            apart.graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(tensor), node.input[index]))
    (tmp_path / "apart").mkdir()
    onnx.save(apart, tmp_path / "apart" / "model.onnx")
    together = quantized(path, feeds, tmp_path)
    separate = quantized(tmp_path / "apart" / "model.onnx", feeds, tmp_path / "apart")
    assert db(path, together.path, feeds) > db(path, separate.path, feeds) - 3
    assert together.path.stat().st_size < separate.path.stat().st_size


@pytest.mark.shared
def test_a_tied_embedding_is_stored_once(shared: Path, tmp_path: Path) -> None:
    path, feeds = opened(shared, "13_tied_embedding_head", tmp_path)
    made = quantized(path, feeds, tmp_path)
    assert made.path.stat().st_size < 0.4 * path.stat().st_size


@pytest.mark.shared
def test_float16_ends_survive(shared: Path, tmp_path: Path) -> None:
    path, feeds = opened(shared, "25_float16_everywhere", tmp_path)
    made = quantized(path, feeds, tmp_path)
    old, new = (onnx.load(p).graph for p in (path, made.path))
    assert (new.input, new.output) == (old.input, old.output)
    assert {t.data_type for t in new.initializer if len(t.dims) > 1} == {onnx.TensorProto.INT8}


def quantized_nodes(path: Path) -> set[str]:
    """Give the kinds of the nodes that read what was quantized."""
    nodes = onnx.load(path).graph.node
    codes = {node.output[0] for node in nodes if node.op_type == "DequantizeLinear"}
    return {node.op_type for node in nodes if codes & set(node.input)}


def opened(shared: Path, case: str, folder: Path) -> tuple[Path, list[Feeds]]:
    """Give a normalised bug report and 16 feeds as the manifest describes them."""
    graph.normalise(shared / "cases" / f"{case}.onnx", folder / "model.onnx")
    described = next(entry.get("feeds", {}) for entry in manifest(shared) if entry["file"] == f"{case}.onnx")
    inputs = graph.open_model(folder / "model.onnx").inputs
    feeds = [{t.name: fed(t, described.get(t.name, {}), seed) for t in inputs} for seed in range(16)]
    return folder / "model.onnx", feeds


def manifest(shared: Path) -> Any:
    return yaml.safe_load((shared / "cases" / "manifest.yaml").read_text(encoding="utf-8"))["cases"]


def fed(tensor: Any, described: Mapping[str, Any], seed: int) -> np.ndarray:
    shape = described.get("shape") or [dim if isinstance(dim, int) else 1 for dim in tensor.shape]
    rng = np.random.default_rng(seed)
    if "values" in described:
        return np.array(described["values"]).astype(tensor.dtype)
    if "int_range" in described:
        return rng.integers(*described["int_range"], shape).astype(tensor.dtype)
    values = rng.uniform(*described["uniform"], shape) if "uniform" in described else rng.standard_normal(shape)
    return values.astype(tensor.dtype)
