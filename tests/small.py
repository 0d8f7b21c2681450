"""A small classifier with real weights, and data that it is right on, for tests that run the whole thing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

CLASSES, SIDE, CHANNELS = 4, 8, 8


def classifier(path: Path, seed: int = 0) -> Path:
    """Write Conv-BN-Relu-Conv-Relu-pool-Gemm; its argmax on random inputs is spread over all classes."""
    rng = np.random.default_rng(seed)
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        small (float[batch,3,{SIDE},{SIDE}] x) => (float[batch,{CLASSES}] logits) {{
            a = Conv <pads: ints = [1,1,1,1]> (x, w1)
            n = BatchNormalization (a, scale, shift, mean, var)
            b = Relu (n)
            c = Conv <pads: ints = [1,1,1,1]> (b, w2)
            d = Relu (c)
            p = GlobalAveragePool (d)
            f = Flatten (p)
            logits = Gemm (f, w3, b3)
        }}""")
    arrays = {
        "w1": rng.normal(0, 0.3, (CHANNELS, 3, 3, 3)),
        "scale": rng.uniform(0.5, 1.5, CHANNELS),
        "shift": rng.normal(0, 0.1, CHANNELS),
        "mean": rng.normal(0, 0.1, CHANNELS),
        "var": rng.uniform(0.5, 1.5, CHANNELS),
        "w2": rng.normal(0, 0.3, (CHANNELS, CHANNELS, 3, 3)),
        "w3": rng.normal(0, 1, (CHANNELS, CLASSES)),
        "b3": np.zeros(CLASSES),
    }
    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, path)
    centre = _logits(path, _inputs(200, seed)).mean(axis=0)
    model.graph.initializer[-1].CopyFrom(numpy_helper.from_array(-centre, "b3"))
    onnx.save(model, path)
    return path


def data(path: Path, model: Path, n: int, seed: int) -> Path:
    """Write n random samples with the model's own answers as labels, a tenth of them wrong."""
    x = _inputs(n, seed)
    label = _logits(model, x).argmax(axis=1)
    label[: n // 10] = (label[: n // 10] + 1) % CLASSES
    np.savez(path, x=x, label=label)
    return path


def _inputs(n: int, seed: int) -> npt.NDArray[np.float32]:
    """Draw images whose channels differ in brightness, so that pooling them tells something."""
    rng = np.random.default_rng(seed)
    return (rng.normal(0, 1, (n, 3, SIDE, SIDE)) + rng.normal(0, 2, (n, 3, 1, 1))).astype(np.float32)


def _logits(model: Path, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    import onnxruntime as ort

    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    logits: npt.NDArray[np.float32] = session.run(None, {"x": x})[0]
    return logits
