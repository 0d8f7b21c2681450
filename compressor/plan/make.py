"""Making the plan.

What must hold before the first minute of work is a step of `make`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from compressor import gates, graph, machine, registry, runtime, schemes, workspace
from compressor.bench.load import Load, Trace
from compressor.engines import Engine, Settled, Tensorrt
from compressor.engines.tensorrt import profiles
from compressor.engines.tensorrt.profiles import Profile
from compressor.errors import InputError
from compressor.export import Source
from compressor.plan import champions, data, original
from compressor.plan.champions import Pinned
from compressor.plan.data import Files, Origin, Sets
from compressor.plan.dims import at_batch, settle
from compressor.plan.estimate import ways
from compressor.plan.libraries import libraries
from compressor.plan.points import Point, points
from compressor.plan.threads import oversubscribed
from compressor.recipe import ENGINE_LADDER, LADDER, Recipe, Rung
from compressor.records import Environment, Model, Shapes
from compressor.samples import Samples
from compressor.schemes import Scheme
from compressor.stages import Prune, Quantize
from compressor.units import write_seconds

_TENSORRT = "tensorrt"
_PLAYED = 0.9
"""Share of a measurement that a trace has for itself at the least."""


@dataclass(frozen=True)
class Job:
    """What was asked: a recipe for a model, where reports go, and where the recipe's relative paths start.

    `compressed`: rungs are built. `scored`: outputs are judged. `batch`: what the open first axes become. `origin`: of
    what the model was made, if it is known. `profiles`: of engines that are built of it, beside the recipe's own.
    """

    model: Path
    recipe: Recipe
    reports: Path
    folder: Path
    scored: bool = True
    compressed: bool = True
    batch: int | None = None
    origin: Origin | None = None
    profiles: tuple[Profile, ...] = ()
    source: Source | None = None


@dataclass(frozen=True)
class Plan:
    """A run with nothing left open. `recipe` is resolved: what depended on model or machine is written out."""

    recipe: Recipe
    model: Model
    shapes: Shapes
    points: tuple[Point, ...]
    calibration: Samples
    evaluation: Samples | None
    measured: Samples
    metric: str | None
    steady: bool
    environment: Environment
    scheme: Scheme
    registry: str | None  # with its password, if it has one; the recipe has none
    champion: Pinned | None  # what no rung may be worse than
    call_s: float  # the median of a few calls of the original; 0 where nothing is scored
    ways: int  # of quantizing that are tried where the recipe leaves it open
    warnings: tuple[str, ...]


def make(job: Job) -> Plan:
    """Settle everything; runs the model, compresses nothing, writes nothing.

    Raises:
        InputError: The recipe, the model or the data are wrong, or leave a dimension open.
        MachineError: The registry cannot be reached.
    """
    recipe, uri, champion = _registered(job)
    recipe = _located(_laddered(data.inherited(recipe, job.origin)), job.folder)
    workspace.check_writable(job.reports, "choose another --output")
    runtime.custom_ops.check()
    unshaped = graph.open_model(job.model.absolute())
    files = data.files(recipe, unshaped, job.folder, job.origin)
    model, shapes = _shaped(job, recipe, unshaped, files)
    sets = _sets(job)(files, recipe, model, shapes)
    first = original.seen(recipe, model, sets) if job.scored else original.runs(model, sets)
    _check_fit(recipe, first.metric)
    stated, notes = points(files, recipe, model, shapes)
    measured = (shapes, *(point.shapes for point in stated))
    engine = _engine(recipe.engine, model, measured)
    threads = engine.threads or machine.cpus_usable()
    environment = machine.environment(threads, spinning=engine.spinning, saturates=runtime.saturates())
    scheme = schemes.settled(_target(recipe), environment.isa, saturates=environment.saturates)
    settled = {
        "shapes": shapes,
        "engine": engine,
        "load": _load(recipe.load, job.folder),
        "target": scheme.name,
        "rungs": tuple(_rung(rung, model, scheme, measured) if job.compressed else rung for rung in recipe.rungs),
        "data": recipe.data.model_validate({**data.resolved(sets, recipe, job.folder), "metric": first.metric}),
    }
    asked, recipe = recipe, recipe.model_copy(update=settled)
    odd = (*sets.warnings, *notes, *original.doubts(job.recipe.data.metric, model, sets, first))
    return Plan(
        recipe=recipe,
        model=model,
        shapes=shapes,
        points=stated,
        calibration=sets.calibration,
        evaluation=sets.evaluation if first.metric else None,
        measured=sets.measured,
        metric=first.metric,
        steady=first.steady,
        environment=environment,
        scheme=scheme,
        registry=uri,
        champion=champion,
        call_s=first.call_s,
        ways=ways(recipe, model, scheme) if job.compressed else 0,
        warnings=(
            *odd,
            *_cut(recipe),
            *_crowded(recipe, environment, compressed=job.compressed),
            *_elsewhere(scheme, engine),
            *champions.doubts(recipe, environment, champion),
            *_derived(asked, recipe),
            *(_unjudged(recipe) if job.compressed else ()),
        ),
    )


def _laddered(recipe: Recipe) -> Recipe:
    """Let engines of TensorRT have a rung more, where nobody asked for others."""
    makes_half = isinstance(recipe.engine, Tensorrt) and recipe.engine.precision in {"auto", "fp16"}
    return recipe.model_copy(update={"rungs": ENGINE_LADDER}) if makes_half and recipe.rungs == LADDER else recipe


def _located(recipe: Recipe, folder: Path) -> Recipe:
    """Let files that engines name, and libraries, be looked for where the recipe's other paths start."""

    def at(engine: Engine | None) -> Engine | None:
        return engine.located(folder) if isinstance(engine, Tensorrt) else engine

    rungs = tuple(rung.model_copy(update={"engine": at(rung.engine)}) for rung in recipe.rungs)
    update = {"engine": at(recipe.engine), "rungs": rungs, "custom_ops": libraries(recipe, folder)}
    return recipe.model_copy(update=update)


def _registered(job: Job) -> tuple[Recipe, str | None, Pinned | None]:
    """Settle where the run is recorded, make sure that it can be, and find the champion there; no password stays."""
    asked = job.recipe.registry
    uri = registry.locate(asked.uri, job.reports)
    if uri:
        registry.check(uri)
    shown = registry.public(uri, uri) if uri else "none"
    settled = asked.model_copy(update={"uri": shown, "name": asked.name or registry.model_name(job.model.stem)})
    recipe, champion = champions.pinned(job.recipe.model_copy(update={"registry": settled}), uri)
    return recipe, uri, champion


def _shaped(job: Job, recipe: Recipe, model: Model, files: Files | None) -> tuple[Model, Shapes]:
    """Settle shapes by the recipe, the model, the samples and profiles of engines, and give the model at them."""
    hints = profiles.hinted(job.profiles or getattr(recipe.engine, "profiles", ()), model.inputs)
    shapes = settle(model.inputs, recipe.shapes, data.seen(files, hints))
    shapes = shapes if job.batch is None else at_batch(model.inputs, shapes, job.batch)
    return graph.at_shapes(model, shapes), shapes


def _sets(job: Job) -> Callable[[Files | None, Recipe, Model, Shapes], Sets]:
    if not job.scored:
        return data.busying
    return data.sets if job.compressed else data.compared


def _check_fit(recipe: Recipe, metric: str | None) -> None:
    """Return if every drop that is asked can be seen in the metric, also beside the champion."""
    if metric and (reason := gates.unfit(recipe.gates, metric)):
        raise InputError(f"recipe.gates: {reason}")
    if metric and recipe.baseline and (reason := recipe.baseline.unfit(recipe.gates, metric)):
        raise InputError(f"recipe.baseline: {reason}")


def _load(load: Load, folder: Path) -> Load:
    """Settle where a trace lies, and make sure that it can be read."""
    if not isinstance(load, Trace):
        return load
    settled = load.model_copy(update={"path": data.located(load.path, folder)})
    settled.arrivals_s()
    return settled


def _cut(recipe: Recipe) -> Iterator[str]:
    """Say so if a trace lasts longer than a measurement may, of which opening and warming up take a part too."""
    most_s = recipe.limits.measure
    if isinstance(recipe.load, Trace) and (lasts_s := float(recipe.load.arrivals_s()[-1])) > _PLAYED * most_s:
        yield (
            f"{recipe.load.path}: lasts {lasts_s:.4g} s, of which only what comes in the first {write_seconds(most_s)} "
            "less the warm-up is played: raise limits.measure or --duration"
        )


def _engine(engine: Engine, model: Model, shapes: Sequence[Shapes]) -> Settled:
    """Settle an engine, and make sure that it can be built and, if it is to run here, run."""
    settled = engine.resolve(machine.cpus_usable())
    settled.check()
    return settled.fitted(model.inputs, shapes)


def _target(recipe: Recipe) -> str:
    """Give the kind of machine that the model is for, which an engine of TensorRT says too."""
    engines = (recipe.engine, *(rung.engine for rung in recipe.rungs))
    if recipe.custom_ops and (recipe.target == _TENSORRT or any(isinstance(engine, Tensorrt) for engine in engines)):
        raise InputError("custom_ops: libraries of ONNX Runtime, which TensorRT does not load; choose another target")
    if not any(isinstance(engine, Tensorrt) for engine in engines) or recipe.target == _TENSORRT:
        return recipe.target
    if recipe.target != schemes.AUTO or not isinstance(recipe.engine, Tensorrt):
        raise InputError(f"target: expected {_TENSORRT} beside an engine of TensorRT, found {recipe.target}")
    return _TENSORRT


def _rung(rung: Rung, model: Model, scheme: Scheme, shapes: Sequence[Shapes]) -> Rung:
    if isinstance(first := rung.stages[0], Quantize | Prune):  # what comes later sees another graph
        first.check(model.path)
    stages = tuple(stage.resolve(model.path, scheme) for stage in rung.stages)
    return rung.model_copy(update={"stages": stages, "engine": rung.engine and _engine(rung.engine, model, shapes)})


def _elsewhere(scheme: Scheme, engine: Settled) -> Iterator[str]:
    if isinstance(engine, Tensorrt):
        yield from engine.warnings()
    elif not scheme.here:
        yield (
            f"the target is {scheme.name}, which this machine is not: times and speed-ups are of this machine, "
            "scores those of exact arithmetic"
        )


def _derived(asked: Recipe, settled: Recipe) -> tuple[str, ...]:
    """Say which profiles of engines nobody asked for, each once."""
    told = list(settled.engine.derived(asked.engine)) if isinstance(settled.engine, Tensorrt) else []
    for before, now in zip(asked.rungs, settled.rungs, strict=True):
        if isinstance(now.engine, Tensorrt):
            told += [f"{now.name}: {line}" for line in now.engine.derived(before.engine)]
    return tuple(told)


def _unjudged(recipe: Recipe) -> Iterator[str]:
    """Warn of rungs that nothing keeps from losing all that the model can do."""
    lossy = [rung.name for rung in recipe.rungs if any(stage.needs_evaluation for stage in rung.stages)]
    if lossy and not any(isinstance(gate, gates.Accuracy) for gate in recipe.gates):
        yield (
            f"no gate asks for accuracy, so {', '.join(lossy)} can pass whatever is lost: add "
            "accuracy: {max_drop: 1%} to the recipe's gates"
        )


def _crowded(recipe: Recipe, environment: Environment, *, compressed: bool) -> Iterator[str]:
    """Warn of more threads than CPUs in the sessions of the model itself, and of rungs with engines of their own."""
    engines = {"": recipe.engine, **{rung.name: rung.engine for rung in recipe.rungs if compressed and rung.engine}}
    for name, engine in engines.items():
        threads = engine.resolve(environment.cpus_usable).threads or 1
        if warning := oversubscribed(threads, recipe.load, environment.cpus_usable):
            yield f"{name}: {warning}" if name else warning
