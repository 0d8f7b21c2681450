"""Gates on speed, and when one model is called faster or slower than another.

A new gate on speed is a class here; what counts as faster is decided in `relation` alone.
"""

from __future__ import annotations

import math

from pydantic import BaseModel, Field

from compressor import records
from compressor.gates.at import At, batch, found, named, where
from compressor.gates.busy import blame, busy
from compressor.records import MINIMUM_EFFECT, Relation, Trial, Verdict
from compressor.units import Factor, Rate, human_rate, write_factor

RATIOS_OF_COMPARISON = (1 / MINIMUM_EFFECT, MINIMUM_EFFECT)
"""The speed-ups that a comparison wants decided."""
REGRESSION = "speed"
"""Name of the gate, which no recipe names, that a model is not slower than the one before it."""
LONGER = "measure longer (limits.measure, or --duration)"
"""What helps where the samples are too few."""

_FEWEST_ROUNDS = 5  # on a busy machine, where a few rounds may all have been lucky
ITSELF = records.Speedup(1.0, 1.0, 1.0, rounds=_FEWEST_ROUNDS, lowest=1.0, highest=1.0)
"""The baseline's speed-up over itself, exactly 1 in every round."""

_ROUNDING = 1e-6  # of a rate: requests are due at whole nanoseconds
_CLOSED = "measure with a closed load"
_UNPAIRED = f"too few pairs with the baseline were measured: {LONGER}, or with load: {{closed: {{concurrency: 1}}}}"


class Throughput(BaseModel, frozen=True, extra="forbid"):
    """At least `min` samples are answered a second, beyond doubt.

    Under a closed load the whole two-sided 95 % interval must reach it; it is not met where all of it lies below. An
    open loop must offer as much, and all must be answered without a queue that grows.
    """

    min: Rate = Field(gt=0)
    at: At | None = Field(default=None, description="Where it is measured; unset: at the recipe's shapes.")

    def judge(self, _before: Trial | None, now: Trial) -> Verdict:
        """Judge what was answered, or offered; observed, limit, low and high are in samples a second."""
        name, latency = f"throughput{where(self.at)}", found(now, self.at)
        if latency is None or latency.throughput_per_s is None:
            reason = f"throughput was not measured{where(self.at)}: measure with this gate"
            return Verdict(name, None, None, self.min, None, None, reason, named(self.at), "/s")
        judged = _closed if latency.offered_per_s is None else _opened
        met, reason = judged(now, latency, self.min)
        low, high = latency.throughput_low_per_s, latency.throughput_high_per_s
        return Verdict(name, met, latency.throughput_per_s, self.min, low, high, reason, named(self.at), "/s")


class Speedup(BaseModel, frozen=True, extra="forbid"):
    """At least `min` times as fast as the baseline, beyond doubt.

    The whole two-sided 95 % interval of the pairs must reach it; it is not met where all of it lies below.
    """

    min: Factor = Field(gt=0)

    def judge(self, before: Trial | None, now: Trial) -> Verdict:
        """Judge the paired interval; observed, limit, low and high are ratios, exactly 1 for the baseline."""
        paired = now.measurement.speedup if now.measurement else None
        speedup = ITSELF if before is None else paired
        if speedup is None:
            return Verdict("speedup", None, None, self.min, None, None, _UNPAIRED, unit="x")
        low, high = _certain(speedup)
        met = True if low >= self.min else False if high < self.min else None
        reason = "the baseline itself" if before is None else _times(speedup)
        if met is None:
            reason += f", which does not decide {write_factor(self.min)}{_help(speedup, now)}"
        return Verdict("speedup", met, speedup.ratio, self.min, speedup.low, speedup.high, reason, unit="x")


def reached(latency: records.Latency, least_per_s: float) -> bool | None:
    """Say whether so many samples a second are answered in a closed loop; a busy machine proves nothing against it."""
    low, high = latency.throughput_low_per_s, latency.throughput_high_per_s
    if low is not None and low >= least_per_s:
        return True
    return None if high is None or high >= least_per_s or busy(latency) else False


def relation(speedup: records.Speedup) -> Relation:
    """Say what a speed-up shows: a difference beyond doubt and of more than 2 %, none of as much, or neither.

    On a busy machine the interval is too narrow, because all pairs of a round share its luck: every round must show it,
    and there must be 5.
    """
    low, high = _certain(speedup)
    if low > MINIMUM_EFFECT:
        return "faster"
    if high * MINIMUM_EFFECT < 1:
        return "slower"
    return "same" if low * MINIMUM_EFFECT >= 1 and high <= MINIMUM_EFFECT else "undecided"


def not_slower(speedup: records.Speedup, longer: float = MINIMUM_EFFECT) -> Verdict:
    """Judge whether a model takes at most `longer` times as long as the one it was paired with, by default 1.02."""
    (low, high), least = _certain(speedup), 1 / longer
    met = True if low >= least else False if high * longer < 1 else None
    reason = _times(speedup)
    if met is None:
        reason += f", which does not decide whether it is slower{_help(speedup)}"
    return Verdict(REGRESSION, met, speedup.ratio, least, speedup.low, speedup.high, reason, unit="x")


def extremes(speedup: records.Speedup) -> tuple[float, float]:
    """Give what interval and rounds cover together; everything where the rounds are too few or were not kept."""
    if speedup.lowest is None or speedup.highest is None or speedup.rounds < _FEWEST_ROUNDS:
        return 0.0, math.inf
    return min(speedup.low, speedup.lowest), max(speedup.high, speedup.highest)


def _closed(trial: Trial, latency: records.Latency, least_per_s: float) -> tuple[bool | None, str]:
    low, high, asked = latency.throughput_low_per_s, latency.throughput_high_per_s, human_rate(least_per_s)
    if low is None:
        return None, f"too few samples bound the throughput, of which {asked} is asked: {LONGER}"
    met = reached(latency, least_per_s)
    answered = f"{human_rate(low)} to {human_rate(high)}" if high is not None else f"at least {human_rate(low)}"
    reason = f"{answered} (95% interval) are answered where {asked} is asked"
    if met is None:
        reason += blame(latency, trial) if busy(latency) else f", which is not decided: {LONGER}"
    return met, reason


def _opened(trial: Trial, latency: records.Latency, least_per_s: float) -> tuple[bool | None, str]:
    """Judge an open loop, in which no more can be answered than came.

    Of a burst all may be answered, but late: less than 2 % of what is asked may be missing in a second of the window.
    """
    offered_per_s, answered_per_s = (latency.offered_per_s or 0.0) * batch(latency), latency.throughput_per_s or 0.0
    asked, offered, answered = map(human_rate, (least_per_s, offered_per_s, answered_per_s))
    if latency.overloaded and answered_per_s < least_per_s:
        reason = f"overloaded: {offered} came and {answered} were answered where {asked} is asked"
        return (None, reason + blame(latency, trial)) if busy(latency) else (False, reason)
    if offered_per_s < least_per_s * (1 - _ROUNDING):
        return None, f"the load offers only {offered}, which cannot show {asked}: {_CLOSED}"
    if latency.growing and not latency.overloaded:
        return None, f"requests waited longer and longer at {offered}, which does not show {asked}: {_CLOSED}"
    if latency.overloaded or answered_per_s * MINIMUM_EFFECT < least_per_s:
        return None, f"{offered} came and {answered} were answered, which does not show {asked}: {_CLOSED}"
    return True, f"the load offered {offered} and all were answered, where {asked} is asked"


def _certain(speedup: records.Speedup) -> tuple[float, float]:
    return extremes(speedup) if busy(speedup) else (speedup.low, speedup.high)


def _times(speedup: records.Speedup) -> str:
    interval = f"95% interval {speedup.low:.2f} to {speedup.high:.2f}"
    return f"{speedup.ratio:.2f} times as fast ({interval})"


def _help(speedup: records.Speedup, *trials: Trial) -> str:
    return blame(speedup, *trials) if busy(speedup) else f": more pairs would, {LONGER}"
