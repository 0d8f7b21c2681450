"""Making the plan.

What must hold before the first minute of work is a step of `make`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compressor import graph, machine, registry, runtime, score
from compressor.engines import Engine, Onnxruntime
from compressor.plan import data
from compressor.plan.dims import settle
from compressor.recipe import Recipe, Rung
from compressor.records import Environment, Feeds, Model, Shapes
from compressor.samples import Samples


@dataclass(frozen=True)
class Job:
    """What was asked: a recipe for a model, where reports go, and where the recipe's relative paths start."""

    model: Path
    recipe: Recipe
    reports: Path
    folder: Path


@dataclass(frozen=True)
class Plan:
    """A run with nothing left open. `recipe` is resolved: what depended on model or machine is written out."""

    recipe: Recipe
    model: Model
    shapes: Shapes
    calibration: Samples
    evaluation: Samples | None
    metric: str | None
    environment: Environment
    warnings: tuple[str, ...]


def make(job: Job) -> Plan:
    """Settle everything; runs the model, compresses nothing, writes nothing.

    Raises:
        InputError: The recipe, the model or the data are wrong, or leave a dimension open.
        MachineError: The registry cannot be reached.
    """
    recipe = _registered(job)
    unshaped = graph.open_model(job.model.resolve())
    files = data.files(recipe, unshaped, job.folder)
    shapes = settle(unshaped.inputs, recipe.shapes, files.observed)
    model = graph.open_model(unshaped.path, shapes)
    sets = data.sets(files, recipe, model, shapes)
    metric, doubts = _metric(recipe, model, sets)
    engine = _engine(recipe.engine)
    environment = machine.environment(engine.threads or 1, spinning=engine.spinning, saturates=runtime.saturates())
    settled = {
        "shapes": shapes,
        "engine": engine,
        "rungs": tuple(_rung(rung, model.path, saturates=environment.saturates) for rung in recipe.rungs),
        "data": recipe.data.model_validate({**data.resolved(sets, recipe), "metric": metric}),
    }
    return Plan(
        recipe=recipe.model_copy(update=settled),
        model=model,
        shapes=shapes,
        calibration=sets.calibration,
        evaluation=sets.evaluation if metric else None,
        metric=metric,
        environment=environment,
        warnings=(*sets.warnings, *doubts, *_oversubscribed(environment)),
    )


def _registered(job: Job) -> Recipe:
    """Settle where the run is recorded, and make sure that it can be."""
    asked = job.recipe.registry
    uri = registry.locate(asked.uri, job.reports)
    if uri:
        registry.check(uri)
    settled = asked.model_copy(update={"uri": uri or "none", "name": asked.name or job.model.stem})
    return job.recipe.model_copy(update={"registry": settled})


def _metric(recipe: Recipe, model: Model, sets: data.Sets) -> tuple[str | None, tuple[str, ...]]:
    """Choose the metric by running the original once, and find out whether it agrees with itself."""
    feeds = next(iter(sets.calibration))
    outputs = runtime.check_runs(model.path, feeds)
    if recipe.data.metric is not None:
        score.metric(recipe.data.metric)
    steady = _agrees_with_itself(model.path, feeds)
    if sets.evaluation is None:
        return None, () if steady else (_UNSTEADY,)
    labels = sets.evaluation.labels()
    metric = score.choose(outputs, labels, recipe.data.metric)
    if steady:
        return metric, ()
    return None if score.metric(metric).reference else metric, (_UNSTEADY,)


_UNSTEADY = (
    "the original model gives other outputs when it is run again on the same input: it holds random operators, so "
    "outputs cannot be compared one by one; only a metric on labels can judge it"
)


def _agrees_with_itself(path: Path, feeds: Feeds) -> bool:
    session = runtime.load(path, runtime.options(1, spinning=False))
    return score.deterministic(session, feeds)


def _engine(engine: Engine) -> Onnxruntime:
    return engine.resolve(machine.cpus_usable())


def _rung(rung: Rung, model: Path, *, saturates: bool) -> Rung:
    stages = tuple(stage.resolve(model, saturates=saturates) for stage in rung.stages)
    return rung.model_copy(update={"stages": stages, "engine": rung.engine and _engine(rung.engine)})


def _oversubscribed(environment: Environment) -> tuple[str, ...]:
    if environment.threads <= environment.cpus_usable:
        return ()
    warning = (
        f"{environment.threads} threads on {environment.cpus_usable} usable CPUs: latencies will be long and noisy; "
        f"give --threads {environment.cpus_usable}"
    )
    return (warning,)
