"""What a run registers: a version that holds exactly its artifacts, found where it stands, else made.

Another kind of artifact is saved in `serving`; what makes two versions the same is told in `entry.content`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from compressor import graph, workspace
from compressor.errors import PublishError
from compressor.records import Artifact, File, Report, Tensor, Trial
from compressor.registry import entry, serving
from compressor.registry.connection import existing_is_fine, once, quoted
from compressor.registry.place import Registry

_SESSION_FILE = "session.json"  # as in the folder of a run
_CONTENT = "compressor.content"
_STAGING = ".publish"
_PAGE = 1000


@dataclass(frozen=True)
class Run:
    """A run of mlflow's that is under way, and what it records."""

    client: Any
    experiment_id: str
    run_id: str
    report: Report
    folder: Path


def model_name(report: Report) -> str:
    """Give the name under which what a report chose is registered."""
    if report.verifies and report.verifies.model:
        return report.verifies.model
    wanted = Registry.model_validate(report.recipe.get("registry") or {})
    return wanted.name or workspace.file_name(report.model.name)


def settled(run: Run, artifacts: tuple[Artifact, ...]) -> str:
    """Give the number of the version that holds the artifacts, made where there is none.

    A version of another run's gets tags that say which run confirmed it last, and how that run ended. Where a
    registered version was proved again, it is that one.

    Raises:
        PublishError: The files are not, or did not arrive as, what was measured.
    """
    _check_measured(run.folder, artifacts)
    with _staging(run.folder) as staging:
        version = proved(run) or _standing(run, artifacts, staging) or _made(run, artifacts, staging)
    number = str(version.version)
    if version.run_id != run.run_id:
        for key, value in {"run": run.run_id, "verdict": run.report.verdict}.items():
            run.client.set_model_version_tag(model_name(run.report), number, f"compressor.confirmed_{key}", value)
    return number


def proved(run: Run) -> Any:
    """Give the version whose artifact a run proved again; None where it is gone, or holds something else by now."""
    verified = run.report.verifies
    if verified is None or verified.version is None:
        return None
    trials = (run.report.baseline, *run.report.trials)
    artifacts = next((served(trial) for trial in trials if trial.rung == verified.rung), ())
    version = find(run.client, model_name(run.report), verified.version)
    if version is None or not artifacts:
        return None
    told = entry.artifact_tags(artifacts)
    return version if all(version.tags.get(key) == value for key, value in told.items()) else None


def tell_verified(run: Run, number: str) -> None:
    """Say of a version how it was proved again on this machine."""
    run.client.set_model_version_tag(model_name(run.report), number, *entry.verified(run.report))


def served(trial: Trial) -> tuple[Artifact, ...]:
    """Give what a version holds of a rung: its ONNX artifact, or all of its engines, which are served together."""
    models = [artifact for artifact in trial.artifacts if artifact.files[0].path.endswith(".onnx")]
    return tuple(artifact for artifact in trial.artifacts if artifact.is_engine) or tuple(models[:1])


def every(client: Any, name: str) -> tuple[Any, ...]:
    """Give all versions of a model, which come without their aliases, the latest first."""
    page = client.search_model_versions(f"name = {quoted(name)}", max_results=_PAGE)
    found = list(page)
    while page.token:
        page = client.search_model_versions(f"name = {quoted(name)}", max_results=_PAGE, page_token=page.token)
        found += page
    return tuple(sorted(found, key=lambda version: int(version.version), reverse=True))


def find(client: Any, name: str, number: str) -> Any:
    """Give a version, with its aliases; None where it was deleted."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version(name, number)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def _check_measured(folder: Path, artifacts: tuple[Artifact, ...]) -> None:
    for file in serving.placed(artifacts).values():
        if (found := _sha256(folder / file.path)) != file.sha256:
            raise _unlike(file, f"{found} is there now")


def _sha256(path: Path) -> str:
    return workspace.sha256(path) if path.is_file() else "no file"


def _unlike(file: File, found: str) -> PublishError:
    return PublishError(
        f"registry: {file.path} was not registered: sha256 {file.sha256} was measured, {found}: make the rung again "
        "and publish that"
    )


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """Give an empty folder for what is under way, in that of the run, so that the next try clears up after a kill."""
    if not os.access(folder, os.W_OK):
        with TemporaryDirectory() as elsewhere:
            yield Path(elsewhere)
        return
    path = folder / _STAGING
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _standing(run: Run, artifacts: tuple[Artifact, ...], staging: Path) -> Any:
    """Give the latest version of the same content that is ready and still has its files, or None."""
    name, digest = model_name(run.report), entry.content(run.report, artifacts)
    found = run.client.search_model_versions(f"name = {quoted(name)} and tags.`{_CONTENT}` = '{digest}'")
    for version in sorted(found, key=lambda each: int(each.version), reverse=True):
        at = f"models:/{name}/{version.version}"
        if version.status == "READY" and not _unlike_stored(at, artifacts, staging / f"version{version.version}"):
            return version
    return None


def _unlike_stored(uri: str, artifacts: tuple[Artifact, ...], target: Path) -> list[tuple[File, str]]:
    """Give each file that mlflow does not give back as it was measured, and what it gives."""
    from mlflow.artifacts import download_artifacts

    arrived = Path(download_artifacts(uri, dst_path=str(target)))
    found = ((file, _sha256(arrived / name)) for name, file in serving.placed(artifacts).items())
    return [(file, sha256) for file, sha256 in found if sha256 != file.sha256]


def _made(run: Run, artifacts: tuple[Artifact, ...], staging: Path) -> Any:
    """Upload the model, compare what arrived with what was measured, and only then make it a version."""
    name, model_id = model_name(run.report), _uploaded(run, artifacts, staging)
    with existing_is_fine():
        run.client.create_registered_model(name)
    tags = entry.tags(run.report) | entry.artifact_tags(artifacts)
    with once():
        return run.client.create_model_version(
            name,
            f"models:/{model_id}",
            run.run_id,
            tags | {_CONTENT: entry.content(run.report, artifacts)},
            description=entry.description((run.folder / "report.md").read_text(encoding="utf-8")),
            model_id=model_id,
        )


def _uploaded(run: Run, artifacts: tuple[Artifact, ...], staging: Path) -> str:
    """Give the id of a logged model that is ready: one that an earlier try left, else one uploaded now."""
    left = run.client.search_logged_models([run.experiment_id], f"source_run_id = '{run.run_id}'")
    for model in left:
        at, target = f"models:/{model.model_id}", staging / model.model_id
        if model.status.value == "READY" and not _unlike_stored(at, artifacts, target):
            return str(model.model_id)
    model = next((each for each in left if each.status.value == "PENDING"), None) or _logged_model(run, artifacts)
    _save(run, artifacts, model, staging / "model")
    run.client.log_model_artifacts(model.model_id, str(staging / "model"))
    for file, found in _unlike_stored(f"models:/{model.model_id}", artifacts, staging / "arrived"):
        raise _unlike(file, f"{found} arrived")
    _link(run, model.model_id)
    run.client.finalize_logged_model(model.model_id, "READY")
    return str(model.model_id)


def _logged_model(run: Run, artifacts: tuple[Artifact, ...]) -> Any:
    with once():
        return run.client.create_logged_model(
            run.experiment_id,
            name=workspace.file_name(run.report.model.name).replace(".", "_"),  # mlflow 3.17 refuses dots in this name
            source_run_id=run.run_id,
            tags=entry.artifact_tags(artifacts),
        )


def _save(run: Run, artifacts: tuple[Artifact, ...], logged: Any, target: Path) -> None:
    """Write a model folder of mlflow's with the measured files in it, byte for byte."""
    from mlflow.models import Model

    first = artifacts[0]
    model = Model(logged.artifact_location, run.run_id, model_uuid=logged.model_id, model_id=logged.model_id)
    described = serving.Described(
        signature=_signature(run.folder / serving.graph_file(first).path),
        requirements=serving.requirements(first, run.report.environment.versions),
        reports=(run.folder / "report.json", run.folder / "report.md"),
    )
    save = serving.save_script if serving.is_scripted(first) else serving.save_onnx
    save(target, model, first, described)
    for name, file in serving.placed(artifacts).items():
        workspace.copy(run.folder / file.path, target / name)
    if not first.is_engine:
        workspace.write_text(target / _SESSION_FILE, json.dumps(dict(first.options), indent=2) + "\n")
        if serving.is_scripted(first):
            loader = (run.folder / first.files[0].path).with_name(serving.LOADER_FILE)
            workspace.copy(loader, target / serving.LOADER_FILE)
    model.model_size_bytes = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    model.save(str(target / "MLmodel"))


def _signature(path: Path) -> Any:
    """Describe the graph's inputs and outputs; None where mlflow has no words for one of them."""
    from mlflow.models import ModelSignature
    from mlflow.types import Schema

    model = graph.open_model(path)
    inputs, outputs = ([_spec(tensor) for tensor in tensors] for tensors in (model.inputs, model.outputs))
    if None in (*inputs, *outputs) or not outputs:
        return None
    return ModelSignature(Schema(inputs) if inputs else None, Schema(outputs))


def _spec(tensor: Tensor) -> Any:
    from mlflow.types import TensorSpec

    if tensor.shape is None or not (tensor.dtype == "str" or hasattr(np, tensor.dtype)):  # such as bfloat16
        return None
    return TensorSpec(
        np.dtype(tensor.dtype), [dim if isinstance(dim, int) else -1 for dim in tensor.shape], tensor.name
    )


def _link(run: Run, model_id: str) -> None:
    """Show the model as an output of the run; mlflow 3.17 refuses what is one already."""
    from mlflow.entities import LoggedModelOutput

    if model_id not in {output.model_id for output in run.client.get_run(run.run_id).outputs.model_outputs}:
        run.client.log_outputs(run.run_id, [LoggedModelOutput(model_id, step=0)])
