"""Fetching what was registered: byte for byte, with its session options, by alias, version or as the latest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_recording import OPTIONS, _file, _report, _write_model

from compressor import records as r
from compressor import registry
from compressor.errors import InputError, MachineError
from compressor.records import VersionName

# mlflow 3.17 reads registered models with an option that SQLAlchemy 2.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:sqlalchemy.exc.SADeprecationWarning")


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give a registry with two versions of `served`, of which the first is the champion."""
    import mlflow

    home = tmp_path_factory.mktemp("registry")
    place = f"sqlite:///{home}/mlflow.db"
    for name, verdict in (("one", "pass"), ("two", "inconclusive")):
        folder = home / name
        (folder / "int8").mkdir(parents=True)
        for text in ("report.json", "report.md", "recipe.yaml"):
            (folder / text).write_text("{}")
        _write_model(folder / "int8" / "net.onnx", external=name == "two")
        files = ("int8/net.onnx", *(["int8/weights/w.bin"] if name == "two" else []))
        artifact = r.Artifact("onnxruntime", "cpu", tuple(_file(folder, file) for file in files), 0.0, OPTIONS)
        model = r.Original(name, name, 400, 100, 5000, 7, 17)
        registry.record(place, _report(artifact, verdict=verdict, model=model), folder)
    yield place
    mlflow.set_tracking_uri("")
    mlflow.set_registry_uri("")


@pytest.mark.parametrize(
    ("name", "run"), [("served@champion", "one"), ("served/1", "one"), ("served/2", "two"), ("served/latest", "two")]
)
def test_a_version_arrives_as_it_was_measured_with_its_options(uri: str, name: str, run: str, tmp_path: Path) -> None:
    arrived = registry.fetch(uri, VersionName.read(f"models:/{name}"), tmp_path)
    measured = Path(uri.removeprefix("sqlite:///")).parent / run / "int8"
    assert (arrived / "model.onnx").read_bytes() == (measured / "net.onnx").read_bytes()
    assert json.loads((arrived / "session.json").read_text()) == OPTIONS
    if run == "two":
        assert (arrived / "weights" / "w.bin").read_bytes() == (measured / "weights" / "w.bin").read_bytes()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("served@production", r"models:/served@production: 'served' has no such version; there is @champion, /1, /2"),
        ("served/3", "'served' has no such version; there is @champion, /1, /2"),
        ("served/champion", "there is @champion, /1, /2"),
        ("other@champion", "no model of that name has a version; there is served"),
        ("other'@champion", "no model of that name has a version; there is served"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(uri: str, name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        registry.fetch(uri, VersionName.read(f"models:/{name}"), tmp_path)


def test_a_registry_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"models:/served/1: there is no registry at sqlite:///.*none\.db"):
        registry.fetch(f"sqlite:///{tmp_path}/none.db", VersionName("served", "1"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"http://127\.0\.0\.1:9"):
        registry.fetch("http://127.0.0.1:9", VersionName("served", "1"), tmp_path)
