"""Two models side by side: speed in pairs, outputs and scores on the same samples, and whether the second is worse.

What else tells two models apart is a verdict in `_verdicts`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from compressor import gates, graph, plan, runtime, score
from compressor.errors import InputError
from compressor.gates import Accuracy
from compressor.pipeline import measuring, subject
from compressor.pipeline import quality as judging
from compressor.pipeline.bench import SCHEMA_VERSION, Asked, trial
from compressor.pipeline.built import Built
from compressor.pipeline.quality import Quality, Scoring
from compressor.pipeline.steps import Steps
from compressor.pipeline.subject import Subject
from compressor.pipeline.summary import data, original
from compressor.plan import Job, Plan
from compressor.recipe import Recipe
from compressor.records import (
    Compared,
    Comparison,
    Measurement,
    Model,
    OutputError,
    Side,
    Trial,
    Verdict,
    Work,
)

_ROUNDING_DB = 60.0
_ROUNDING = 10 ** (-_ROUNDING_DB / 20)
"""The same as a share: what an error is relative to is the output itself."""
_DEFAULT = Accuracy(max_drop="1%")


@dataclass(frozen=True)
class Pair:
    """What is known of two models before any is measured; `steady` tells whether the second agrees with itself."""

    plan: Plan
    after: Model
    steady: bool


@dataclass(frozen=True)
class _Seen:
    """One of the two as it was measured."""

    named: Subject
    model: Model
    built: Built
    measurement: Measurement

    def side(self) -> Side:
        """Give it as it stands in the report."""
        return Side(self.named.source, original(self.model), self.built.artifact.options, self.measurement)

    def trial(self, name: str) -> Trial:
        """Give it as the gates judge it."""
        return trial(name, self.model, self.built.artifact, self.measurement)


def compare(asked: Asked, other: str) -> Work[Compared]:
    """Measure the source that was asked for and another beside it; nothing is left on disk.

    Raises:
        InputError: A source, the recipe or the data are wrong, or the two do not take and give the same.
        MachineError: The registry does not answer.
    """
    started, begin = datetime.now(UTC), time.monotonic()
    _check_paired(asked.recipe)
    steps = asked.steps()
    with TemporaryDirectory(prefix="compress-") as scratch, steps.of(f"{asked.source} and {other}"):
        folder = Path(scratch)
        names = [(asked.source, "before"), (other, "after")]
        found = []
        for source, name in names:
            found.append((yield from subject.resolve(source, asked.place(), folder / name, steps)))
        one, two = found
        pair = (yield from steps.call("plan", agree, asked.job(one, folder), two.path)).value
        cpus = pair.plan.environment.cpus_usable
        built = one.built(pair.plan.model, asked.recipe, cpus), two.built(pair.after, asked.recipe, cpus)
        quality = yield from _quality(steps, pair, built, folder)
        before, after = yield from measuring.side_by_side(steps, built, _scene(pair.plan, asked, folder))
    scored = zip((before, after), quality, strict=True)
    before, after = (replace(seen, score=judged.score, errors=judged.errors) for seen, judged in scored)
    sides = _Seen(one, pair.plan.model, built[0], before), _Seen(two, pair.after, built[1], after)
    verdicts = _verdicts(pair, sides, quality)
    return Compared(
        schema_version=SCHEMA_VERSION,
        verdict=_outcome(verdicts),
        warnings=(*pair.plan.warnings, *_doubts(pair, sides)),
        before=sides[0].side(),
        after=sides[1].side(),
        verdicts=verdicts,
        data=data(pair.plan),
        environment=pair.plan.environment,
        started=started,
        duration_s=time.monotonic() - begin,
    )


def agree(job: Job, other: Path) -> Pair:
    """Plan the comparison of a job's model with another, in a child.

    Raises:
        InputError: The other does not take the same inputs, or lacks an output, or does not run.
    """
    settled = plan.make(job)
    model = graph.open_model(other)
    subject.check_alike(settled.model, model)
    feeds = next(iter(settled.calibration))
    runtime.check_runs(other, feeds)
    with closing(runtime.load(other, runtime.options(1, spinning=False))) as session:
        steady = score.deterministic(session, feeds)
    return Pair(settled, graph.at_shapes(model, settled.shapes), steady)


def _check_paired(recipe: Recipe) -> None:
    if not recipe.load.paired:
        raise InputError(
            f"recipe.load: two models are compared in pairs of calls, one after another; expected closed with "
            f"concurrency 1, found {recipe.load.describe()}"
        )


def _quality(steps: Steps, pair: Pair, built: tuple[Built, Built], run: Path) -> Work[tuple[Quality, Quality]]:
    """Run both over the evaluation samples, or over what there is, and hold their outputs against each other."""
    settled, steady = pair.plan, pair.plan.steady and pair.steady
    metric = settled.metric
    if metric and not steady and score.metric(metric).reference:
        metric = None
    wanted = score.Wanted(metric, settled.recipe.seed, settled.recipe.data.alphabet) if metric else None
    samples = settled.evaluation or settled.calibration
    scoring = Scoring(wanted, samples, settled.environment.saturates, steady)
    return (yield from steps.call("score", judging.contrast, built, scoring, run, run / "outputs")).value


def _scene(settled: Plan, asked: Asked, run: Path) -> measuring.Scene:
    """Want decided which of the two is faster, beside what the recipe asks."""
    scene = measuring.scene(settled, run)
    return replace(scene, ratios=(*scene.ratios, *gates.RATIOS_OF_COMPARISON), fill=asked.fill)


def _verdicts(pair: Pair, sides: tuple[_Seen, _Seen], quality: tuple[Quality, Quality]) -> tuple[Verdict, ...]:
    """Judge speed and outputs always, and by what else the recipe asks."""
    before, after = sides[0].trial("before"), sides[1].trial("after")
    accuracy = next((gate for gate in pair.plan.recipe.gates if isinstance(gate, Accuracy)), _DEFAULT)
    others = [gate for gate in pair.plan.recipe.gates if not isinstance(gate, Accuracy)]
    return (
        _speed(sides[1].measurement),
        _alike(pair, quality, accuracy) if quality[1].score is None else accuracy.judge(before, after),
        *(gate.judge(before, after) for gate in others),
    )


def _speed(after: Measurement) -> Verdict:
    if after.speedup is not None:
        return gates.not_slower(after.speedup)
    reason = "too few pairs for a ratio of speeds: raise limits.measure"
    return Verdict(gates.REGRESSION, None, None, None, None, None, reason)


def _alike(pair: Pair, quality: tuple[Quality, Quality], accuracy: Accuracy) -> Verdict:
    """Judge outputs that nobody scored: equal up to rounding is no drop, anything else is for samples to decide."""
    doubt = next(_differences(pair, quality), None)
    if doubt is None and accuracy.min is not None:
        doubt = f"a score of at least {accuracy.min:g} is asked for, and there is none"
    reason = f"{doubt}: give --evaluation" if doubt else f"equal to rounding on {quality[1].outputs.n} inputs"
    return Verdict("accuracy", None if doubt else True, None, accuracy.max_drop, None, None, reason)


def _differences(pair: Pair, quality: tuple[Quality, Quality]) -> Iterator[str]:
    for name, steady in (("first", pair.plan.steady), ("second", pair.steady)):
        if not steady:
            yield f"the {name} model gives other outputs when it is run again, so that they cannot be compared"
    before, after = quality
    for name, why in {**before.outputs.left_out, **after.outputs.left_out}.items():
        yield f"output {name!r} is not compared: {why}"
    for name in after.unequal:
        yield f"output {name!r} is not the same"
    for name, error in after.errors.items():
        if not _is_rounding(error):
            yield f"output {name!r} differs by up to {error.p95:.2g} of itself in 95% of {error.n} inputs"


def _is_rounding(error: OutputError) -> bool:
    return error.p95 <= _ROUNDING and error.sqnr_db >= _ROUNDING_DB


def _outcome(verdicts: tuple[Verdict, ...]) -> Comparison:
    if any(verdict.met is False for verdict in verdicts):
        return "worse"
    return "not worse" if all(verdict.met for verdict in verdicts) else "undecided"


def _doubts(pair: Pair, sides: tuple[_Seen, _Seen]) -> Iterator[str]:
    before, after = sides
    if before.model.sha256 == after.model.sha256:
        yield f"both are the same file (sha256 {before.model.sha256[:12]}): what differs is the machine's noise"
    if before.built.artifact.options != after.built.artifact.options:
        yield "the two are run with other session options, each with its own"
    threads, cpus = after.built.engine.threads or 1, pair.plan.environment.cpus_usable
    if threads != before.built.engine.threads and (crowd := plan.oversubscribed(threads, pair.plan.recipe.load, cpus)):
        yield f"{after.named.source}: {crowd}"
    if not pair.steady:
        yield (
            f"{after.named.source} gives other outputs when it is run again on the same input: outputs cannot be "
            "compared one by one, only a metric on labels can judge it"
        )
