"""What tests of public bug reports share: the cases, the recipe that they run with, and how outputs are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from whole_run import Ended, feeds, samples, sqnr_db

REFUSED = {
    "42_external_missing/model.onnx": "external data file 'model.onnx.data' is missing, looked for at ",
    "43_truncated.onnx": "not a readable ONNX model (truncated?)",
    "74_nan_in_weights.onnx": "tensor 'W' holds 1 NaN and 0 infinite values of 108",
}
RANDOM = "33_random_op_in_graph.onnx"
QUANTIZED_ALREADY = "23_partly_qdq_already.onnx"
BLOATED = "59_constant_folding_bloat.onnx"
LEAST_DB = {"05_gemm_alpha2.onnx": 25, "22_u8s8_saturation_avx2.onnx": 40}
"""What the manifest asks beyond 20 dB; an error below 1 % is 40 dB."""
PRUNED_DB = 14
"""A drop of 1 % in cosine is some 17 dB, on other samples than these."""
RUNGS = """
rungs:
  - {name: core, stages: [{quantize: {scheme: static}}, fuse]}
  - {name: all, stages: [{quantize: {scheme: static, operators: all}}]}
  - {name: dynamic, stages: [{quantize: {scheme: dynamic}}]}
  - {name: cut, stages: [{prune: {ratio: 40%, multiple: 1}}]}
  - {name: cut-int8, stages: [{prune: {ratio: 40%, multiple: 1}}, {quantize: {scheme: static}}, fuse]}
limits: {measure: 50ms}
"""
INT8 = ("core", "all", "dynamic")
SHORT = "rungs: [{name: core, stages: [{quantize: {scheme: static}}, fuse]}]\nlimits: {measure: 50ms}\n"
DATA = 96
FEWER = {BLOATED: 4, "72_odd_channel_counts.onnx": 32}
"""Of large inputs, or slow models."""
Run = Callable[..., Ended]


def drawn(shared: Path, manifest: Mapping[str, Any], case: str, n: int, seed: int) -> Mapping[str, np.ndarray]:
    return samples(shared / "cases" / case, manifest[case].get("feeds", {}), n, seed)


def worst_db(shared: Path, manifest: Mapping[str, Any], case: str, artifact: Path) -> float:
    """Give the least SQNR of any output however the artifact is run, on inputs that no run has seen."""
    model = shared / "cases" / case
    return min(
        sqnr_db(
            model, artifact, feeds(model, drawn(shared, manifest, case, 4 if case in FEWER else 24, seed=7))
        ).values()
    )


def accuracy(trial: Mapping[str, Any]) -> bool | None:
    """Give the accuracy gate's verdict on a rung."""
    return next(verdict["met"] for verdict in trial["verdicts"] if verdict["gate"] == "accuracy")


def names() -> list[str]:
    """Name the cases where the tests are collected: without the folder there are none to run."""
    path = Path(__file__).parents[2] / "shared" / "cases" / "manifest.yaml"
    listed = yaml.safe_load(path.read_text(encoding="utf-8"))["cases"] if path.is_file() else []
    return [entry["file"] for entry in listed]
