"""Recording a run in MLflow, so that however often it is broken off, doing it again ends in one finished record.

What a record shows is added in `entry`; what is registered, in `versions`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from compressor import isolation, workspace
from compressor.errors import MachineError, PublishError
from compressor.records import Registration, Report
from compressor.registry import aliases, entry, originals, versions
from compressor.registry.connection import connected, existing_is_fine, once, refusals
from compressor.registry.place import check, database, public
from compressor.registry.versions import Run

_LOGGED = ("report.json", "report.md", "recipe.yaml")
_DRAWN = ("report.html", "report-figures")
"""What a report has besides, unless it could not be drawn: a page, and a folder of pictures."""
_METRICS_PER_BATCH = 500  # mlflow 3.17 takes at most 1000
_VERSION = "compressor.version"  # the tag of a run that names the version it made or confirmed


def record(uri: str, report: Report, folder: Path) -> Registration:
    """Record a run and register what it chose as a version; a report recorded before gives its first record.

    `folder` is the run's: it holds report.json, report.md, recipe.yaml and the artifacts. Meant for a child process: it
    imports mlflow and sets its URI. The registered files are byte for byte those that were measured. A version that
    holds the same already is confirmed instead, and `aliases` says which alias it gets. What an earlier attempt left is
    taken up where it ended.

    Raises:
        PublishError: MLflow refused, a file is missing, what arrived is not what was measured, or another process
            publishes the same folder.
    """
    _check_files(folder)
    _check_there(uri, folder)
    limits = isolation.Limits.model_validate(report.recipe.get("limits") or {})
    wait_s = limits.seconds / 3  # there are two waits, and the work itself
    with connected(uri, partial(_refused, uri, folder), folder, wait_s) as client:
        if database(uri):
            _end_abandoned(client, report)
        experiment_id = _experiment(client, report.model.name, database(uri))
        found = _found(client, experiment_id, report)
        if found is None or found.info.status != "FINISHED":
            _record(Run(client, experiment_id, _open(client, experiment_id, report, folder, found), report, folder))
            found = _found(client, experiment_id, report)
        return _registration(client, uri, report, found)


def _end_abandoned(client: Any, report: Report) -> None:
    """End what other reports' runs left: alone with the database, no process of ours is at work on them."""
    experiments = [each.experiment_id for each in client.search_experiments()]
    for run in client.search_runs(experiments, "attributes.status = 'RUNNING'"):
        if run.data.tags.get(entry.IDENTITY, entry.identity(report)) != entry.identity(report):
            client.set_terminated(run.info.run_id, "KILLED")


def _found(client: Any, experiment_id: str, report: Report) -> Any:
    """Give the record of a report: the finished one, else the first that was begun, else None; end all others."""
    same = f"tags.`{entry.IDENTITY}` = '{entry.identity(report)}'"
    runs = client.search_runs([experiment_id], same, order_by=["attributes.start_time ASC"])
    best = min(runs, key=lambda run: run.info.status != "FINISHED", default=None)
    for run in runs:
        if run is not best and run.info.status == "RUNNING":
            client.set_terminated(run.info.run_id, "KILLED")
    return best


def _open(client: Any, experiment_id: str, report: Report, folder: Path, found: Any) -> str:
    """Give the id of a run that is RUNNING: what was found, else a new one."""
    if found is None:
        with once():
            found = client.create_run(experiment_id, tags=entry.tags(report), run_name=folder.name)
    elif found.info.status != "RUNNING":
        client.update_run(found.info.run_id, "RUNNING")
    return str(found.info.run_id)


def _record(run: Run) -> None:
    try:
        _log(run)
        if (number := _registered(run)) is not None:
            run.client.set_tag(run.run_id, _VERSION, number)
        run.client.set_terminated(run.run_id, "FINISHED")
    except BaseException:
        with suppress(*refusals()):  # the first reason is the one to tell
            run.client.set_terminated(run.run_id, "FAILED")
        raise


def _log(run: Run) -> None:
    from mlflow.entities import Metric, Param

    now_ms = round(run.report.started.timestamp() * 1000)
    metrics = [Metric(key, value, now_ms, 0) for key, value in entry.metrics(run.report).items()]
    for start in range(0, len(metrics), _METRICS_PER_BATCH):
        run.client.log_batch(run.run_id, metrics=metrics[start : start + _METRICS_PER_BATCH])
    run.client.log_batch(run.run_id, params=[Param(*pair) for pair in entry.params(run.report).items()])
    for name in (*_LOGGED, *(name for name in _DRAWN if (run.folder / name).exists())):
        run.client.log_artifact(run.run_id, str(run.folder / name))
    originals.keep(run)


def _registered(run: Run) -> str | None:
    """Register what was chosen, or find what was proved again; give the version's number, None where there is none."""
    trials = (run.report.baseline, *run.report.trials)
    artifacts = next((versions.served(trial) for trial in trials if trial.rung == run.report.chosen), ())
    if artifacts:
        number = versions.settled(run, artifacts)
    elif (version := versions.proved(run)) is not None:
        number = str(version.version)
    else:
        return None
    if run.report.verifies:
        versions.tell_verified(run, number)
    if artifacts:
        aliases.give(run, versions.model_name(run.report), number)
    return number


def _registration(client: Any, uri: str, report: Report, run: Any) -> Registration:
    name, number = versions.model_name(report), run.data.tags.get(_VERSION)
    version = versions.find(client, name, number) if number else None
    if version is None:
        return Registration(public(uri, uri), run.info.run_id, name, None, None)
    alias = next((alias for alias in aliases.ALIASES if alias in version.aliases), None)
    confirmed = version.run_id != run.info.run_id
    note = version.tags.get(aliases.NOTE, "") if alias != aliases.CHAMPION else ""
    return Registration(public(uri, uri), run.info.run_id, name, str(version.version), alias, confirmed, note)


def _check_files(folder: Path) -> None:
    missing = [name for name in _LOGGED if not (folder / name).is_file()]
    if missing:
        raise PublishError(f"{folder}: expected the folder of a run, but {', '.join(missing)} is missing")


def _check_there(uri: str, folder: Path) -> None:
    """Make sure that a database can still be one: mlflow would try for minutes."""
    try:
        if database(uri):
            check(uri)
    except MachineError as error:
        raise _refused(uri, folder, str(error)) from error


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
