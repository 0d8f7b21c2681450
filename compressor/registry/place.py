"""Where runs are recorded, and whether that place can be reached, known in seconds and without mlflow.

A new kind of place is refused or checked in `check`.
"""

from __future__ import annotations

import os
import re
import socket
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import urlopen

from pydantic import BaseModel, field_validator

from compressor import workspace
from compressor.errors import InputError, MachineError

_NONE = "none"
_SQLITE = "sqlite:///"
_SQLITE_MAGIC = b"SQLite format 3\0"
_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
_MANAGED = ("databricks",)
_SERVER_ERROR = 500
_USER = re.compile(r"(?<!sqlite://)(?<=://)[^\s'\"]*@")
_BARE_USER = re.compile(r"(?<![^\s'\"(])[^\s'\"/:@]+:(?!/)[^\s'\"]+@")
"""Without a scheme, as drivers of databases write it; a tensor may be called so too."""
_QUERY = re.compile(r"((?<!sqlite)://[^\s?'\"]*)\?[^\s'\")]*")
_VARIABLES = (
    *("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "DATABRICKS_TOKEN", "DATABRICKS_CLIENT_SECRET"),
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_ACCESS_KEY"),
)
_HIDDEN = "***"
_SHORTEST_SECRET = 3
"""Characters; a shorter one would tear other words apart."""


class Registry(BaseModel, frozen=True, extra="forbid"):
    """Where the run is recorded and under which name. `uri: none` records nothing."""

    uri: str | None = None
    name: str | None = None

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[^/:]*[^/:.\s][^/:]*", name):
            raise ValueError(f"expected a name without / and :, found {name!r}")
        if name is not None and {"'", '"'} <= set(name):  # mlflow has no words to look for it
            raise ValueError(f"expected a name without one of the two kinds of quotes, found {name!r}")
        return name


def model_name(text: str) -> str:
    """Turn any text into a name that a registered model may have."""
    unquoted = text.replace('"', "_") if "'" in text else text  # mlflow cannot look for both
    return re.sub(r"^[.\s]+|[.\s]+$", "", re.sub(r"[/:]", "_", unquoted)) or "model"


def locate(uri: str | None, reports: Path) -> str | None:
    """Give the tracking URI, or None where nothing shall be recorded.

    Without `uri` it is $MLFLOW_TRACKING_URI, else the database mlflow.db beside the folder `reports`.
    """
    wanted = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{_SQLITE}{reports.absolute().parent}/mlflow.db"
    return None if wanted == _NONE else wanted


def check(uri: str) -> None:
    """Make sure, in seconds and without mlflow, that a run can be recorded at `uri`.

    Raises:
        InputError: It is a folder of files, which MLflow no longer supports.
        MachineError: The server does not answer, or the database cannot be written here.
    """
    place = _parts(uri)
    scheme = place.scheme.partition("+")[0]
    if scheme == "file" or (not scheme and uri not in _MANAGED):
        raise InputError(
            f"registry.uri: expected a server or a database, found the folder {public(uri, uri)!r}, where MLflow no "
            "longer keeps runs: use sqlite:///mlflow.db"
        )
    if scheme in ("http", "https"):
        _check_server(uri)
    elif (path := database(uri)) is not None:
        _check_database(path)
    elif scheme in _PORTS:
        _check_port(place, _PORTS[scheme])
        _check_driver(uri)
    elif not {scheme, uri} & set(_MANAGED):
        known = ", ".join((_SQLITE, "http://", "https://", *(f"{kind}://" for kind in _PORTS), *_MANAGED))
        raise InputError(f"registry.uri: expected one that starts with {known}, found {public(uri, uri)!r}")


def database(uri: str) -> Path | None:
    """Give the file of an SQLite URI; None for a URI of another kind."""
    return Path(uri.removeprefix(_SQLITE).partition("?")[0]).absolute() if uri.startswith(_SQLITE) else None


def nowhere(name: str, uri: str) -> InputError:
    """Give the error for a name that is looked up where no registry is."""
    return InputError(f"{name}: there is no registry at {public(uri, uri)}; name another one with --registry")


def public(text: str, uri: str = "") -> str:
    """Leave out users, passwords and queries of URIs, so that the text may stand in messages and reports.

    What the environment holds to log in with goes too, and the password in `uri` wherever it stands.
    """
    for secret in sorted(filter(None, (*_secrets(uri), *map(os.environ.get, _VARIABLES))), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    text = _USER.sub("", text)
    text = _BARE_USER.sub("", text) if uri else text
    return _QUERY.sub(r"\1", text)


def _secrets(uri: str) -> tuple[str, ...]:
    """Give the password of a URI and the values of its query, as they stand there and decoded."""
    _, mark, place = uri.partition("://")
    if not mark or uri.startswith(_SQLITE):
        return ()
    user, _, rest = place.rpartition("@")
    values = (pair.partition("=")[2] for pair in rest.partition("?")[2].split("&"))
    found = [value for value in (user.partition(":")[2], *values) if len(value) >= _SHORTEST_SECRET]
    return (*found, *map(unquote, found))


def _check_server(uri: str) -> None:
    url = f"{public(uri).rstrip('/')}/health"
    try:
        with urlopen(url, timeout=5):  # noqa: S310 (the scheme is http or https)
            return
    except HTTPError as error:
        if error.code < _SERVER_ERROR:  # it answers; a managed server may keep /health to itself
            return
        found = f"it answers {error.code}"
    except (OSError, HTTPException) as error:
        found = str(error)
    raise MachineError(
        f"registry {public(uri, uri)}: expected an MLflow server, but {found}: start the server, or use --registry none"
    )


def _parts(uri: str) -> SplitResult:
    try:
        place = urlsplit(uri)
        _ = place.port  # it is read only when it is asked for
    except ValueError as error:
        raise InputError(f"registry.uri: expected a URI, found {public(uri, uri)!r}") from error
    return place


def _check_driver(uri: str) -> None:
    """Make sure that what talks to a database can be imported."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        make_url(uri).get_dialect().import_dbapi()
    except ImportError as error:
        raise MachineError(
            f"registry {public(uri, uri)}: needs the package {error.name}, which is not installed: install it, or use "
            "--registry none"
        ) from error
    except SQLAlchemyError as error:
        raise InputError(f"registry.uri: {public(str(error), uri)}") from error


def _check_port(place: SplitResult, port: int) -> None:
    if place.hostname is None:  # a socket of its own, which the driver knows
        return
    try:
        socket.create_connection((place.hostname, place.port or port), timeout=5).close()
    except OSError as error:
        raise MachineError(
            f"registry {place.scheme}://{place.hostname}: expected a database server, but {error}: start it, or use "
            "--registry none"
        ) from error


def _check_database(file: Path) -> None:
    if file.exists():
        if not file.is_file() or _head(file) not in (b"", _SQLITE_MAGIC):
            raise MachineError(f"registry {file}: expected an SQLite database, found something else: move it away")
        if not os.access(file, os.W_OK):
            raise MachineError(f"registry {file}: cannot be written: name another one, or --registry none")
    workspace.check_writable(file.parent, "name another registry, or use --registry none")


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_SQLITE_MAGIC))
