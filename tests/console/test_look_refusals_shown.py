"""How it is shown what TensorRT would refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from compressor import console
from compressor.engines.tensorrt.check import Refusal
from compressor.graph import Summary
from compressor.pipeline import Inspected
from compressor.records import Model

MODEL = Model(Path("net.onnx"), "0", 1, 1, None, 1, 17, (), ())
SUMMARY = Summary(1, 1, None, 1, {}, {}, 1, 1, quantized=False, random=(), training=())
SEEN = Inspected(MODEL, SUMMARY)


def test_each_refusal_is_a_line_and_a_name_that_is_not_known_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    refusals = (Refusal("fc", "Gemm", "no FP32; do this"), Refusal("", "", "it crashed"))
    console.inspected(replace(SEEN, refusals=refusals), as_json=False)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[-3:] == ["TensorRT would refuse operator because", "fc Gemm no FP32; do this", "- - it crashed"]


def test_nothing_refused_is_a_sentence_and_not_asked_is_silence(capsys: pytest.CaptureFixture[str]) -> None:
    console.inspected(replace(SEEN, refusals=()), as_json=False)
    assert capsys.readouterr().out.splitlines()[-1] == "nothing was found that TensorRT would refuse"
    console.inspected(SEEN, as_json=False)
    assert "TensorRT" not in capsys.readouterr().out


def test_json_keeps_them_apart(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for refusals in (None, (), (Refusal("fc", "Gemm", "why"),)):
        console.inspected(replace(SEEN, refusals=refusals), as_json=True)
        shown.append(json.loads(capsys.readouterr().out)["refusals"])
    assert shown == [None, [], [{"node": "fc", "operator": "Gemm", "reason": "why"}]]
