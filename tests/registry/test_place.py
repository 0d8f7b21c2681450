from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
    with pytest.raises(MachineError, match=r"/file: cannot be written \(.*Not a directory\)"):
        registry.check(f"sqlite:///{tmp_path}/file/mlflow.db")


def test_a_folder_that_takes_no_file_is_refused_whatever_its_permissions_say() -> None:
    with pytest.raises(MachineError, match=r"/proc: cannot be written .*--registry none"):
        registry.check("sqlite:////proc/mlflow.db")


def test_a_database_that_is_there_is_accepted_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    path.write_bytes(b"SQLite format 3\0 and more")
    registry.check(f"sqlite:///{path}")
    assert [each.name for each in tmp_path.iterdir()] == ["mlflow.db"]
    assert path.read_bytes() == b"SQLite format 3\0 and more"


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


@pytest.fixture
def port() -> Iterator[int]:
    """Give a port that refuses connections, and belongs to nobody else meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg2", "mysql+pymysql", "mssql+pyodbc"])
def test_a_database_server_that_is_not_there_is_refused_without_its_password(scheme: str, port: int) -> None:
    with pytest.raises(MachineError, match=r"expected a database server.*refused.*--registry none") as caught:
        registry.check(f"{scheme}://user:secret@127.0.0.1:{port}/mlflow")
    assert "secret" not in str(caught.value)


def test_a_database_server_that_takes_a_connection_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compressor.registry.place._check_driver", lambda _uri: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        registry.check(f"postgresql://user:secret@127.0.0.1:{server.getsockname()[1]}/mlflow")
        server.settimeout(5)
        server.accept()[0].close()  # somebody was there


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("postgresql://user:p@ss@somewhere/mlflow", ("somewhere", 5432)),
        ("mysql+pymysql://somewhere/mlflow", ("somewhere", 3306)),
        ("mssql+pyodbc://somewhere/mlflow", ("somewhere", 1433)),
        ("postgresql://somewhere:77/mlflow", ("somewhere", 77)),
    ],
)
def test_a_database_without_a_port_is_looked_for_at_the_usual_one(
    monkeypatch: pytest.MonkeyPatch, uri: str, place: tuple[str, int]
) -> None:
    asked: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        assert 0 < timeout <= 10
        asked.append(address)
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr("compressor.registry.place._check_driver", lambda _uri: None)
    registry.check(uri)
    assert asked == [place]


@pytest.mark.skipif(find_spec("pyodbc") is not None, reason="its driver is installed here")
def test_a_database_whose_driver_is_missing_is_refused_with_its_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"mssql+pyodbc://user:secret@127.0.0.1:{server.getsockname()[1]}/mlflow"
        with pytest.raises(MachineError, match=r"needs the package pyodbc, which is not installed") as caught:
            registry.check(uri)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("uri", ["databricks", "databricks://profile"])
def test_a_managed_place_is_accepted_unseen(uri: str) -> None:
    registry.check(uri)


def test_another_kind_of_place_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InputError, match=r"sqlite:///, http://.*postgresql://.*databricks.*'ftp://") as caught:
        registry.check("ftp://user:secret@somewhere/mlflow")
    assert "secret" not in str(caught.value)


def test_public_leaves_all_but_the_credentials() -> None:
    assert public("https://user:p@ss@host:5000/path") == "https://host:5000/path"
    assert public("sqlite:////a@b/mlflow.db") == "sqlite:////a@b/mlflow.db"


def test_a_password_with_quotes_or_a_space_stands_nowhere() -> None:
    for password in ("it'ssecret", 'so"secret', "in secret"):
        uri = f"postgresql://bob:{password}@host/db"
        assert "secret" not in public(uri, uri)
        assert "secret" not in public(f"cannot connect as bob:{password}@host", uri)


def test_a_name_that_looks_like_a_user_is_none() -> None:
    assert public("node 'a:b@c' reads 'x'") == "node 'a:b@c' reads 'x'"


@pytest.mark.parametrize("name", ["a/b", "a:b", "", "..", " "])
def test_a_name_that_mlflow_refuses_is_refused_in_the_recipe(name: str) -> None:
    with pytest.raises(ValidationError) as caught:
        registry.Registry(name=name)
    assert caught.value.errors()[0]["msg"] == f"Value error, expected a name without / and :, found {name!r}"


@pytest.mark.parametrize("name", [None, "net", "net v2", ".net.", "ä"])
def test_a_name_that_mlflow_takes_is_taken(name: str | None) -> None:
    assert registry.Registry(name=name).name == name


@pytest.mark.parametrize(
    ("text", "name"),
    [("net", "net"), ("a/b:c", "a_b_c"), (" .net. ", "net"), ("v1.5", "v1.5"), ("...", "model"), ("", "model")],
)
def test_any_text_becomes_a_name_for_a_model(text: str, name: str) -> None:
    assert registry.model_name(text) == name


@given(text=st.text(st.characters(exclude_categories=["C", "Z"]) | st.sampled_from("/:. ")))
def test_a_name_made_from_text_may_stand_in_a_recipe(text: str) -> None:
    name = registry.model_name(text)
    assert registry.Registry(name=name).name == name


@pytest.mark.parametrize("uri", ["postgresql://h:abc/x", "postgresql://h:99999/x", "http://[", "http://h:abc"])
def test_what_is_no_uri_is_refused(uri: str) -> None:
    with pytest.raises(InputError, match="expected a URI"):
        registry.check(uri)
