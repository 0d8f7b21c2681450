"""Recording a run in MLflow, and registering what it chose as a version.

What a record shows is added in `entry`; another kind of artifact is saved in `serving`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from compressor import graph, workspace
from compressor.errors import PublishError
from compressor.records import Artifact, Registration, Report, Tensor
from compressor.registry import entry, serving
from compressor.registry.connection import connected, existing_is_fine
from compressor.registry.place import Registry, database, public

_CHAMPION = "champion"
_LOGGED = ("report.json", "report.md", "recipe.yaml")
SESSION_FILE = "session.json"
"""The options that the model was measured with, beside it as in the folder of a run."""
_METRICS_PER_BATCH = 500  # mlflow 3.17 takes at most 1000


@dataclass(frozen=True)
class _Run:
    client: Any
    experiment_id: str
    run_id: str
    report: Report
    folder: Path


def record(uri: str, report: Report, folder: Path) -> Registration:
    """Record a run and register what it chose as a version; a report recorded before gives its first record.

    `folder` is the run's: it holds report.json, report.md, recipe.yaml and the artifacts. Meant for a child process: it
    imports mlflow and sets its URI. The registered files are byte for byte those that were measured. The alias
    `champion` moves only to a version that met every gate.

    Raises:
        PublishError: MLflow refused, a file is missing, or what arrived is not what was measured.
    """
    _check_files(folder)
    with connected(uri, partial(_refused, uri, folder)) as client:
        experiment_id = _experiment(client, report.model.name, database(uri))
        run_id = _recorded(client, experiment_id, report) or _record(client, experiment_id, report, folder)
        return _registration(client, uri, report, run_id)


def _check_files(folder: Path) -> None:
    missing = [name for name in _LOGGED if not (folder / name).is_file()]
    if missing:
        raise PublishError(f"{folder}: expected the folder of a run, but {', '.join(missing)} is missing")


def _refused(uri: str, folder: Path, reason: str) -> PublishError:
    return PublishError(
        f"registry {public(uri, uri)}: the run was not recorded: {reason}; everything is kept in {folder}: put the "
        f"registry right, then `compress publish {folder / 'report.json'}`"
    )


def _experiment(client: Any, name: str, file: Path | None) -> str:
    """Give the experiment's id; without a location mlflow 3.17 puts the artifacts of an SQLite file in ./mlruns."""
    beside = (file.parent / "mlartifacts" / workspace.file_name(name)).as_uri() if file else None
    if client.get_experiment_by_name(name) is None:
        with existing_is_fine():
            client.create_experiment(name, artifact_location=beside)
    return str(client.get_experiment_by_name(name).experiment_id)


def _recorded(client: Any, experiment_id: str, report: Report) -> str | None:
    same = f"tags.`compressor.report` = '{entry.identity(report)}' and attributes.status = 'FINISHED'"
    runs = client.search_runs([experiment_id], filter_string=same, max_results=1)
    return runs[0].info.run_id if runs else None


def _record(client: Any, experiment_id: str, report: Report, folder: Path) -> str:
    run_id = client.create_run(experiment_id, tags=entry.tags(report), run_name=folder.name).info.run_id
    run = _Run(client, experiment_id, str(run_id), report, folder)
    status = "FAILED"
    try:
        _log(run)
        if artifacts := _chosen(report):
            _register(run, artifacts)
        status = "FINISHED"
    finally:
        client.set_terminated(run.run_id, status)
    return run.run_id


def _log(run: _Run) -> None:
    from mlflow.entities import Metric, Param

    now_ms = round(run.report.started.timestamp() * 1000)
    metrics = [Metric(key, value, now_ms, 0) for key, value in entry.metrics(run.report).items()]
    for start in range(0, len(metrics), _METRICS_PER_BATCH):
        run.client.log_batch(run.run_id, metrics=metrics[start : start + _METRICS_PER_BATCH])
    run.client.log_batch(run.run_id, params=[Param(*pair) for pair in entry.params(run.report).items()])
    for name in _LOGGED:
        run.client.log_artifact(run.run_id, str(run.folder / name))


def _chosen(report: Report) -> tuple[Artifact, ...]:
    """Give the ONNX artifact of the chosen rung, or all of its engines, which are served together."""
    chosen = [trial for trial in (report.baseline, *report.trials) if trial.rung == report.chosen]
    artifacts = [artifact for trial in chosen for artifact in trial.artifacts]
    models = [artifact for artifact in artifacts if artifact.files[0].path.endswith(".onnx")]
    return tuple(artifact for artifact in artifacts if artifact.is_engine) or tuple(models[:1])


def _register(run: _Run, artifacts: tuple[Artifact, ...]) -> None:
    """Upload the model, compare what arrived with what was measured, and only then make it a version."""
    model = _logged_model(run, artifacts)
    with TemporaryDirectory(dir=run.folder) as staging:
        _save(run, artifacts, model, Path(staging) / "model")
        run.client.log_model_artifacts(model.model_id, f"{staging}/model")
        _check_arrived(model.model_id, artifacts, Path(staging) / "arrived")
    run.client.finalize_logged_model(model.model_id, "READY")
    version = _version(run, artifacts, model.model_id)
    if run.report.verdict == "pass" and not entry.is_proxied(run.report):
        run.client.set_registered_model_alias(_model_name(run.report), _CHAMPION, version)


def _logged_model(run: _Run, artifacts: tuple[Artifact, ...]) -> Any:
    from mlflow.entities import LoggedModelOutput

    model = run.client.create_logged_model(
        run.experiment_id,
        name=workspace.file_name(run.report.model.name).replace(".", "_"),  # mlflow 3.17 refuses dots in this name
        source_run_id=run.run_id,
        tags=entry.artifact_tags(artifacts),
    )
    run.client.log_outputs(run.run_id, [LoggedModelOutput(model.model_id, step=0)])
    return model


def _save(run: _Run, artifacts: tuple[Artifact, ...], logged: Any, target: Path) -> None:
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
        workspace.write_text(target / SESSION_FILE, json.dumps(dict(first.options), indent=2) + "\n")
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


def _check_arrived(model_id: str, artifacts: tuple[Artifact, ...], target: Path) -> None:
    from mlflow.artifacts import download_artifacts

    arrived = Path(download_artifacts(f"models:/{model_id}", dst_path=str(target)))
    for name, file in serving.placed(artifacts).items():
        if (found := workspace.sha256(arrived / name)) != file.sha256:
            raise PublishError(
                f"registry: {file.path} was not registered: sha256 {file.sha256} was measured, {found} arrived: "
                "make the rung again and publish that"
            )


def _version(run: _Run, artifacts: tuple[Artifact, ...], model_id: str) -> str:
    name = _model_name(run.report)
    with existing_is_fine():
        run.client.create_registered_model(name)
    version = run.client.create_model_version(
        name,
        f"models:/{model_id}",
        run.run_id,
        entry.tags(run.report) | entry.artifact_tags(artifacts),
        description=entry.description((run.folder / "report.md").read_text(encoding="utf-8")),
        model_id=model_id,
    )
    return str(version.version)


def _model_name(report: Report) -> str:
    wanted = Registry.model_validate(report.recipe.get("registry") or {})
    return wanted.name or workspace.file_name(report.model.name)


def _registration(client: Any, uri: str, report: Report, run_id: str) -> Registration:
    name = _model_name(report)
    versions = client.search_model_versions(f"run_id = '{run_id}'")
    if not versions:
        return Registration(public(uri, uri), run_id, name, None, None)
    version = client.get_model_version(name, versions[0].version)
    alias = _CHAMPION if _CHAMPION in version.aliases else None
    return Registration(public(uri, uri), run_id, name, str(version.version), alias)
