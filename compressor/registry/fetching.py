"""Fetching a registered model, to measure it as it is served.

Another way to name a version is a branch in `_version`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from compressor.errors import CompressorError, InputError, MachineError
from compressor.registry.connection import connected, quoted
from compressor.registry.place import check, database, public

_LATEST = "latest"
_MISSING = "RESOURCE_DOES_NOT_EXIST"


def find(uri: str, name: str) -> str | None:
    """Give NAME/VERSION of what `name@alias`, `name/version` or `name/latest` stands for now.

    None where nothing has that alias, or nothing is registered under the name. Meant for a child process: it imports
    mlflow and sets its URI.

    Raises:
        InputError: There is no such version; the sentence lists what there is.
        MachineError: The registry does not answer.
    """
    model, mark, wanted = _parts(name)
    check(uri)
    if (file := database(uri)) and not file.exists():  # mlflow would create it
        return None
    with connected(uri, partial(_refused, uri, name)) as client:
        from mlflow.exceptions import MlflowException

        try:
            known = client.get_registered_model(model).aliases
        except MlflowException as error:
            if error.error_code != _MISSING:
                raise
            return None
        if mark == "@" and wanted not in known:
            return None
        return "/".join(_version(client, name))


def fetch(uri: str, name: str, folder: Path) -> Path:
    """Give a folder with the files of a registered model, `name@alias`, `name/version` or `name/latest`.

    Meant for a child process: it imports mlflow and sets its URI. `folder` exists; the model's own is made in it.

    Raises:
        InputError: There is no such model, version or alias; the sentence lists what there is.
        MachineError: The registry does not answer, or the files are gone.
    """
    check(uri)
    if (file := database(uri)) and not file.exists():  # mlflow would create it
        raise InputError(
            f"models:/{name}: there is no registry at {public(uri, uri)}; name another one with --registry"
        )
    with connected(uri, partial(_refused, uri, name)) as client:
        from mlflow.artifacts import download_artifacts

        model, version = _version(client, name)
        return Path(download_artifacts(f"models:/{model}/{version}", dst_path=str(folder)))


def _refused(uri: str, name: str, reason: str) -> CompressorError:
    return MachineError(f"models:/{name}: the registry {public(uri, uri)} does not give it: {reason}")


def _version(client: Any, name: str) -> tuple[str, str]:
    """Give the name of a model and the number of the version that is meant."""
    model, mark, wanted = _parts(name)
    numbers = _numbers(client, model)
    aliases = {alias: str(number) for alias, number in client.get_registered_model(model).aliases.items()}
    number = aliases.get(wanted) if mark == "@" else numbers[-1] if wanted == _LATEST else wanted
    if number not in numbers:
        listed = ", ".join((*(f"@{alias}" for alias in sorted(aliases)), *(f"/{number}" for number in numbers)))
        raise InputError(f"models:/{name}: {model!r} has no such version; there is {listed}")
    return model, number


def _parts(name: str) -> tuple[str, str, str]:
    model, mark, wanted = name.partition("@") if "@" in name else name.partition("/")
    if not (model and wanted):
        raise InputError(f"models:/{name}: expected models:/NAME@ALIAS or models:/NAME/VERSION")
    return model, mark, wanted


def _numbers(client: Any, model: str) -> list[str]:
    """Give the numbers of a model's versions, the latest last."""
    found = client.search_model_versions(f"name = {quoted(model)}", max_results=1000)
    if not found:
        names = sorted(each.name for each in client.search_registered_models(max_results=100))
        there = f"there is {', '.join(names)}" if names else "nothing is registered there"
        raise InputError(f"models:/{model}: no model of that name has a version; {there}")
    return [str(number) for number in sorted(int(each.version) for each in found)]
