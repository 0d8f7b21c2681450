from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compressor import records as r
from compressor import registry
from compressor.errors import PublishError

OPTIONS = {
    "intra_op_num_threads": "2",
    "inter_op_num_threads": "1",
    "session.intra_op.allow_spinning": "0",
    "providers": "CPUExecutionProvider",
}

# mlflow 3.17 reads registered models with an option that SQLAlchemy 2.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:sqlalchemy.exc.SADeprecationWarning")


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create mlflow's tables once: it costs seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("tables") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}", f"sqlite:///{path}").search_registered_models(max_results=1)
    return path


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run in a folder of the test's own, and forget the URI that mlflow was given."""
    import mlflow

    path = tmp_path / "working"
    path.mkdir()
    monkeypatch.chdir(path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    yield path
    mlflow.set_tracking_uri("")
    mlflow.set_registry_uri("")


@pytest.fixture
def uri(tables: Path, tmp_path: Path) -> str:
    shutil.copy(tables, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "reports" / "net ä" / "20260304-050607"
    (path / "int8").mkdir(parents=True)
    (path / "report.json").write_text('{"verdict": "pass"}')
    (path / "report.md").write_text("# net: pass\n")
    (path / "recipe.yaml").write_text("version: 1\n")
    return path


def _write_model(path: Path, *, external: bool = False) -> None:
    """Write a model whose bytes protobuf would not write again: a field stands twice."""
    weight = numpy_helper.from_array(np.arange(2048, dtype=np.float32).reshape(2, 1024), "w")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["y"]),
            helper.make_node("Not", ["mask"], ["inverse"]),
            helper.make_node("Identity", ["ids"], ["same"]),
            helper.make_node("Identity", ["text"], ["words"]),
        ],
        "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2]),
            helper.make_tensor_value_info("mask", TensorProto.BOOL, [1]),
            helper.make_tensor_value_info("ids", TensorProto.INT64, []),
            helper.make_tensor_value_info("text", TensorProto.STRING, [1]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1024]),
            helper.make_tensor_value_info("inverse", TensorProto.BOOL, [1]),
            helper.make_tensor_value_info("same", TensorProto.INT64, []),
            helper.make_tensor_value_info("words", TensorProto.STRING, [1]),
        ],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (path.parent / "weights").mkdir(exist_ok=True)
    onnx.save(model, path, save_as_external_data=external, location="weights/w.bin" if external else None)
    path.write_bytes(b"\x12\x03old" + path.read_bytes())


def _file(folder: Path, name: str) -> r.File:
    content = (folder / name).read_bytes()
    return r.File(name, hashlib.sha256(content).hexdigest(), len(content))


def _report(artifact: r.Artifact | None, **changes: Any) -> r.Report:
    latency = r.Latency(
        **{f"p{q}{end}_ms": 1.0 for q in (50, 90, 95, 99) for end in ("", "_low", "_high")},
        mean_ms=1.5,
        n=100,
        cold_ms=None,
        load_ms=None,
        shape={"x": "1x2"},
        load="closed",
        preempted=0.0,
    )
    measured = r.Measurement(123, latency, 400.0, None)
    report = r.Report(
        schema_version=1,
        verdict="pass",
        chosen="int8",
        warnings=(),
        model=r.Original("net ä", "ab12", 400, 100, 5000, 7, 17),
        data=r.Data(None, None, None, None),
        baseline=r.Trial("baseline"),
        trials=(r.Trial("int8", artifacts=(artifact,) if artifact else (), measurement=measured),),
        environment=r.Environment(
            "m", "cpu", (), 2, 2, spinning=False, load=None, versions={"onnxruntime": "1.2.3"}, saturates=False
        ),
        recipe={"seed": 0, "registry": {"uri": None, "name": "served"}},
        registry=None,
        raw={},
        started=datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC),
        duration_s=9.0,
    )
    return replace(report, **changes)


@pytest.fixture
def report(folder: Path) -> r.Report:
    _write_model(folder / "int8" / "net.int8.onnx")
    files = (_file(folder, "int8/net.int8.onnx"),)
    return _report(r.Artifact("onnxruntime", "cpu", files, 0.0, OPTIONS))


def _client(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(uri, uri)


def _download(what: str, target: Path) -> Path:
    from mlflow.artifacts import download_artifacts

    return Path(download_artifacts(what, dst_path=str(target)))


def test_what_is_registered_is_byte_for_byte_what_was_measured(
    uri: str, report: r.Report, folder: Path, tmp_path: Path
) -> None:
    measured = folder / "int8" / "net.int8.onnx"
    assert onnx.load(measured).SerializeToString() != measured.read_bytes()
    found = registry.record(uri, report, folder)
    assert (found.uri, found.model, found.version, found.alias) == (uri, "served", "1", "champion")
    arrived = _download("models:/served@champion", tmp_path / "arrived")
    assert (arrived / "model.onnx").read_bytes() == measured.read_bytes()
    assert json.loads((arrived / "extra_files" / "report.json").read_text()) == {"verdict": "pass"}
    assert "onnxruntime==1.2.3" in (arrived / "requirements.txt").read_text().split()


def test_the_registered_model_is_served_with_the_options_that_were_measured(
    uri: str, report: r.Report, folder: Path, tmp_path: Path
) -> None:
    from mlflow.models import Model

    registry.record(uri, report, folder)
    model = Model.load(str(_download("models:/served/1", tmp_path / "arrived")))
    onnx_flavor = model.flavors["onnx"]
    assert onnx_flavor["providers"] == ["CPUExecutionProvider"]
    assert onnx_flavor["onnx_session_options"] == {
        "intra_op_num_threads": 2,
        "inter_op_num_threads": 1,
        "extra_session_config": {"session.intra_op.allow_spinning": "0"},
    }
    assert [(spec.name, spec.type.name, spec.shape) for spec in model.signature.inputs] == [
        ("x", "float32", (-1, 2)),
        ("mask", "bool", (1,)),
        ("ids", "int64", ()),
        ("text", "str", (1,)),
    ]
    assert [spec.name for spec in model.signature.outputs] == ["y", "inverse", "same", "words"]


def test_mlflow_runs_the_registered_model(uri: str, folder: Path, tmp_path: Path) -> None:
    import mlflow.pyfunc

    _write_model(folder / "int8" / "net.onnx", external=True)
    files = (_file(folder, "int8/net.onnx"), _file(folder, "int8/weights/w.bin"))
    registry.record(uri, _report(r.Artifact("onnxruntime", "cpu", files, 0.0, OPTIONS)), folder)
    arrived = _download("models:/served/1", tmp_path / "arrived")
    assert (arrived / "weights" / "w.bin").read_bytes() == (folder / "int8" / "weights" / "w.bin").read_bytes()
    feeds = {
        "x": np.ones((1, 2), np.float32),
        "mask": np.array([True]),
        "ids": np.array(7),
        "text": np.array(["a"]),
    }
    outputs = mlflow.pyfunc.load_model(str(arrived)).predict(feeds)
    np.testing.assert_array_equal(outputs["y"], [np.arange(1024) * 2 + 1024])


def test_the_run_holds_numbers_settings_and_files(uri: str, report: r.Report, folder: Path, tmp_path: Path) -> None:
    found = registry.record(uri, report, folder)
    client = _client(uri)
    run = client.get_run(found.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["int8.p99_ms"] == 1.0
    assert run.data.params["seed"] == "0"
    assert run.data.tags["compressor.verdict"] == "pass"
    experiment = client.get_experiment_by_name("net ä")
    assert experiment.experiment_id == run.info.experiment_id
    assert {item.path for item in client.list_artifacts(found.run_id)} == {"report.json", "report.md", "recipe.yaml"}
    assert list((tmp_path / "mlartifacts").rglob("recipe.yaml"))


def test_the_page_and_the_pictures_are_held_where_they_were_drawn(uri: str, report: r.Report, folder: Path) -> None:
    (folder / "report.html").write_text("<!doctype html>")
    (folder / "report-figures").mkdir()
    (folder / "report-figures" / "latency.png").write_bytes(b"a picture")
    found = registry.record(uri, report, folder)
    paths = {item.path for item in _client(uri).list_artifacts(found.run_id)}
    assert paths == {"report.json", "report.md", "recipe.yaml", "report.html", "report-figures"}
    inside = _client(uri).list_artifacts(found.run_id, "report-figures")
    assert [item.path for item in inside] == ["report-figures/latency.png"]


def test_nothing_is_left_in_the_working_folder(uri: str, report: r.Report, folder: Path, working_folder: Path) -> None:
    registry.record(uri, report, folder)
    assert list(working_folder.iterdir()) == []
    assert {path.name for path in folder.iterdir()} == {"int8", "report.json", "report.md", "recipe.yaml"}


def test_the_version_tells_what_it_is(uri: str, report: r.Report, folder: Path) -> None:
    found = registry.record(uri, report, folder)
    version = _client(uri).get_model_version("served", "1")
    assert version.run_id == found.run_id
    assert version.description == "# net: pass\n"
    assert version.tags["compressor.sha256"] == report.trials[0].artifacts[0].files[0].sha256


def test_the_champion_stays_where_a_later_run_does_not_pass(uri: str, report: r.Report, folder: Path) -> None:
    registry.record(uri, report, folder)
    changes = {"recipe": {**report.recipe, "seed": 1}, "started": datetime(2026, 3, 5, tzinfo=UTC)}
    later = replace(report, verdict="inconclusive", **changes)
    found = registry.record(uri, later, folder)
    assert (found.version, found.alias) == ("2", None)
    assert _client(uri).get_model_version_by_alias("served", "champion").version == 1


def test_a_run_that_chose_nothing_is_recorded_without_a_version(uri: str, report: r.Report, folder: Path) -> None:
    found = registry.record(uri, replace(report, verdict="fail", chosen=None), folder)
    assert (found.version, found.alias) == (None, None)
    assert _client(uri).get_run(found.run_id).info.status == "FINISHED"
    assert _client(uri).search_registered_models() == []


def test_without_a_name_the_version_is_named_after_the_model(uri: str, report: r.Report, folder: Path) -> None:
    assert registry.record(uri, replace(report, recipe={}), folder).model == "net_ä"


def test_a_report_recorded_twice_is_recorded_once(uri: str, report: r.Report, folder: Path) -> None:
    first = registry.record(uri, report, folder)
    assert registry.record(uri, report, folder) == first
    assert len(_client(uri).search_model_versions("name = 'served'")) == 1


def test_a_file_that_was_changed_since_is_not_registered(uri: str, report: r.Report, folder: Path) -> None:
    path = folder / "int8" / "net.int8.onnx"
    path.write_bytes(b"\x12\x03new" + path.read_bytes()[5:])
    with pytest.raises(PublishError, match=r"int8/net\.int8\.onnx was not registered"):
        registry.record(uri, report, folder)
    client = _client(uri)
    assert client.search_registered_models() == []
    experiment = client.get_experiment_by_name("net ä")
    assert [run.info.status for run in client.search_runs([experiment.experiment_id])] == ["FAILED"]
    assert not [path for path in folder.iterdir() if path.name.startswith("tmp")]


def test_a_folder_without_its_reports_is_refused(uri: str, report: r.Report, folder: Path) -> None:
    (folder / "report.md").unlink()
    with pytest.raises(PublishError, match=r"report\.md is missing"):
        registry.record(uri, report, folder)


def test_a_database_of_another_version_is_refused_in_one_sentence(uri: str, report: r.Report, folder: Path) -> None:
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'unknown'")
    connection.close()
    with pytest.raises(PublishError, match=r"(?s)\A[^\n]*the run was not recorded: [^\n]*compress publish[^\n]*\Z"):
        registry.record(uri, report, folder)


def test_a_server_that_went_away_is_a_publish_error(
    report: r.Report, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(PublishError, match=r"http://127\.0\.0\.1:9: the run was not recorded") as caught:
        registry.record("http://user:secret@127.0.0.1:9", report, folder)
    assert "secret" not in str(caught.value)


@pytest.mark.slow
def test_two_processes_may_record_into_a_new_database_at_once(report: r.Report, folder: Path, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    reports = [
        replace(report, started=datetime(2026, 3, day, tzinfo=UTC), recipe={**report.recipe, "seed": day})
        for day in (1, 2)
    ]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(registry.record, [(uri, one, folder) for one in reports])
        pool.close()
        pool.join()
    assert {one.version for one in found} == {"1", "2"}
