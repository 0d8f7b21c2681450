"""`compress inspect --prune`: tables for people, JSON for programs, exit codes for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

Command = Callable[..., int]


def quantized(path: Path) -> Path:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n,4] x) => (float[n,4] y) {
        q = QuantizeLinear (x, scale, zero)
        y = DequantizeLinear (q, scale, zero)
    }"""
    proto = onnx.parser.parse_model(text)
    arrays = {"scale": np.array(0.1, np.float32), "zero": np.array(0, np.int8)}
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    onnx.save(proto, path)
    return path


def test_json_lists_groups_and_what_stays(command: Command, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("inspect", model, "--prune", "--json") == 0
    channels = json.loads(capsys.readouterr().out)["channels"]
    total = 64 * 9 * (3 * 8 + 8 * 8) + 8 * 4  # of the classifier: 3x3 from 3 to 8, from 8 to 8, Gemm to 4
    first, second, last = channels
    assert (first["name"], first["channels"], first["stay"]) == ("Conv_a", 8, [])
    assert first["macs"] == pytest.approx(64 * 9 * (3 * 8 + 8 * 8) / total)
    assert (second["name"], second["channels"]) == ("Conv_c", 8)
    assert second["macs"] == pytest.approx((64 * 9 * 8 * 8 + 8 * 4) / total)
    assert (last["name"], last["channels"]) == ("Gemm_logits", 4)
    assert last["stay"] == ["the model has an output 'logits', whose shape stays"]


def test_the_tables_show_the_same(command: Command, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("inspect", model, "--prune") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "can be pruned" in out
    assert "Conv_a" in out
    assert "99.9%" in out  # 50688 of 50720
    assert "stays" in out
    assert "'logits'" in out
    assert command("inspect", model) == 0
    assert "can be pruned" not in capsys.readouterr().out


def test_a_quantized_model_exits_2_with_a_sentence(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("inspect", quantized(tmp_path / "q.onnx"), "--prune") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "the model is quantized already" in err
    assert "Traceback" not in err
