"""The pieces of work that run in children: each opens what it needs, returns records and paths, and ends.

A new piece of work is a module-level function here whose arguments and result can be pickled.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from compressor import graph, runtime, score
from compressor.bench import measure as bench
from compressor.engines import Onnxruntime
from compressor.errors import InputError, RungError
from compressor.isolation import Returned
from compressor.records import Applied, Artifact, Audit, Did, Model, Score, Session, Shapes, Work
from compressor.samples import Samples
from compressor.stages import Stage

_SAME_DB = 40.0
"""Rounding leaves over 100 dB in float32 and about 55 in float16; a wrong graph is below 20."""
_COMPARED = 16
"""Samples over which SQNR is taken after each stage."""
_FEEDS = 16
"""Different samples that a measurement cycles through."""


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
    samples: Samples
    run: Path
    steady: bool  # the original agrees with itself when it is run twice


@dataclass(frozen=True)
class Built:
    """An artifact with the engine that opens it."""

    engine: Onnxruntime
    artifact: Artifact

    def open(self, run: Path) -> Session:
        """Load it exactly as it is to be served."""
        return self.engine.open(self.artifact, run)


@dataclass(frozen=True)
class Scoring:
    """How quality is judged."""

    metric: str
    samples: Samples
    seed: int
    saturates: bool

    def score(self, before: score.Recorded, now: score.Recorded) -> Score:
        """Score recorded outputs against the labels, or against the original's outputs."""
        return score.score(self.metric, before.open(), now.open(), self.samples.labels(), self.seed)


@dataclass(frozen=True)
class Quality:
    """What an artifact gave for the evaluation samples, and what that is worth."""

    outputs: score.Recorded
    score: Score


@dataclass(frozen=True)
class Start:
    """What a fresh process takes until its first answer."""

    load_ms: float
    cold_ms: float


def normalise(given: Given, out: Path) -> Work[Made]:
    """Make the float model that all stages start from, and hold it against the original by running both.

    Raises:
        RungError: Its outputs are not those of the original: nothing may be built on it.
    """
    did = graph.normalise(given.original.path, out)
    made = yield from _checked(given, did, out)
    for name, db in made.sqnr_db.items():
        if db < _SAME_DB and given.steady:
            raise RungError(f"the normalised model's output {name!r} differs from the original's ({db:.0f} dB)")
    return made


def apply(stage: Stage, model: Model, given: Given, out: Path) -> Work[Made]:
    """Apply one stage, and hold what it made against the original."""
    did = yield from stage.apply(model, given.samples, out)
    made = yield from _checked(given, did, out)
    return replace(made, audit=runtime.audit(out, runtime.options(1, spinning=False), did.excluded))


def build(engine: Onnxruntime, model: Model, folder: Path, run: Path) -> Built:
    """Turn a model into the files that a server loads."""
    return Built(engine, engine.build(model, folder, run))


def start(built: Built, given: Given) -> Start:
    """Load an artifact and answer once; this process does nothing else, so its peak memory is the artifact's."""
    feeds = next(iter(given.samples))
    runtime.providers()  # importing ONNX Runtime is no part of loading a model
    begin = time.perf_counter()
    session = built.open(given.run)
    loaded = time.perf_counter()
    session(feeds)
    return Start((loaded - begin) * 1e3, (time.perf_counter() - loaded) * 1e3)


def measure(built: tuple[Built, ...], given: Given, experiment: bench.Experiment, raw: Path) -> Work[bench.Measured]:
    """Measure the last of one or two artifacts, both loaded together; raw latencies go to `raw` (int64 ns)."""
    sessions = [one.open(given.run) for one in built]
    measured = yield from bench.measure(sessions, tuple(islice(given.samples, _FEEDS)), experiment)
    raw.parent.mkdir(exist_ok=True)
    np.save(raw, np.stack([timing.latencies_ns for timing in measured.timings]), allow_pickle=False)
    return replace(measured, timings=())


def quality(built: Built, scoring: Scoring, before: score.Recorded | None, given: Given, folder: Path) -> Work[Quality]:
    """Run an artifact over the evaluation samples and score it beside the baseline; by itself without `before`.

    Where this CPU's integer kernels can saturate, it is scored once more with exact integer arithmetic.

    Raises:
        InputError: The baseline is no better than guessing: a comparison with it would prove nothing.
    """
    recorded = yield from _recorded(built, scoring.samples, given.run, folder / "real")
    if before is None:
        return Quality(recorded, _baseline_score(scoring, recorded))
    found = _candidate_score(scoring, before, recorded)
    if scoring.saturates and graph.holds_qdq(given.run / built.artifact.files[0].path):
        exact = replace(built.artifact, options=runtime.emulated(built.artifact.options))
        ideal = yield from _recorded(replace(built, artifact=exact), scoring.samples, given.run, folder / "exact")
        found = replace(found, emulated=scoring.score(before, ideal).value)
    return Quality(recorded, found)


def applied(name: str, settings: Mapping[str, Any], step: Returned[Made]) -> Applied:
    """Say in the report's words what a stage did."""
    made, did = step.value, step.value.did
    audit = made.audit or (Audit(excluded=did.excluded) if did.excluded else None)
    return Applied(
        stage=name,
        settings=settings,
        did=did.what,
        seconds=step.seconds,
        peak_memory_bytes=step.peak_memory_bytes,
        sqnr_db=made.sqnr_db,
        audit=audit,
        changed=did.changed,
        uncalibrated=did.uncalibrated,
    )


def _recorded(built: Built, samples: Samples, run: Path, folder: Path) -> Work[score.Recorded]:
    folder.mkdir(parents=True)
    return (yield from score.outputs(built.open(run), samples, folder))


def _candidate_score(scoring: Scoring, before: score.Recorded, recorded: score.Recorded) -> Score:
    try:
        return scoring.score(before, recorded)
    except InputError as error:  # the metric took the baseline's outputs, so it is the candidate's that are wrong
        raise RungError(str(error)) from error


def _baseline_score(scoring: Scoring, recorded: score.Recorded) -> Score:
    if broken := score.broken(recorded.open()):
        raise InputError(f"the original model: {broken}; nothing can be compared with that: repair model or data")
    found, labels = scoring.score(recorded, recorded), scoring.samples.labels()
    if labels is not None and (doubt := score.near_chance(found, labels)):
        raise InputError(doubt)
    return replace(found, drop=None, drop_low=None, drop_high=None)


def _checked(given: Given, did: Did, out: Path) -> Work[Made]:
    try:
        model = graph.open_model(out, given.shapes)
    except InputError as error:  # of our own making, not the caller's
        raise RungError(f"the stage left no usable model: {error}") from error
    for side in ("inputs", "outputs"):
        if (now := _signature(model, side)) != (before := _signature(given.original, side)):
            raise RungError(f"the {side} would change from {before} to {now}")
    return Made(model, did, (yield from runtime.compare(given.original.path, out, islice(given.samples, _COMPARED))))


def _signature(model: Model, side: str) -> list[tuple[str, str]]:
    return [(tensor.name, tensor.dtype) for tensor in getattr(model, side)]
