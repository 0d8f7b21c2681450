"""What the windows of a measurement say: latency, throughput and speed-up, each with its limits.

Add what else a measurement says here; how much of the permitted error its limits may spend comes with `Seen`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from compressor.bench import enough, looks, ratio, stats
from compressor.bench.experiment import Experiment, Measured
from compressor.bench.looks import stricter
from compressor.bench.rounds import Rounds
from compressor.records import Array, Bound, Latency, Speedup, Target, Timing

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Seen:
    """Rounds, and the share of the permitted error that may be spent on them.

    `first`: the calls of the first look, where looks double; None where all spend the same. `samples`: those of a call.
    """

    rounds: Rounds
    share: float
    first: int | None
    samples: int

    def last_share(self, calls: int) -> float:
        """Give what the last look may spend in a measurement of so many calls."""
        return self.share if self.first is None else looks.last_share(calls, self.first)


def is_decided(seen: Seen, experiment: Experiment) -> bool:
    """Say whether all is decided that someone wants decided."""
    *_, windows = zip(*seen.rounds.windows, strict=True)
    found, throughput = speedup(seen), _throughput(windows, seen)
    ratios = found is None or all(_excludes(found.low, found.high, wanted) for wanted in experiment.ratios)
    rates = all(_excludes(throughput.low_per_s, throughput.high_per_s, wanted) for wanted in experiment.rates)
    return ratios and rates and all(map(stats.decided, _bounds(_Case.of(windows, seen, experiment), seen, experiment)))


def speedup(seen: Seen) -> Speedup | None:
    """Compare the first session with the last; None where there is but one, or fewer than three rounds."""
    windows = seen.rounds.windows
    if len(windows[0]) == 1:
        return None
    pairs = [(_ms(window[0]), _ms(window[-1])) for window in windows]
    found = ratio.speedup(pairs, stricter(_CONFIDENCE, seen.share))
    if found is None:
        return None
    both = [_join(each) for each in zip(*windows, strict=True)]
    return replace(
        found,
        baseline_p50_ms=float(np.median(_ms(both[0]))),
        preempted=fmean(timing.preempted for timing in both),
        stalled=both[0].stalled,
    )


def summed_up(seen: Seen, experiment: Experiment, speedup: Speedup | None) -> Measured:
    """Give all that is reported."""
    sessions = tuple(zip(*seen.rounds.windows, strict=True))
    *beside, latency = (_latency(windows, seen, experiment) for windows in sessions)
    timings = tuple(_join(windows).latencies_ns for windows in sessions)
    return Measured(latency, speedup, timings, beside=next(iter(beside), None))


@dataclass(frozen=True)
class _Case:
    """All calls of one session, and what their queue did: what makes their latencies prove less than they seem to."""

    timing: Timing
    open: bool
    growing: bool
    deff: float

    @classmethod
    def of(cls, windows: Sequence[Timing], seen: Seen, experiment: Experiment) -> _Case:
        """Join the windows of a session."""
        timing = _join(windows)
        if not experiment.load.open:
            return cls(timing, open=False, growing=False, deff=1.0)
        call_ms = seen.rounds.turn_s * 1e3 / experiment.load.opened
        growing = stats.grows(_ms(timing), call_ms)
        return cls(timing, open=True, growing=growing, deff=stats.design_effect(timing.latencies_ns))

    def bound(self, percentile: float, confidence: float, limit_ms: float | None = None) -> Bound:
        """Bound a percentile, without an upper limit where latencies would have gone on to grow."""
        found = stats.bound(_ms(self.timing), percentile, confidence, limit_ms, self.deff)
        if self.growing or self.timing.overloaded:
            return replace(found, high_ms=None, steady=False)
        few = len(self.timing.latencies_ns) / self.deff < stats.FEWEST_INDEPENDENT
        return replace(found, steady=False) if self.open and few else found


def _latency(windows: Sequence[Timing], seen: Seen, experiment: Experiment) -> Latency:
    case, throughput = _Case.of(windows, seen, experiment), _throughput(windows, seen)
    timing, confidence = case.timing, stricter(_CONFIDENCE, seen.share)
    p50, p90, p95, p99 = (case.bound(percentile, confidence) for percentile in (50, 90, 95, 99))
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
        mean_ms=float(_ms(timing).mean()),
        n=len(timing.latencies_ns),
        cold_ms=None,
        load_ms=None,
        shape=experiment.shape,
        load=experiment.load.describe(),
        preempted=timing.preempted,
        bounds=tuple(_advised(bound, case, seen) for bound in _bounds(case, seen, experiment)),
        at=experiment.at,
        throughput_per_s=throughput.value_per_s,
        throughput_low_per_s=throughput.low_per_s,
        throughput_high_per_s=throughput.high_per_s,
        stalled=timing.stalled,
        offered_per_s=timing.offered_per_s,
        overloaded=timing.overloaded,
        rounds=tuple(len(window.latencies_ns) for window in windows),
        growing=case.growing,
        quantiles_ms=stats.quantiles(_ms(timing)),
    )


def _throughput(windows: Sequence[Timing], seen: Seen) -> ratio.Throughput:
    return ratio.throughput(windows, seen.samples, stricter(_CONFIDENCE, seen.share))


def _bounds(case: _Case, seen: Seen, experiment: Experiment) -> tuple[Bound, ...]:
    """Bound each target at its own confidence, which is what is left of a stricter one after all looks."""
    return tuple(
        replace(_bound(case, target, seen.share), confidence=target.confidence) for target in experiment.targets
    )


def _bound(case: _Case, target: Target, share: float) -> Bound:
    return case.bound(target.percentile, stricter(target.confidence, share), target.limit_ms)


def _advised(bound: Bound, case: _Case, seen: Seen) -> Bound:
    """Add how many samples would decide; none would where requests come faster than they are answered."""
    if stats.decided(bound) or case.growing or case.timing.overloaded:
        return bound
    return replace(bound, needed=enough.enough(bound, len(case.timing.latencies_ns), case.deff, seen.last_share))


def _excludes(low: float | None, high: float | None, value: float) -> bool:
    return (low is not None and low > value) or (high is not None and high < value)


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
