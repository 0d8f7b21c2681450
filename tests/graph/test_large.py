"""Models above protobuf's 2 GB: nothing holds them in memory at once, and INT8 is a quarter of them.

The weights lie in a sparse file that takes little on disk; what is made of them takes all that it has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import large_model
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from compressor import graph
from compressor.stages.quantize import large
from compressor.stages.quantize import ort as quantizers
from compressor.stages.quantize.job import Job

ROOT = Path(__file__).parents[2]
_CHILD = """
import json, sys
from pathlib import Path
from compressor import graph, isolation, runtime
from compressor.stages.quantize import ort
from compressor.stages.quantize.job import Job
import numpy as np

def quantize(model, folder):
    opened = graph.open_model(model)
    graph.normalise(model, folder / "normal.onnx")
    ort.dynamic(Job(folder / "normal.onnx", folder / "int8.onnx", {}))
    return opened.size_bytes

def main():
    work = isolation.call(quantize, *map(Path, sys.argv[1:]), limits=isolation.Limits())
    try:
        while True:
            next(work)
    except StopIteration as stop:
        print(json.dumps([stop.value.value, stop.value.peak_memory_bytes]))
"""


@pytest.mark.slow
def test_a_model_above_2_gb_is_quantized_in_less_memory_than_it_takes(
    tmp_path: Path,
) -> None:
    """To open, check, hash, normalise and quantize it takes no more than the file that comes of it, twice."""
    path, (table, weight) = large_model.sparse(tmp_path / "large")
    (tmp_path / "child.py").write_text(_CHILD)
    words = [sys.executable, "-c", "import child; child.main()", path, tmp_path]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    ended = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    size_bytes, peak_bytes = json.loads(ended.stdout)
    assert size_bytes > 2**31
    assert peak_bytes < 1.5 * size_bytes
    assert (tmp_path / "int8.onnx").stat().st_size < 0.26 * size_bytes
    session = ort.InferenceSession(tmp_path / "int8.onnx", providers=["CPUExecutionProvider"])
    ids = np.arange(2 * large_model.TOKENS).reshape(2, large_model.TOKENS)
    found = session.run(None, {"ids": ids})[0]
    wanted = table[ids].mean(axis=1) @ np.pad(weight, ((0, large_model.WIDTH - large_model.WRITTEN), (0, 0))).T
    noise = np.square(found - wanted).sum() / np.square(wanted).sum()
    assert noise < 1e-3
    for file in tmp_path.glob("*.onnx*"):
        file.unlink()


def layered(path: Path) -> Path:
    """Write a table, a MatMul, a Gemm and a transposed Gemm with biases; the table is read transposed, too."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        layers (int64[batch,3] ids) => (float[batch,12] y) {
            e = Gather (table, ids)  m = ReduceMean <axes = [1], keepdims = 0> (e)
            a = MatMul (m, w1)  r = Relu (a)  b = Gemm (r, w2, b2)  t = Tanh (b)
            y = Gemm <transB = 1> (t, w3, b3)
        }""")
    shapes = {"table": (40, 16), "w1": (16, 24), "w2": (24, 20), "b2": (20,), "w3": (12, 20), "b3": (12,)}
    for name, dims in shapes.items():
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=dims).astype(np.float32), name))
    onnx.save(model, path.with_name("given.onnx"))
    graph.normalise(path.with_name("given.onnx"), path)
    return path


@pytest.mark.parametrize("scheme", ["static", "dynamic", "weights"])
@pytest.mark.parametrize("excluded", [(), ("Gemm_y", "MatMul_a")])
@pytest.mark.parametrize("reduce_range", [False, True])
def test_weights_shown_by_their_extremes_become_the_same_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, excluded: tuple[str, ...], *, reduce_range: bool
) -> None:
    model = layered(tmp_path / "model.onnx")
    made = []
    for least in (0, 1 << 40):
        monkeypatch.setattr(large, "LEAST_BYTES", least)
        out = tmp_path / f"{least}.onnx"
        job = Job(
            model, out, dict.fromkeys(excluded, ""), dict.fromkeys("emarbty", (-3.0, 3.0)), reduce_range=reduce_range
        )
        getattr(quantizers, scheme)(job)
        found = onnx.load(out)
        made.append(
            (
                [(node.op_type, list(node.input), list(node.output)) for node in found.graph.node],
                {t.name: (list(t.dims), numpy_helper.to_array(t).tobytes()) for t in found.graph.initializer},
            )
        )
    assert made[0] == made[1]
