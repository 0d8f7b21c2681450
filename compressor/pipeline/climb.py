"""The climb: baseline first, then rung after rung, each from the untouched model, each a `Trial`.

A new step of a rung is a method of `_Climb`, in the order in which the steps happen.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

from compressor import gates, runtime, score
from compressor.engines import Engine, Settled, Tensorrt
from compressor.errors import RungError, Stopped, refused
from compressor.isolation import Nursery
from compressor.pipeline import choose, measuring, work
from compressor.pipeline import quality as judging
from compressor.pipeline.built import Assembly, Built
from compressor.pipeline.making import Making, Place
from compressor.pipeline.quality import Quality, Scoring
from compressor.pipeline.steps import Steps
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

Climb = Generator[Progress | Trial, None, "Climbed"]
_Found = tuple[Quality | None, Measurement | None]
_UNMEASURED = (
    "not measured: no such device is here; prove it where it will serve, or ask for `measure: cpu-proxy`, which "
    "measures the graph on this CPU"
)


@dataclass(frozen=True)
class Climbed:
    """The trials of a climb, and the rungs with every choice written out; `ended`: what ended it before its time."""

    baseline: Trial
    trials: tuple[Trial, ...]
    rungs: tuple[Rung, ...]
    warnings: tuple[str, ...] = ()
    ended: BaseException | None = None


@dataclass(frozen=True)
class Base:
    """The baseline as the rungs need it: its trial, its artifact, its quality."""

    trial: Trial
    built: Built
    quality: Quality | None


def climb(plan: Plan, place: Place, *, every: bool, verbose: bool, nursery: Nursery | None = None) -> Climb:
    """Yield each trial once it is judged; return all of them, also where something ends the climb before its time.

    Args:
        plan: What to do, with nothing left open.
        place: Where to work.
        every: Climb on past a rung that meets every gate.
        verbose: Let vendors print.
        nursery: Where the children come from; each is fresh without one.
    """
    climbing = _Climb(plan, place, verbose=verbose, nursery=nursery)
    try:
        yield from climbing.all(every=every)
    except (Exception, Stopped) as error:  # noqa: BLE001 - it is raised again once what was done is reported
        climbing.cut(error)
    return climbing.climbed()


def why(error: BaseException) -> str:
    """Say in a sentence what ended a climb before its time."""
    if isinstance(error, Stopped):
        return error.why
    return str(error).strip().rpartition("\n")[2] or type(error).__name__


class _Climb:
    """The steps of one climb over one plan."""

    def __init__(self, plan: Plan, place: Place, *, verbose: bool, nursery: Nursery | None = None) -> None:
        self.plan, self.run, self.scratch = plan, place.run, place.scratch
        environment = runtime.custom_ops.environment(plan.recipe.custom_ops)
        self.steps = Steps(plan.recipe.limits, verbose=verbose, environment=environment, nursery=nursery)
        self.scene = replace(measuring.scene(plan, place.run), raw=place.run / "raw")
        self.scoring = _scoring(plan)
        self.making = Making(plan, place, self.steps)
        self.seen: dict[tuple[object, ...], _Found] = {}
        self.trials: list[Trial] = []  # the baseline's first
        self.now = BASELINE
        self.ended: BaseException | None = None

    def all(self, *, every: bool) -> Generator[Progress | Trial, None, None]:
        """Climb rung after rung until one is enough, or to the top."""
        base = yield from self.baseline()
        yield self.known(base.trial)
        for rung in self.plan.recipe.rungs:
            if _needs_evaluation(rung) and choose.lacks_evaluation(self.trials):
                return
            undecided = any(map(choose.undecided, self.trials[1:]))
            if _needs_evaluation(rung) and not every and not self.timed(rung) and undecided:
                return  # nothing here can say that less is not enough
            self.now = rung.name
            try:
                trial = yield from self.rung(rung, base, _previous(base.trial, self.trials[1:]))
            except RungError as error:
                trial = _failed(rung.name, self.steps.now, str(error))
            yield self.known(trial)
            if choose.passed(trial) and not every:
                return

    def known(self, trial: Trial) -> Trial:
        """Add a trial to those that the report will hold."""
        self.trials.append(trial)
        return trial

    def cut(self, error: BaseException) -> None:
        """End here: the rung that was under way was not built."""
        self.ended = (refused(error) if isinstance(error, OSError) else None) or error
        if self.now not in {trial.rung for trial in self.trials}:
            self.known(_failed(self.now, self.steps.now, why(self.ended)))

    def climbed(self) -> Climbed:
        """Give all that is known."""
        base, *trials = self.trials
        return Climbed(base, tuple(trials), self.making.resolved(), self.making.keep.warnings, self.ended)

    def baseline(self) -> Work[Base]:
        """Measure and score the original."""
        asked = self.settled(self.plan.recipe.engine)
        made = yield from self.build(BASELINE, self.plan.model, asked.plain(self.plan.environment.cpus_usable))
        if isinstance(asked, Tensorrt) and not asked.is_here():
            made = replace(made, proxy=asked.stand_in)
        quality = yield from self.quality(BASELINE, made.runs, None)
        measurement = (yield from self.measurement(BASELINE, (made.runs,), quality)) if self.timed() else None
        trial = self.trial(BASELINE, Candidate(self.plan.model), made, (quality, measurement))
        return Base(self.judged(trial, None, ()), made.runs, quality)

    def rung(self, rung: Rung, base: Base, previous: Trial) -> Work[Trial]:
        """Make, build, score, measure and judge one rung."""
        candidate = yield from self.making.rung(rung)
        made = yield from self.build(rung.name, candidate.model, self.settled(rung.engine or self.plan.recipe.engine))
        key = (*_content(made.runs.artifact), self.timed(rung))
        found = self.seen.get(key)
        if found is None:  # else: measured again, the same bytes would only seem to differ
            quality = yield from self.quality(rung.name, made.runs, base.quality)
            pair = (base.built, made.runs)
            timed = self.timed(rung)
            found = quality, (yield from self.measurement(rung.name, pair, quality)) if timed else None
        self.seen[key] = found
        trial = self.trial(rung.name, candidate, made, found)
        return self.judged(trial, base.trial, (previous, base.trial))

    def settled(self, engine: Engine) -> Settled:
        """Give an engine with nothing left open."""
        return engine.resolve(self.plan.environment.cpus_usable)

    def timed(self, rung: Rung | None = None) -> bool:
        """Tell whether there is something here to measure a rung with, or the baseline, which it is held against."""
        engines = (self.plan.recipe.engine, rung.engine if rung else None)
        return all(self.settled(engine).is_timed() for engine in engines if engine)

    def build(self, rung: str, model: Model, engine: Settled) -> Work[Assembly]:
        """Write the artifacts."""
        arguments = (engine, model, self.run / "artifacts" / rung, self.making.given)
        more_s = work.build_more_s(self.plan.recipe.limits)
        return (yield from self.steps.call(f"{rung}: build", work.build, *arguments, more_s=more_s)).value

    def quality(self, rung: str, built: Built, before: Quality | None) -> Work[Quality | None]:
        """Score an artifact on the evaluation samples, beside the baseline's outputs; None without samples."""
        if self.scoring is None:
            return None
        outputs = before.outputs if before else None
        arguments = (built, self.scoring, outputs, self.run, self.scratch / f"{rung}-outputs")
        return (yield from self.steps.call(f"{rung}: score", judging.quality, *arguments)).value

    def measurement(self, rung: str, built: tuple[Built, ...], quality: Quality | None) -> Work[Measurement]:
        """Measure start and memory in fresh processes, then latency beside the baseline."""
        found = yield from measuring.measurement(self.steps, rung, built, self.scene)
        return replace(found, score=quality.score, errors=quality.errors) if quality else found

    def trial(self, rung: str, candidate: Candidate, made: Assembly, found: _Found) -> Trial:
        """Put a rung's record together, not judged yet."""
        model, (quality, measurement) = candidate.model, found
        notes = tuple(_notes(candidate, quality))
        artifacts = tuple(replace(one, notes=(*one.notes, *notes)) for one in made.artifacts)
        size = Size(made.size_bytes, model.parameters, model.macs, model.nodes)
        if measurement is None:
            score, errors = (quality.score, quality.errors) if quality else (None, {})
            return Trial(rung, candidate.stages, artifacts, model=size, score=score, errors=errors)
        measurement = replace(measurement, size_bytes=made.size_bytes, proxy=made.proxy)
        return Trial(rung, candidate.stages, artifacts, measurement, model=size)

    def judged(self, trial: Trial, baseline: Trial | None, rivals: tuple[Trial, ...]) -> Trial:
        """Ask every gate of the recipe, then those that no recipe asks for."""
        verdicts = tuple(gate.judge(baseline, trial) for gate in self.plan.recipe.gates)
        if trial.measurement is None:
            verdicts = gates.unmeasured(verdicts, _UNMEASURED)
        elif trial.measurement.proxy:
            verdicts, rivals = gates.proxied(verdicts, trial.measurement.proxy), ()  # who is slower here is another
        if self.plan.scheme.here or isinstance(self.plan.recipe.engine, Tensorrt):
            return replace(trial, verdicts=(*verdicts, *gates.implicit(trial, rivals)))
        asked = gates.elsewhere(verdicts, self.plan.scheme.name)
        return replace(trial, verdicts=(*asked, *gates.implicit(trial, ())))  # who is slower here says nothing of there


def _scoring(plan: Plan) -> Scoring | None:
    if plan.evaluation is None or plan.metric is None:
        return None
    wanted = score.Wanted(plan.metric, plan.recipe.seed, plan.recipe.data.alphabet)
    return Scoring(wanted, plan.evaluation, plan.environment.saturates, plan.steady, exact=not plan.scheme.here)


def _needs_evaluation(rung: Rung) -> bool:
    return any(stage.needs_evaluation for stage in rung.stages)


def _previous(baseline: Trial, trials: list[Trial]) -> Trial:
    """Give the last rung that was measured and not slower itself: two slow rungs do not make each other fast."""
    return next((trial for trial in reversed(trials) if trial.is_built and not _is_slower(trial)), baseline)


def _is_slower(trial: Trial) -> bool:
    return any(verdict.gate == gates.REGRESSION for verdict in trial.verdicts)


def _content(artifact: Artifact) -> tuple[object, ...]:
    """Give what tells one artifact from another: its bytes and how they are run."""
    return tuple(file.sha256 for file in artifact.files), tuple(sorted(artifact.options.items()))


def _notes(candidate: Candidate, quality: Quality | None) -> Iterator[str]:
    """Note what the user of an artifact must know: made-up ranges, and outputs that no score covers."""
    if any(stage.uncalibrated for stage in candidate.stages):
        yield "uncalibrated: the ranges of its activations come from made-up inputs"
    left_out = quality.outputs.left_out if quality else {}
    yield from (f"output {name!r} is not scored: {why}" for name, why in left_out.items())


def _failed(rung: str, step: str, reason: str) -> Trial:
    return Trial(rung, failure=Failure(step.removeprefix(f"{rung}: ") or "start", reason))
