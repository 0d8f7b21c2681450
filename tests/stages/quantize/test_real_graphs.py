"""Graphs that public bug reports describe, and real models, through normalise, quantize and fuse."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import finished
import numpy as np
import pytest
import yaml

from compressor import graph, machine, runtime, schemes
from compressor.records import Model
from compressor.samples import Samples, read, synthetic
from compressor.schemes import Scheme
from compressor.stages import Fuse, Quantize, Supply

pytestmark = pytest.mark.shared
STATIC = Quantize(scheme="static", operators="all")

CASES = (
    "01_shared_weight_bias_two_convs",
    "03_convtranspose_cin3_cout5",
    "05_gemm_alpha2",
    "07_matmul_1d_weight",
    "09_weights_as_constant_nodes",
    "10_initializers_also_inputs_ir3",
    "13_tied_embedding_head",
    "14_nodes_without_names",
    "16_names_slash_colon_space_unicode",
    "18_resize_empty_roi_initializer",
    "19_zero_size_activation",
    "21_dead_channels_with_bias",
    "22_u8s8_saturation_avx2",
    "25_float16_everywhere",
    "27_multi_input_int64_bool_float",
    "28_opset9_slice_attributes",
    "30_opset21_gelu_groupnorm",
    "32_batchnorm_training_mode",
    "39_metadata_props",
    "40_external_data/model",
    "47_attention_mask_float_min",
    "49_always_zero_activation",
    "51_residual_dw_se_classifier",
    "52_conv_flatten_gemm",
    "55_unused_initializer_and_input",
    "57_dynamic_batch_height_width",
    "60_int8_slower_than_fp32",
    "68_output_without_shape",
    "70_planted_dead_flatten",
    "72_odd_channel_counts",
)
NETWORKS = {
    "crepe_tiny": (1, 1024),
    "mlperf_tiny_kws_dscnn_bn": (1, 1, 49, 10),
    "mlperf_tiny_resnet8_cifar10": (1, 3, 32, 32),
    "ppocr_cls": (1, 3, 48, 192),
    "resnet20_cifar10": (1, 3, 32, 32),
    "ultraface_rfb320": (1, 3, 240, 320),
}
SIZES = {"H": 8, "W": 8}
"""What the symbolic dimensions of the cases stand for; every other one is 1."""


@pytest.fixture(scope="module")
def here() -> Scheme:
    return schemes.settled("auto", machine.isa(), saturates=runtime.saturates())


@pytest.mark.parametrize("case", CASES)
def test_a_case_stays_within_20_db(case: str, shared: Path, tmp_path: Path, apply: Any, here: Scheme) -> None:
    model, samples = opened(shared, case, tmp_path)
    quantized = apply(STATIC, model, samples, "quantized.onnx", here)
    fused = apply(Fuse(), graph.open_model(quantized.path), samples, name="fused.onnx")
    assert quantized.did.changed
    real, exact = (worst(model.path, fused.path, samples, exact=emulated) for emulated in (False, True))
    assert exact >= 20
    assert real == pytest.approx(exact, abs=1), "this machine's kernels compute what exact arithmetic does"
    assert fused.path.stat().st_size <= quantized.path.stat().st_size


def test_a_case_without_products_is_left_alone_and_says_why(shared: Path, tmp_path: Path, apply: Any) -> None:
    model, samples = opened(shared, "59_constant_folding_bloat", tmp_path)
    did = apply(STATIC, model, samples).did
    assert not did.changed
    assert "nothing to quantize" in did.what


def test_a_case_that_is_quantized_in_part_is_left_alone(shared: Path, tmp_path: Path, apply: Any) -> None:
    model, samples = opened(shared, "23_partly_qdq_already", tmp_path)
    assert not apply(STATIC, model, samples).did.changed


def test_a_string_output_survives_beside_a_quantized_one(shared: Path, tmp_path: Path, apply: Any) -> None:
    model, samples = opened(shared, "36_string_output", tmp_path)
    made = apply(Fuse(), graph.open_model(apply(STATIC, model, samples, name="quantized.onnx").path), samples)
    assert graph.open_model(made.path).outputs == model.outputs


def test_a_random_graph_is_quantized_and_keeps_its_randomness(
    shared: Path, tmp_path: Path, apply: Any, here: Scheme
) -> None:
    model, samples = opened(shared, "33_random_op_in_graph", tmp_path)
    supply, out = Supply(samples, samples, tmp_path / "kept", steady=False), tmp_path / "quantized.onnx"
    finished.finish(STATIC.resolve(model.path, here).apply(model, supply, out))
    made = apply(Fuse(), graph.open_model(out), samples)
    assert graph.summary(made.path).random == ("RandomNormalLike",)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_real_network_stays_within_20_db(name: str, shared: Path, tmp_path: Path, apply: Any, db: Any) -> None:
    graph.normalise(shared / "models" / f"{name}.onnx", tmp_path / "model.onnx")
    model = graph.open_model(tmp_path / "model.onnx")
    samples = synthetic(model.inputs, {model.inputs[0].name: NETWORKS[name]}, 16, 0, {})
    quantized = apply(STATIC, model, samples, name="quantized.onnx")
    fused = apply(Fuse(), graph.open_model(quantized.path), samples, name="fused.onnx")
    assert db(model, fused.path, samples) >= 20
    assert fused.path.stat().st_size < 0.6 * model.size_bytes


def test_a_recurrent_network_with_branches_stays_within_20_db(
    shared: Path, tmp_path: Path, apply: Any, db: Any
) -> None:
    graph.normalise(shared / "models" / "silero_vad_16k_op15.onnx", tmp_path / "model.onnx")
    model = graph.open_model(tmp_path / "model.onnx")
    voice = 0.02 * np.sin(2 * np.pi * 200 * np.arange(16 * 512) / 16_000)
    state = np.random.default_rng(0).uniform(-0.5, 0.5, (16, 2, 1, 128))
    arrays = {"input": voice.reshape(16, 1, 512).astype(np.float32), "state": state.astype(np.float32)}
    np.savez(tmp_path / "data.npz", **arrays, sr=np.full(16, 16_000))
    shapes = {"input": (1, 512), "state": (2, 1, 128), "sr": ()}
    samples = read(tmp_path / "data.npz", model.inputs, shapes)
    made = apply(STATIC, model, samples)
    assert graph.open_model(made.path).outputs == model.outputs
    assert db(model, made.path, samples) >= 20


def worst(before: Path, now: Path, samples: Samples, *, exact: bool) -> float:
    """Give the SQNR of the worst output that is a number with a fraction: others follow from it."""
    compared = finished.finish(runtime.compare(before, now, samples, exact=exact))
    return min(compared[t.name] for t in graph.open_model(before).outputs if t.dtype.startswith("float"))


def opened(shared: Path, case: str, folder: Path) -> tuple[Model, Samples]:
    manifest = yaml.safe_load((shared / "cases" / "manifest.yaml").read_text(encoding="utf-8"))
    feeds = next(entry.get("feeds", {}) for entry in manifest["cases"] if entry["file"] == f"{case}.onnx")
    graph.normalise(shared / "cases" / f"{case}.onnx", folder / "model.onnx")
    model = graph.open_model(folder / "model.onnx")
    arrays = {tensor.name: drawn(tensor, feeds.get(tensor.name, {})) for tensor in model.inputs}
    np.savez(folder / "data.npz", **arrays)
    return model, read(folder / "data.npz", model.inputs, {name: array.shape[1:] for name, array in arrays.items()})


def drawn(tensor: Any, feed: Mapping[str, Any]) -> np.ndarray:
    """Draw 32 complete feeds of an input as the manifest says."""
    rng = np.random.default_rng(0)
    if "values" in feed:
        return np.stack([np.array(feed["values"])] * 32).astype(tensor.dtype)
    dims = feed.get("shape") or [d if isinstance(d, int) else SIZES.get(d, 1) for d in tensor.shape]
    if "int_range" in feed:
        return rng.integers(*feed["int_range"], (32, *dims)).astype(tensor.dtype)
    if "bool" in feed:
        return np.full((32, *dims), feed["bool"])
    low_high = feed.get("uniform")
    values = rng.uniform(*low_high, (32, *dims)) if low_high else rng.standard_normal((32, *dims))
    return values.astype(tensor.dtype)
