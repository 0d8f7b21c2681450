"""Whether what lies in a folder is whole, judged by nothing of the product: only by its files' own words and readers.

Another kind of file that must be whole is a function here, and a line in `faults`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import yaml

_READERS: Mapping[str, Any] = {
    ".json": json.loads,
    ".yaml": yaml.safe_load,
    ".py": lambda text: compile(text, "load.py", "exec"),
}
STORE = ".workspace/store"
_NO_ENTRY = "locks"


def artifacts(output: Path) -> dict[str, str]:
    """Give the SHA-256 of the model of every rung in the newest run's folder."""
    return {path.parent.name: sha256(path) for path in _newest(output).parent.glob("artifacts/*/model.onnx")}


def report(output: Path) -> Any:
    """Give the newest run's report."""
    return json.loads(_newest(output).read_text())


def faults(output: Path, wanted: Mapping[str, str]) -> set[str]:
    """Say what is not whole under a folder of reports; `wanted`: each rung's model, usable, by SHA-256."""
    visible = [path for path in sorted(output.rglob("*")) if path.is_file() and not _is_hidden(path, output)]
    return {
        *(fault for path in visible if path.name == "report.json" for fault in _named(path)),
        *(fault for path in visible if path.name == "model.onnx" for fault in _model(path, wanted)),
        *(fault for path in visible for fault in _readable(path)),
        *_entries(output / STORE),
    }


def leftovers(output: Path) -> set[str]:
    """Say what lies in the workspace that belongs to no run that lives, and is no entry of the store."""
    home = output / ".workspace"
    beside = {path for path in home.iterdir() if path.name != "store"} if home.is_dir() else set()
    hidden = {path for path in home.rglob(".*") if home.is_dir()}
    return {f"{path.relative_to(output)}: nobody's" for path in beside | hidden}


def registered(database: Path, model: str) -> set[str]:
    """Say what is wrong in a registry that shall hold one version of one model."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as registry:
        versions = registry.execute("SELECT name, version FROM model_versions").fetchall()
        going_on = registry.execute("SELECT run_uuid FROM runs WHERE status = 'RUNNING'").fetchall()
    found = {f"the registry: run {run} stands as running" for (run,) in going_on}
    if versions != [(model, 1)]:
        found.add(f"the registry holds {versions}, expected one version of {model}")
    return found


def usable(model: Path) -> None:
    """Read a model and run it on zeros; whatever goes wrong is raised."""
    onnx.checker.check_model(onnx.load(model))
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (fed,) = session.get_inputs()
    dims = [dim if isinstance(dim, int) else 1 for dim in fed.shape]
    (given,) = session.run(None, {fed.name: np.zeros(dims, np.float32)})
    if not np.isfinite(given).all():
        raise ValueError(f"{model}: gives {given}")


def _newest(output: Path) -> Path:
    """Give the report that was written last: names of folders that were made within one second are in no order."""
    return max(output.glob("*/*/report.json"), key=lambda path: path.stat().st_mtime_ns)


def sha256(path: Path) -> str:
    """Give the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _is_hidden(path: Path, output: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(output).parts)


def _named(path: Path) -> Iterator[str]:
    """Hold a report against the files that it names."""
    try:
        told = json.loads(path.read_text())
    except ValueError:
        return  # `_readable` says so
    for trial in (told["baseline"], *told["trials"]):
        for file in (file for artifact in trial["artifacts"] for file in artifact["files"]):
            named = path.parent / file["path"]
            if not named.is_file():
                yield f"{path}: names {file['path']}, which is not there"
            elif (sha256(named), named.stat().st_size) != (file["sha256"], file["size_bytes"]):
                yield f"{path}: {file['path']} is not what it says"
    absent = [raw for raw in told["raw"].values() if not (path.parent / raw).is_file()]
    yield from (f"{path}: names {raw}, which is not there" for raw in absent)


def _model(path: Path, wanted: Mapping[str, str]) -> Iterator[str]:
    if sha256(path) != wanted.get(path.parent.name):
        yield f"{path}: is not the model that an undisturbed run makes"


def _readable(path: Path) -> Iterator[str]:
    try:
        if path.suffix == ".npy":
            np.load(path)
        elif path.suffix in _READERS:
            _READERS[path.suffix](path.read_text())
        elif not path.read_bytes().strip():
            yield f"{path}: is empty"
    except (ValueError, SyntaxError, EOFError, OSError, yaml.YAMLError) as error:
        yield f"{path}: {error}"


def _entries(store: Path) -> Iterator[str]:
    """Hold every entry of the store against its manifest."""
    for entry in sorted(store.iterdir()) if store.is_dir() else ():
        if entry.name == _NO_ENTRY or entry.name.startswith("."):
            continue
        try:
            told = json.loads((entry / "entry.json").read_text())["entry"]["files"]
        except (OSError, ValueError, LookupError) as error:
            yield f"{entry}: has no manifest that can be read: {error}"
            continue
        there = {path.relative_to(entry).as_posix(): sha256(path) for path in entry.rglob("*") if path.is_file()}
        if there | {"entry.json": ""} != told | {"entry.json": ""}:
            yield f"{entry}: does not hold what its manifest says"
