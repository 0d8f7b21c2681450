"""A connection to MLflow: imported quietly, pointed at one place, used alone, its errors turned into ours.

A workaround for a version of mlflow that concerns all calls is added here.
"""

from __future__ import annotations

import fcntl
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from compressor.errors import CompressorError, InputError
from compressor.registry.place import database, public

_RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # it would break --json
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    _RETRIES: "2",  # mlflow 3.17 takes four minutes to fail by default
}
_WAIT_S = 200.0
"""A third of what a piece of work may take by default."""
_POLL_S = 0.1


@contextmanager
def connected(
    uri: str, refusal: Callable[[str], CompressorError], folder: Path | None = None, wait_s: float = _WAIT_S
) -> Iterator[Any]:
    """Give an `mlflow.MlflowClient` for the tracking URI; no other process of ours uses an SQLite file meanwhile.

    Nor does one enter with the same `folder`, which need not be writable. For each of the two it waits `wait_s` at
    most. Sets mlflow's environment variables where they are unset, and the URI for all of mlflow in this process.

    Raises:
        CompressorError: MLflow refused, or another process did not end; what `refusal` makes of the reason.
    """
    _import_quietly()
    with _translated(uri, refusal), _alone_in(folder, wait_s), _alone_with(database(uri), wait_s):
        yield _open(uri)


def refusals() -> tuple[type[Exception], ...]:
    """Give what mlflow raises when it refuses or cannot reach what it needs."""
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, CommandError, OSError, ImportError  # such as a driver of a database


def quoted(name: str) -> str:
    """Write a name as a filter of mlflow's takes it.

    Raises:
        InputError: It holds both kinds of quotes, for which that has no words.
    """
    if {"'", '"'} <= set(name):
        raise InputError(f"{name}: MLflow cannot look for a name with both kinds of quotes")
    return f'"{name}"' if "'" in name else f"'{name}'"


@contextmanager
def once() -> Iterator[None]:
    """Let mlflow send each request only once: 3.17 repeats one whose answer was lost, and so makes two of a thing."""
    before = os.environ[_RETRIES]
    os.environ[_RETRIES] = "0"
    try:
        yield
    finally:
        os.environ[_RETRIES] = before


@contextmanager
def existing_is_fine() -> Iterator[None]:
    """Pass over mlflow's error that what is to be created exists: another process was faster."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _import_quietly() -> None:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        # mlflow 3.17 warns, as it is imported, of a type hint of its own.
        warnings.filterwarnings("ignore", ".*Any type hint is inferred as AnyType", UserWarning)
        import_module("mlflow.pyfunc")


@contextmanager
def _translated(uri: str, refusal: Callable[[str], CompressorError]) -> Iterator[None]:
    try:
        yield
    except refusals() as error:
        raise refusal(public(str(error).strip().partition("\n")[0], uri)) from error


@contextmanager
def _alone_in(folder: Path | None, wait_s: float) -> Iterator[None]:
    """Hold a lock on the folder itself, which leaves nothing behind; a file system without such locks goes without."""
    if folder is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + wait_s
        while not _locked(descriptor):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{_holder(folder)} is still publishing it after {wait_s:.0f} s: wait for it or end it"
                )
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:  # NFS locks no folder
        return True
    return False


@contextmanager
def _alone_with(file: Path | None, wait_s: float) -> Iterator[None]:
    """Hold a lock: mlflow 3.17 crashes when two processes create the tables of one SQLite file."""
    from filelock import FileLock, Timeout

    if file is None:
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{file}.lock")
    try:
        lock.acquire(timeout=wait_s, poll_interval=_POLL_S)
    except Timeout as error:
        raise TimeoutError(
            f"{_holder(Path(lock.lock_file))} is still using it after {wait_s:.0f} s: wait for it or end it"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _holder(path: Path) -> str:
    """Name the process that holds a lock on a path, as far as Linux tells."""
    inode = str(path.stat().st_ino)
    with suppress(OSError):
        for row in map(str.split, Path("/proc/locks").read_text(encoding="utf-8").splitlines()):
            if row[1] == "FLOCK" and row[5].rpartition(":")[2] == inode:
                return f"process {row[4]}"
    return "another process"


def _open(uri: str) -> Any:
    """Give a client, its URI set for all of mlflow: 3.17 looks up `models:/` by a default client of its own.

    Without it that client would ask, and create, mlflow.db in the working folder.
    """
    import mlflow

    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    return mlflow.MlflowClient(uri, uri)
