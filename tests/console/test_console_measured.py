"""What was measured: the result on stdout, what it means on stderr."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from found import BENCHED, COMPARED

from compressor import console
from compressor.records import Noise, Speedup

NOISE = Noise(Speedup(1.0, 0.99, 1.01, rounds=12, lowest=0.98, highest=1.02), 20.0, 2.5, 0.03)


def test_a_bench_is_a_table_on_stdout_and_a_verdict_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    console.benched(BENCHED, as_json=False, quiet=False)
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["point", "load", "p50"]
    assert [line.partition("  ")[0] for line in lines[1:3]] == ["main load", "batch 8"]
    assert any(line.startswith("cold start") and "load 30.5 ms, first call 9 ms" in line for line in lines)
    overload = "batch 8: overloaded, offered 300/s, answered 120/s: its percentiles are lower limits"
    assert err.splitlines()[:2] == ["warning: made-up inputs", f"warning: {overload}"]
    assert err.splitlines()[2].startswith("pass: net.onnx takes 1 ms at the median")


def test_without_a_limit_there_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    console.benched(replace(BENCHED, verdict=None, warnings=()), as_json=False, quiet=False)
    assert capsys.readouterr().err.splitlines()[-1].startswith("net.onnx takes 1 ms at the median")


def test_a_comparison_is_a_table_on_stdout_and_a_sentence_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    console.compared(COMPARED, as_json=False, quiet=False)
    out, err = capsys.readouterr()
    assert out.splitlines()[0].split() == ["what", "A", "B"]
    assert "faster: 2.50 times as fast" in out
    assert any(line.startswith("latency p99") for line in out.splitlines())
    assert err.startswith("B is 2.50 times as fast as A")


@pytest.mark.parametrize("quiet", [False, True])
def test_json_is_alone_on_stdout(capsys: pytest.CaptureFixture[str], *, quiet: bool) -> None:
    console.compared(COMPARED, as_json=True, quiet=quiet)
    out, err = capsys.readouterr()
    assert json.loads(out)["verdict"] == "not worse"
    assert (err == "") is quiet


def test_quiet_leaves_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    console.benched(BENCHED, as_json=False, quiet=True)
    out, err = capsys.readouterr()
    assert "main load" in out
    assert err == ""


def test_noise_says_which_difference_would_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    console.noise(NOISE, as_json=False)
    out, err = capsys.readouterr()
    assert "slow-down that would be seen" in out
    assert "a slow-down of 3.00 % or more would be seen" in err
    console.noise(NOISE, as_json=True)
    assert json.loads(capsys.readouterr().out)["detectable"] == 0.03


@pytest.mark.parametrize(("stalled", "busy"), [(0.29, False), (0.31, True)])
def test_a_busy_machine_is_called_so(capsys: pytest.CaptureFixture[str], stalled: float, *, busy: bool) -> None:
    console.noise(replace(NOISE, speedup=replace(NOISE.speedup, stalled=stalled)), as_json=False)
    assert ("the machine was busy: repeat when it is quiet" in capsys.readouterr().err) is busy


def test_a_machine_that_tells_a_model_from_itself_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    claimed = Speedup(1.2, 1.15, 1.25, rounds=12, lowest=1.1, highest=1.3)
    console.noise(replace(NOISE, speedup=claimed), as_json=False)
    assert "trust no comparison made now" in capsys.readouterr().err
