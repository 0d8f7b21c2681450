from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from pydantic import ValidationError

from compressor import registry
from compressor.errors import InputError, MachineError
from compressor.registry.place import database, public


@contextmanager
def _server(status: int) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_a_given_uri_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://environment")
    assert registry.locate("http://given", tmp_path) == "http://given"
    assert registry.locate(None, tmp_path) == "http://environment"


def test_the_default_is_a_database_beside_the_reports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    uri = registry.locate(None, Path("reports"))
    assert uri == f"sqlite:///{tmp_path}/mlflow.db"
    assert database(uri) == tmp_path / "mlflow.db"


def test_none_records_nothing_even_where_the_environment_names_a_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://environment")
    assert registry.locate("none", tmp_path) is None


def test_a_database_that_can_be_created_is_accepted_and_not_created(tmp_path: Path) -> None:
    registry.check(f"sqlite:///{tmp_path}/new/folder/mlflow.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uri", ["file:./mlruns", "file:///somewhere/mlruns", "./mlruns", "mlruns"])
def test_a_folder_of_files_is_refused_with_what_to_use(uri: str) -> None:
    with pytest.raises(InputError, match=r"use sqlite:///mlflow\.db"):
        registry.check(uri)


def test_a_database_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="is no folder"):
        registry.check(f"sqlite:///{tmp_path}/file/mlflow.db")


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("not a database")
    with pytest.raises(MachineError, match="expected an SQLite database"):
        registry.check(f"sqlite:///{tmp_path}/mlflow.db")


@pytest.mark.parametrize("status", [200, 403, 404])
def test_a_server_that_answers_is_accepted(status: int) -> None:
    with _server(status) as (host, asked):
        registry.check(f"http://{host}/")
    assert asked == ["/health"]


def test_a_server_in_trouble_is_refused() -> None:
    with _server(503) as (host, _), pytest.raises(MachineError, match=r"answers 503.*--registry none"):
        registry.check(f"http://{host}")


def test_a_server_that_is_not_there_is_refused_without_its_password() -> None:
    with _server(200) as (host, _):
        pass
    with pytest.raises(MachineError, match="--registry none") as caught:
        registry.check(f"http://user:secret@{host}")
    assert "secret" not in str(caught.value)


def test_a_password_reaches_the_server_check_without_harm() -> None:
    with _server(200) as (host, asked):
        registry.check(f"http://user:secret@{host}")
    assert asked == ["/health"]


@pytest.mark.parametrize("uri", ["databricks", "postgresql://somewhere/mlflow"])
def test_other_places_are_accepted(uri: str) -> None:
    registry.check(uri)


def test_public_leaves_all_but_the_credentials() -> None:
    assert public("https://user:p@ss@host:5000/path") == "https://host:5000/path"
    assert public("sqlite:////a@b/mlflow.db") == "sqlite:////a@b/mlflow.db"


@pytest.mark.parametrize("name", ["a/b", "a:b", "", "..", " "])
def test_a_name_that_mlflow_refuses_is_refused_in_the_recipe(name: str) -> None:
    with pytest.raises(ValidationError):
        registry.Registry(name=name)
