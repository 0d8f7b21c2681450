"""The last lines of a run, and the plan of one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from found import REPORT

from compressor import console
from compressor.pipeline import Result


def test_the_last_lines_say_verdict_artifact_report_registry_and_what_next(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    console.verdict(Result(REPORT, tmp_path / "reports" / "net" / "1"))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "warning: the machine was busy"
    assert lines[1].startswith("pass: int8 meets every gate: 25.6 MB → 6.4 MB (4.00 times smaller); 2.50 times as fast")
    assert lines[2:6] == [
        "tried     quantize: static, core operators 1.93x taken; dynamic 0.90x; static, by nncf refused",
        "artifact  reports/net/1/int8/net.onnx",
        "report    reports/net/1/report.md",
        "registry  net version 3 @champion in sqlite:////data/mlflow.db",
    ]
    assert lines[6].endswith("python reports/net/1/int8/load.py")


def test_without_a_choice_the_reasons_are_pointed_to(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    console.verdict(Result(replace(REPORT, verdict="fail", chosen=None, registry=None), tmp_path))
    lines = capsys.readouterr().err.splitlines()
    assert lines[1].startswith("fail: no candidate meets every gate.")
    assert lines[2] == f"artifacts {tmp_path / 'artifacts'} (none is chosen)"
    assert lines[-1] == f"next      read the reasons in {tmp_path / 'report.md'}"


def test_the_page_is_pointed_to_where_it_was_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "report.html").touch()
    console.verdict(Result(replace(REPORT, verdict="fail", chosen=None, registry=None), tmp_path))
    lines = capsys.readouterr().err.splitlines()
    assert f"report    {tmp_path / 'report.html'}" in lines
    assert lines[-1] == f"next      read the reasons in {tmp_path / 'report.html'}"


def test_an_engine_is_to_be_copied_to_where_its_device_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (chosen,) = [trial for trial in REPORT.trials if trial.rung == REPORT.chosen]
    files = (replace(chosen.artifacts[0].files[0], path="artifacts/int8/model.a10g+l4.rtx.engine"),)
    engine = replace(chosen.artifacts[0], engine="tensorrt-rtx", device="a10g+l4", files=files)
    trials = tuple(replace(trial, artifacts=(engine,)) if trial is chosen else trial for trial in REPORT.trials)
    console.verdict(Result(replace(REPORT, trials=trials), tmp_path / "reports"))
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "next      copy reports/artifacts/int8 to where a10g or l4 is, and run load.py there"
