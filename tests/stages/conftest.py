from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from exact import EXACT, made_up

from compressor import graph
from compressor.records import Did, Model
from compressor.samples import Samples
from compressor.schemes import Scheme
from compressor.stages import Supply

Make = Callable[..., Model]
Apply = Callable[..., "Result"]
Db = Callable[..., float]


class Result(NamedTuple):
    path: Path
    did: Did

    @property
    def kinds(self) -> list[str]:
        return [node.op_type for node in onnx.load(self.path).graph.node]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a model in normal form, given in ONNX text, with weights drawn where only their shape is given."""

    def _make(text: str, weights: Mapping[str, object], opset: int = 17) -> Model:
        proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{text}')
        arrays = {name: w if isinstance(w, np.ndarray) else drawn(w) for name, w in weights.items()}
        proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
        proto.model_version, proto.domain, proto.doc_string = 42, "org.example", "what it is for"
        onnx.helper.set_model_props(proto, {"classes": "cat,dog", "stride": "32"})
        onnx.save(proto, tmp_path / "given.onnx")
        graph.normalise(tmp_path / "given.onnx", tmp_path / "model.onnx")
        return graph.open_model(tmp_path / "model.onnx")

    return _make


@pytest.fixture
def apply(tmp_path: Path) -> Apply:
    """Apply a stage to a model with samples (16 made up ones unless given)."""

    def _apply(
        stage: Any, model: Model, samples: Samples | None = None, name: str = "out.onnx", scheme: Scheme = EXACT
    ) -> Result:
        given = samples or made_up(model, 16)
        supply = Supply(given, given, tmp_path / "kept")
        work = stage.resolve(model.path, scheme).apply(model, supply, tmp_path / name)
        while True:
            try:
                next(work)
            except StopIteration as stop:
                return Result(tmp_path / name, stop.value)

    return _apply


@pytest.fixture
def db() -> Db:
    """Give the SQNR in dB of the first output of a file against a model, both without graph optimisations."""

    def _db(model: Model, path: Path, samples: Samples | None = None) -> float:
        one, two = exact(model.path), exact(path)
        pairs = [(one.run(None, feed)[0], two.run(None, feed)[0]) for feed in samples or made_up(model, 16)]
        wanted, found = (np.stack(side).astype(np.float64) for side in zip(*pairs, strict=True))
        wanted, found = wanted[np.isfinite(wanted)], found[np.isfinite(wanted)]
        noise = np.square(found - wanted).sum()
        return math.inf if noise == 0 else 10 * math.log10(np.square(wanted).sum() / noise)

    return _db


def exact(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def drawn(shape: Any) -> np.ndarray:
    fan_in = math.prod(shape[1:]) or 1
    return np.random.default_rng(sum(shape)).normal(size=shape, scale=fan_in**-0.5).astype(np.float32)


@pytest.fixture
def fused(tmp_path: Path) -> Callable[[Path], list[str]]:
    """Give the operators of a file once ONNX Runtime optimised it."""

    def _fused(path: Path) -> list[str]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return [node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node]

    return _fused
