"""The original that versions are made of: kept once, given back byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import registered
from test_recording import OPTIONS, _file, _report, _write_model

from compressor import records as r
from compressor import registry
from compressor.errors import MachineError
from compressor.records import VersionName

pytestmark = registered.NOISE
FILES = ("artifacts/baseline/model.onnx", "artifacts/baseline/weights/w.bin")


@pytest.fixture
def uri(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    yield from registered.empty(tmp_path_factory, tmp_path)


def run(folder: Path, second: int, *, baseline: bool = True, **changes: Any) -> tuple[r.Report, Path]:
    """Write the folder of a run, and give its report."""
    for rung in ("baseline", "int8"):
        (folder / "artifacts" / rung).mkdir(parents=True)
    _write_model(folder / "artifacts" / "int8" / "model.onnx")
    _write_model(folder / FILES[0], external=True)
    for name in ("report.json", "report.md", "recipe.yaml"):
        (folder / name).write_text("{}")
    artifact = r.Artifact("onnxruntime", "cpu", (_file(folder, "artifacts/int8/model.onnx"),), 0.0, OPTIONS)
    first = r.Artifact("onnxruntime", "cpu", tuple(_file(folder, name) for name in FILES), 0.0, OPTIONS)
    report = _report(artifact, started=datetime(2026, 3, 4, 5, 0, second, tzinfo=UTC), **changes)
    report = replace(report, recipe={"seed": second, "registry": {"name": "served"}})
    return replace(report, baseline=r.Trial("baseline", artifacts=(first,) if baseline else ())), folder


def kept(uri: str) -> list[str]:
    """Give the runs that hold an original."""
    client = registered.client(uri)
    runs = client.search_runs([each.experiment_id for each in client.search_experiments()])
    return [each.info.run_id for each in runs if client.list_artifacts(each.info.run_id, "original")]


def test_it_is_given_back_byte_for_byte_with_its_external_data(uri: str, tmp_path: Path) -> None:
    report, folder = run(tmp_path / "run", 1)
    found = registry.record(uri, report, folder)
    assert kept(uri) == [found.run_id]
    there = registry.fetch_original(uri, VersionName("served", "1"), tmp_path / "fetched")
    assert there is not None
    arrived = {path.relative_to(there).as_posix(): path.read_bytes() for path in there.rglob("*") if path.is_file()}
    assert arrived == {
        "model.onnx": (folder / FILES[0]).read_bytes(),
        "weights/w.bin": (folder / FILES[1]).read_bytes(),
    }


def test_all_runs_of_one_original_keep_it_once(uri: str, tmp_path: Path) -> None:
    first = registry.record(uri, *run(tmp_path / "one", 1))
    registry.record(uri, *run(tmp_path / "two", 2))
    assert kept(uri) == [first.run_id]
    there = registry.fetch_original(uri, VersionName("served", "2"), tmp_path / "fetched")
    assert there is not None
    assert (there / "model.onnx").read_bytes() == (tmp_path / "two" / FILES[0]).read_bytes()


def test_another_original_is_kept_beside_it(uri: str, tmp_path: Path) -> None:
    registry.record(uri, *run(tmp_path / "one", 1))
    other = r.Original("net ä", "another", 400, 100, 5000, 7, 17)
    registry.record(uri, *run(tmp_path / "two", 2, model=other))
    assert len(kept(uri)) == 2


def test_a_run_that_was_broken_off_does_not_count(uri: str, tmp_path: Path) -> None:
    first = registry.record(uri, *run(tmp_path / "one", 1))
    registered.client(uri).set_terminated(first.run_id, "FAILED")
    second = registry.record(uri, *run(tmp_path / "two", 2))
    assert set(kept(uri)) == {first.run_id, second.run_id}


def test_a_run_that_fails_keeps_its_original_for_others(uri: str, tmp_path: Path) -> None:
    registry.record(uri, *run(tmp_path / "one", 1, verdict="fail", chosen=None))
    registry.record(uri, *run(tmp_path / "two", 2))
    assert len(kept(uri)) == 1
    assert registry.fetch_original(uri, VersionName("served", "1"), tmp_path / "fetched") is not None


def test_where_nobody_kept_it_there_is_none(uri: str, tmp_path: Path) -> None:
    registry.record(uri, *run(tmp_path / "one", 1, baseline=False))
    assert kept(uri) == []
    assert registry.fetch_original(uri, VersionName("served", "1"), tmp_path / "fetched") is None


def test_what_is_gone_is_told_in_a_sentence(uri: str, tmp_path: Path) -> None:
    import shutil

    registry.record(uri, *run(tmp_path / "one", 1))
    for folder in (tmp_path / "mlartifacts").rglob("original"):
        shutil.rmtree(folder)
    with pytest.raises(MachineError, match=r"\Amodels:/served/1: the registry .* does not give its original: [^\n]*\Z"):
        registry.fetch_original(uri, VersionName("served", "1"), tmp_path / "fetched")
