"""The measurement of an artifact, by itself or beside its baseline: starts in fresh processes, then calls.

What is measured of every artifact is added here, and only here: a climb, a bench and a comparison share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median_low

import numpy as np

from compressor import gates, units, workspace
from compressor.bench import stats
from compressor.bench.measure import Experiment, Measured
from compressor.bench.start import Start, start
from compressor.isolation import Returned
from compressor.pipeline import timing
from compressor.pipeline.built import Built
from compressor.pipeline.steps import Steps
from compressor.pipeline.timing import Spot
from compressor.plan import Plan, Point
from compressor.recipe import Recipe
from compressor.records import Latency, Measurement, Work

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Scene:
    """Where and how artifacts are measured, the same for all that are held against each other.

    `points`: the main one first. `run`: where paths of artifacts start. `raw`: the folder for raw latencies. `ratios`:
    speed-ups that someone wants decided. `paced_s`: how long requests shall come one by one too. `fill`: measure to the
    end of the budget where nothing is to be decided.
    """

    recipe: Recipe
    points: tuple[Point, ...]
    run: Path
    raw: Path | None = None
    ratios: tuple[float, ...] = ()
    paced_s: float | None = None
    fill: bool = False


def scene(plan: Plan, run: Path) -> Scene:
    """Give the scene that a plan sets, raw latencies kept nowhere."""
    main = Point("", plan.shapes, plan.measured)
    return Scene(plan.recipe, (main, *plan.points), run, ratios=gates.ratios(plan.recipe.gates))


def measurement(steps: Steps, name: str, built: tuple[Built, ...], set_: Scene) -> Work[Measurement]:
    """Measure the last of one or two artifacts; `name` stands before the steps and in the names of raw files."""
    prefix = f"{name}: " if name else ""
    begun = yield from _starts(steps, f"{prefix}start", built[-1], set_)
    return _candidate(built[-1], begun, (yield from _times(steps, name, built, set_)), set_)


def side_by_side(
    steps: Steps, built: tuple[Built, Built], set_: Scene, name: str = ""
) -> Work[tuple[Measurement, Measurement]]:
    """Measure two artifacts in the same pairs of calls, which the recipe's load allows; only the second elsewhere."""
    prefix = f"{name}: " if name else ""
    before = yield from _starts(steps, f"{prefix}start of the first", built[0], set_)
    after = yield from _starts(steps, f"{prefix}start of the second", built[1], set_)
    times = yield from _times(steps, name, built, set_)
    beside = times[0].beside or times[0].latency
    return _put_together(built[0], before, beside, set_), _candidate(built[1], after, times, set_)


def _times(steps: Steps, name: str, built: tuple[Built, ...], set_: Scene) -> Work[tuple[Measured, ...]]:
    spots = tuple(_spot(point, set_, name) for point in set_.points)
    budget_s = sum(spot.experiment.budget_s for spot in spots)
    if set_.paced_s is not None:  # of a slow model it takes longer, but no longer than any other
        budget_s += set_.recipe.limits.measure
    step, arguments = f"{name}: measure" if name else "measure", (built, set_.run, spots, set_.paced_s)
    return (yield from steps.call(step, timing.timed, *arguments, more_s=budget_s)).value


def _candidate(built: Built, begun: Sequence[Returned[Start]], times: Sequence[Measured], set_: Scene) -> Measurement:
    main, *others = times
    found = _put_together(built, begun, main.latency, set_)
    return replace(found, speedup=main.speedup, others=tuple(other.latency for other in others))


def _put_together(built: Built, begun: Sequence[Returned[Start]], latency: Latency, set_: Scene) -> Measurement:
    usual = _usual(begun)
    return Measurement(
        size_bytes=sum(file.size_bytes for file in built.artifact.files),
        latency=replace(latency, load_ms=usual.load_ms, cold_ms=usual.cold_ms),
        throughput_per_s=latency.throughput_per_s or 0.0,
        memory_bytes=max(one.value.gpu_bytes or one.peak_memory_bytes for one in begun),
        gpu_ms=usual.gpu_ms,
        cost_per_million=gates.cost(set_.recipe.gates, latency),
        startup=stats.bound(np.array(_totals_ms(begun)), 50, _CONFIDENCE),
    )


def _starts(steps: Steps, step: str, built: Built, set_: Scene) -> Work[tuple[Returned[Start], ...]]:
    """Start an artifact in fresh processes, one after another."""
    load = partial(built.engine.open, built.artifact, set_.run)  # not `built.open`, which takes this package with it
    begun: tuple[Returned[Start], ...] = ()
    for _ in range(gates.starts(set_.recipe.gates)):
        begun = (*begun, (yield from steps.call(step, start, load, set_.points[0].samples, imports=None)))
    return begun


def _spot(point: Point, set_: Scene, name: str) -> Spot:
    recipe = set_.recipe
    experiment = Experiment(
        load=recipe.load,
        targets=gates.targets(recipe.gates, point.at),
        budget_s=recipe.limits.measure,
        seed=recipe.seed,
        shape={tensor: units.write_shape(dims) for tensor, dims in point.shapes.items()},
        at=point.at,
        ratios=() if point.at else set_.ratios,
        rates=gates.rates(recipe.gates, point.at),
        fill=set_.fill,
    )
    file = f"{name}-{workspace.file_name(point.at)}.npy" if point.at else f"{name}.npy"
    return Spot(experiment, point.samples, set_.raw and set_.raw / file)


def _usual(begun: Sequence[Returned[Start]]) -> Start:
    """Give the start of middling length."""
    totals_ms = _totals_ms(begun)
    return begun[totals_ms.index(median_low(totals_ms))].value


def _totals_ms(begun: Sequence[Returned[Start]]) -> list[float]:
    return [one.value.load_ms + one.value.cold_ms for one in begun]
