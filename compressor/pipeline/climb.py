"""The climb: baseline first, then rung after rung, each from the untouched model, each a `Trial`.

A new step of a rung is a method of `_Climb`, in the order in which the steps happen.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from compressor import gates, runtime, score
from compressor.engines import Engine, Onnxruntime, Settled, Tensorrt
from compressor.errors import RungError
from compressor.isolation import Returned
from compressor.pipeline import choose, measuring, work
from compressor.pipeline import quality as judging
from compressor.pipeline.built import Assembly, Built
from compressor.pipeline.quality import Quality, Scoring
from compressor.pipeline.search import Outcome, Search, left, searched
from compressor.pipeline.steps import Steps
from compressor.pipeline.work import Made
from compressor.plan import Plan
from compressor.recipe import BASELINE, Rung
from compressor.records import (
    Applied,
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

Climb = Generator[Progress | Trial, None, "Climbed"]
_Chain = tuple[Engine, tuple[Stage, ...]]
_Found = tuple[Quality | None, Measurement | None]
_UNMEASURED = (
    "not measured: no such device is here; prove it where it will serve, or ask for `measure: cpu-proxy`, which "
    "measures the graph on this CPU"
)


@dataclass(frozen=True)
class Climbed:
    """The trials of a climb, and the rungs with every choice written out."""

    baseline: Trial
    trials: tuple[Trial, ...]
    rungs: tuple[Rung, ...]


@dataclass(frozen=True)
class Base:
    """The baseline as the rungs need it: its trial, its artifact, its quality."""

    trial: Trial
    built: Built
    quality: Quality | None


def climb(plan: Plan, run: Path, *, every: bool, verbose: bool) -> Climb:
    """Yield each trial once it is judged; return all of them.

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
        trial = _failed(BASELINE, climbing.steps.now, error)
        yield trial
        return Climbed(trial, (), plan.recipe.rungs)
    yield base.trial
    trials: list[Trial] = []
    for rung in plan.recipe.rungs:
        if _needs_evaluation(rung) and choose.lacks_evaluation((base.trial, *trials)):
            break
        if _needs_evaluation(rung) and not every and not climbing.timed(rung) and any(map(choose.undecided, trials)):
            break  # nothing here can say that less is not enough
        try:
            trial = yield from climbing.rung(rung, base, _previous(base.trial, trials))
        except RungError as error:
            trial = _failed(rung.name, climbing.steps.now, error)
        trials.append(trial)
        yield trial
        if choose.passed(trial) and not every:
            break
    return Climbed(base.trial, tuple(trials), climbing.resolved())


def candidate(plan: Plan, run: Path, *, verbose: bool) -> Work[Candidate]:
    """Give what the stages of the first rung make of the model, and measure nothing."""
    return (yield from _Climb(plan, run, verbose=verbose).make(plan.recipe.rungs[0]))


class _Climb:
    """The steps of one climb over one plan."""

    def __init__(self, plan: Plan, run: Path, *, verbose: bool) -> None:
        self.plan, self.run = plan, run
        self.scratch = run / work.SCRATCH
        environment = runtime.custom_ops.environment(plan.recipe.custom_ops)
        self.steps = Steps(plan.recipe.limits, verbose=verbose, environment=environment)
        self.scene = replace(measuring.scene(plan, run), raw=run / "raw")
        self.scoring = _scoring(plan)
        self.given = work.given(plan, run)
        self.seen: dict[tuple[object, ...], _Found] = {}
        self.float: Candidate | None = None  # the normalised original
        self.made: dict[_Chain, tuple[Stage, Candidate]] = {}  # what a rung's first stages made serves the next rung

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
        candidate = yield from self.make(rung)
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

    def make(self, rung: Rung) -> Work[Candidate]:
        """Apply the rung's stages to the normalised original."""
        candidate = yield from self.normalised()
        for chain in self._chains(rung):
            if chain not in self.made:
                self.made[chain] = yield from self.applied(rung, chain[1][-1], candidate)
            _, candidate = self.made[chain]
        return candidate

    def normalised(self) -> Work[Candidate]:
        """Normalise the original, once a climb."""
        if self.float is None:
            step = yield from self.steps.call("normalise", work.normalise, self.given, self._out("normalised"))
            self.float = Candidate(step.value.model, (work.applied(gates.NORMALISE, {}, step),))
        return self.float

    def applied(self, rung: Rung, stage: Stage, before: Candidate) -> Work[tuple[Stage, Candidate]]:
        """Apply one stage, in the best of the ways that it leaves open; give it with nothing left open."""
        *ways, last = yield from self._ways(rung.name, stage, before.model)
        outcome = (yield from searched(self.steps, ways, self._search(rung, before))) if ways else Outcome()
        if outcome.taken:
            settled, step = outcome.taken.stage, outcome.taken.step
        else:
            settled, step = yield from self._applied(rung.name, last, before)
            step = left(step, outcome) if ways else step
        made = step.value
        did = replace(work.applied(work.name(stage), work.settings(settled), step), tried=outcome.tried)
        if made.audit and made.audit.integer_nodes:
            did = yield from self._profiled(rung.name, before.model, made, did)
        model = made.model
        if model.macs is None:  # shapes cannot be inferred past some integer operators; they change no MACs
            model = replace(model, macs=before.model.macs)
        return settled, Candidate(model, (*before.stages, did))

    def settled(self, engine: Engine) -> Settled:
        """Give an engine with nothing left open."""
        return engine.resolve(self.plan.environment.cpus_usable)

    def timed(self, rung: Rung | None = None) -> bool:
        """Tell whether there is something here to measure a rung with, or the baseline, which it is held against."""
        engines = (self.plan.recipe.engine, rung.engine if rung else None)
        return all(self.settled(engine).is_timed() for engine in engines if engine)

    def build(self, rung: str, model: Model, engine: Settled) -> Work[Assembly]:
        """Write the artifacts."""
        folder = self.run / "artifacts" / rung
        return (yield from self.steps.call(f"{rung}: build", work.build, engine, model, folder, self.given)).value

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

    def resolved(self) -> tuple[Rung, ...]:
        """Give the recipe's rungs with the choices that were made while climbing written out."""
        return tuple(rung.model_copy(update={"stages": self._settled(rung)}) for rung in self.plan.recipe.rungs)

    def _ways(self, rung: str, stage: Stage, before: Model) -> Work[tuple[Stage, ...]]:
        if not stage.open:
            return (stage,)
        arguments = (stage, before, self.plan.scheme)
        return (yield from self.steps.call(f"{rung}: {work.name(stage)}", work.candidates, *arguments)).value

    def _profiled(self, rung: str, before: Model, made: Made, did: Applied) -> Work[Applied]:
        """Add what operators take, which is good to know and not worth a rung."""
        try:
            arguments = (before, made, self.given.supply)
            audit = yield from self.steps.call(f"{rung}: profile", work.profiled, *arguments)
        except RungError as error:
            return replace(did, notes=(*did.notes, f"operators could not be timed: {error}"))
        return replace(did, audit=audit.value)

    def _applied(self, rung: str, stage: Stage, before: Candidate) -> Work[tuple[Stage, Returned[Made]]]:
        name = work.name(stage)
        out = self._out(f"{rung}-{len(before.stages)}-{name}")
        arguments = (stage, before.model, self.given, out)
        step = yield from self.steps.call(f"{rung}: {name}", work.apply, *arguments, more_s=work.longest_s(stage))
        return stage.model_copy(update=dict(step.value.did.settled)), step

    def _search(self, rung: Rung, before: Candidate) -> Search:
        engine = self.settled(rung.engine or self.plan.recipe.engine)
        if isinstance(engine, Tensorrt):  # ways are looked at as graphs, on the CPU
            engine = Onnxruntime().resolve(self.plan.environment.cpus_usable)
        return Search(
            rung=rung.name,
            before=before.model,
            engine=engine,
            given=self.given,
            scratch=self.scratch / "ways",
            seed=self.plan.recipe.seed,
            saturates=self.plan.environment.saturates,
            timed=self.plan.scheme.here,
            small=any(isinstance(gate, gates.Size) for gate in self.plan.recipe.gates),
        )

    def _settled(self, rung: Rung) -> tuple[Stage, ...]:
        chains = zip(self._chains(rung), rung.stages, strict=True)
        return tuple(self.made[chain][0] if chain in self.made else stage for chain, stage in chains)

    def _chains(self, rung: Rung) -> tuple[_Chain, ...]:
        """Name what each stage of a rung makes by all that it depends on; which way wins depends on the engine."""
        engine = rung.engine or self.plan.recipe.engine
        return tuple((engine, rung.stages[: last + 1]) for last in range(len(rung.stages)))

    def _out(self, name: str) -> Path:
        folder = self.scratch / name
        folder.mkdir(parents=True)
        return folder / "model.onnx"


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


def _failed(rung: str, step: str, error: RungError) -> Trial:
    return Trial(rung, failure=Failure(step.removeprefix(f"{rung}: "), str(error)))
