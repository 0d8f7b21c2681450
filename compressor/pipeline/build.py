"""Engines without a climb: a model as it is, or made INT8, built for devices, and a kit for where nobody builds here.

What else is written beside the engines is a step of `build`.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from compressor import workspace
from compressor.engines import Auto, Tensorrt
from compressor.engines.tensorrt import record
from compressor.errors import InputError, RungError
from compressor.formats import snippet
from compressor.pipeline import work
from compressor.pipeline.making import Making, Place
from compressor.pipeline.run import Request, prepare
from compressor.pipeline.steps import Steps
from compressor.plan import Job, Plan
from compressor.recipe import Rung
from compressor.records import Applied, Artifact, Work
from compressor.registry import Registry
from compressor.scratch import scratch
from compressor.stages import Fuse, Quantize, Stage

_KIT, _ENGINES = "kit", "engines"
_MADE_UP = (
    "no calibration data: ranges of INT8, and what FP16 cannot hold, were seen on made-up inputs; give --calibration"
)


@dataclass(frozen=True)
class Engines:
    """What was built. `unbuilt`: why there is no engine; the kit is there all the same."""

    folder: Path
    artifacts: tuple[Artifact, ...]
    kit: Path
    did: tuple[str, ...]
    warnings: tuple[str, ...]
    unbuilt: str | None = None


def build(job: Job, *, verbose: bool) -> Work[Engines]:
    """Build engines of a model into a folder of the job's `reports`, and beside them the kit.

    Args:
        job: Its recipe has an engine of TensorRT; if that is for int8, a model that is not quantized yet will be.
        verbose: Whether vendors may print.

    Raises:
        InputError: The model, its data or a profile are wrong.
        RungError: A stage or the builder refuses the model.
    """
    engine = job.recipe.engine
    if not isinstance(engine, Tensorrt):
        raise InputError("build: expected an engine of TensorRT; give --target tensorrt:a10g, with the device's name")
    final = job.reports.absolute() / workspace.file_name(job.model.stem)
    if job.model.absolute().resolve().is_relative_to(final.resolve()):
        raise InputError(f"{job.model}: lies in {final}, where the engines would go; choose another --output")
    engine = engine.located(job.folder)
    settled = yield from prepare(Request(_job(job, engine), verbose=verbose))
    engine = engine.fitted(settled.model.inputs, (settled.shapes, *(point.shapes for point in settled.points)))
    final.parent.mkdir(parents=True, exist_ok=True)
    with scratch(final.parent, f".{final.name}") as working:  # all that is left is what is shipped
        made = yield from _made(settled, engine, Place(working, working, working), verbose=verbose)
        _swap(working, final)
    if made.refused:
        raise RungError(f"{job.model}: {made.refused}; the kit is in {final / _KIT}")
    looked = engine.precision != "fp32" or any(stage.uncalibrated for stage in made.stages)
    made_up = (_MADE_UP,) if settled.calibration.source.synthetic and looked else ()
    did = tuple(f"{stage.stage}: {stage.did}" for stage in made.stages)
    warnings = (*made_up, *engine.derived(job.recipe.engine))
    return Engines(final, made.artifacts, final / _KIT, did, warnings, made.unbuilt)


@dataclass(frozen=True)
class _Made:
    stages: tuple[Applied, ...]
    artifacts: tuple[Artifact, ...] = ()
    unbuilt: str | None = None
    refused: str | None = None


def _made(settled: Plan, engine: Tensorrt, place: Place, *, verbose: bool) -> Work[_Made]:
    """Build the engines and the kit into a folder that is swapped in when they are there."""
    run, limits = place.run, settled.recipe.limits
    steps = Steps(limits, verbose=verbose)
    unbuilt = (yield from steps.call("builder", work.unbuildable, engine)).value
    making = Making(settled, place, steps)
    made = yield from making.rung(settled.recipe.rungs[0])
    given = replace(making.given, run=run / _ENGINES)
    yield from steps.call("kit", work.kit, engine, made.model, run / _KIT, given)
    if unbuilt:
        return _Made(made.stages, unbuilt=unbuilt)
    try:
        arguments, more_s = (engine, made.model, run / _ENGINES, given), work.build_more_s(limits)
        built = (yield from steps.call("build", work.build, *arguments, more_s=more_s)).value
    except RungError as error:
        return _Made(made.stages, refused=str(error))
    workspace.write_text(run / _ENGINES / "load.py", snippet(built.artifacts[0]))
    return _Made(made.stages, built.artifacts)


def _swap(run: Path, final: Path) -> None:
    """Put what was built in the place of what an earlier build left, `engine.json` last; engines only by engines."""
    final.mkdir(exist_ok=True)
    shutil.rmtree(final / _KIT, ignore_errors=True)
    (run / _KIT).replace(final / _KIT)
    if not (run / _ENGINES).is_dir():
        return
    for old in (final / record.FILE, *final.glob("model.*.engine")):
        old.unlink(missing_ok=True)
    for new in sorted((run / _ENGINES).iterdir(), key=lambda path: path.name == record.FILE):
        target = final / new.name
        if target.is_dir():
            shutil.rmtree(target)
        new.replace(target)


def _job(job: Job, engine: Tensorrt) -> Job:
    """Let the stages be those that the precision needs; who builds is settled later, as it may be nobody here."""
    stages: tuple[Stage, ...] = (Quantize(), Fuse()) if engine.precision == "int8" else (Fuse(),)
    update = {
        "engine": Auto(),
        "target": "tensorrt",
        "rungs": (Rung(name="engine", stages=stages),),
        "registry": Registry(uri="none"),
        "baseline": None,
    }
    return replace(job, recipe=job.recipe.model_copy(update=update), profiles=engine.profiles)
