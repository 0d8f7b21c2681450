"""A model above protobuf's 2 GB whose weights lie in a sparse file, which takes little on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

WIDTH, ROWS, TOKENS = 2048, 1 << 18, 3
WRITTEN = 32
"""Rows of each weight that are no zeros."""


def external(name: str, dims: tuple[int, int], offset: int) -> onnx.TensorProto:
    """Describe a tensor that lies in weights.bin."""
    tensor = onnx.TensorProto(name=name, dims=dims, data_type=onnx.TensorProto.FLOAT)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    place = {"location": "weights.bin", "offset": offset, "length": 4 * dims[0] * dims[1]}
    tensor.external_data.extend(onnx.StringStringEntryProto(key=key, value=str(place[key])) for key in place)
    return tensor


def sparse(folder: Path) -> tuple[Path, np.ndarray]:
    """Write a table of 2.1 GB and a product of 16 MB; give the model and what is written of both."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> large (int64[batch,{TOKENS}] ids) => (float[batch,{WIDTH}] y) {{'
        " e = Gather (table, ids)  m = ReduceMean <axes = [1], keepdims = 0> (e)  y = Gemm <transB = 1> (m, w) }"
    )
    folder.mkdir()
    written = np.random.default_rng(0).normal(size=(2, WRITTEN, WIDTH)).astype(np.float32)
    with (folder / "weights.bin").open("wb") as file:
        for (name, dims), rows in zip({"table": (ROWS, WIDTH), "w": (WIDTH, WIDTH)}.items(), written, strict=True):
            model.graph.initializer.append(external(name, dims, file.tell()))
            end = file.tell() + 4 * dims[0] * dims[1]
            file.write(rows.tobytes())
            file.seek(end)
        file.truncate(end)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx", written
