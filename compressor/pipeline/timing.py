"""Pieces of work in children that take times: of calls at one point after another.

What else is measured of a loaded artifact is a function here whose arguments and result can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from compressor import bench, units, workspace
from compressor.bench.load import Constant
from compressor.bench.measure import Experiment, Measured
from compressor.pipeline.built import Built
from compressor.records import Feeds, Work, relayed
from compressor.samples import Samples

_SAMPLES = 16
"""Different samples that a measurement cycles through."""
_FEWEST_FEEDS = 2
_APART_S = 0.010
"""Between paced requests at the least: then a small model finds caches cold and cores asleep, as in service."""
_BUSY = 0.25
"""Share of the time that paced requests keep the model busy at the most, so that none waits for another."""
_PACED_REQUESTS = 20
"""Paced requests, at the least, for which a measurement is worth its time."""


@dataclass(frozen=True)
class Spot:
    """What is measured at one point, with which samples; raw latencies go to `raw`, or nowhere."""

    experiment: Experiment
    samples: Samples
    raw: Path | None = None


def timed(
    built: tuple[Built, ...], run: Path, spots: tuple[Spot, ...], paced_s: float | None = None
) -> Work[tuple[Measured, ...]]:
    """Measure the last of one or two artifacts: at the first spot beside the other, elsewhere alone.

    Where `paced_s` is given, it is measured for so long, or longer if it is slow, with requests that come one by one,
    right after the first spot. Raw latencies are int64 ns, [artifacts, n].
    """
    first = yield from _at(spots[0], built, run)
    found: tuple[Measured, ...] = (first,)
    for spot in (*_paced(spots[0], first, paced_s), *spots[1:]):
        found = (*found, (yield from _at(spot, built[-1:], run)))
    return found


def _at(spot: Spot, built: tuple[Built, ...], run: Path) -> Work[Measured]:
    openers, at = [partial(each.open, run) for each in built], spot.experiment.at
    work = bench.measure.measure(openers, _feeds(spot.samples), spot.experiment)
    found = yield from relayed(work, lambda progress: replace(progress, step=at or progress.step))
    if spot.raw is not None:
        with workspace.replacing(spot.raw) as temporary, temporary.open("wb") as file:
            np.save(file, np.stack(found.timings), allow_pickle=False)
    return replace(found, timings=())


def _feeds(samples: Samples) -> tuple[Feeds, ...]:
    """Give some feeds, fewer of a large batch: they are all in memory at once."""
    return tuple(islice(samples, max(_FEWEST_FEEDS, _SAMPLES // samples.per_feed)))


def _paced(main: Spot, seen: Measured, wanted_s: float | None) -> Iterator[Spot]:
    """Give the spot of requests that come one by one, if so many fit into the budget that they say something."""
    apart_s = max(_APART_S, seen.latency.p50_ms / 1e3 / _BUSY)
    least_s = apart_s * _PACED_REQUESTS
    if wanted_s is None or least_s > main.experiment.budget_s:
        return
    budget_s = max(wanted_s, least_s)
    load = Constant(rate=units.write_rate(1 / apart_s))
    experiment = replace(main.experiment, load=load, targets=(), ratios=(), rates=(), budget_s=budget_s, at="paced")
    yield Spot(experiment, main.samples)
