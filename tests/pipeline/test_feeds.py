"""Whole runs on tables, functions and samples of different shapes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from compressor import gates, recipe
from compressor.pipeline import Request, Result, prepare, run
from compressor.plan import Job
from compressor.records import Array

FEATURES, HIDDEN, CLASSES = 147, 64, 3
SIZES = ((8, 8), (12, 10), (16, 9))
ONE = """
rungs: [{name: int8, stages: [{quantize: {scheme: static}}]}]
gates: [{latency: {p99: 10s}}, {accuracy: {max_drop: 5%}}]
limits: {measure: 1s}
registry: {uri: none}
"""


@pytest.fixture(autouse=True)
def _speed_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "regression", lambda _rival, _trial: None)


def go(model: Path, text: str) -> Result:
    request = Request(Job(model, recipe.parse(text, "r.yaml"), model.parent / "reports", model.parent))
    return finish(run(finish(prepare(request)), request))


def finish(work: object) -> Any:
    while True:
        try:
            next(work)  # type: ignore[call-overload]
        except StopIteration as stop:
            return stop.value


def outputs(model: Path, x: Array) -> Array:
    return ort.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def sqnr_db(wanted: Array, found: Array) -> float:
    return float(10 * np.log10(np.square(wanted).sum() / np.square(found - wanted).sum()))


def layers(path: Path) -> Path:
    """Write an MLP over 147 features whose classes follow a rule: which of three sums of features is greatest."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        mlp (float[batch,{FEATURES}] x) => (float[batch,{CLASSES}] scores) {{
            a = Gemm (x, w1, b1)
            b = Relu (a)
            scores = Gemm (b, w2, b2)
        }}""")
    rule = np.zeros((FEATURES, CLASSES))
    rule[np.arange(FEATURES), np.arange(FEATURES) % CLASSES] = 1
    spread = rng.normal(0, 1, (CLASSES, HIDDEN // 2))
    w1 = np.hstack([rule @ spread, -rule @ spread])  # relu(a) - relu(-a) = a
    back = np.linalg.pinv(spread)
    arrays = {"w1": w1, "b1": np.zeros(HIDDEN), "w2": np.vstack([back, -back]), "b2": np.zeros(CLASSES)}
    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, path)
    return path


def features(n: int, seed: int) -> tuple[Array, Array]:
    x = np.random.default_rng(seed).normal(0, 1, (n, FEATURES))
    sums = np.stack([x[:, c::CLASSES].sum(axis=1) for c in range(CLASSES)], axis=1)
    return x, sums.argmax(axis=1)


def table(path: Path, n: int, seed: int) -> Path:
    x, label = features(n, seed)
    names = ",".join([f"f{i}" for i in range(FEATURES)] + ["label"])
    np.savetxt(path, np.hstack([x, label[:, None]]), delimiter=",", header=names, comments="")
    return path


@pytest.mark.slow
def test_a_model_over_147_features_is_compressed_and_scored_on_tables(tmp_path: Path) -> None:
    model = layers(tmp_path / "mlp.onnx")
    table(tmp_path / "c.csv", 200, 1)
    table(tmp_path / "e.csv", 300, 2)
    report = go(model, "data: {calibration: {path: c.csv}, evaluation: {path: e.csv}}" + ONE).report
    assert (report.verdict, report.chosen, report.data.metric) == ("pass", "int8", "top1")
    score = report.trials[0].measurement.score
    x, label = features(300, 2)
    made = next((tmp_path / "reports").rglob(f"*/{report.trials[0].artifacts[0].files[0].path}"))
    assert score.value == pytest.approx((outputs(made, x.astype(np.float32)).argmax(axis=1) == label).mean(), abs=0.01)
    assert report.baseline.measurement.score.value > 0.98
    assert made.stat().st_size < 0.5 * model.stat().st_size


@pytest.mark.slow
@pytest.mark.shared
def test_samples_of_different_shapes_calibrate_and_score(tmp_path: Path, shared: Path) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes((shared / "cases/57_dynamic_batch_height_width.onnx").read_bytes())
    (tmp_path / "d").mkdir()
    rng = np.random.default_rng(0)
    for i in range(80):
        np.save(tmp_path / f"d/{i:02}.npy", rng.standard_normal((3, *SIZES[i % 3])).astype(np.float32))
    text = "data: {calibration: {path: d}, metric: cosine}\nshapes: {x: 2x3x12x10}" + ONE
    result = go(model, text)
    trial = result.report.trials[0]
    assert (result.report.verdict, result.report.chosen) == ("pass", "int8")
    assert trial.measurement.score.metric == "cosine"
    assert trial.measurement.score.n == 40
    assert trial.measurement.latency.shape == {"x": "2x3x12x10"}
    made = next((tmp_path / "reports").rglob(f"*/{trial.artifacts[0].files[0].path}"))
    for size in (*SIZES, (24, 30)):
        x = rng.standard_normal((2, 3, *size)).astype(np.float32)
        assert sqnr_db(outputs(model, x), outputs(made, x)) > 20


def test_the_command_takes_a_function_that_gives_the_same_each_time(tmp_path: Path) -> None:
    layers(tmp_path / "mlp.onnx")
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "def give():\n"
        "    rng = np.random.default_rng(0)\n"
        f"    for _ in range(40): yield {{'x': rng.normal(0, 1, {FEATURES})}}\n"
        "def vary():\n"
        "    rng = np.random.default_rng()\n"
        f"    for _ in range(40): yield {{'x': rng.normal(0, 1, {FEATURES})}}\n"
    )

    def command(*options: str) -> subprocess.CompletedProcess[str]:
        arguments = ["run", "mlp.onnx", "--registry", "none", "--dry-run", "--sla", "1s", *options]
        return subprocess.run(
            [sys.executable, "-m", "compressor", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    found = command("--calibration", "mine:give")
    assert found.returncode == 0, found.stderr
    assert "mine:give" in found.stdout + found.stderr
    assert "cast float64 to float32" in found.stdout + found.stderr
    unseeded = command("--calibration", "mine:vary")
    assert unseeded.returncode == 2
    assert "seed its random numbers" in unseeded.stderr
    assert "Traceback" not in unseeded.stderr
