from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

Make = Callable[..., Path]
Run = Callable[[Path, Mapping[str, Any]], list[Any]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a model given in ONNX text, with weights drawn for the initializers that are named with their shape."""

    def _make(text: str, weights: Mapping[str, Any] | None = None, name: str = "model.onnx") -> Path:
        proto = onnx.parser.parse_model(text if text.lstrip().startswith("<") else f"{HEADER}{text}")
        arrays = {k: v if isinstance(v, np.ndarray) else draw(v) for k, v in (weights or {}).items()}
        proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, key) for key, array in arrays.items())
        path = tmp_path / name
        onnx.save(proto, path)
        return path

    return _make


@pytest.fixture
def run() -> Run:
    """Run a file with ONNX Runtime's own graph optimisations switched off."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4

    def _run(path: Path, feeds: Mapping[str, Any]) -> list[Any]:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, dict(feeds)))

    return _run


HEADER = '<ir_version: 8, opset_import: ["": 17]>\n'


def draw(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """Write a convolution whose weight lies in weights.bin beside it, in a folder of their own."""
    folder = tmp_path / "model"
    folder.mkdir()
    proto = onnx.parser.parse_model(f"{HEADER}g (float[1,3,4,4] x) => (float[1,2,2,2] y) {{ y = Conv(x, W) }}")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(draw((2, 3, 3, 3)), "W"))
    path = folder / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path
