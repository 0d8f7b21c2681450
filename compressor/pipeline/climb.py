"""The climb: baseline first, then rung after rung, each from the untouched model, each a `Trial`.

A new step of a rung is a method of `_Climb`, in the order in which the steps happen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, overload

from compressor import gates, isolation, units
from compressor.bench.measure import Experiment
from compressor.engines import Engine
from compressor.errors import RungError
from compressor.isolation import Returned
from compressor.pipeline import choose, work
from compressor.pipeline.work import Built, Given, Quality, Scoring
from compressor.plan import Plan
from compressor.recipe import BASELINE, Rung
from compressor.records import (
    Artifact,
    Candidate,
    Failure,
    Measurement,
    Model,
    Progress,
    Size,
    Trial,
    Work,
)
from compressor.stages import Stage

T = TypeVar("T")
Climb = Generator[Progress | Trial, None, tuple[Trial, tuple[Trial, ...]]]

_MOST_SAMPLES = 100_000
"""A measurement ends by `limits.measure` long before, except for models of microseconds."""


@dataclass(frozen=True)
class Base:
    """The baseline as the rungs need it: its trial, its artifact, its quality."""

    trial: Trial
    built: Built
    quality: Quality | None


def climb(plan: Plan, run: Path, *, every: bool, verbose: bool) -> Climb:
    """Yield each trial once it is judged; return the baseline's and the rungs' trials.

    Args:
        plan: What to do, with nothing left open.
        run: The run's folder.
        every: Climb on past a rung that meets every gate.
        verbose: Let vendors print.
    """
    climbing = _Climb(plan, run, verbose=verbose)
    try:
        base = yield from climbing.baseline()
    except RungError as error:
        trial = _failed(BASELINE, climbing.step, error)
        yield trial
        return trial, ()
    yield base.trial
    trials: list[Trial] = []
    for rung in plan.recipe.rungs:
        if _needs_evaluation(rung) and choose.lacks_evaluation((base.trial, *trials)):
            break
        try:
            trial = yield from climbing.rung(rung, base, _previous(base.trial, trials))
        except RungError as error:
            trial = _failed(rung.name, climbing.step, error)
        trials.append(trial)
        yield trial
        if choose.passed(trial) and not every:
            break
    return base.trial, tuple(trials)


class _Climb:
    """The steps of one climb over one plan."""

    def __init__(self, plan: Plan, run: Path, *, verbose: bool) -> None:
        self.plan, self.run, self.verbose = plan, run, verbose
        self.scratch = run / ".work"
        self.step = ""  # where an error happened
        self.scoring = _scoring(plan)
        self.given = Given(plan.model, plan.shapes, plan.calibration, run, plan.steady)
        self.measured: dict[tuple[object, ...], tuple[Quality | None, Measurement]] = {}
        self.made: dict[tuple[Stage, ...], Candidate] = {}  # what a rung's first stages made serves the next rung too

    def baseline(self) -> Work[Base]:
        """Measure and score the original."""
        built = yield from self.build(BASELINE, self.plan.model, self.plan.recipe.engine)
        quality = yield from self.quality(BASELINE, built, None)
        measurement = yield from self.measure(BASELINE, (built,), quality)
        trial = self.trial(BASELINE, Candidate(self.plan.model), _noted(built, quality), measurement)
        return Base(self.judged(trial, None, None), built, quality)

    def rung(self, rung: Rung, base: Base, previous: Trial) -> Work[Trial]:
        """Make, build, score, measure and judge one rung."""
        candidate = yield from self.make(rung)
        built = yield from self.build(rung.name, candidate.model, rung.engine or self.plan.recipe.engine)
        same = self.measured.get(_content(built.artifact))
        if same is None:
            quality = yield from self.quality(rung.name, built, base.quality)
            measurement = yield from self.measure(rung.name, (base.built, built), quality)
        else:  # measured again, the same bytes would only seem to differ
            quality, measurement = same
        self.measured[_content(built.artifact)] = quality, measurement
        uncalibrated = any(stage.uncalibrated for stage in candidate.stages)
        artifact = _noted(built, quality, uncalibrated=uncalibrated)
        trial = self.trial(rung.name, candidate, artifact, measurement)
        return self.judged(trial, base.trial, previous)

    def make(self, rung: Rung) -> Work[Candidate]:
        """Apply the rung's stages to the normalised original."""
        candidate = yield from self.normalised()
        for last in range(len(rung.stages)):
            chain = rung.stages[: last + 1]
            if chain not in self.made:
                self.made[chain] = yield from self.applied(rung.name, chain[-1], candidate)
            candidate = self.made[chain]
        return candidate

    def normalised(self) -> Work[Candidate]:
        """Normalise the original, once a climb."""
        if () not in self.made:
            out = self._out("normalised")
            step = yield from self.call("normalise", work.normalise, self.given, out)
            made = step.value
            did = work.applied(gates.NORMALISE, {}, step)
            self.made[()] = Candidate(made.model, (did,))
        return self.made[()]

    def applied(self, rung: str, stage: Stage, before: Candidate) -> Work[Candidate]:
        """Apply one stage in a child."""
        name = type(stage).__name__.lower()
        out = self._out(f"{rung}-{len(before.stages)}-{name}")
        step = yield from self.call(f"{rung}: {name}", work.apply, stage, before.model, self.given, out)
        did = work.applied(name, stage.model_dump(mode="json", exclude_none=True), step)
        model = step.value.model
        if model.macs is None:  # shapes cannot be inferred past some integer operators; they change no MACs
            model = replace(model, macs=before.model.macs)
        return Candidate(model, (*before.stages, did))

    def build(self, rung: str, model: Model, engine: Engine) -> Work[Built]:
        """Write the artifact."""
        folder = self.run / "artifacts" / rung
        settled = engine.resolve(self.plan.environment.cpus_usable)
        return (yield from self.call(f"{rung}: build", work.build, settled, model, folder, self.run)).value

    def quality(self, rung: str, built: Built, before: Quality | None) -> Work[Quality | None]:
        """Score an artifact on the evaluation samples, beside the baseline's outputs; None without samples."""
        if self.scoring is None:
            return None
        arguments = (
            built,
            self.scoring,
            before.outputs if before else None,
            self.given,
            self.scratch / f"{rung}-outputs",
        )
        return (yield from self.call(f"{rung}: score", work.quality, *arguments)).value

    def measure(self, rung: str, built: tuple[Built, ...], quality: Quality | None) -> Work[Measurement]:
        """Measure start and memory in a fresh process, then latency beside the baseline."""
        start = yield from self.call(f"{rung}: start", work.start, built[-1], self.given)
        raw = self.run / "raw" / f"{rung}.npy"
        step = yield from self.call(f"{rung}: measure", work.measure, built, self.given, self._experiment(), raw)
        measured, begun = step.value, start.value
        return Measurement(
            size_bytes=sum(file.size_bytes for file in built[-1].artifact.files),
            latency=replace(measured.latency, load_ms=begun.load_ms, cold_ms=begun.cold_ms),
            throughput_per_s=measured.throughput_per_s,
            memory_bytes=start.peak_memory_bytes,
            score=quality.score if quality else None,
            speedup=measured.speedup,
        )

    def trial(self, rung: str, candidate: Candidate, artifact: Artifact, measurement: Measurement) -> Trial:
        """Put a rung's record together, not judged yet."""
        model = candidate.model
        size = Size(measurement.size_bytes, model.parameters, model.macs, model.nodes)
        return Trial(rung, candidate.stages, (artifact,), measurement, model=size)

    def judged(self, trial: Trial, baseline: Trial | None, previous: Trial | None) -> Trial:
        """Ask every gate of the recipe, then those that no recipe asks for."""
        before, now = (baseline.measurement if baseline else None), trial.measurement
        if now is None:
            return trial
        verdicts = [gate.judge(before, now) for gate in self.plan.recipe.gates]
        rivals = [rival for rival in (previous, baseline) if rival]
        return replace(trial, verdicts=(*verdicts, *gates.implicit(trial, rivals)))

    @overload
    def call(self, step: str, piece: Callable[..., Work[T]], *arguments: object) -> Work[Returned[T]]: ...
    @overload
    def call(self, step: str, piece: Callable[..., T], *arguments: object) -> Work[Returned[T]]: ...
    def call(self, step: str, piece: Callable[..., Any], *arguments: object) -> Work[Returned[Any]]:
        """Run a piece of work in a child, its progress under the name of the step."""
        limits = self.plan.recipe.limits
        if piece is work.measure:
            limits = limits.model_copy(update={"seconds": limits.seconds + math.ceil(limits.measure)})
        called = isolation.call(piece, *arguments, limits=limits, verbose=self.verbose)
        self.step = step
        yield Progress(step)
        try:
            while True:
                progress = next(called)
                yield replace(progress, step=step if progress.step in step else f"{step}, {progress.step}")
        except StopIteration as stop:
            returned: Returned[Any] = stop.value
            return returned

    def _out(self, name: str) -> Path:
        folder = self.scratch / name
        folder.mkdir(parents=True)
        return folder / "model.onnx"

    def _experiment(self) -> Experiment:
        recipe = self.plan.recipe
        targets = tuple(gate.target() for gate in recipe.gates if isinstance(gate, gates.Latency))
        shape = {name: units.write_shape(dims) for name, dims in self.plan.shapes.items()}
        return Experiment(recipe.load, targets, recipe.limits.measure, recipe.seed, shape, max_samples=_MOST_SAMPLES)


def _scoring(plan: Plan) -> Scoring | None:
    if plan.evaluation is None or plan.metric is None:
        return None
    return Scoring(plan.metric, plan.evaluation, plan.recipe.seed, plan.environment.saturates)


def _needs_evaluation(rung: Rung) -> bool:
    return any(stage.needs_evaluation for stage in rung.stages)


def _previous(baseline: Trial, trials: list[Trial]) -> Trial:
    """Give the last rung that was measured and not slower itself: two slow rungs do not make each other fast."""
    return next((trial for trial in reversed(trials) if trial.measurement and not _is_slower(trial)), baseline)


def _is_slower(trial: Trial) -> bool:
    return any(verdict.gate == gates.REGRESSION for verdict in trial.verdicts)


def _content(artifact: Artifact) -> tuple[object, ...]:
    """Give what tells one artifact from another: its bytes and how they are run."""
    return tuple(file.sha256 for file in artifact.files), tuple(sorted(artifact.options.items()))


def _noted(built: Built, quality: Quality | None, *, uncalibrated: bool = False) -> Artifact:
    """Note on the artifact what its user must know: made-up ranges, and outputs that no score covers."""
    made_up = ("uncalibrated: the ranges of its activations come from made-up inputs",) if uncalibrated else ()
    left_out = quality.outputs.left_out if quality else {}
    unscored = (f"output {name!r} is not scored: {why}" for name, why in left_out.items())
    return replace(built.artifact, notes=(*made_up, *unscored))


def _failed(rung: str, step: str, error: RungError) -> Trial:
    return Trial(rung, failure=Failure(step.removeprefix(f"{rung}: "), str(error)))
