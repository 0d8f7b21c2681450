"""Quantizing in a test by nothing but least and greatest values, judged with exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime

from compressor.stages.quantize import ort
from compressor.stages.quantize.exclude import exclusions, too_wide
from compressor.stages.quantize.job import Job
from compressor.stages.quantize.prepare import prepare

Feeds = Mapping[str, np.ndarray]


class Made(NamedTuple):
    path: Path
    excluded: Mapping[str, str]


def quantized(path: Path, feeds: Iterable[Feeds], folder: Path) -> Made:
    """Prepare a model and quantize it by the least and greatest values seen, but for what is to stay float."""
    prepare(path, folder / "prepared.onnx")
    ranges = seen(folder / "prepared.onnx", feeds)
    excluded = {**exclusions(folder / "prepared.onnx", ()), **too_wide(folder / "prepared.onnx", ranges)}
    ort.static(Job(folder / "prepared.onnx", folder / "quantized.onnx", excluded, ranges))
    return Made(folder / "quantized.onnx", excluded)


def seen(path: Path, feeds: Iterable[Feeds]) -> dict[str, tuple[float, float]]:
    model = onnx.load(path)
    names = [name for node in model.graph.node for name in node.output if name]
    kept = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in kept)
    session = opened_exactly(model.SerializeToString())
    outputs = [value.name for value in session.get_outputs()]
    values = [{**feed, **dict(zip(outputs, session.run(None, dict(feed)), strict=True))} for feed in feeds]
    arrays = {name: np.stack([np.asarray(found[name]) for found in values]) for name in values[0]}
    floats = {name: array for name, array in arrays.items() if array.dtype == np.float32 and array.size}
    return {name: (float(array.min()), float(array.max())) for name, array in floats.items()}


def db(reference: Path, candidate: Path, feeds: Iterable[Feeds]) -> float:
    """Give the least SQNR in dB over the float outputs, integer arithmetic emulated exactly."""
    one, two = opened_exactly(reference), opened_exactly(candidate)
    runs = [(one.run(None, dict(feed)), two.run(None, dict(feed))) for feed in feeds]
    worst = math.inf
    for index, first in enumerate(runs[0][0]):
        if first.dtype.kind == "f":
            wanted, found = (np.stack([run[side][index] for run in runs]).astype(float) for side in (0, 1))
            finite = np.isfinite(wanted)
            noise = np.square(found[finite] - wanted[finite]).sum()
            worst = min(worst, 10 * math.log10(np.square(wanted[finite]).sum() / noise) if noise else math.inf)
    return worst


def opened_exactly(model: Path | bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.log_severity_level = 4
    given = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def normal(shape: Any, seed: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)
