from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compressor.engines.tensorrt import record
from compressor.errors import InputError

ONE = record.Record(
    file="model.a10g+l4.rtx.engine",
    sha256="0" * 64,
    size_bytes=1234,
    provider="tensorrt-rtx",
    version="1.7.1.116",
    devices=("a10g", "l4"),
    capabilities=("8.6", "8.9"),
    precision="auto",
    computes="FP16",
    profiles=({"x": ((1, 3), (8, 3), (32, 3))}, {"x": ((1, 3), (1, 3), (1, 3))}),
    inputs=(record.Bound(name="x", dtype="float32", shape=(-1, 3)),),
    outputs=(record.Bound(name="y", dtype="float32", shape=()),),
    onnx_sha256="1" * 64,
    flags=("TF32",),
    build_s=0.25,
)
TWO = ONE.model_copy(update={"file": "model.t4.rtx.engine", "devices": ("t4",), "capabilities": ("7.5",)})
BOTH = record.Records(engines=(ONE, TWO))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "engine.json"
    path.write_text(record.write(BOTH))
    return path


def test_what_is_written_is_read(file: Path) -> None:
    assert record.read(file) == BOTH


def test_a_server_reads_it_as_plain_json(file: Path) -> None:
    text = file.read_text()
    assert text.endswith("}\n")
    told = json.loads(text)
    assert told["schema_version"] == 1
    first = told["engines"][0]
    assert first["profiles"] == [{"x": [[1, 3], [8, 3], [32, 3]]}, {"x": [[1, 3], [1, 3], [1, 3]]}]
    assert first["inputs"] == [{"name": "x", "dtype": "float32", "shape": [-1, 3]}]
    assert set(first) == set(record.Record.model_fields)


def test_an_engine_is_found_by_its_file(file: Path) -> None:
    assert record.of(file.with_name("model.t4.rtx.engine")) == TWO
    assert record.of(file.with_name("model.a10g+l4.rtx.engine")) == ONE


def test_a_file_that_is_not_told_of_is_named_with_those_that_are(file: Path) -> None:
    with pytest.raises(InputError) as caught:
        record.of(file.with_name("model.l4.engine"))
    assert str(caught.value) == (
        f"{file}: tells nothing of model.l4.engine, but of model.a10g+l4.rtx.engine, model.t4.rtx.engine; "
        "build it again"
    )


def test_no_engines_are_none(file: Path) -> None:
    file.write_text(record.write(record.Records(engines=())))
    with pytest.raises(InputError, match="but of none"):
        record.of(file.with_name("model.l4.engine"))


def test_a_missing_file_is_said_to_belong_to_the_engine(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        record.of(tmp_path / "model.t4.engine")
    said = f"{tmp_path / 'engine.json'}: No such file or directory: an engine needs it beside it, as it was built"
    assert str(caught.value) == said


def _changed(**fields: Any) -> str:
    told = json.loads(record.write(BOTH))
    told["engines"][1].update(fields)
    return json.dumps(told)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        pytest.param('{"schema_version": 2, "engines": []}', "schema_version", id="another schema"),
        pytest.param('{"schema_version": 1}', "engines", id="no engines"),
        pytest.param("[]", "the whole", id="a list"),
        pytest.param("", "the whole", id="empty"),
        pytest.param("{", "the whole", id="cut off"),
        pytest.param(_changed(provider="openvino"), "engines.1.provider", id="another provider"),
        pytest.param(_changed(size_bytes="many"), "engines.1.size_bytes", id="a word for a number"),
        pytest.param(_changed(colour="red"), "engines.1.colour", id="a field more"),
        pytest.param(_changed(profiles=[{"x": [[1], [2]]}]), "engines.1.profiles.0.x.2", id="two shapes"),
    ],
)
def test_another_content_is_refused_with_its_place(file: Path, text: str, where: str) -> None:
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        record.read(file)
    assert str(caught.value).startswith(f"{file}: {where}: ")
    assert str(caught.value).endswith("; build the engine again")
