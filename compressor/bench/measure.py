"""The measurement: rounds of calls until everything asked is decided or the budget is spent, and the summary of it all.

How requests are sent is a load's business (`load`), how calls are spread over rounds that of `rounds`, what they prove
that of `stats` and `ratio`; add here only what decides how long a measurement goes on, or what its summary says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from compressor.bench import looks, ratio, stats
from compressor.bench.clock import SYSTEM, Clock
from compressor.bench.load import Load, Trace, Window
from compressor.bench.looks import Look
from compressor.bench.pairs import interleaved
from compressor.bench.rounds import Budget, Opener, Rounds, Way, extend
from compressor.records import Array, Bound, Feeds, Latency, Session, Speedup, Target, Timing, Work

_CONFIDENCE = 0.95  # of the limits in the summary
_LEAST_S = 1.0
"""Time in calls before a target is believed: foreign work slows calls down for a while, of which fewer than 400 quick
calls see nothing. Slower models have no such protection: rare bursts can pass them unseen."""
_LEAST_CALLS = 2000  # which are enough in any case
_SPARE = 1.1  # calls may get quicker after the round by which they are planned
_SHARE_OF_PAIRS = 0.5  # of the budget, where the load comes after them


@dataclass(frozen=True)
class Experiment:
    """What is measured, and when it is enough. `budget_s` counts opening and warming up too.

    `at` names the point of a measurement, `ratios` are speed-ups that someone wants decided. `fill`: with neither
    targets nor ratios, go on until the budget ends.
    """

    load: Load
    targets: tuple[Target, ...]
    budget_s: float
    seed: int
    shape: Mapping[str, str]
    at: str = ""
    ratios: tuple[float, ...] = ()
    fill: bool = False
    max_samples: int = 5000


@dataclass(frozen=True)
class Measured:
    """What was found; `timings` holds the raw latencies in int64 ns, one array for each session driven by the load.

    `beside`: the latency of the baseline in the same pairs, where the load's calls are pairs.
    """

    latency: Latency
    speedup: Speedup | None
    timings: tuple[Array, ...]
    beside: Latency | None = None


def measure(
    openers: Sequence[Opener], feeds: Sequence[Feeds], experiment: Experiment, clock: Clock = SYSTEM
) -> Work[Measured]:
    """Measure what the last opener opens; a first one beside it opens its baseline, called on the same feeds in turn.

    Where the load's calls can be pairs, these are the measurement. Else the pairs come first and give the speed-up
    alone, then the load drives the candidate.

    Samples are looked at only at numbers of calls that are fixed beforehand, and each look may be wrong with a share of
    1 - confidence that adds up to no more than 1 over all looks. So all limits reported hold at their stated
    confidence although the measurement stops when it likes what it sees; they are wider than those of a single look.
    `cold_ms` and `load_ms` are None: they need a fresh process. Throughput counts the samples of a batch.
    """
    load, rng = experiment.load, np.random.default_rng(experiment.seed)
    budget = Budget.starting(experiment.budget_s, clock)
    pairing, speedup = Way(tuple(openers), interleaved, tuple(feeds), rng), None
    if load.paired:
        rounds, look = yield from _looked(pairing, experiment, budget)
        return _summed_up(rounds, look, experiment, _speedup(rounds, look.share), _samples(feeds[0]))
    if len(openers) > 1:
        part = Budget.starting(experiment.budget_s * _SHARE_OF_PAIRS, clock)
        rounds, look = yield from _looked(pairing, replace(experiment, targets=(), fill=False), part)
        speedup = _speedup(rounds, look.share)
    alone = replace(pairing, openers=tuple(openers[-1:]) * load.opened, drive=_driven_by(load))
    rounds, look = yield from _looked(alone, replace(experiment, ratios=()), budget)
    return _summed_up(rounds, look, experiment, speedup, _samples(feeds[0]))


def _driven_by(load: Load) -> Callable[..., Work[tuple[Timing, ...]]]:
    """Give a drive of which all sessions together make one timing."""

    def drive(
        sessions: Sequence[Session], feeds: Sequence[Feeds], window: Window, clock: Clock
    ) -> Work[tuple[Timing, ...]]:
        timing = yield from load.drive(sessions, feeds, window, clock)
        return (timing,)

    return drive


def _looked(way: Way, experiment: Experiment, budget: Budget) -> Work[tuple[Rounds, Look]]:
    """Add rounds, look by look, until all is decided; gives the look at which it stopped too."""
    rounds, in_one_piece = Rounds(), way.drive is not interleaved and experiment.load.open
    planned = _looks(experiment, in_one_piece=in_one_piece)
    if experiment.targets and not in_one_piece:
        rounds = yield from extend(rounds, planned[0].first_round(), way, budget)
        planned = _looks(experiment, in_one_piece=False, least=_least_calls(rounds, len(way.openers)))
    for look in planned:
        rounds = yield from extend(rounds, look, way, budget)
        if rounds.overloaded() or rounds.calls() < look.calls or _decided(rounds, look, experiment):
            break
    return rounds, look


def _least_calls(rounds: Rounds, sessions: int) -> int:
    """Give how many calls, by what one took in the first round, are enough to believe a target."""
    return min(_LEAST_CALLS, math.ceil(_SPARE * _LEAST_S * sessions / rounds.turn_s)) if rounds.turn_s else _LEAST_CALLS


def _looks(experiment: Experiment, *, in_one_piece: bool, least: int = 0) -> tuple[Look, ...]:
    """Plan the looks; an open loop is one window a look, for its queue must not be emptied in between."""
    if in_one_piece and isinstance(experiment.load, Trace):
        return looks.once(len(experiment.load.arrivals_s()))
    if experiment.targets or experiment.ratios:
        fewest = min(experiment.max_samples, max(least, looks.fewest(experiment.targets)))
        planned = looks.doubling(fewest, experiment.max_samples, ratios=bool(experiment.ratios))
    else:
        planned = looks.endless() if experiment.fill else looks.single(experiment.max_samples)
    return tuple(replace(look, rounds=1) for look in planned) if in_one_piece else planned


def _decided(rounds: Rounds, look: Look, experiment: Experiment) -> bool:
    timing, found = _joined(rounds)[-1], _speedup(rounds, look.share)
    if experiment.targets and timing.seconds < _LEAST_S and look.calls < _LEAST_CALLS:
        return False
    return all(map(stats.decided, _bounds(timing, experiment.targets, look.share))) and (
        found is None or not any(found.low <= wanted <= found.high for wanted in experiment.ratios)
    )


def _speedup(rounds: Rounds, share: float) -> Speedup | None:
    if len(rounds.windows[0]) == 1:
        return None
    found = ratio.speedup(
        [(_ms(window[0]), _ms(window[-1])) for window in rounds.windows], looks.stricter(_CONFIDENCE, share)
    )
    if found is None:
        return None
    both = _joined(rounds)
    return replace(
        found,
        baseline_p50_ms=float(np.median(_ms(both[0]))),
        preempted=fmean(timing.preempted for timing in both),
        stalled=both[0].stalled,
    )


def _summed_up(rounds: Rounds, look: Look, experiment: Experiment, speedup: Speedup | None, samples: int) -> Measured:
    timings = _joined(rounds)
    *beside, latency = (_latency(rounds, place, look.share, experiment, samples) for place in range(len(timings)))
    return Measured(
        latency=latency,
        speedup=speedup,
        timings=tuple(timing.latencies_ns for timing in timings),
        beside=next(iter(beside), None),
    )


def _latency(rounds: Rounds, place: int, share: float, experiment: Experiment, samples: int) -> Latency:
    timing, windows = _joined(rounds)[place], [window[place] for window in rounds.windows]
    samples_ms, confidence = _ms(timing), looks.stricter(_CONFIDENCE, share)
    p50, p90, p95, p99 = (
        _honest(stats.bound(samples_ms, percentile, confidence), timing) for percentile in (50, 90, 95, 99)
    )
    throughput = ratio.throughput(windows, samples)
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
        load=experiment.load.describe(),
        preempted=timing.preempted,
        bounds=_bounds(timing, experiment.targets, share),
        at=experiment.at,
        throughput_per_s=throughput.value_per_s,
        throughput_low_per_s=throughput.low_per_s,
        throughput_high_per_s=throughput.high_per_s,
        stalled=timing.stalled,
        offered_per_s=timing.offered_per_s,
        overloaded=timing.overloaded,
        rounds=tuple(len(window.latencies_ns) for window in windows),
    )


def _bounds(timing: Timing, targets: tuple[Target, ...], share: float) -> tuple[Bound, ...]:
    """Bound each target at its own confidence, which is what is left of a stricter one after all looks."""
    return tuple(
        replace(_honest(_bound(timing, target, share), timing), confidence=target.confidence) for target in targets
    )


def _bound(timing: Timing, target: Target, share: float) -> Bound:
    return stats.bound(_ms(timing), target.percentile, looks.stricter(target.confidence, share), target.limit_ms)


def _honest(bound: Bound, timing: Timing) -> Bound:
    """Take the upper limit from what was cut short by an overload: latencies would have gone on to grow."""
    return replace(bound, high_ms=None, steady=False, needed=None) if timing.overloaded else bound


def _joined(rounds: Rounds) -> tuple[Timing, ...]:
    return tuple(map(_join, zip(*rounds.windows, strict=True)))


def _join(windows: Sequence[Timing]) -> Timing:
    """Join the timings of one session; shares are weighted with calls or with time."""
    calls, seconds = [len(window.latencies_ns) for window in windows], [window.seconds for window in windows]
    stalled = [window.stalled for window in windows if window.stalled is not None]
    offered = [window.offered_per_s for window in windows if window.offered_per_s is not None]
    return Timing(
        latencies_ns=np.concatenate([window.latencies_ns for window in windows]),
        seconds=sum(seconds),
        preempted=_mean([window.preempted for window in windows], calls),
        stalled=_mean(stalled, seconds) if len(stalled) == len(windows) else None,
        offered_per_s=_mean(offered, seconds) if len(offered) == len(windows) else None,
        overloaded=any(window.overloaded for window in windows),
    )


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return fmean(values, weights) if sum(weights) else 0.0


def _ms(timing: Timing) -> Array:
    return timing.latencies_ns / 1e6


def _samples(feeds: Feeds) -> int:
    """Give the length of the leading axis of the first input; 1 for a scalar."""
    shape = next(iter(feeds.values())).shape
    return int(shape[0]) if shape else 1
