"""Recording that was killed or refused half-way, and the try after it: one finished run, one version."""

from __future__ import annotations

import fcntl
import hashlib
import multiprocessing
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from mlflow.exceptions import MlflowException
from test_recording import OPTIONS, _client, _download, _file, _report, _write_model

from compressor import records as r
from compressor import registry
from compressor.errors import PublishError

# mlflow 3.17 reads registered models with an option that SQLAlchemy 2.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:sqlalchemy.exc.SADeprecationWarning")
REPORTS = {"report.json": '{"verdict": "pass"}', "report.md": "# net: pass\n", "recipe.yaml": "version: 1\n"}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create mlflow's tables once: it costs seconds."""
    path = tmp_path_factory.mktemp("tables") / "mlflow.db"
    _client(f"sqlite:///{path}").search_registered_models(max_results=1)
    return path


@pytest.fixture
def uri(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give a registry, in a working folder of the test's own; forget afterwards what mlflow was given."""
    import mlflow

    shutil.copy(tables, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    yield f"sqlite:///{tmp_path}/mlflow.db"
    mlflow.set_tracking_uri("")
    mlflow.set_registry_uri("")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return _folder(tmp_path / "run")


@pytest.fixture
def report(folder: Path) -> r.Report:
    return _pass(folder)


def _folder(path: Path) -> Path:
    (path / "int8").mkdir(parents=True)
    for name, text in REPORTS.items():
        (path / name).write_text(text)
    _write_model(path / "int8" / "net.onnx", external=True)
    return path


def _pass(folder: Path) -> r.Report:
    files = tuple(_file(folder, name) for name in ("int8/net.onnx", "int8/weights/w.bin"))
    return _report(r.Artifact("onnxruntime", "cpu", files, 0.0, OPTIONS))


def _again(report: r.Report, day: int = 5, **changes: Any) -> r.Report:
    """Give the report of the same command, run on another day."""
    return replace(report, started=datetime(2026, 3, day, tzinfo=UTC), **changes)


def _runs(uri: str) -> list[Any]:
    client = _client(uri)
    return list(client.search_runs([each.experiment_id for each in client.search_experiments()]))


def _assert_one(uri: str, found: r.Registration, folder: Path, target: Path) -> None:
    """One run, finished; one version of it, byte for byte what was measured, with the alias; nothing half-done."""
    client = _client(uri)
    (run,) = _runs(uri)
    assert (run.info.run_id, run.info.status) == (found.run_id, "FINISHED")
    assert {item.path for item in client.list_artifacts(found.run_id)} == set(REPORTS)
    (version,) = client.search_model_versions("name = 'served'")
    assert (version.run_id, str(version.version)) == (found.run_id, "1")
    assert str(client.get_model_version_by_alias("served", "champion").version) == found.version == "1"
    (model,) = client.search_logged_models([run.info.experiment_id])
    assert (model.status.value, f"models:/{model.model_id}") == ("READY", version.source)
    assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]
    arrived = _download("models:/served@champion", target)
    for name, measured in {"model.onnx": "net.onnx", "weights/w.bin": "weights/w.bin"}.items():
        assert (arrived / name).read_bytes() == (folder / "int8" / measured).read_bytes()
    assert not (folder / ".publish").exists()


STEPS = (
    *("create_run", "log_batch", "log_artifact", "create_logged_model", "log_model_artifacts", "log_outputs"),
    *("finalize_logged_model", "create_registered_model", "create_model_version", "set_registered_model_alias"),
    *("set_tag", "set_terminated"),
)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_step_that_fails_is_told_and_taken_up_where_it_ended(  # noqa: PLR0913, PLR0917
    uri: str, report: r.Report, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, lost: str
) -> None:
    from mlflow import MlflowClient

    works = getattr(MlflowClient, step)

    def fail(*args: Any, **kwargs: Any) -> Any:
        if lost == "answer":
            works(*args, **kwargs)
        raise OSError(28, "No space left on device", "store")

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, step, fail)
        with pytest.raises(PublishError, match=r"No space left on device: 'store'.*compress publish \S*report\.json"):
            registry.record(uri, report, folder)
    _assert_one(uri, registry.record(uri, report, folder), folder, tmp_path / "arrived")


def test_the_first_reason_is_told_where_the_run_cannot_be_ended_either(
    uri: str, report: r.Report, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    def fail(reason: str) -> Any:
        def refuse(*_: Any, **__: Any) -> None:
            raise MlflowException(reason)

        return refuse

    monkeypatch.setattr(MlflowClient, "create_model_version", fail("first"))
    monkeypatch.setattr(MlflowClient, "set_terminated", fail("second"))
    with pytest.raises(PublishError, match="the run was not recorded: first; everything is kept in"):
        registry.record(uri, report, folder)


def test_a_second_record_asks_and_changes_nothing(uri: str, report: r.Report, folder: Path, tmp_path: Path) -> None:
    first = registry.record(uri, report, folder)
    assert not first.confirmed
    assert registry.record(uri, report, folder) == first
    _assert_one(uri, first, folder, tmp_path / "arrived")


def test_the_same_thing_of_another_run_is_confirmed_and_no_second_version(
    uri: str, report: r.Report, folder: Path
) -> None:
    first = registry.record(uri, replace(report, verdict="inconclusive"), folder)
    assert (first.version, first.alias) == ("1", None)
    again = _again(report, recipe={**report.recipe, "limits": {"seconds": 700}})
    second = registry.record(uri, again, folder)
    assert (second.version, second.alias, second.confirmed) == ("1", "champion", True)
    assert registry.record(uri, again, folder) == second
    client = _client(uri)
    runs = {run.info.run_id: run for run in _runs(uri)}
    assert set(runs) == {first.run_id, second.run_id}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert runs[second.run_id].data.tags["compressor.version"] == "1"
    assert runs[second.run_id].data.metrics["int8.p99_ms"] == 1.0
    assert {item.path for item in client.list_artifacts(second.run_id)} == set(REPORTS)
    (version,) = client.search_model_versions("name = 'served'")
    assert version.run_id == first.run_id
    assert version.tags["compressor.confirmed_run"] == second.run_id
    assert version.tags["compressor.confirmed_verdict"] == "pass"


OTHER_OPTIONS = {**OPTIONS, "intra_op_num_threads": "1"}


@pytest.mark.parametrize("differs", ["file", "options", "device", "original", "recipe", "package", "name"])
def test_what_differs_is_another_version(uri: str, report: r.Report, folder: Path, differs: str) -> None:
    registry.record(uri, report, folder)
    trial = report.trials[0]
    artifact = trial.artifacts[0]
    if differs == "file":
        (folder / "int8" / "weights" / "w.bin").write_bytes(b"other" * 2000)
    versions = {"onnxruntime": "9.9"}
    changes: dict[str, dict[str, Any]] = {
        "file": {"trials": _pass(folder).trials},
        "options": {"trials": (replace(trial, artifacts=(replace(artifact, options=OTHER_OPTIONS),)),)},
        "device": {"trials": (replace(trial, artifacts=(replace(artifact, device="gpu"),)),)},
        "original": {"model": replace(report.model, sha256="cd34")},
        "recipe": {"recipe": {**report.recipe, "seed": 1}},
        "package": {"environment": replace(report.environment, versions=versions)},
        "name": {"recipe": {**report.recipe, "registry": {"name": "other"}}},
    }
    found = registry.record(uri, _again(report, **changes[differs]), folder)
    expected = ("other", "1") if differs == "name" else ("served", "2")
    assert (found.model, found.version, found.confirmed) == (*expected, False)


@pytest.mark.parametrize("harm", ["deleted", "changed", "one file deleted", "not ready"])
def test_a_version_that_no_longer_holds_it_is_not_confirmed(
    uri: str, report: r.Report, folder: Path, tmp_path: Path, harm: str
) -> None:
    registry.record(uri, report, folder)
    (stored,) = (tmp_path / "mlartifacts").rglob("weights/w.bin")
    if harm == "deleted":
        shutil.rmtree(stored.parents[1])
    elif harm == "changed":
        stored.write_bytes(b"0" + stored.read_bytes()[1:])
    elif harm == "one file deleted":
        stored.unlink()
    else:
        with sqlite3.connect(tmp_path / "mlflow.db") as connection:
            connection.execute("UPDATE model_versions SET status = 'PENDING_REGISTRATION'")
        connection.close()
    again = registry.record(uri, _again(report), folder)
    assert (again.version, again.alias, again.confirmed) == ("2", "champion", False)
    arrived = _download("models:/served/2", tmp_path / "arrived")
    digest = hashlib.sha256((arrived / "weights" / "w.bin").read_bytes()).hexdigest()
    assert digest == report.trials[0].artifacts[0].files[1].sha256


def test_a_version_that_somebody_deleted_is_not_made_again_by_the_same_report(
    uri: str, report: r.Report, folder: Path
) -> None:
    first = registry.record(uri, report, folder)
    _client(uri).delete_model_version("served", "1")
    assert registry.record(uri, report, folder) == replace(first, version=None, alias=None)


def test_runs_of_killed_processes_are_ended_in_a_database_and_no_others(
    uri: str, report: r.Report, folder: Path
) -> None:
    client = _client(uri)
    killed = client.create_run("0", tags={"compressor.report": "of yesterday"}).info.run_id
    foreign = client.create_run("0").info.run_id
    registry.record(uri, report, folder)
    assert client.get_run(killed).info.status == "KILLED"
    assert client.get_run(foreign).info.status == "RUNNING"


def test_a_truncated_file_is_told_as_what_was_measured(uri: str, report: r.Report, folder: Path) -> None:
    path = folder / "int8" / "net.onnx"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(PublishError, match=r"int8/net\.onnx was not registered: sha256 \w+ was measured"):
        registry.record(uri, report, folder)
    path.unlink()
    with pytest.raises(PublishError, match=r"was measured, no file is there now"):
        registry.record(uri, report, folder)


SHORT = {"limits": {"seconds": 1}}


def test_a_folder_that_another_process_publishes_is_waited_for_and_then_named(
    uri: str, report: r.Report, folder: Path, tmp_path: Path
) -> None:
    brief = replace(report, recipe={**report.recipe, **SHORT})
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(PublishError, match=rf"process {os.getpid()} is still publishing it after 0 s: wait for it"):
        registry.record(uri, brief, folder)
    threading.Timer(0.3, os.close, [descriptor]).start()
    _assert_one(uri, registry.record(uri, report, folder), folder, tmp_path / "arrived")


def test_a_database_that_another_process_holds_is_waited_for_and_then_named(
    uri: str, report: r.Report, folder: Path, tmp_path: Path
) -> None:
    brief = replace(report, recipe={**report.recipe, **SHORT})
    with (
        FileLock(tmp_path / "mlflow.db.lock"),
        pytest.raises(PublishError, match=rf"sqlite:\S*: .* process {os.getpid()} is still using it after 0 s: wait"),
    ):
        registry.record(uri, brief, folder)


def test_a_database_that_another_program_locked_is_told(
    uri: str, report: r.Report, folder: Path, tmp_path: Path
) -> None:
    connection = sqlite3.connect(tmp_path / "mlflow.db")
    connection.execute("BEGIN EXCLUSIVE")
    with pytest.raises(PublishError, match=r"database is locked.*compress publish"):
        registry.record(f"{uri}?timeout=0.2", report, folder)
    connection.close()


def test_a_store_that_cannot_be_written_is_told_and_taken_up(
    uri: str, report: r.Report, folder: Path, tmp_path: Path
) -> None:
    store = tmp_path / "mlartifacts"
    store.write_text("no folder")
    with pytest.raises(PublishError, match=r"was not recorded: .*mlartifacts.*put the registry right"):
        registry.record(uri, report, folder)
    store.unlink()
    _assert_one(uri, registry.record(uri, report, folder), folder, tmp_path / "arrived")


@pytest.mark.usefixtures("uri")
def test_a_database_whose_folder_is_gone_is_told(report: r.Report, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "gone").write_text("no folder")
    with pytest.raises(PublishError, match=r"gone/mlflow\.db: the run was not recorded: "):
        registry.record(f"sqlite:///{tmp_path}/gone/mlflow.db", report, folder)


def kill_while_recording(uri: str, report: r.Report, folder: Path, step: str, after_s: float) -> None:
    """Record in a process of its own, and kill it some time after it began a step."""
    context = multiprocessing.get_context("spawn")
    begun = context.Event()
    process = context.Process(target=_record, args=(uri, report, folder, step, begun))
    process.start()
    assert begun.wait(120)
    time.sleep(after_s)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()


def _record(uri: str, report: r.Report, folder: Path, step: str, begun: Any) -> None:
    from mlflow import MlflowClient

    works = getattr(MlflowClient, step)

    def tell(*args: Any, **kwargs: Any) -> Any:
        begun.set()
        return works(*args, **kwargs)

    setattr(MlflowClient, step, tell)
    registry.record(uri, report, folder)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["create_run", "log_model_artifacts", "create_model_version"])
def test_what_a_killed_process_left_is_taken_up(
    uri: str, report: r.Report, folder: Path, tmp_path: Path, step: str
) -> None:
    kill_while_recording(uri, report, folder, step, after_s=0.02)
    _assert_one(uri, registry.record(uri, report, folder), folder, tmp_path / "arrived")


@pytest.fixture(scope="module")
def server(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Run a server of mlflow's in a process of its own; give its port."""
    home = tmp_path_factory.mktemp("server")
    shutil.copy(tables, home / "mlflow.db")
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    store = ["--backend-store-uri", f"sqlite:///{home}/mlflow.db", "--artifacts-destination", str(home / "artifacts")]
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1", *store]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            break
        time.sleep(0.2)
    yield port
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@dataclass
class Front:
    """What stands before a server: after some requests it is gone, the next one not passed on, or its answer lost."""

    after: float = float("inf")
    deaf: bool = True
    asked: int = 0
    port: int = 0

    @property
    def uri(self) -> str:
        return f"http://user:secret@127.0.0.1:{self.port}"


@contextmanager
def fronted(server: int) -> Iterator[Front]:
    front = Front()

    class Passing(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            front.asked += 1
            self.close_connection = True
            if front.asked > front.after + (not front.deaf):
                return
            connection = HTTPConnection("127.0.0.1", server, timeout=60)
            connection.request(self.command, self.path, body, {**self.headers, "Connection": "close"})
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if front.asked > front.after:
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):
                return self.handle_any
            raise AttributeError(name)

        def log_message(self, *_: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
    front.port = listening.server_port
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    yield front
    listening.shutdown()
    listening.server_close()
    thread.join()


def broken_off(front: Front, report: r.Report, folder: Path, after: int, *, deaf: bool) -> str:
    """Let the server die after some requests, see that recording again ends as if it had not; give the refusal."""
    name = f"m{after}{deaf}"  # which tells one try from all others
    named = replace(report, model=replace(report.model, name=name), recipe={"registry": {"name": name}})
    front.asked, front.after, front.deaf = 0, after, deaf
    with pytest.raises(PublishError) as caught:
        registry.record(front.uri, named, folder)
    front.after = float("inf")
    found = registry.record(front.uri, named, folder)
    assert (found.version, found.alias, found.confirmed) == ("1", "champion", False)
    client = _client(front.uri)
    experiment = client.get_experiment_by_name(name).experiment_id
    (run,) = client.search_runs([experiment])
    assert (run.info.run_id, run.info.status) == (found.run_id, "FINISHED")
    (version,) = client.search_model_versions(f"name = '{name}'")
    (model,) = client.search_logged_models([experiment])
    assert (version.run_id, version.source) == (found.run_id, f"models:/{model.model_id}")
    assert model.status.value == "READY"
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.usefixtures("uri")
@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_server_that_dies_half_way_leaves_one_version(server: int, report: r.Report, folder: Path, lost: str) -> None:
    with fronted(server) as front:
        for after in (2, 15, 30, 44):
            told = broken_off(front, report, folder, after, deaf=lost == "request")
            assert re.match(r"registry http://127\.0\.0\.1:\d+: the run was not recorded: ", told)
            assert "secret" not in told
            assert told.endswith(f"`compress publish {folder}/report.json`")
