"""Events as they come: lines in a log, a table in a terminal."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import replace

import pytest

from compressor import console
from compressor.records import (
    Artifact,
    Failure,
    File,
    Latency,
    Measurement,
    Progress,
    Score,
    Speedup,
    Trial,
    Verdict,
)

LATENCY = Latency(
    **{f"p{p}{end}_ms": 2.5 for p in (50, 90, 95, 99) for end in ("", "_low", "_high")},
    mean_ms=1.0,
    n=370,
    cold_ms=None,
    load_ms=None,
    shape={},
    load="closed",
    preempted=0.0,
)
MEASURED = Measurement(
    214_000, LATENCY, 1.0, None, Score("top1", 0.9917, 600, 0.98, 1.0), Speedup(1.8, 1.7, 1.9), None, ()
)
INT8 = Trial(
    "int8",
    artifacts=(Artifact("onnxruntime", "cpu", (File("artifacts/int8/model.onnx", "0", 1),), 0.1, {}),),
    measurement=MEASURED,
    verdicts=(Verdict("latency p99", met=True, observed=2.5, limit=50, low=2, high=3, reason="", unit="ms"),),
)
BROKEN = Trial("[red]fused", failure=Failure("fuse", "onnxsim crashed"))


def work() -> Generator[Progress | Trial, None, str]:
    yield Progress("int8: measure")
    yield Progress("int8: measure, warm up")
    yield Progress("int8: measure", 100, 370)
    yield INT8
    yield BROKEN
    return "the result"


def test_a_log_gets_one_line_a_step_and_one_a_trial(capsys: pytest.CaptureFixture[str]) -> None:
    gained = "speed-up 1.80x (1.70 to 1.90); score top1 0.9917"
    assert console.follow(work(), quiet=False) == "the result"
    out, err = capsys.readouterr()
    assert out == ""
    lines = [re.sub(r"^ *[\d.]+ s  ", "", line) for line in err.splitlines()]
    assert lines == [
        "int8: measure",
        f"int8: size 214 kB; p50 2.5 ms; p99 at most 2.5 ms; {gained}; verdict met",
        "[red]fused: verdict not built: fuse: onnxsim crashed",
    ]


def test_an_overloaded_rung_has_lower_limits_only(capsys: pytest.CaptureFixture[str]) -> None:
    latency = replace(LATENCY, overloaded=True, p99_high_ms=None)
    trial = replace(INT8, measurement=replace(MEASURED, latency=latency))

    def work() -> Generator[Trial, None, None]:
        yield trial

    console.follow(work(), quiet=False)
    assert "p50 at least 2.5 ms; p99 at least 2.5 ms" in capsys.readouterr().err


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.follow(work(), quiet=True) == "the result"
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_table_that_names_are_not_markup_in(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    assert console.follow(work(), quiet=False) == "the result"
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    assert "rung" in shown
    assert "p99 at most" in shown
    assert re.search(r"int8 +214 kB +2\.5 ms +2\.5 ms +1\.80x \(1\.70 to 1\.90\) +top1 0\.9917 +met", shown)
    assert "[red]fused" in shown
    assert "not built: fuse: onnxsim crashed" in shown


def test_an_error_in_the_work_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Generator[Progress, None, None]:
        yield Progress("step")
        raise ZeroDivisionError

    for forced in ("", "1"):
        monkeypatch.setenv("FORCE_COLOR", forced)
        with pytest.raises(ZeroDivisionError):
            console.follow(fails(), quiet=False)
