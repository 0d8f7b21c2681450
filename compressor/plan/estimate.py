"""How long a run will take, roughly: from a few calls of the original, the samples, and what the rungs ask for.

An estimate, within a factor of about 2 on a machine like the one below, and no promise. The constants were read off the
steps' times (`--log-file`) of whole climbs on 2 quiet CPUs with AVX-512 VNNI: examples/digits.onnx (0.7 ms a call),
a keyword spotter with depthwise convolutions (MLPerf Tiny, 0.2 ms) and resnet20 for CIFAR-10 (1.6 ms). A new kind of
stage is a line in `_made_s`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compressor import gates
from compressor.gates import Cost, Speedup, Throughput
from compressor.recipe import Recipe, Rung
from compressor.records import Model
from compressor.schemes import Scheme
from compressor.stages import Fuse, Prune, Quantize, Recover, Stage

if TYPE_CHECKING:
    from compressor.plan.make import Plan

_CHILD_S = 0.3
"""A piece of work in a child, before it does anything of its own."""
_START_S = 1.2
"""A fresh process that starts an artifact; gates on the start ask for five."""
_WAY_S = 1.5
_LOOK_S = 3.5
_NNCF_S = 6.0
"""What the way of NNCF takes longer, which imports torch: 9 s the first time, 3 s later."""
_FUSE_S = 3.5
_PRUNE_S = 5.0
_PROFILE_S = 0.5
_CALLS_TO_CALIBRATE = 4.0
"""Calls of the model a calibration sample: with all its activations as outputs, more than once."""
_CALLS_TO_PRUNE = 60.0
_CALLS_TO_SCORE = 1.5
_SAMPLE_S = 0.0005
"""A sample that is scored, besides its call: read, prepared, its outputs kept."""
_ALONE_S, _PAIRED_S = 2.0, 5.0
"""A measurement of a quick model, the baseline's and a rung's, whose calls alternate with the baseline's."""
_CALLS = 400
"""Of each model, that decide a p99 where calls are slow."""
_OPEN_S = 12.0
"""A window of an open loop, with what comes before it."""
_UNDECIDED = 0.5
"""Share of the longest measurement where a speed, not a latency, is to be decided: how near it is nobody knows."""


@dataclass(frozen=True)
class Scale:
    """What the time of a run depends on besides its recipe.

    `call_s`: of the original. `others`: what a call takes at each further point, as a multiple of that.
    `ways`: of quantizing that are tried where the recipe leaves it open. `timed`: there is something to measure.
    """

    call_s: float
    calibration: int
    evaluation: int
    ways: int
    timed: bool = True
    others: tuple[float, ...] = ()


@dataclass(frozen=True)
class Estimate:
    """Seconds that the baseline and each rung will take, in their order, roughly."""

    baseline_s: float
    rungs_s: tuple[float, ...]

    @property
    def least_s(self) -> float:
        """The time if the first rung is enough."""
        return self.baseline_s + sum(self.rungs_s[:1])

    @property
    def most_s(self) -> float:
        """The time if all rungs are climbed."""
        return self.baseline_s + sum(self.rungs_s)


def ways(recipe: Recipe, model: Model, scheme: Scheme) -> int:
    """Give how many ways of quantizing are tried at the most where the recipe leaves it open; reads the model."""
    stages = dict.fromkeys(stage for rung in recipe.rungs for stage in rung.stages)
    quantizes = (stage for stage in stages if isinstance(stage, Quantize) and stage.open)
    return max((len(one.candidates(model.path, scheme)) - 1 for one in quantizes), default=0)  # the last is float


def estimated(plan: Plan) -> Estimate:
    """Estimate how long the run of a plan takes."""
    engines = (plan.recipe.engine, *(rung.engine for rung in plan.recipe.rungs if rung.engine))
    cpus = plan.environment.cpus_usable
    size = sum(map(math.prod, plan.shapes.values())) or 1
    scale = Scale(
        call_s=plan.call_s,
        calibration=len(plan.calibration),
        evaluation=len(plan.evaluation) if plan.evaluation else 0,
        ways=plan.ways,
        timed=all(engine.resolve(cpus).is_timed() for engine in engines),
        others=tuple(sum(map(math.prod, point.shapes.values())) / size for point in plan.points),
    )
    return estimate(plan.recipe, scale)


def estimate(recipe: Recipe, scale: Scale) -> Estimate:
    """Estimate how long a run takes; what earlier runs made and is kept takes no time."""
    tried = _tried_s(recipe, scale, paired=False)
    known: set[tuple[Stage, ...]] = set()
    rungs: list[float] = []
    for rung in recipe.rungs:
        rungs.append(_stages_s(rung, known, scale) + _tried_s(recipe, scale, paired=True))
        known |= {rung.stages[: last + 1] for last in range(len(rung.stages))}
    if rungs:  # after the last, the original has its turn
        rungs[-1] += _contest_s(recipe, scale)
    longest_s = float("inf") if recipe.limits.run is None else recipe.limits.run
    return _cut(tried, rungs, longest_s)


def _stages_s(rung: Rung, known: set[tuple[Stage, ...]], scale: Scale) -> float:
    """Estimate the stages of a rung; what a rung before it made of the same stages serves again."""
    chains = (rung.stages[: last + 1] for last in range(len(rung.stages)))
    return sum(_CHILD_S + _made_s(chain[-1], scale) for chain in chains if chain not in known)


def _made_s(stage: Stage, scale: Scale) -> float:
    calibrating_s = scale.calibration * scale.call_s * _CALLS_TO_CALIBRATE
    if isinstance(stage, Quantize) and stage.open:
        return scale.ways * (_WAY_S + _LOOK_S + calibrating_s) + (_NNCF_S if scale.ways else 0.0) + _PROFILE_S
    if isinstance(stage, Quantize):
        return _WAY_S + calibrating_s + (_NNCF_S if stage.backend == "nncf" else 0.0)
    if isinstance(stage, Prune):
        return _PRUNE_S + scale.calibration * scale.call_s * _CALLS_TO_PRUNE
    if isinstance(stage, Recover):
        return 60 * stage.minutes
    return _FUSE_S + _PROFILE_S if isinstance(stage, Fuse) else _WAY_S


def _tried_s(recipe: Recipe, scale: Scale, *, paired: bool) -> float:
    """Estimate what it takes to build, score and measure one model, `paired` beside the baseline."""
    scored_s = _CHILD_S + scale.evaluation * (_SAMPLE_S + _CALLS_TO_SCORE * scale.call_s)
    if not scale.timed:
        return _CHILD_S + scored_s
    starts_s = _START_S * gates.starts(recipe.gates)
    measured_s = _measure_s(recipe, scale.call_s, paired=paired)
    others_s = sum(_measure_s(recipe, scale.call_s * times, paired=False) for times in scale.others)
    contest_s = _contest_s(recipe, scale) if paired else 0.0
    return _CHILD_S + scored_s + starts_s + measured_s + others_s + contest_s


def _contest_s(recipe: Recipe, scale: Scale) -> float:
    """Estimate what it takes to hold one model against the champion."""
    if recipe.baseline is None or not scale.timed:
        return 0.0
    return 2 * _START_S * gates.starts(recipe.gates) + _measure_s(recipe, scale.call_s, paired=True)


def _measure_s(recipe: Recipe, call_s: float, *, paired: bool) -> float:
    """Estimate one measurement, which ends as soon as all is decided, and at `limits.measure` at the latest."""
    wanted_s = max(_PAIRED_S if paired else _ALONE_S, _CALLS * call_s * (2 if paired else 1))
    if recipe.load.open:
        wanted_s += _OPEN_S
    if any(isinstance(gate, Speedup | Throughput | Cost) for gate in recipe.gates):
        wanted_s = max(wanted_s, _UNDECIDED * recipe.limits.measure)
    return min(wanted_s, recipe.limits.measure)


def _cut(baseline_s: float, rungs_s: Sequence[float], longest_s: float) -> Estimate:
    """Let no more time be spent than the whole run may take."""
    left = longest_s - min(baseline_s, longest_s)
    cut = []
    for rung_s in rungs_s:
        cut.append(min(rung_s, left))
        left -= cut[-1]
    return Estimate(min(baseline_s, longest_s), tuple(cut))
