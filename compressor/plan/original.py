"""What running the original tells: how it is scored, whether it agrees with itself, how long a call takes.

What else must be seen of the original before any work is a field of `Original`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median

from compressor import graph, machine, runtime, score
from compressor.plan.data import Sets
from compressor.recipe import Recipe
from compressor.records import Model, Session
from compressor.samples import Samples

_CALLS = 9
_FEEDS = 3
_LONGEST_S = 1.0
"""For all calls but the first, which warms up."""


@dataclass(frozen=True)
class Original:
    """`metric`: None where nothing is scored. `steady`: it gives the same twice. `call_s`: what a call takes."""

    metric: str | None
    steady: bool
    call_s: float


def seen(recipe: Recipe, model: Model, sets: Sets) -> Original:
    """Choose the metric by running the original, or make sure that the one that is asked for is there."""
    asked, cpus = recipe.data.metric, machine.cpus_usable()
    threads = recipe.engine.resolve(cpus).threads or cpus
    feeds = next(iter(sets.calibration))
    outputs = runtime.check_runs(model.path, feeds)
    if asked is not None:
        score.metric(asked)
    with closing(runtime.load(model.path, runtime.options(1, spinning=False))) as session:
        steady = score.deterministic(session, feeds)
        uneven = score.uneven(session, sets.evaluation or sets.calibration)
    with closing(runtime.load(model.path, runtime.options(threads, spinning=False))) as session:
        call_s = timed(session, sets.measured)
    rows = score.rows(outputs, sets.calibration.per_feed)
    if sets.evaluation is None or not rows:
        return Original(None, steady, call_s)
    metric = score.choose(rows, sets.evaluation.labels(), asked, uneven)
    return Original(metric if steady or not score.metric(metric).reference else None, steady, call_s)


def runs(model: Model, sets: Sets) -> Original:
    """Make sure that the model runs; nobody asks whether it agrees with itself where nothing is scored."""
    runtime.check_runs(model.path, next(iter(sets.calibration)))
    return Original(None, steady=True, call_s=0.0)


def timed(session: Session, samples: Samples) -> float:
    """Give the median of a few calls after one that warms up, in seconds: enough to say how long work will take."""
    feeds = list(islice(samples, _FEEDS))
    session(feeds[0])
    taken: list[float] = []
    for each in islice(cycle(feeds), _CALLS):
        begun = time.perf_counter()
        session(each)
        taken.append(time.perf_counter() - begun)
        if sum(taken) > _LONGEST_S:
            break
    return median(taken)


def doubts(asked: str | None, model: Model, sets: Sets, found: Original) -> Iterator[str]:
    """Say what is odd about the original itself, and what its score does not use."""
    labels = sets.evaluation.labels() if sets.evaluation else None
    metric, steady = found.metric, found.steady
    if labels is not None and asked is None and (metric is None or score.metric(metric).reference):
        yield (
            f"the labels ({labels.dtype}, {labels.shape}, for instance {labels.flat[0]}) are no indices of classes "
            f"that an output scores, and are not used; the score is {metric or 'none'}"
        )
    if sets.evaluation and metric is None and steady:
        yield "no output of the model holds numbers that can be scored; accuracy is unknown"
    summary = graph.summary(model.path)
    for name in summary.training:
        yield f"{name} was exported in training mode, where the batch or chance counts: export it for inference"
    if not steady:
        operators = ", ".join(summary.random) or "some operator"
        yield (
            f"the original model gives other outputs when it is run again on the same input ({operators}): outputs "
            "cannot be compared one by one, only a metric on labels can judge it"
        )
