"""Pieces of work in children that make something: a normalised model, a stage's model, an artifact.

A new piece of work is a module-level function here whose arguments and result can be pickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from compressor import graph, runtime
from compressor.engines import Settled, Tensorrt
from compressor.engines.tensorrt import provider
from compressor.errors import InputError, MachineError, RungError
from compressor.isolation import Limits
from compressor.pipeline.built import Assembly, Built
from compressor.plan import Plan
from compressor.records import Audit, Did, Model, Shapes, Work
from compressor.schemes import Scheme
from compressor.stages import Quantize, Recover, Stage, Supply
from compressor.stages.quantize.layers import layers
from compressor.stages.supply import divided
from compressor.workspace import Store

_SAME_DB = 40.0
"""Rounding leaves over 100 dB in float32 and about 55 in float16; a wrong graph is below 20."""
COMPARED = 16
"""Held-out feeds over which SQNR is taken after each stage."""
_PROFILED = 4
"""Held-out feeds over which operators are timed."""
_LARGE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Made:
    """A model that was made, what was done, and how far its outputs are from the original's."""

    model: Model
    did: Did
    sqnr_db: Mapping[str, float]
    audit: Audit | None = None


@dataclass(frozen=True)
class Given:
    """What every piece of work on a model needs to know: the original, its shapes, samples, and the run's folder."""

    original: Model
    shapes: Shapes
    supply: Supply
    run: Path


def given(plan: Plan, run: Path, store: Store) -> Given:
    """Give what a plan says that work on its model needs."""
    supply = divided(plan.calibration, plan.recipe.seed, store.folder, steady=plan.steady)
    supply = replace(supply, original=plan.model.path, scope=store.scope)
    return Given(plan.model, plan.shapes, supply, run)


def normalise(given: Given, out: Path) -> Work[Made]:
    """Make the float model that all stages start from, and hold it against the original by running both.

    Raises:
        InputError: The original is not what it was when it was planned with.
        RungError: Its outputs are not those of the original: nothing may be built on it.
    """
    original = given.original
    did = graph.normalise(original.path, out)
    if graph.sha256(graph.parts(original.path)) != original.sha256:  # what is kept would be taken for another's
        raise InputError(f"{original.path}: changed while the run was reading it; run again when it is written")
    made = yield from _checked(given, did, out)
    for name, db in made.sqnr_db.items():
        if db < _SAME_DB and given.supply.steady:
            raise RungError(f"the normalised model's output {name!r} differs from the original's ({db:.0f} dB)")
    return made


def apply(stage: Stage, model: Model, given: Given, out: Path) -> Work[Made]:
    """Apply one stage, and hold what it made against the original."""
    try:
        did = yield from stage.apply(model, given.supply, out)
    except InputError as error:  # of a file of our own making, not the caller's
        raise RungError(str(error)) from error
    made = yield from _checked(given, did, out)
    return replace(made, audit=runtime.audit(out, runtime.options(1, spinning=False), did.excluded))


def build(engine: Settled, model: Model, folder: Path, given: Given) -> Work[Assembly]:
    """Turn a model into the files that a server loads."""
    if not isinstance(engine, Tensorrt):
        artifact = engine.build(model, folder, given.run)
        return Assembly((artifact,), Built(engine, artifact), sum(file.size_bytes for file in artifact.files))
    artifacts = yield from engine.build(model, folder, given.run, given.supply.calibration)
    size_bytes = max(artifact.files[0].size_bytes for artifact in artifacts)
    if (here := engine.fitting(artifacts)) is not None:
        return Assembly(artifacts, Built(engine, here), size_bytes)
    return Assembly(artifacts, Built(*engine.proxy(artifacts[0])), size_bytes, engine.stand_in)


def unbuildable(engine: Tensorrt) -> str | None:
    """Say why nobody here can build an engine; None where somebody can.

    Raises:
        InputError: The settings ask for what that builder does not do.
    """
    try:
        builder = provider.chosen(engine.devices)
    except MachineError as error:
        return str(error)
    engine.check_settings(builder)
    return None


def kit(engine: Tensorrt, model: Model, folder: Path, given: Given) -> Work[Path]:
    """Write the folder that finishes a build on another machine."""
    return (yield from engine.kit(model, folder, given.original.path.stem, given.supply.calibration))


def candidates(stage: Stage, before: Model, scheme: Scheme) -> tuple[Stage, ...]:
    """Give the ways of applying a stage that is open, the last of them to leave the model as it is."""
    return stage.candidates(before.path, scheme) if isinstance(stage, Quantize) else (stage,)


def profiled(stage: str, before: Model, made: Made, supply: Supply) -> Work[Audit]:
    """Give the audit with what each operator takes before and after the stage, and what layers lose in INT8.

    Of a large model they are not looked at one by one, for which it would have to be in memory.
    """
    feeds = tuple(islice(supply.held_out, _PROFILED))
    times = runtime.times(before.path, made.model.path, feeds)
    audit = replace(made.audit or Audit(), operators=times.operators, slower=times.slower)
    if stage != name(Quantize()) or made.model.size_bytes > _LARGE_BYTES:
        return audit
    try:
        found = yield from layers(before.path, made.model.path, feeds, real=False)
    except RungError:  # good to know, as the whole profile is
        return audit
    return replace(audit, errors={layer.name: round(layer.exact_db, 2) for layer in found})


def name(stage: Stage) -> str:
    """Give the name of a stage as the recipe writes it."""
    return type(stage).__name__.lower()


def longest_s(stage: Stage) -> float:
    """Give the seconds that a stage may take by its own settings, beside what every piece of work may."""
    return 60 * stage.minutes if isinstance(stage, Recover) else 0


def build_more_s(limits: Limits) -> int:
    """Give the seconds that a build may take beyond, or short of, what every piece of work may."""
    return (limits.build or limits.seconds) - limits.seconds


def settings(stage: Stage) -> Mapping[str, Any]:
    """Give the settings of a stage as the report holds them."""
    return stage.model_dump(mode="json", exclude_none=True)


def _checked(given: Given, did: Did, out: Path) -> Work[Made]:
    try:
        model = graph.open_model(out, given.shapes)
    except InputError as error:  # of our own making, not the caller's
        raise RungError(f"the stage left no usable model: {error}") from error
    for side in ("inputs", "outputs"):
        if (now := _signature(model, side)) != (before := _signature(given.original, side)):
            raise RungError(f"the {side} would change from {before} to {now}")
    feeds = islice(given.supply.held_out, COMPARED)
    return Made(model, did, (yield from runtime.compare(given.original.path, out, feeds)))


def _signature(model: Model, side: str) -> list[tuple[str, str]]:
    return [(tensor.name, tensor.dtype) for tensor in getattr(model, side)]
