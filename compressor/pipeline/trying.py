"""What is learnt of an artifact once it is built: its score, its times beside the baseline, the verdicts, the champion.

What else a rung must show is a step of `rung`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from compressor import score
from compressor.engines import Engine, Settled, Tensorrt
from compressor.pipeline import champion, choose, measuring
from compressor.pipeline import quality as judging
from compressor.pipeline.built import Assembly, Built
from compressor.pipeline.champion import Contest
from compressor.pipeline.judge import Judge
from compressor.pipeline.making import Place
from compressor.pipeline.quality import Quality, Scoring
from compressor.pipeline.steps import Steps
from compressor.plan import Plan
from compressor.recipe import BASELINE
from compressor.records import Artifact, Beside, Candidate, Measurement, Served, Size, Trial, Work

_Found = tuple[Quality | None, Measurement | None]


@dataclass(frozen=True)
class Base:
    """The baseline as the rungs need it: its trial, its artifact, its quality."""

    trial: Trial
    built: Built
    quality: Quality | None


class Trying:
    """Tries artifacts of one plan."""

    def __init__(self, plan: Plan, place: Place, steps: Steps) -> None:
        """Take what to do, where, and what calls the pieces of work."""
        self.plan, self.run, self.scratch, self.steps = plan, place.run, place.scratch, steps
        self.scene = replace(measuring.scene(plan, place.run), raw=place.run / "raw")
        self.scoring = _scoring(plan)
        self.judge = Judge.of(plan.recipe, plan.scheme)
        self.contest: Contest | None = None
        self.warnings: tuple[str, ...] = ()
        self._seen: dict[tuple[object, ...], _Found] = {}
        self._beside: dict[tuple[object, ...], Beside] = {}

    @property
    def served(self) -> Served | None:
        """The champion, if there is one."""
        return self.contest.champion.served if self.contest else None

    def settled(self, engine: Engine) -> Settled:
        """Give an engine with nothing left open."""
        return engine.resolve(self.plan.environment.cpus_usable)

    def timed(self, *engines: Engine | None) -> bool:
        """Tell whether there is something here to measure with, the baseline too, which all is held against."""
        wanted = (self.plan.recipe.engine, *engines)
        return all(self.settled(engine).is_timed() for engine in wanted if engine)

    def challenged(self) -> Work[None]:
        """Fetch the champion, if the recipe names one."""
        found = yield from champion.contender(self.plan, self.steps, self.scratch, self.scoring)
        if found is not None and self.plan.recipe.baseline is not None:
            scene = champion.scene(self.scene, self.plan.recipe.baseline)
            self.contest = Contest(found, scene, self.scoring, self.plan.model.sha256)

    def baseline(self, made: Assembly) -> Work[Base]:
        """Measure and score the original."""
        asked = self.settled(self.plan.recipe.engine)
        if isinstance(asked, Tensorrt) and not asked.is_here():
            made = replace(made, proxy=asked.stand_in)
        quality = yield from self._quality(BASELINE, made.runs, None)
        measurement = (yield from self._measurement(BASELINE, (made.runs,), quality)) if self.timed() else None
        trial = self._trial(BASELINE, Candidate(self.plan.model), made, (quality, measurement))
        return Base(self.judge.judged(trial, None, ()), made.runs, quality)

    def rung(
        self, name: str, built: tuple[Candidate, Assembly], base: Base, previous: Trial, *, timed: bool
    ) -> Work[Trial]:
        """Score, measure and judge one rung, beside the baseline and then beside the champion."""
        candidate, made = built
        key = (*_content(made.runs.artifact), timed)
        found = self._seen.get(key)
        if found is None:  # else: measured again, the same bytes would only seem to differ
            quality = yield from self._quality(name, made.runs, base.quality)
            pair = (base.built, made.runs)
            found = quality, (yield from self._measurement(name, pair, quality)) if timed else None
        self._seen[key] = found
        judged = self.judge.judged(self._trial(name, candidate, made, found), base.trial, (previous, base.trial))
        return (yield from self.contested(judged, made.runs, (base.quality, found[0]), timed=timed))

    def contested(
        self, trial: Trial, built: Built, quality: tuple[Quality | None, Quality | None], *, timed: bool
    ) -> Work[Trial]:
        """Hold a trial that meets every gate against the champion."""
        if self.contest is None or not choose.passed(trial):
            return trial
        key, (original, now) = _content(built.artifact), quality
        found = self._beside.get(key)
        if found is None:
            both = (original, now) if original and now else None
            found = yield from self.contest.held(self.steps, trial.rung, built, both, timed=timed)
        self._beside[key] = found
        told = champion.doubt(self.contest.champion, built)
        self.warnings = tuple(dict.fromkeys((*self.warnings, *([told] if told else []))))
        return self.judge.contested(replace(trial, beside=found), self.served)

    def _quality(self, rung: str, built: Built, before: Quality | None) -> Work[Quality | None]:
        """Score an artifact on the evaluation samples, beside the baseline's outputs; None without samples."""
        if self.scoring is None:
            return None
        outputs = before.outputs if before else None
        arguments = (built, self.scoring, outputs, self.run, self.scratch / f"{rung}-outputs")
        return (yield from self.steps.call(f"{rung}: score", judging.quality, *arguments)).value

    def _measurement(self, rung: str, built: tuple[Built, ...], quality: Quality | None) -> Work[Measurement]:
        """Measure start and memory in fresh processes, then latency beside the baseline."""
        found = yield from measuring.measurement(self.steps, rung, built, self.scene)
        return replace(found, score=quality.score, errors=quality.errors) if quality else found

    def _trial(self, rung: str, candidate: Candidate, made: Assembly, found: _Found) -> Trial:
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


def _scoring(plan: Plan) -> Scoring | None:
    if plan.evaluation is None or plan.metric is None:
        return None
    wanted = score.Wanted(plan.metric, plan.recipe.seed, plan.recipe.data.alphabet)
    return Scoring(wanted, plan.evaluation, plan.environment.saturates, plan.steady, exact=not plan.scheme.here)


def _content(artifact: Artifact) -> tuple[object, ...]:
    """Give what tells one artifact from another: its bytes and how they are run."""
    return tuple(file.sha256 for file in artifact.files), tuple(sorted(artifact.options.items()))


def _notes(candidate: Candidate, quality: Quality | None) -> Iterator[str]:
    """Note what the user of an artifact must know: made-up ranges, and outputs that no score covers."""
    if any(stage.uncalibrated for stage in candidate.stages):
        yield "uncalibrated: the ranges of its activations come from made-up inputs"
    left_out = quality.outputs.left_out if quality else {}
    yield from (f"output {name!r} is not scored: {why}" for name, why in left_out.items())
