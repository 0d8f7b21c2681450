"""A model above 2 GB through a whole run: baseline, INT8, report; the process that leads it never holds the model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import large_model
import numpy as np
import onnxruntime as ort
import pytest

from compressor.units import size_bytes

ROOT = Path(__file__).parents[2]
RECIPE = """
data: {calibration: {path: samples.npz}, evaluation: {path: samples.npz}, metric: cosine}
rungs: [{name: int8, stages: [{quantize: {scheme: dynamic}}]}]
gates: [{size: {max: 600MB}}, {accuracy: {max_drop: 1%}}]
limits: {measure: 1s}
registry: {uri: none}
"""
PARENT = """
import atexit, sys
from pathlib import Path
from compressor.cli import main

def peak():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    Path("peak.txt").write_text(line.split()[1])

atexit.register(peak)
sys.argv = ["compress", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from Linux's /proc")
def test_nothing_holds_a_model_above_2_gb_but_the_step_that_works_on_it(tmp_path: Path) -> None:
    model, (table, weight) = large_model.sparse(tmp_path / "large")
    model_bytes = sum(path.stat().st_size for path in model.parent.iterdir())
    assert model_bytes > 2**31
    ids = np.random.default_rng(1).integers(0, large_model.WRITTEN, (80, large_model.TOKENS))
    np.savez(tmp_path / "samples.npz", ids=ids)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    words = ["run", str(model), "--recipe", "recipe.yaml", "--log-file", "log.txt", "--output", "reports"]
    ended = subprocess.run(
        [sys.executable, "-c", PARENT, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    (folder,) = (tmp_path / "reports" / "model").iterdir()
    assert (folder / "report.json").exists(), ended.stderr
    report = json.loads((folder / "report.json").read_text())
    (trial,) = report["trials"]
    assert trial["failure"] is None
    assert ended.returncode in {0, 3}, ended.stderr  # 3 where this machine is not faster with it
    assert [verdict["met"] for verdict in trial["verdicts"]][:2] == [True, True]
    assert trial["model"]["size_bytes"] < 0.26 * model_bytes
    assert int((tmp_path / "peak.txt").read_text()) * 1024 < 100_000_000  # as docs/running.md says
    steps = [line for line in (tmp_path / "log.txt").read_text().splitlines() if "peak memory" in line]
    peaks = {line.partition("step: ")[2].partition(": done")[0]: _bytes(line) for line in steps}
    assert {
        "plan",
        "baseline: build",
        "baseline: score",
        "normalise",
        "int8: quantize",
        "int8: measure",
    } <= peaks.keys()
    assert max(peaks.values()) < 2 * model_bytes, peaks
    session = ort.InferenceSession(
        folder / trial["artifacts"][0]["files"][0]["path"], providers=["CPUExecutionProvider"]
    )
    found = session.run(None, {"ids": ids})[0]
    wide = np.pad(weight, ((0, large_model.WIDTH - large_model.WRITTEN), (0, 0)))
    wanted = table[ids].mean(axis=1) @ wide.T
    assert np.square(found - wanted).sum() < 1e-3 * np.square(wanted).sum()
    for file in (*tmp_path.rglob("*.data"), *tmp_path.rglob("*.onnx"), *tmp_path.rglob("weights.bin")):
        file.unlink()


def _bytes(line: str) -> int:
    return size_bytes(line.rpartition("peak memory ")[2])
