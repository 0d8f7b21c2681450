"""A registry of a test's own, and what stands in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NOISE = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:sqlalchemy.exc.SADeprecationWarning")
"""mlflow 3.17 reads registered models with an option that SQLAlchemy 2.1 deprecates."""


def empty(factory: pytest.TempPathFactory, folder: Path) -> Iterator[str]:
    """Give the URI of an empty registry in a folder, and forget it afterwards; its tables are made once a session."""
    import mlflow

    tables = factory.getbasetemp() / "tables.db"
    if not tables.exists():  # it costs seconds
        client(f"sqlite:///{tables}").search_registered_models(max_results=1)
    shutil.copy(tables, folder / "mlflow.db")
    yield f"sqlite:///{folder}/mlflow.db"
    mlflow.set_tracking_uri("")
    mlflow.set_registry_uri("")


def client(uri: str) -> Any:
    """Give mlflow's own client, which tells what is true."""
    from mlflow import MlflowClient

    return MlflowClient(uri, uri)


def aliases(uri: str, name: str = "net") -> dict[str, str]:
    """Give the versions by alias."""
    return {alias: str(version) for alias, version in client(uri).get_registered_model(name).aliases.items()}


def versions(uri: str, name: str = "net") -> dict[str, Any]:
    """Give the versions by number."""
    return {str(each.version): each for each in client(uri).search_model_versions(f"name = '{name}'")}


def tags(uri: str, version: str, name: str = "net") -> dict[str, str]:
    """Give the tags of a version."""
    found: dict[str, str] = client(uri).get_model_version(name, version).tags
    return found
