"""Where runs are recorded, and whether that place can be reached, known in seconds and without mlflow.

A new kind of place is refused or checked in `check`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from pydantic import BaseModel, Field

from compressor.errors import InputError, MachineError

_NONE = "none"
_SQLITE = "sqlite:///"
_SQLITE_MAGIC = b"SQLite format 3\0"
_SERVER_ERROR = 500


class Registry(BaseModel, frozen=True, extra="forbid"):
    """Where the run is recorded and under which name. `uri: none` records nothing."""

    uri: str | None = None
    name: Annotated[str, Field(pattern=r"^[^/:]*[^/:.\s][^/:]*$")] | None = None


def locate(uri: str | None, reports: Path) -> str | None:
    """Give the tracking URI, or None where nothing shall be recorded.

    Without `uri` it is $MLFLOW_TRACKING_URI, else the database mlflow.db beside the folder `reports`.
    """
    wanted = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{_SQLITE}{reports.resolve().parent}/mlflow.db"
    return None if wanted == _NONE else wanted


def check(uri: str) -> None:
    """Make sure, in seconds and without mlflow, that a run can be recorded at `uri`.

    Raises:
        InputError: It is a folder of files, which MLflow no longer supports.
        MachineError: The server does not answer, or the database cannot be written here.
    """
    scheme = urlsplit(uri).scheme
    if scheme == "file" or (not scheme and uri != "databricks"):
        raise InputError(
            f"registry.uri: expected a server or a database, found the folder {uri!r}, where MLflow no longer "
            "keeps runs: use sqlite:///mlflow.db"
        )
    if scheme in ("http", "https"):
        _check_server(uri)
    if (path := database(uri)) is not None:
        _check_database(path)


def database(uri: str) -> Path | None:
    """Give the file of an SQLite URI; None for a URI of another kind."""
    return Path(uri.removeprefix(_SQLITE).partition("?")[0]).resolve() if uri.startswith(_SQLITE) else None


def public(text: str) -> str:
    """Leave out the users and passwords of URIs, so that the text may stand in messages and reports."""
    return re.sub(r"(?<=://)[^/\s]*@", "", text)


def _check_server(uri: str) -> None:
    url = f"{public(uri).rstrip('/')}/health"
    try:
        with urlopen(url, timeout=5):  # noqa: S310 (the scheme is http or https)
            return
    except HTTPError as error:
        if error.code < _SERVER_ERROR:  # it answers; a managed server may keep /health to itself
            return
        found = f"it answers {error.code}"
    except (OSError, ValueError) as error:
        found = str(error)
    raise MachineError(
        f"registry {public(uri)}: expected an MLflow server, but {found}: start the server, or use --registry none"
    )


def _check_database(file: Path) -> None:
    nearest = next(path for path in (file, *file.parents) if path.exists())
    if nearest == file:
        if not file.is_file() or _head(file) not in (b"", _SQLITE_MAGIC):
            raise MachineError(f"registry {file}: expected an SQLite database, found something else: move it away")
    elif not nearest.is_dir():
        raise MachineError(f"registry {file}: {nearest} is no folder: name another database, or --registry none")
    if not os.access(nearest, os.W_OK):
        raise MachineError(f"registry {file}: {nearest} is not writable: name another one, or --registry none")


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_SQLITE_MAGIC))
