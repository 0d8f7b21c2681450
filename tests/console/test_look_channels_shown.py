"""How channels are shown that can be pruned, and those that stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from compressor import console
from compressor.graph import Summary
from compressor.pipeline import Inspected
from compressor.records import Channels, Model

MODEL = Model(Path("net.onnx"), "0", 1, 1, None, 1, 17, (), ())
SUMMARY = Summary(1, 1, None, 1, {}, {}, 1, 1, quantized=False, random=(), training=())


def test_shares_that_are_not_known_are_a_dash_and_heads_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    channels = (
        Channels("q", 48, together=12, layers=("q", "k", "v")),
        Channels("ff", 16, layers=("ff",), macs=0.25),
        Channels("out", 2, layers=("out",), stay=("first reason", "second")),
    )
    console.inspected(Inspected(MODEL, SUMMARY, channels), as_json=False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    flat = [" ".join(word for word in line if word not in {"│", "|", "┃"}) for line in lines]
    assert any("q 48 (12 at a time) - k, v" in line for line in flat)
    assert any("ff 16 25.0% -" in line for line in flat)
    assert any("out 2 first reason; second" in line for line in flat)


def test_a_table_without_rows_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    console.inspected(Inspected(MODEL, SUMMARY, ()), as_json=False)
    shown = capsys.readouterr().out
    assert "no channels can be pruned" in shown
    assert "made by" not in shown
