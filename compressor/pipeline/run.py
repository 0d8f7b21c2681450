"""A run from request to report, and its publication.

What is written to a run's folder besides artifacts and raw latencies is written here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from compressor import formats, isolation, plan, recipe, registry, runtime, workspace
from compressor.errors import InputError, MachineError, OutOfTimeError, PublishError, RungError, Stopped
from compressor.isolation import Nursery
from compressor.pipeline import summary
from compressor.pipeline.climb import Climb, Climbed, climb, why
from compressor.pipeline.export import exported
from compressor.pipeline.making import Place, home
from compressor.pipeline.signals import undisturbed
from compressor.pipeline.steps import Steps, nursery
from compressor.pipeline.summary import Begun
from compressor.plan import Job, Plan
from compressor.records import Artifact, Progress, Report, Trial, Work
from compressor.scratch import scratch

_AGAIN = "the same command again goes on from what is made, and measures afresh"
_UNDRAWN = f"{formats.PAGE} was not drawn"
GOING_ON = "the run is going on, or was killed"


@dataclass(frozen=True)
class Request:
    """What the caller wants: a job, whether to climb past the first rung that is enough, whether vendors may print.

    `nursery`: where the children of the command come from.
    """

    job: Job
    every: bool = False
    verbose: bool = False
    nursery: Nursery = field(default_factory=nursery)


@dataclass(frozen=True)
class Result:
    """A report, the folder that it and everything it names lie in, and the registry to record it in, if any."""

    report: Report
    folder: Path
    registry: str | None = None


@dataclass(frozen=True)
class _Begun:
    """A run that has begun: what it does, for whom, and when it started."""

    plan: Plan
    request: Request
    when: Begun


def prepare(request: Request) -> Work[Plan]:
    """Settle everything and find every avoidable error, in a child of its own.

    Raises:
        InputError: The recipe, the model or the data are wrong.
        MachineError: This machine lacks what is asked for.
    """
    workspace.check_temporary()
    job, notes = yield from exported(request.job, verbose=request.verbose)
    environment = runtime.custom_ops.environment(plan.libraries(job.recipe, job.folder))
    limits = job.recipe.limits.model_copy(update={"run": None})  # its time begins when there is something to show
    steps = Steps(limits, verbose=request.verbose, environment=environment, nursery=request.nursery)
    with steps.of(str(job.model)):
        settled = (yield from steps.call("plan", plan.make, job)).value
    return replace(settled, warnings=(*notes, *settled.warnings))


def run(settled: Plan, request: Request) -> Generator[Progress | Trial, None, Result]:
    """Climb, yielding each trial as it is judged, and write the report; everything named in it is on disk then.

    What ends the climb before its time is raised once the report of what was done is written, with a note that says
    where it is; that `limits.run` is over, or that the original cannot be measured, is no error, but a result.

    Raises:
        CompressorError: The model, the data or the machine stopped the run.
        Stopped: A signal asked for the end.
    """
    begun = _Begun(settled, request, Begun.now())
    with scratch(home(request.job.reports), "run") as working:
        workspace.reserve(working)
        folder = workspace.run_folder(request.job.reports.absolute(), settled.model.path.stem, begun.when.at)
        workspace.write_text(folder / "recipe.yaml", recipe.write(settled.recipe))
        place = Place(folder, working, home(request.job.reports))
        climbing = climb(settled, place, every=request.every, verbose=request.verbose, nursery=request.nursery)
        climbed = yield from _noted(climbing, begun, folder)
    if isinstance(climbed.ended, InputError) and climbed.baseline.failure:
        shutil.rmtree(folder)  # it holds nothing that anybody asked for
        raise climbed.ended
    try:
        with undisturbed():
            result = _ended(climbed, begun, folder)
    except Stopped as stop:
        stop.add_note(f"the run is done, and reported in {folder / 'report.md'}")
        raise
    if climbed.ended is not None and not isinstance(climbed.ended, OutOfTimeError | RungError):
        climbed.ended.add_note(f"what was done until then is reported in {folder / 'report.md'}; {_AGAIN}")
        raise climbed.ended
    return result


def publish(result: Result, *, verbose: bool = False, nursery: Nursery | None = None) -> Work[Result]:
    """Draw a report; record it in its registry, if it has one, and write it again with where it stands there.

    Raises:
        PublishError: The registry refused; everything stays on disk.
    """
    limits = isolation.Limits.model_validate(result.report.recipe.get("limits", {})).model_copy(update={"run": None})
    steps = Steps(limits, verbose=verbose, nursery=nursery)
    result = yield from _drawn(replace(result, report=_undrawn(result.report)), steps)
    if result.registry is None:
        return result
    arguments = (result.registry, result.report, result.folder)
    try:
        step = yield from steps.call("publish", registry.record, *arguments)
    except (RungError, MachineError) as error:
        raise PublishError(
            f"the run was not recorded: {error}; everything is kept in {result.folder}: put the registry right, then "
            f"`compress publish {result.folder / 'report.json'}`"
        ) from error
    except Stopped as stop:
        stop.add_note(_unrecorded(result))
        raise
    published = replace(result, report=replace(result.report, registry=step.value))
    write(published)
    formats.register(published.report, published.folder)
    return published


def write(result: Result) -> None:
    """Write the report in every format, and beside each artifact what a server needs to load it."""
    for trial in (result.report.baseline, *result.report.trials):
        for artifact in trial.artifacts:
            _write_loading(artifact, result.folder)
    for suffix in formats.FORMATS:
        text = formats.render(result.report, suffix, result.folder)
        workspace.write_text(result.folder / f"report.{suffix}", text)


def _drawn(result: Result, steps: Steps) -> Work[Result]:
    """Draw a report in a fresh interpreter, since that runs JavaScript; where it fails, a warning says so.

    The report stands on disk already, and can still be recorded: whatever fails here takes nothing else.
    """
    try:
        step = yield from steps.call("draw", formats.draw, result.report, result.folder, imports=None)
        if step.value:
            told = tuple(f"{_UNDRAWN} whole: {reason}" for reason in step.value)
            result = replace(result, report=_with(result.report, told))
            write(result)
    except (RungError, MachineError, isolation.WorkError, OSError) as error:
        reason = str(error).strip().rpartition("\n")[2]
        path = result.folder / formats.PAGE
        again = f"`compress publish {result.folder / 'report.json'}{_alone(result)}` draws it"
        result = replace(result, report=_with(result.report, (f"{_UNDRAWN}: {reason}; {again}",)))
        with suppress(OSError):  # the report before it stays
            path.unlink(missing_ok=True)  # of an earlier time
            write(result)
    except Stopped as stop:
        stop.add_note(_unrecorded(result))
        raise
    return result


def _undrawn(report: Report) -> Report:
    """Give a report without what an earlier attempt to draw it said."""
    return replace(report, warnings=tuple(one for one in report.warnings if not one.startswith(_UNDRAWN)))


def _unrecorded(result: Result) -> str:
    """Say what a signal left undone once the run was."""
    if result.registry is None:
        again = f"`compress publish {result.folder / 'report.json'}{_alone(result)}` draws its page"
        return f"the run is done, and reported in {result.folder / 'report.md'}; {again}"
    return f"the run is done, but not recorded: `compress publish {result.folder / 'report.json'}` does that"


def _alone(result: Result) -> str:
    """Give the option that draws a report and records it nowhere, if it has no registry."""
    return "" if result.registry else " --registry none"


def _write_loading(artifact: Artifact, folder: Path) -> None:
    beside = (folder / artifact.files[0].path).parent
    if not artifact.is_engine:
        workspace.write_text(beside / "session.json", json.dumps(dict(artifact.options), indent=2) + "\n")
    workspace.write_text(beside / "load.py", formats.snippet(artifact))


def _ended(climbed: Climbed, begun: _Begun, folder: Path) -> Result:
    """Write the last word on a climb."""
    settled = begun.plan
    settled = replace(settled, recipe=settled.recipe.model_copy(update={"rungs": climbed.rungs}))
    workspace.write_text(folder / "recipe.yaml", recipe.write(settled.recipe))
    ended = None if climbed.ended is None else why(climbed.ended)
    report = _report(replace(begun, plan=settled), (climbed.baseline, *climbed.trials), folder, ended)
    report = replace(_with(report, climbed.warnings), champion=climbed.champion)
    result = Result(report, folder, settled.registry)
    write(result)
    return result


def _noted(climbing: Climb, begun: _Begun, folder: Path) -> Climb:
    """Pass trials on, each once it stands in a report on disk: what kills a run takes none of them away."""
    trials: tuple[Trial, ...] = ()
    climbed: Climbed
    while True:
        try:
            event = next(climbing)
            if isinstance(event, Trial):
                trials = (*trials, event)
                write(Result(_report(begun, trials, folder, GOING_ON), folder))
            yield event
        except StopIteration as end:
            climbed = end.value
            return climbed
        except (OSError, Stopped) as error:  # of the disk, or of a signal that arrived outside of the climb
            try:
                climbing.throw(error)
            except StopIteration as end:
                climbed = end.value
                return climbed


def _report(begun: _Begun, trials: tuple[Trial, ...], folder: Path, unfinished: str | None) -> Report:
    """Put the report together from the trials so far, the baseline's first."""
    report = replace(summary.report(begun.plan, trials, folder, begun.when), unfinished=unfinished)
    if unfinished and report.chosen in {None, recipe.BASELINE}:  # what was not climbed may have met every gate
        report = replace(report, verdict="inconclusive", chosen=None)
    if begun.request.every or report.chosen in {None, recipe.BASELINE}:
        report = _with(report, _cut_short(report, begun.plan))
    return report


def _with(report: Report, warnings: tuple[str, ...]) -> Report:
    return replace(report, warnings=(*report.warnings, *warnings))


def _cut_short(report: Report, settled: Plan) -> tuple[str, ...]:
    """Say why rungs were not climbed that should have been."""
    left = settled.recipe.rungs[len(report.trials) :]
    if not left:
        return ()
    names = ", ".join(rung.name for rung in left)
    if report.unfinished:
        return (f"not climbed: {names}; the run ended before ({report.unfinished})",)
    if settled.evaluation is None:
        return (f"not climbed: {names}; what these rungs lose cannot be seen without evaluation data",)
    return (f"not climbed: {names}; no time is known here that says that they are needed; --all builds them too",)
