"""A model made here, for measuring a machine and not a model.

Its size is a constant below.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from compressor.graph import files

_ROWS, _WIDTH, _LAYERS = 64, 384, 8
"""75 million multiply-accumulates: about a millisecond on one CPU of today."""


def probe(out: Path) -> Path:
    """Write a small model of dense layers, the same bytes each time, and give its path."""
    import onnx

    layers = "\n".join(f"h{i} = MatMul (r{i}, w{i})  r{i + 1} = Relu (h{i})" for i in range(_LAYERS))
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        probe (float[{_ROWS},{_WIDTH}] r0) => (float[{_ROWS},{_WIDTH}] r{_LAYERS}) {{ {layers} }}""")
    rng = np.random.default_rng(0)
    for i in range(_LAYERS):
        weight = rng.normal(0, _WIDTH**-0.5, (_WIDTH, _WIDTH)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, f"w{i}"))
    files.save(model, out)
    return out
