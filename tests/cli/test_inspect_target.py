"""`compress inspect --target tensorrt`: a table for people, JSON for programs, and which targets there are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., int]


def test_devices_decide_what_is_refused(command: Command, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("inspect", model, "--target", "tensorrt:t4,a10g", "--json") == 0
    (refusal,) = json.loads(capsys.readouterr().out)["refusals"]
    assert refusal["operator"] == "Gemm"
    assert "Turing" in refusal["reason"]
    assert command("inspect", model, "--target", "tensorrt") == 0
    assert "nothing was found that TensorRT would refuse" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["x86-avx2", "tensorrt:", "tensorrt:t4,gtx", "tensorrt:T4", "tensorrt,t4"])
def test_another_target_exits_2_and_lists_what_there_is(
    command: Command, model: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("inspect", model, "--target", target) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"found {target!r}" in err
    assert "tensorrt:DEVICE" in err
    assert "current, t4, a100" in err
