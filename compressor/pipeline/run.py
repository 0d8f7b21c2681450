"""A run from request to report, and its publication.

What is written to a run's folder besides artifacts and raw latencies is written here.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from compressor import formats, isolation, plan, recipe, registry, runtime, workspace
from compressor.errors import InputError, MachineError, PublishError, RungError
from compressor.pipeline import choose
from compressor.pipeline.climb import climb
from compressor.pipeline.export import exported
from compressor.pipeline.summary import data, original
from compressor.plan import Job, Plan
from compressor.records import Artifact, Progress, Report, Trial, Work

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Request:
    """What the caller wants: a job, whether to climb past the first rung that is enough, whether vendors may print."""

    job: Job
    every: bool = False
    verbose: bool = False


@dataclass(frozen=True)
class Result:
    """A report, the folder that it and everything it names lie in, and the registry to record it in, if any."""

    report: Report
    folder: Path
    registry: str | None = None


def prepare(request: Request) -> Work[Plan]:
    """Settle everything and find every avoidable error, in a child of its own.

    Raises:
        InputError: The recipe, the model or the data are wrong.
        MachineError: This machine lacks what is asked for.
    """
    workspace.check_temporary()
    job, notes = yield from exported(request.job, verbose=request.verbose)
    yield Progress("plan")
    limits, environment = job.recipe.limits, runtime.custom_ops.environment(plan.libraries(job.recipe, job.folder))
    work = isolation.call(plan.make, job, limits=limits, verbose=request.verbose, environment=environment)
    try:
        settled = (yield from work).value
    except RungError as error:  # there is no rung yet
        raise InputError(f"{job.model}: planning failed: {error}") from error
    return replace(settled, warnings=(*notes, *settled.warnings))


def run(settled: Plan, request: Request) -> Generator[Progress | Trial, None, Result]:
    """Climb, yielding each trial as it is judged, and write the report; everything named in it is on disk then."""
    started, begin = datetime.now(UTC), time.monotonic()
    folder = workspace.run_folder(request.job.reports.absolute(), settled.model.path.stem, started)
    workspace.write_text(folder / "recipe.yaml", recipe.write(settled.recipe))
    try:
        climbed = yield from climb(settled, folder, every=request.every, verbose=request.verbose)
    except InputError:
        shutil.rmtree(folder)  # it holds nothing that anybody asked for
        raise
    finally:
        shutil.rmtree(folder / ".work", ignore_errors=True)
    settled = replace(settled, recipe=settled.recipe.model_copy(update={"rungs": climbed.rungs}))
    workspace.write_text(folder / "recipe.yaml", recipe.write(settled.recipe))
    report = _report(settled, climbed.baseline, climbed.trials, folder)
    if request.every or report.chosen in {None, recipe.BASELINE}:
        report = replace(report, warnings=(*report.warnings, *_cut_short(settled, climbed.trials)))
    result = Result(replace(report, started=started, duration_s=time.monotonic() - begin), folder, settled.registry)
    write(result)
    return result


def publish(result: Result, *, verbose: bool = False) -> Work[Result]:
    """Record a report in its registry, if it has one, and write the report again with where it stands there.

    Raises:
        PublishError: The registry refused; everything stays on disk.
    """
    if result.registry is None:
        return result
    yield Progress("publish")
    limits = isolation.Limits.model_validate(result.report.recipe.get("limits", {}))
    arguments = (result.registry, result.report, result.folder)
    try:
        step = yield from isolation.call(registry.record, *arguments, limits=limits, verbose=verbose)
    except (RungError, MachineError) as error:
        raise PublishError(f"the run was not recorded: {error}; everything is kept in {result.folder}") from error
    published = replace(result, report=replace(result.report, registry=step.value))
    write(published)
    return published


def write(result: Result) -> None:
    """Write the report in every format, and beside each artifact what a server needs to load it."""
    for trial in (result.report.baseline, *result.report.trials):
        for artifact in trial.artifacts:
            _write_loading(artifact, result.folder)
    for suffix in formats.FORMATS:
        workspace.write_text(result.folder / f"report.{suffix}", formats.render(result.report, suffix))


def _write_loading(artifact: Artifact, folder: Path) -> None:
    beside = (folder / artifact.files[0].path).parent
    if not artifact.is_engine:
        workspace.write_text(beside / "session.json", json.dumps(dict(artifact.options), indent=2) + "\n")
    workspace.write_text(beside / "load.py", formats.snippet(artifact))


def _report(settled: Plan, baseline: Trial, trials: tuple[Trial, ...], folder: Path) -> Report:
    verdict, chosen = choose.outcome(baseline, trials)
    raw = sorted((folder / "raw").glob("*.npy"))
    return Report(
        schema_version=SCHEMA_VERSION,
        verdict=verdict,
        chosen=chosen,
        warnings=settled.warnings,
        model=original(settled.model),
        data=data(settled),
        baseline=baseline,
        trials=trials,
        environment=settled.environment,
        recipe=settled.recipe.model_dump(mode="json", by_alias=True, exclude_none=True),
        registry=None,
        raw={path.stem: path.relative_to(folder).as_posix() for path in raw},
        started=datetime.now(UTC),
        duration_s=0.0,
    )


def _cut_short(settled: Plan, trials: tuple[Trial, ...]) -> tuple[str, ...]:
    """Say why rungs were not climbed that should have been."""
    left = settled.recipe.rungs[len(trials) :]
    if not left:
        return ()
    names = ", ".join(rung.name for rung in left)
    if settled.evaluation is None:
        return (f"not climbed: {names}; what these rungs lose cannot be seen without evaluation data",)
    return (f"not climbed: {names}; no time is known here that says that they are needed; --all builds them too",)
