"""Fetching a registered model, to measure it as it is served.

Another way to name a version is a branch in `_number`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from compressor.errors import CompressorError, InputError, MachineError
from compressor.records import LATEST, REGISTERED, VersionName
from compressor.registry import versions
from compressor.registry.connection import connected
from compressor.registry.place import check, database, nowhere, public

_MISSING = "RESOURCE_DOES_NOT_EXIST"


def find(uri: str, name: VersionName) -> VersionName | None:
    """Give the number of what a name stands for now.

    None where nothing has that alias, or nothing is registered under the name. Meant for a child process: it imports
    mlflow and sets its URI.

    Raises:
        InputError: There is no such version; the sentence lists what there is.
        MachineError: The registry does not answer.
    """
    check(uri)
    if (file := database(uri)) and not file.exists():  # mlflow would create it
        return None
    with connected(uri, partial(_refused, uri, name)) as client:
        from mlflow.exceptions import MlflowException

        try:
            known = client.get_registered_model(name.model).aliases
        except MlflowException as error:
            if error.error_code != _MISSING:
                raise
            return None
        if name.is_alias and name.wanted not in known:
            return None
        return VersionName(name.model, _number(client, name))


def fetch(uri: str, name: VersionName, folder: Path) -> Path:
    """Give a folder with the files of a registered version.

    Meant for a child process: it imports mlflow and sets its URI. `folder` exists; the model's own is made in it.

    Raises:
        InputError: There is no such model, version or alias; the sentence lists what there is.
        MachineError: The registry does not answer, or the files are gone.
    """
    check(uri)
    if (file := database(uri)) and not file.exists():  # mlflow would create it
        raise nowhere(str(name), uri)
    with connected(uri, partial(_refused, uri, name)) as client:
        from mlflow.artifacts import download_artifacts

        exact = VersionName(name.model, _number(client, name))
        return Path(download_artifacts(str(exact), dst_path=str(folder)))


def _refused(uri: str, name: VersionName, reason: str) -> CompressorError:
    return MachineError(f"{name}: the registry {public(uri, uri)} does not give it: {reason}")


def _number(client: Any, name: VersionName) -> str:
    """Give the number of the version that is meant."""
    numbers = _numbers(client, name.model)
    aliases = {alias: str(number) for alias, number in client.get_registered_model(name.model).aliases.items()}
    number = aliases.get(name.wanted) if name.is_alias else numbers[-1] if name.wanted == LATEST else name.wanted
    if number not in numbers:
        listed = ", ".join((*(f"@{alias}" for alias in sorted(aliases)), *(f"/{number}" for number in numbers)))
        raise InputError(f"{name}: {name.model!r} has no such version; there is {listed}")
    return number


def _numbers(client: Any, model: str) -> list[str]:
    """Give the numbers of a model's versions, the latest last."""
    found = versions.every(client, model)
    if not found:
        names = sorted(each.name for each in client.search_registered_models(max_results=100))
        there = f"there is {', '.join(names)}" if names else "nothing is registered there"
        raise InputError(f"{REGISTERED}{model}: no model of that name has a version; {there}")
    return [str(each.version) for each in reversed(found)]
