"""What looking at a model finds of TensorRT, and what looking at this machine leaves behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx
import pipeline_broken as broken
import pytest
import small
from finished import finish

from compressor.engines.tensorrt import check
from compressor.engines.tensorrt.check import Refusal
from compressor.errors import InputError
from compressor.pipeline import look


def test_a_noise_that_crashes_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(look, "_noise", broken.write_and_crash)
    with pytest.raises(InputError, match="doctor --noise: noise failed: the process crashed"):
        finish(look.noise(1.0))
    assert not list(tmp_path.glob("compress-*"))


def not_installed(_path: Path) -> None:
    return None


def refused(_path: Path) -> tuple[Refusal, ...]:
    return (Refusal("n", "BitwiseNot", "of the parser"), Refusal("", "BitwiseNot", "again"), Refusal("m", "Abs", "new"))


@pytest.fixture
def net(tmp_path: Path) -> Path:
    text = """<ir_version: 10, opset_import: ["": 21]>
        g (int32[batch,seq] x) => (int32[batch,seq] y) { [n] a = BitwiseNot (x) [m] y = Abs (a) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_nothing_is_checked_that_nobody_asked_for(net: Path) -> None:
    assert finish(look.inspect(net, {})).refusals is None


def test_the_parser_adds_what_the_check_does_not_name(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "asked", refused)
    found = finish(look.inspect(net, {"x": (1, 4)}, devices=())).refusals or ()
    assert [(one.node, one.operator) for one in found] == [("n", "BitwiseNot"), ("m", "Abs")]
    assert found[0].reason != "of the parser"


def test_open_dimensions_are_told_unless_they_have_a_default(
    net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "asked", not_installed)
    found = finish(look.inspect(net, {}, devices=())).refusals or ()
    assert [(one.node, one.operator) for one in found] == [("x", "input"), ("n", "BitwiseNot")]
    batched = small.classifier(tmp_path / "small.onnx")
    (turing,) = finish(look.inspect(batched, {}, devices=("l4", "t4"))).refusals or ()
    assert turing.operator == "Gemm"  # and nothing about its batch


def test_a_parser_that_crashes_is_told(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "asked", broken.crash)
    found = finish(look.inspect(net, {"x": (1, 4)}, devices=())).refusals or ()
    assert [one.node for one in found] == ["n", ""]
    assert "parser itself fails on this model: the process crashed" in found[1].reason
