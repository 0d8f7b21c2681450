"""`compress recipe`: files that are checked, and plans that are explained without running."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import small
import whole_run

from compressor import recipe

CLIMBS = """\
data: {calibration: {path: calibration_data/net.npz, samples: 60}}
others: [{batch: 4}]
rungs:
  - {name: plain, stages: [{quantize: {scheme: static}}]}
  - {name: cut, stages: [{prune: {ratio: 25%}}, quantize, fuse], engine: {onnxruntime: {threads: 1}}}
gates:
  - latency: {p99: 40ms, reserve: 5ms}
  - accuracy: {max_drop: 2%}
limits: {measure: 3s, run: 30min}
proved_on: "*"
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = small.classifier(tmp_path / "net.onnx")
    (tmp_path / "calibration_data").mkdir()
    small.data(tmp_path / "calibration_data" / "net.npz", path, 200, seed=1)
    (tmp_path / "recipe.yaml").write_text(CLIMBS)
    return path


def test_all_files_are_checked_and_all_their_problems_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"one": "gats: []", "two": "seed: 1", "three": "seed: x\nlimits: {memory: 1}"}.items():
        Path(f"{name}.yaml").write_text(text)
    ended = whole_run.compress("recipe", "check", "one.yaml", "two.yaml", "three.yaml", "none.yaml")
    assert ended.code == 2
    lines = ended.err.splitlines()
    assert lines[0] == "two.yaml: ok"
    assert [line.removeprefix("compress: ").partition(": ")[0] for line in lines[1:]] == [
        "one.yaml:1",
        "three.yaml:1",
        "three.yaml:2",
        "none.yaml",
    ]


def test_a_plan_is_explained_without_running(model: Path) -> None:
    ended = whole_run.compress("recipe", "explain", "recipe.yaml", "--model", model, "--shape", "x=1x3x8x8", "--json")
    assert (ended.code, sorted(path.name for path in model.parent.iterdir())) == (
        0,
        ["calibration_data", "net.onnx", "recipe.yaml"],
    )
    told = json.loads(ended.out)
    assert [rung["name"] for rung in told["rungs"]] == ["plain", "cut"]
    assert [[step["stage"] for step in rung["stages"]] for rung in told["rungs"]] == [
        ["quantize"],
        ["prune", "quantize", "fuse"],
    ]
    (static,), (prune, search, _) = (rung["stages"] for rung in told["rungs"])
    assert (static["settings"]["operators"], static["ways"]) == ("core", 0)
    assert prune["settings"]["ratio"] == "25%"
    assert search["ways"] >= 3
    assert [rung["engine"] and rung["engine"].partition(",")[0] for rung in told["rungs"]] == [
        None,
        "onnxruntime threads 1",
    ]
    assert (told["calibration"]["samples"], told["evaluation"]["samples"]) == (60, 140)
    assert (told["points"], told["proved_on"], told["registry"]) == (["batch 4"], "*", "none")
    assert told["gates"] == ["latency p99 40ms, reserve 5ms", "accuracy max_drop 2%"]
    assert (told["limits"]["measure"], told["limits"]["run"]) == ("3s", "1800s")
    minutes, rungs = told["minutes"], [rung["minutes"] for rung in told["rungs"]]
    assert minutes["least"] == pytest.approx(minutes["baseline"] + rungs[0])
    assert minutes["most"] == pytest.approx(minutes["baseline"] + sum(rungs))
    assert told["call_ms"] > 0


def test_a_dry_run_shows_the_same(model: Path) -> None:
    words = ("--max-drop", "3%", "--threads", 1, "--json")
    explained = whole_run.compress("recipe", "explain", "recipe.yaml", "--model", model, *words)
    dry = whole_run.compress("run", model, "--recipe", "recipe.yaml", "--dry-run", *words)
    one, other = (_untimed(json.loads(ended.out)) for ended in (explained, dry))
    assert one == other
    assert one["gates"][1] == "accuracy max_drop 3%"
    shown = whole_run.compress("recipe", "explain", "recipe.yaml", "--model", model)
    for part in ("plain", "prune (ratio 25%", "ways, or float", "60 samples", "batch 4", "proved on", "measure 3s"):
        assert part in shown.out
    assert "estimate" in shown.err


def test_what_cannot_be_planned_is_refused(model: Path) -> None:
    ended = whole_run.compress("recipe", "explain", "recipe.yaml", "--model", "none.onnx")
    assert ended.code == 2
    ended = whole_run.compress("recipe", "explain", "recipe.yaml", "--model", model, "--shape", "y=1")
    assert (ended.code, "the model has no input 'y'" in ended.err) == (2, True)


def test_a_password_of_a_registry_is_told_by_no_command(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "http://me:hunter2@127.0.0.1:9/?token=hunter2")
    Path("secret.yaml").write_text("environment: [PLACE]\nregistry:\n  uri: ${PLACE}\n")
    for words in (["check", "secret.yaml"], ["explain", "secret.yaml", "--model", model]):
        ended = whole_run.compress("recipe", *words)
        assert "hunter2" not in ended.out + ended.err
    Path("wrong.yaml").write_text("environment: [PLACE]\nregistry: ['${PLACE}']\n")
    ended = whole_run.compress("recipe", "check", "wrong.yaml")
    assert (ended.code, "hunter2" in ended.err) == (2, False)


def test_no_line_of_a_log_holds_what_a_variable_holds(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "http://me:hunter2@127.0.0.1:9/")
    text = f"environment: [PLACE]\nregistry:\n  uri: ${{PLACE}}\n{CLIMBS}"
    Path("secret.yaml").write_text(text)
    ended = whole_run.compress("run", model, "--recipe", "secret.yaml", "--dry-run", "--log-file", "log.txt")
    assert ended.code == 5  # nobody answers there
    assert "hunter2" not in Path("log.txt").read_text() + ended.err


def test_the_recipe_that_is_printed_is_the_default() -> None:
    ended = whole_run.compress("recipe", "init", "--sla", "p95=7ms")
    assert recipe.parse(ended.out, "r") == recipe.override(recipe.default(), recipe.Overrides(sla="p95=7ms"))


def _untimed(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave out what was timed, which differs each time."""
    rungs = [{name: value for name, value in rung.items() if name != "minutes"} for rung in told["rungs"]]
    return {**{name: value for name, value in told.items() if name not in {"call_ms", "minutes"}}, "rungs": rungs}
