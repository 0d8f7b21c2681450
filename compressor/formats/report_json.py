"""report.json: a report written for programs and read back from its file.

A field is added to the records; nothing is added here.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import TypeAdapter, ValidationError

from compressor.errors import InputError
from compressor.records import Report

_SCHEMA_VERSION = 1
_LONGEST_PATH = 1024
_WORDS = ("providers", "custom_ops")
"""Options of a session that are no numbers, beside the entries of its configuration."""


def render(report: Report) -> str:
    """Give the report as valid JSON; a number that is not finite becomes null."""
    return _adapter().dump_json(report, indent=2).decode() + "\n"


def read(path: Path) -> Report:
    """Read a report.json; a null where a number must stand is the NaN that it was written for.

    Raises:
        InputError: There is no such file, or it is no report of schema version 1.
    """
    tree = _tree(path)
    found = tree.get("schema_version") if isinstance(tree, dict) else None
    if found != _SCHEMA_VERSION:
        raise InputError(
            f"{path}: expected a report with schema_version {_SCHEMA_VERSION}, found {found!r}: name the report.json "
            "of a run, or install the version of compressor that wrote it"
        )
    try:
        report = _adapter().validate_python(_with_nan(tree))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: {where}: {first['msg']}: this is no report that compressor wrote") from error
    _check_artifacts(path, report)
    return report


def _check_artifacts(path: Path, report: Report) -> None:
    """Return if what is chosen is there, and every file of an artifact lies in the run's folder."""
    trials = (report.baseline, *report.trials)
    if report.chosen is not None and not any(t.artifacts and t.rung == report.chosen for t in trials):
        raise InputError(f"{path}: chosen: {report.chosen!r} is no rung with an artifact in this report")
    artifacts = [artifact for trial in trials for artifact in trial.artifacts]
    if not all(artifact.files for artifact in artifacts):
        raise InputError(f"{path}: an artifact without files: this is no report that compressor wrote")
    names = [file.path for artifact in artifacts for file in artifact.files]
    if outside := next((name for name in names if not _is_inside(name)), None):
        raise InputError(f"{path}: the artifact {outside[:200]!r} lies outside the run's folder")
    options = [pair for artifact in artifacts if not artifact.is_engine for pair in artifact.options.items()]
    if odd := next((name for name, value in options if not _is_option(name, value)), None):
        raise InputError(f"{path}: {odd!r} is no option of a session that compressor writes")


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name and len(name) <= _LONGEST_PATH


def _is_option(name: str, value: str) -> bool:
    """Tell what the script that loads an artifact may hold: settings by name, else numbers."""
    return name in _WORDS or name.startswith("session.") or (name.isidentifier() and value.isdecimal())


@cache
def _adapter() -> TypeAdapter[Report]:
    return TypeAdapter(Report)


def _tree(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: expected a report.json, but it cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: expected a report.json, but it is not JSON: {error}") from error


def _with_nan(tree: Any) -> Any:
    """Put NaN where the records demand a number and the file has null."""
    try:
        _adapter().validate_python(tree)
    except ValidationError as error:
        for problem in error.errors():
            if problem["type"] == "float_type" and problem["input"] is None:
                tree = _replaced(tree, problem["loc"], float("nan"))
    return tree


def _replaced(tree: Any, place: tuple[int | str, ...], value: Any) -> Any:
    if not place:
        return value
    copy = tree.copy()
    copy[place[0]] = _replaced(tree[place[0]], place[1:], value)
    return copy
