"""Public bug reports about data, places and machines, through the real command; most end before any work."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from whole_run import Ended, compress, opened

pytestmark = pytest.mark.shared

MODEL = "39_metadata_props.onnx"  # x: [batch, 3, 8, 8], as the files of calibration data have it
SHORT = "rungs: [{name: int8, stages: [{quantize: {scheme: static}}]}]\nlimits: {measure: 50ms}\n"


def planned(model: Path, *words: object) -> Ended:
    """Plan a run and do nothing."""
    return compress("run", model, "--sla", "1s", "--registry", "none", "--dry-run", *words)


def told(ended: Ended) -> str:
    """Give the one sentence of a refusal."""
    (line,) = [line for line in ended.err.splitlines() if line.startswith("compress: ")]
    assert "Traceback" not in ended.err
    assert not ended.report
    return line


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("one_inf", "array 'x' has NaN or infinite values in 1 of"),
        ("all_zero", "no variation, all "),
        ("empty", "array 'x' holds no samples"),
        ("no_arrays", "holds no arrays"),
        ("uint8", "data.preprocess"),
        ("truncated", "damaged"),
    ],
)
def test_data_that_cannot_calibrate_are_refused_before_any_work(data: str, said: str, shared: Path) -> None:
    path = shared / "cases" / "calibration" / f"{data}.npz"
    ended = planned(shared / "cases" / MODEL, "--calibration", path)
    assert ended.code == 2
    assert f"{data}.npz: " in told(ended)
    assert said in told(ended)


@pytest.mark.parametrize(("data", "said"), [("ok", ""), ("extra_key", ""), ("float64", "cast float64 to float32")])
def test_data_that_are_only_odd_serve_with_a_note(data: str, said: str, shared: Path) -> None:
    ended = planned(shared / "cases" / MODEL, "--calibration", shared / "cases" / "calibration" / f"{data}.npz")
    assert ended.code == 0
    assert said in " ".join((ended.out + ended.err).split())


def test_an_array_that_is_no_input_is_passed_over_with_a_note(shared: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((40, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "more.npz", x=x, weather=np.arange(40))
    ended = planned(shared / "cases" / MODEL, "--calibration", tmp_path / "more.npz")
    assert ended.code == 0
    assert "weather" in ended.out + ended.err


def test_samples_that_calibrate_never_score_too(shared: Path, tmp_path: Path) -> None:
    path = shared / "cases" / "calibration" / "ok.npz"
    copied = planned(
        shared / "cases" / MODEL, "--calibration", path, "--evaluation", shutil.copy(path, tmp_path / "other.npz")
    )
    assert copied.code == 2
    assert "other.npz" in told(copied)
    twice = planned(shared / "cases" / MODEL, "--calibration", path, "--evaluation", path)
    assert twice.code == 0
    assert "8 samples" in " ".join((twice.out + twice.err).split()), "one set is divided, not used twice"


def test_each_shape_has_a_latency_of_its_own_and_the_gate_one_that_is_stated(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(f"{SHORT}others: [{{shapes: {{x: 1x3x12x10}}}}, {{batch: 3}}]\n")
    words = ("--recipe", tmp_path / "recipe.yaml", "--registry", "none", "--output", tmp_path / "reports")
    model = shared / "cases" / "57_dynamic_batch_height_width.onnx"
    ended = compress("run", model, "--sla", "1s", "--shape", "x=1x3x8x8", "--threads", 1, *words)
    measured = ended.trials["int8"]["measurement"]
    assert measured["latency"]["shape"] == {"x": "1x3x8x8"}
    assert [other["shape"] for other in measured["others"]] == [{"x": "1x3x12x10"}, {"x": "3x3x8x8"}]
    assert [v["gate"] for v in ended.trials["int8"]["verdicts"]].count("latency p99") == 1


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_a_provider_that_is_not_here_never_becomes_the_cpu(
    provider: str, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    (tmp_path / "recipe.yaml").write_text(f"{SHORT}engine: {{onnxruntime: {{provider: {provider}}}}}\n")
    ended = planned(shared / "cases" / MODEL, "--recipe", tmp_path / "recipe.yaml")
    assert ended.code == 5
    assert "ExecutionProvider" in told(ended)


def test_a_folder_for_reports_may_be_the_models_own(shared: Path, tmp_path: Path) -> None:
    home = shutil.copytree(shared / "cases" / "40_external_data", tmp_path / "home")
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    (tmp_path / "recipe.yaml").write_text(SHORT)
    words = ("--recipe", tmp_path / "recipe.yaml", "--registry", "none", "--output", home, "--threads", 1)
    ended = compress("run", home / "model.onnx", "--sla", "1s", *words)
    assert ended.report
    assert {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()} == before
    assert sorted(path.name for path in home.iterdir()) == sorted([*before, "model", ".workspace"])


def test_nothing_is_written_beside_the_model(shared: Path, tmp_path: Path) -> None:
    home = shutil.copytree(shared / "cases" / "40_external_data", tmp_path / "home")
    home.chmod(0o555)
    (tmp_path / "recipe.yaml").write_text(SHORT)
    words = ("--recipe", tmp_path / "recipe.yaml", "--registry", "none", "--output", tmp_path / "r", "--threads", 1)
    seen = home.stat().st_mtime_ns
    ended = compress("run", home / "model.onnx", "--sla", "1s", *words)
    home.chmod(0o755)
    assert set(ended.artifacts(baseline=True)) == {"baseline", "int8"}
    assert home.stat().st_mtime_ns == seen


def test_any_letter_may_stand_in_a_path(shared: Path, tmp_path: Path) -> None:
    home = tmp_path / "mødel 模型 dir"
    home.mkdir()
    model = shutil.copy(shared / "cases" / MODEL, home / "м ж.onnx")
    (home / "réglage.yaml").write_text(SHORT)
    x = np.random.default_rng(0).standard_normal((80, 3, 8, 8)).astype(np.float32)
    np.savez(home / "д 数.npz", x=x)
    words = ("--recipe", home / "réglage.yaml", "--registry", "none", "--output", home / "ut øl", "--threads", 1)
    ended = compress("run", model, "--sla", "1s", "--calibration", home / "д 数.npz", *words)
    assert ended.report["model"]["name"] == "м ж"
    assert ended.folder
    assert ended.folder.is_relative_to(home / "ut øl")
    assert yaml.safe_load((ended.folder / "recipe.yaml").read_text(encoding="utf-8"))["data"]["calibration"]
    assert opened(ended.artifacts()["int8"]).run(None, {"x": x[:1]})[0].shape == (1, 4, 6, 6)
    loader = [sys.executable, ended.artifacts()["int8"].parent / "load.py"]
    assert subprocess.run(loader, capture_output=True, cwd=tmp_path, check=False).returncode == 0


def test_a_registry_of_files_is_refused_with_what_to_use(shared: Path) -> None:
    ended = compress("run", shared / "cases" / MODEL, "--sla", "1s", "--registry", "file:./mlruns", "--dry-run")
    assert ended.code == 2
    assert "sqlite" in told(ended)


def test_int8_for_the_cpu_is_told_from_what_tensorrt_reads_without_a_gpu(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(SHORT)
    words = ("--recipe", tmp_path / "recipe.yaml", "--registry", "none", "--output", tmp_path / "reports")
    ended = compress("run", shared / "cases" / "51_residual_dw_se_classifier.onnx", "--sla", "1s", *words)
    artifact = ended.artifacts()["int8"]
    looked = compress("inspect", artifact, "--target", "tensorrt:a10g", "--json")
    reasons = json.dumps(json.loads(looked.out))
    assert "zero point" in reasons
    graph = onnx.load(artifact).graph
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    shifted = [n for n in graph.node if n.op_type == "QuantizeLinear" and len(n.input) > 2 and arrays[n.input[2]].any()]
    assert shifted


@pytest.mark.parametrize(
    ("profiles", "said"),
    [
        (["batch=8/4/2"], "batch"),
        (["batch=1/4/-1"], "batch"),
        (["batch=1/2/4"], "height"),
    ],
)
def test_profiles_are_checked_before_any_engine_is_built(profiles: list[str], said: str, shared: Path) -> None:
    model = shared / "cases" / "57_dynamic_batch_height_width.onnx"
    flags = [word for profile in profiles for word in ("--profile", profile)]
    ended = planned(model, "--target", "tensorrt:a10g", "--shape", "x=1x3x8x8", *flags)
    assert ended.code == 2
    assert said in told(ended)
