"""The measurement: warm up, drive the sessions until every target is decided or the budget is spent, sum up.

How requests are sent is a load's business (`load`), what their times prove that of `stats`; add here only what decides
how long a measurement goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

import numpy as np

from compressor.bench import stats
from compressor.bench.clock import SYSTEM, Clock
from compressor.bench.load import Load
from compressor.grammar import key
from compressor.records import Array, Bound, Feeds, Latency, Progress, Session, Speedup, Target, Timing, Work

_CONFIDENCE = 0.95  # of the limits in the summary
_FEWEST_CALLS = 160  # 16 blocks of 10 pairs
_CALLS_WITHOUT_TARGET = 300  # 30 blocks, and the least that support an upper limit of the p99
_WARM_UP_ROUNDS = 2
_WARM_UP_S = 0.3
_BATCH_S = 0.5  # between two looks at the budget


@dataclass(frozen=True)
class Experiment:
    """What is measured, and when it is enough. `budget_s` counts the warm-up too."""

    load: Load
    targets: tuple[Target, ...]
    budget_s: float
    seed: int
    shape: Mapping[str, str]
    max_samples: int = 5000


@dataclass(frozen=True)
class Measured:
    """What was found; `timings` holds the raw samples, one for each session in the order given."""

    latency: Latency
    speedup: Speedup | None
    throughput_per_s: float
    timings: tuple[Timing, ...]


@dataclass(frozen=True)
class _Look:
    """A number of calls after which the targets are looked at, and the share of the permitted error it may spend."""

    calls: int
    share: float


def measure(
    sessions: Sequence[Session], feeds: Sequence[Feeds], experiment: Experiment, clock: Clock = SYSTEM
) -> Work[Measured]:
    """Measure the last session; a first session beside it is its baseline, called on the same feeds in turn.

    Samples are looked at only at numbers of calls that are fixed beforehand, and each look may be wrong with a share of
    1 - confidence that adds up to no more than 1 over all looks. So all limits reported hold at their stated
    confidence although the measurement stops when it likes what it sees; they are wider than those of a single look.
    `cold_ms` and `load_ms` are None: they need a fresh process. Throughput counts the samples of a batch.
    """
    deadline_ns = clock.now_ns() + int(experiment.budget_s * 1e9)
    rng, rounds = np.random.default_rng(experiment.seed), cycle(feeds)
    batch = yield from _warm_up(sessions, rounds, clock)
    timings: tuple[Timing, ...] = ()
    for look in _looks(experiment):
        while not timings or (_calls(timings) < look.calls and clock.now_ns() < deadline_ns):
            now = tuple(islice(rounds, min(batch, look.calls - _calls(timings))))
            timings = _joined(timings, experiment.load.drive(sessions, now, rng, clock))
            yield Progress("measure", _calls(timings), look.calls)
        bounds = _bounds(timings[-1], experiment.targets, look.share)
        if all(map(stats.decided, bounds)) or clock.now_ns() >= deadline_ns:
            break
    return Measured(
        latency=_latency(timings[-1], bounds, look.share, experiment),
        speedup=_speedup(timings, experiment.seed),
        throughput_per_s=_samples(feeds[0]) * _calls(timings) / timings[-1].seconds,
        timings=timings,
    )


def _warm_up(sessions: Sequence[Session], rounds: Iterator[Feeds], clock: Clock) -> Work[int]:
    """Call until the sessions are warm; gives how many rounds fit between two looks at the budget."""
    yield Progress("warm up")
    begin_ns, seconds, done = clock.now_ns(), 0.0, 0
    while done < _WARM_UP_ROUNDS or seconds < _WARM_UP_S:
        feed = next(rounds)
        for session in sessions:
            session(feed)
        done, seconds = done + 1, (clock.now_ns() - begin_ns) / 1e9
    return max(1, int(_BATCH_S * done / seconds))


def _looks(experiment: Experiment) -> tuple[_Look, ...]:
    """Plan the looks, each at twice the calls of the one before, the first where clean samples can decide everything.

    The first look may spend half of the permitted error, each one after it half of what is left, the last all of it.
    """
    if not experiment.targets:
        return (_Look(min(_CALLS_WITHOUT_TARGET, experiment.max_samples), 1.0),)
    calls = max(_FEWEST_CALLS, *(_clean(target) for target in experiment.targets))
    left, looks = 1.0, []
    while calls < experiment.max_samples:
        left /= 2
        looks.append(_Look(calls, left))
        calls *= 2
    return (*looks, _Look(experiment.max_samples, left))


def _clean(target: Target) -> int:
    exact = stats.clean_samples(target.percentile, _stricter(target.confidence, 0.5))
    return math.ceil(exact / stats.PAIRS_PER_BLOCK) * stats.PAIRS_PER_BLOCK


def _stricter(confidence: float, share: float) -> float:
    return 1 - (1 - confidence) * share


def _calls(timings: tuple[Timing, ...]) -> int:
    return len(timings[0].latencies_ns) if timings else 0


def _joined(before: tuple[Timing, ...], after: tuple[Timing, ...]) -> tuple[Timing, ...]:
    return tuple(map(_join, before, after)) if before else after


def _join(a: Timing, b: Timing) -> Timing:
    latencies_ns = np.concatenate([a.latencies_ns, b.latencies_ns])
    preempted = a.preempted * len(a.latencies_ns) + b.preempted * len(b.latencies_ns)
    return Timing(latencies_ns, a.seconds + b.seconds, preempted / len(latencies_ns))


def _bounds(timing: Timing, targets: tuple[Target, ...], share: float) -> tuple[Bound, ...]:
    """Bound each target at its own confidence, which is what is left of a stricter one after all looks."""
    return tuple(
        replace(
            stats.bound(_ms(timing), target.percentile, _stricter(target.confidence, share), target.limit_ms),
            confidence=target.confidence,
        )
        for target in targets
    )


def _latency(timing: Timing, bounds: tuple[Bound, ...], share: float, experiment: Experiment) -> Latency:
    samples_ms, confidence = _ms(timing), _stricter(_CONFIDENCE, share)
    p50, p90, p95, p99 = (stats.bound(samples_ms, percentile, confidence) for percentile in (50, 90, 95, 99))
    return Latency(
        p50_ms=p50.value_ms,
        p50_low_ms=p50.low_ms,
        p50_high_ms=p50.high_ms,
        p90_ms=p90.value_ms,
        p90_low_ms=p90.low_ms,
        p90_high_ms=p90.high_ms,
        p95_ms=p95.value_ms,
        p95_low_ms=p95.low_ms,
        p95_high_ms=p95.high_ms,
        p99_ms=p99.value_ms,
        p99_low_ms=p99.low_ms,
        p99_high_ms=p99.high_ms,
        mean_ms=float(samples_ms.mean()),
        n=len(samples_ms),
        cold_ms=None,
        load_ms=None,
        shape=experiment.shape,
        load=f"{key(type(experiment.load))} {experiment.load}",
        preempted=timing.preempted,
        bounds=bounds,
    )


def _ms(timing: Timing) -> Array:
    return timing.latencies_ns / 1e6


def _speedup(timings: tuple[Timing, ...], seed: int) -> Speedup | None:
    if len(timings) == 1:
        return None
    found = stats.speedup(_ms(timings[0]), _ms(timings[-1]), seed)
    return found and replace(found, baseline_p50_ms=float(np.median(_ms(timings[0]))))


def _samples(feeds: Feeds) -> int:
    """Give the length of the leading axis of the first input; 1 for a scalar."""
    shape = next(iter(feeds.values())).shape
    return int(shape[0]) if shape else 1
