"""Engines without a climb: a model as it is, or made INT8, built for devices, and a kit for where nobody builds here.

What else is written beside the engines is a step of `build`.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from compressor import workspace
from compressor.engines import Auto, Tensorrt
from compressor.errors import InputError, MachineError, RungError
from compressor.formats import snippet
from compressor.pipeline import work
from compressor.pipeline.climb import candidate
from compressor.pipeline.run import Request, prepare
from compressor.pipeline.steps import Steps
from compressor.plan import Job
from compressor.recipe import Rung
from compressor.records import Artifact, Work
from compressor.registry import Registry
from compressor.stages import Fuse, Quantize, Stage

_KIT = "kit"
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
    settled = yield from prepare(Request(_job(job, engine), verbose=verbose))
    engine = engine.fitted(settled.model.inputs, (settled.shapes, *(point.shapes for point in settled.points)))
    folder = job.reports.absolute() / workspace.file_name(settled.model.path.stem)
    steps = Steps(settled.recipe.limits, verbose=verbose)
    try:
        made = yield from candidate(settled, folder, verbose=verbose)
        given = work.given(settled, folder)
        kit = (yield from steps.call("kit", work.kit, engine, made.model, folder / _KIT, given)).value
        artifacts: tuple[Artifact, ...] = ()
        unbuilt = None
        try:
            arguments = (engine, made.model, folder, given)
            artifacts = (yield from steps.call("build", work.build, *arguments)).value.artifacts
        except MachineError as error:
            unbuilt = str(error)
        except RungError as error:
            raise RungError(f"{job.model}: {error}; the kit is in {kit}") from error
    finally:
        shutil.rmtree(folder / work.SCRATCH, ignore_errors=True)
    for artifact in artifacts:
        workspace.write_text(folder / "load.py", snippet(artifact))
    did = tuple(f"{stage.stage}: {stage.did}" for stage in made.stages)
    warnings = (_MADE_UP,) if settled.calibration.source.synthetic else ()
    return Engines(folder, artifacts, kit, did, (*warnings, *engine.derived(job.recipe.engine)), unbuilt)


def _job(job: Job, engine: Tensorrt) -> Job:
    """Let the stages be those that the precision needs; who builds is settled later, as it may be nobody here."""
    stages: tuple[Stage, ...] = (Quantize(), Fuse()) if engine.precision == "int8" else (Fuse(),)
    update = {
        "engine": Auto(),
        "target": "tensorrt",
        "rungs": (Rung(name="engine", stages=stages),),
        "registry": Registry(uri="none"),
    }
    return replace(job, recipe=job.recipe.model_copy(update=update))
