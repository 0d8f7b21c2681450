"""The climb: baseline first, then rung after rung, each from the untouched model, each a `Trial`.

A new step of a rung is a method of `_Climb`, in the order in which the steps happen.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from compressor import runtime
from compressor.engines import Settled
from compressor.errors import RungError, Stopped, refused
from compressor.isolation import Nursery
from compressor.pipeline import choose, work
from compressor.pipeline.built import Assembly
from compressor.pipeline.judge import previous
from compressor.pipeline.making import Making, Place
from compressor.pipeline.steps import Steps
from compressor.pipeline.trying import Base, Trying
from compressor.plan import Plan
from compressor.recipe import BASELINE, Rung
from compressor.records import Failure, Model, Progress, Served, Trial, Work

Climb = Generator[Progress | Trial, None, "Climbed"]


@dataclass(frozen=True)
class Climbed:
    """The trials of a climb, and the rungs with every choice written out; `ended`: what ended it before its time."""

    baseline: Trial
    trials: tuple[Trial, ...]
    rungs: tuple[Rung, ...]
    warnings: tuple[str, ...] = ()
    ended: BaseException | None = None
    champion: Served | None = None


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
        self.trying = Trying(plan, place, self.steps)
        self.making = Making(plan, place, self.steps)
        self.trials: list[Trial] = []  # the baseline's first
        self.now = BASELINE
        self.ended: BaseException | None = None

    def all(self, *, every: bool) -> Generator[Progress | Trial, None, None]:
        """Climb rung after rung until one is enough, or to the top; only then the original meets the champion."""
        yield from self.trying.challenged()
        base = yield from self.baseline()
        yield self.known(base.trial)
        yield from self.rungs(base, every=every)
        if not any(map(choose.passed, self.trials[1:])):
            quality, timed = (base.quality, base.quality), self.trying.timed()
            self.trials[0] = yield from self.trying.contested(base.trial, base.built, quality, timed=timed)

    def rungs(self, base: Base, *, every: bool) -> Generator[Progress | Trial, None, None]:
        """Try the rungs in their order."""
        for rung in self.plan.recipe.rungs:
            if _needs_evaluation(rung) and choose.lacks_evaluation(self.trials):
                return
            undecided = any(map(choose.undecided, self.trials[1:]))
            if _needs_evaluation(rung) and not every and not self.trying.timed(rung.engine) and undecided:
                return  # nothing here can say that less is not enough
            self.now = rung.name
            try:
                trial = yield from self.rung(rung, base)
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
        warnings = (*self.making.keep.warnings, *self.trying.warnings)
        rungs = self.making.resolved()
        return Climbed(base, tuple(trials), rungs, warnings, self.ended, self.trying.served)

    def baseline(self) -> Work[Base]:
        """Measure and score the original."""
        asked = self.trying.settled(self.plan.recipe.engine)
        made = yield from self.build(BASELINE, self.plan.model, asked.plain(self.plan.environment.cpus_usable))
        return (yield from self.trying.baseline(made))

    def rung(self, rung: Rung, base: Base) -> Work[Trial]:
        """Make, build and try one rung."""
        candidate = yield from self.making.rung(rung)
        engine = self.trying.settled(rung.engine or self.plan.recipe.engine)
        made = yield from self.build(rung.name, candidate.model, engine)
        before, timed = previous(self.trials), self.trying.timed(rung.engine)
        return (yield from self.trying.rung(rung.name, (candidate, made), base, before, timed=timed))

    def build(self, rung: str, model: Model, engine: Settled) -> Work[Assembly]:
        """Write the artifacts."""
        arguments = (engine, model, self.run / "artifacts" / rung, self.making.given)
        more_s = work.build_more_s(self.plan.recipe.limits)
        return (yield from self.steps.call(f"{rung}: build", work.build, *arguments, more_s=more_s)).value


def _needs_evaluation(rung: Rung) -> bool:
    return any(stage.needs_evaluation for stage in rung.stages)


def _failed(rung: str, step: str, reason: str) -> Trial:
    return Trial(rung, failure=Failure(step.removeprefix(f"{rung}: ") or "start", reason))
