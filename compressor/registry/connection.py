"""A connection to MLflow: imported quietly, pointed at one place, its errors turned into ours.

A workaround for a version of mlflow that concerns all calls is added here.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from compressor.errors import CompressorError
from compressor.registry.place import database, public

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # it would break --json
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # mlflow 3.17 takes four minutes to fail by default
}


@contextmanager
def connected(uri: str, refusal: Callable[[str], CompressorError]) -> Iterator[Any]:
    """Give an `mlflow.MlflowClient` for the tracking URI; no other process of ours uses an SQLite file meanwhile.

    Sets mlflow's environment variables where they are unset, and the URI for all of mlflow in this process.

    Raises:
        CompressorError: MLflow refused; what `refusal` makes of its reason.
    """
    _import_quietly()
    with _translated(uri, refusal), _alone(database(uri)):
        yield _open(uri)


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
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, CommandError, OSError) as error:
        raise refusal(public(str(error).strip().partition("\n")[0], uri)) from error


def _alone(file: Path | None) -> AbstractContextManager[Any]:
    """Hold a lock: mlflow 3.17 crashes when two processes create the tables of one SQLite file."""
    from filelock import FileLock

    if file is None:
        return nullcontext()
    file.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(f"{file}.lock")


def _open(uri: str) -> Any:
    """Give a client, its URI set for all of mlflow: 3.17 looks up `models:/` by a default client of its own.

    Without it that client would ask, and create, mlflow.db in the working folder.
    """
    import mlflow

    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    return mlflow.MlflowClient(uri, uri)
