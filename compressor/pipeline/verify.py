"""Proof on the target: the very artifact of a report, measured again on this machine beside its original.

What must hold before it is measured is a step of `_proof`; how it is measured is the business of `trying`.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path

from compressor import graph, isolation, machine, plan, registry, runtime, schemes, workspace
from compressor.engines import Engine, Tensorrt
from compressor.errors import InputError, MachineError
from compressor.isolation import Nursery
from compressor.pipeline import choose, first, subject, summary, work
from compressor.pipeline.built import Assembly, Built
from compressor.pipeline.first import First, Wanted
from compressor.pipeline.making import Making, Place, home
from compressor.pipeline.run import Result, write
from compressor.pipeline.steps import Steps, nursery
from compressor.pipeline.summary import Begun
from compressor.pipeline.trying import Trying
from compressor.plan import Job, Origin, Plan
from compressor.recipe import BASELINE, Overrides, Recipe, override
from compressor.recipe import write as write_recipe
from compressor.records import Candidate, Progress, Report, Trial, Verified, Work
from compressor.registry import Registry
from compressor.samples import is_name
from compressor.scratch import scratch


@dataclass(frozen=True)
class Proof:
    """What is to be proved here: a report.json or `models:/NAME@ALIAS`, with what the flags say.

    `rung`: another than the one that the report chose. `original`: the model that it was made of, where it lies neither
    beside the report nor in the registry. `reports`: where the new report goes.
    """

    source: str
    given: Overrides
    reports: Path
    registry: str | None = None
    rung: str | None = None
    original: Path | None = None
    verbose: bool = False
    nursery: Nursery = field(default_factory=nursery)


def verify(asked: Proof) -> Generator[Progress | Trial, None, Result]:
    """Measure what a report chose as it was measured then, and report what this machine says of it.

    Raises:
        InputError: The source is none, or its original or its artifact are not what they were.
        MachineError: The artifact is for another machine than this.
    """
    workspace.check_temporary()
    begun = Begun.now()
    steps = Steps(isolation.Limits(), verbose=asked.verbose, nursery=asked.nursery)
    with scratch(home(asked.reports), "verify") as working, steps.of(asked.source):
        wanted = Wanted(asked.registry, asked.rung, asked.original)
        found = yield from first.find(asked.source, wanted, working, steps)
        settled = yield from _planned(asked, found, steps)
        folder = workspace.run_folder(asked.reports.absolute(), found.report.model.name, begun.at)
        try:
            place = Place(folder, working, home(asked.reports))
            trying = Trying(settled, place, steps)
            trials = yield from _tried(found, settled, place, trying)
            report = _report(found, settled, trials, folder, begun)
            report = replace(report, warnings=(*report.warnings, *trying.warnings), champion=trying.served)
            result = Result(replace(report, verifies=_verified(asked.source, found)), folder, settled.registry)
            workspace.write_text(folder / "recipe.yaml", write_recipe(settled.recipe))
            write(result)
        except BaseException as error:
            shutil.rmtree(folder)  # a half-done proof proves nothing, and is quickly done again
            error.add_note("nothing is kept of a proof that did not end: the same command does it again")
            raise
    return result


def _planned(asked: Proof, found: First, steps: Steps) -> Work[Plan]:
    """Settle on this machine what was settled on the other."""
    recipe = _recipe(asked, found)
    report, folder = found.report, Path.cwd()
    _check_target(asked.source, found, recipe)
    steps.environment = runtime.custom_ops.environment(plan.libraries(recipe, folder))
    steps.limits = recipe.limits.model_copy(update={"run": None})
    for artifact in found.trial.artifacts:
        subject.check_trusted(asked.source, artifact.options, found.files[artifact.files[0].path], steps)
    origin = Origin(report.model.name, found.places, subject.prepared(report, asked.source))
    job = Job(found.original, recipe, asked.reports, folder, compressed=False, origin=origin)
    settled: Plan = (yield from steps.call("plan", plan.make, job)).value
    if recipe.baseline and settled.champion is None and (served := report.champion):
        raise InputError(
            f"{asked.source}: was held against {served.source}, asked for as {recipe.baseline.model}, and nothing has "
            "that alias now: give it to a version, or name one with --against"
        )
    if settled.model.sha256 != report.model.sha256:
        raise InputError(
            f"{found.original}: is not the model that {asked.source} was made of (another sha256): name that one with "
            "--original"
        )
    return replace(settled, warnings=(*settled.warnings, *_doubts(found, settled)))


def _recipe(asked: Proof, found: First) -> Recipe:
    """Give the report's recipe with the flags put over it, less what lies nowhere here or is code nobody named."""
    recipe = found.recipe
    data = recipe.data
    lost = {name: path for name, path in data.named.items() if not _is_there(path)}
    given = {"calibration": asked.given.calibration, "evaluation": asked.given.evaluation, "metric": asked.given.metric}
    code = {name: str(path) for name, path in lost.items() if is_name(path)}
    code |= {"metric": data.metric} if data.metric and ":" in data.metric else {}
    for name, function in code.items():
        if given[name] is None:
            raise InputError(
                f"{asked.source}: data.{name} is {function}, code that is never run unasked: give --{name} {function} "
                "if you trust it"
            )
    update = {
        "data": data.model_copy(update={name: getattr(data, name).model_copy(update={"path": None}) for name in lost}),
        "registry": Registry(uri=found.registry or "none", name=found.model or recipe.registry.name),
        "custom_ops": (),
        "target": schemes.AUTO if _was_own(found) else recipe.target,
        "baseline": recipe.baseline and recipe.baseline.model_copy(update={"model": _champion(found)}),
    }
    return override(recipe.model_copy(update=update), asked.given)


def _is_there(path: Path) -> bool:
    """Tell whether there is something at a path that a report names, which may be anything."""
    try:
        return path.exists()
    except (OSError, ValueError):  # too long a name, a NUL in it, a folder of others
        return False


def _champion(found: First) -> str | None:
    """Name what has the alias now that was asked for, in the place of the version that had it then."""
    served = found.report.champion
    if served is None:  # there was none yet
        return found.recipe.baseline.model if found.recipe.baseline else None
    name = subject.named(served.asked or served.source)
    followed = name.is_alias and name.wanted != registry.CANDIDATE  # which may be what is to be proved
    return str(name if followed else subject.named(served.source))


def _check_target(source: str, found: First, recipe: Recipe) -> None:
    """Refuse what is for another machine, with the reason."""
    artifact, then = found.trial.artifacts[0], schemes.of(found.report.environment.isa).name
    here = schemes.of(machine.isa()).name
    if artifact.is_engine:
        capability = ".".join(map(str, machine.gpu_capability() or ()))
        if not capability or capability not in artifact.options.get("capabilities", "").split(","):
            device = f"{machine.gpu()} (compute capability {capability})" if capability else "no GPU"
            raise MachineError(
                f"{source}: {found.trial.rung} is an engine for {artifact.device.replace('+', ', ')}, and here is "
                f"{device}: verify it where such a device is"
            )
    elif recipe.target not in {schemes.AUTO, then, here}:
        raise MachineError(
            f"{source}: {found.trial.rung} was made for {recipe.target}, and this machine is {here}: verify it where "
            "it will serve"
        )


def _tried(
    found: First, settled: Plan, place: Place, trying: Trying
) -> Generator[Progress | Trial, None, tuple[Trial, ...]]:
    """Measure original and artifact as a climb would, the one as it is, the other as it was built then."""
    name, steps = found.trial.rung, trying.steps
    yield from trying.challenged()
    engine = trying.settled(settled.recipe.engine).plain(settled.environment.cpus_usable)
    given = Making(settled, place, steps).given
    arguments = (engine, settled.model, place.run / "artifacts" / BASELINE, given)
    base = yield from trying.baseline((yield from steps.call(f"{BASELINE}: build", work.build, *arguments)).value)
    if name == BASELINE:
        quality = base.quality, base.quality
        alone = yield from trying.contested(base.trial, base.built, quality, timed=trying.timed())
        yield alone
        return (alone,)
    yield base.trial
    candidate, made = yield from _copied(found, settled, place, steps)
    timed = trying.timed(_engine(found, settled))
    trial = yield from trying.rung(name, (candidate, made), base, base.trial, timed=timed)
    yield trial
    return base.trial, trial


def _copied(found: First, settled: Plan, place: Place, steps: Steps) -> Work[tuple[Candidate, Assembly]]:
    """Copy what was measured into the new run's folder, and give it as a climb gives what it built."""
    trial, engine = found.trial, _engine(found, settled).resolve(settled.environment.cpus_usable)
    for name, path in found.files.items():
        if (target := place.run / name).exists():  # a report may name anything
            raise InputError(f"{name}: is a file of the baseline too: this is no report that compressor wrote")
        workspace.copy(path, target)
    here = trial.artifacts[0]
    if isinstance(engine, Tensorrt):
        fitting = (yield from steps.call(f"{trial.rung}: open", engine.fitting, trial.artifacts)).value
        here = fitting or here
    graph_file = place.run / registry.graph_file(here).path
    model = (yield from steps.call(f"{trial.rung}: open", graph.open_model, graph_file, settled.shapes)).value
    counted = trial.model.macs if trial.model else None
    model = model if model.macs is not None else replace(model, macs=counted)
    size_bytes = trial.size_bytes or sum(file.size_bytes for file in here.files)
    return Candidate(model, trial.stages), Assembly(trial.artifacts, Built(engine, here), size_bytes)


def _engine(found: First, settled: Plan) -> Engine:
    """Give the engine of a rung, which may have one of its own."""
    own = next((rung.engine for rung in settled.recipe.rungs if rung.name == found.trial.rung), None)
    return own or settled.recipe.engine


def _report(found: First, settled: Plan, trials: tuple[Trial, ...], folder: Path, begun: Begun) -> Report:
    """Put the report together; its verdict is that of what was to be proved, whatever the original does."""
    told = summary.report(settled, trials, folder, begun)
    verdict, chosen = choose.proved(trials[-1])
    return replace(told, verdict=verdict, chosen=chosen, model=found.report.model)


def _verified(source: str, found: First) -> Verified:
    first_ = found.report
    return Verified(
        source=source,
        identity=registry.identity(first_),
        cpu=first_.environment.cpu,
        verdict=first_.verdict,
        rung=found.trial.rung,
        model=found.model if found.version else None,
        version=found.version,
    )


def _was_own(found: First) -> bool:
    """Tell whether it was made for the machine that it was made on, as is the default: such may serve on others."""
    return found.recipe.target == schemes.of(found.report.environment.isa).name


def _doubts(found: First, settled: Plan) -> tuple[str, ...]:
    then, here = schemes.of(found.report.environment.isa), schemes.of(settled.environment.isa)
    if then.name == here.name or not _was_own(found):
        return ()
    return (f"its INT8 suits {then.name}, and this machine is {here.name}: `compress run` here may find a better one",)
