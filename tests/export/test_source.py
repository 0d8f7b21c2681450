"""The grammar of torch programs: what is read, and what is refused in which words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from compressor.errors import InputError
from compressor.export import Source, is_torch, source
from compressor.export.source import Axis, Input


def test_every_word_of_the_grammar_is_read() -> None:
    inputs = ["x=1x3x8x8", "ids=2x16:int64:30522", "flag=:bool", "half=4:float16"]
    found = source("a.b.nets:make.small", Path("w.safetensors"), (inputs, ["x:0=batch", "ids:1=seq"]))
    assert found == Source(
        "a.b.nets:make.small",
        Path("w.safetensors"),
        (
            Input("x", (1, 3, 8, 8)),
            Input("ids", (2, 16), "int64", 30522),
            Input("flag", (), "bool"),
            Input("half", (4,), "float16"),
        ),
        (Axis("x", 0, "batch"), Axis("ids", 1, "seq")),
    )
    assert found.name == "small"
    assert not found.is_program


@pytest.mark.parametrize(
    ("model", "exported"),
    [
        ("nets:make", True),
        ("a.b:C", True),
        ("folder/net.pt2", True),
        ("net.onnx", False),
        ("models:/name@champion", False),
        ("a folder/b.onnx", False),
        ("nets", False),
    ],
)
def test_what_has_to_be_exported_is_told_by_its_name(model: str, exported: bool) -> None:  # noqa: FBT001
    assert is_torch(model) == exported


def test_a_file_with_a_colon_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nets:make").touch()
    assert not is_torch("nets:make")


@pytest.mark.parametrize("name", ["m.pt", "m.pth", "m.bin", "m.ckpt", "m.safetensors"])
def test_weights_are_no_model(name: str) -> None:
    with pytest.raises(InputError, match=rf"{name}: holds weights or a pickle.*:factory --weights {name}"):
        is_torch(name)


@pytest.mark.parametrize(
    ("model", "inputs", "dynamic", "message"),
    [
        ("n:f", ["x"], [], "--input: expected NAME=DIMENSIONS"),
        ("n:f", ["=1x3"], [], "--input: expected NAME=DIMENSIONS"),
        ("n:f", ["x=1xa"], [], "--input x: expected a shape of whole numbers"),
        ("n:f", ["x=1x0x3"], [], "--input x: expected sizes from 1 up, found '1x0x3'"),
        ("n:f", ["x=1x3:bfloat16"], [], "--input x: expected one of float32, float16.*found 'bfloat16'"),
        ("n:f", ["x=1x3:int64:many"], [], "found 'x=1x3:int64:many'"),
        ("n:f", ["x=1x3:int64:9:9"], [], "--input: expected NAME=DIMENSIONS"),
        ("n:f", ["x=1x3", "x=1x3"], [], "--input: x stands twice"),
        ("n:f", ["x=1x3"], ["x=batch"], "--dynamic: expected NAME:AXIS=SYMBOL"),
        ("n:f", ["x=1x3"], ["x:2=c"], "no input has x:2; --input gives x 1x3"),
        ("n:f", ["x=1x3"], ["y:0=c"], "no input has y:0"),
        ("n:f", ["x=1x3"], ["x:0=a", "x:0=b"], "--dynamic: x:0 stands twice"),
        ("n.pt2", ["x=1x3"], [], "n.pt2: holds its own weights and inputs"),
    ],
)
def test_what_is_no_such_word_is_refused(
    model: str, inputs: Sequence[str], dynamic: Sequence[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        source(model, None, (inputs, dynamic))


def test_trust_is_for_programs_that_are_loaded() -> None:
    assert source("n.pt2", None, trust=True).trust
    with pytest.raises(InputError, match=r"--trust is for a \.pt2"):
        source("n:f", None, trust=True)
