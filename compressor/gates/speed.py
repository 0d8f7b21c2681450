"""Gates on speed, and when one model is called faster or slower than another.

A new gate on speed is a class here; what counts as faster is decided in `relation` alone.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, Field

from compressor import records
from compressor.gates.at import At, batch, measured, where
from compressor.gates.busy import blame, busy
from compressor.records import Trial, Verdict
from compressor.units import Factor, Rate, human_rate, write_factor

MINIMUM_EFFECT = 1.02
"""Ratios of time closer to 1 are no difference."""
RATIOS_OF_COMPARISON = (1 / MINIMUM_EFFECT, MINIMUM_EFFECT)
"""The speed-ups that a comparison wants decided."""
REGRESSION = "speed"
"""Name of the gate, which no recipe names, that a model is not slower than the one before it."""
ITSELF = records.Speedup(1.0, 1.0, 1.0, lowest=1.0, highest=1.0)
"""The baseline's speed-up over itself."""

_UNPAIRED = "too few pairs with the baseline were measured: measure longer, or with load: {closed: {concurrency: 1}}"


class Throughput(BaseModel, frozen=True, extra="forbid"):
    """At least `min` samples are answered a second, beyond doubt."""

    min: Rate = Field(gt=0)
    at: At | None = Field(default=None, description="Where it is measured; unset: at the recipe's shapes.")

    def judge(self, _before: Trial | None, now: Trial) -> Verdict:
        """Judge the 95 % interval; observed, limit, low and high are in samples a second."""
        name, latency = f"throughput{where(self.at)}", measured(now, self.at)
        if latency is None:
            reason = f"throughput was not measured{where(self.at)}: measure with this gate"
            return Verdict(name, None, None, self.min, None, None, reason, "/s")
        met, reason = reaches(now, latency, self.min)
        low, high = latency.throughput_low_per_s, latency.throughput_high_per_s
        return Verdict(name, met, latency.throughput_per_s, self.min, low, high, reason, "/s")


class Speedup(BaseModel, frozen=True, extra="forbid"):
    """At least `min` times as fast as the baseline, beyond doubt."""

    min: Factor = Field(gt=0)

    def judge(self, before: Trial | None, now: Trial) -> Verdict:
        """Judge the paired 95 % interval; observed, limit, low and high are ratios, exactly 1 for the baseline."""
        paired = now.measurement.speedup if now.measurement else None
        found = ITSELF if before is None else paired
        if found is None:
            return Verdict("speedup", None, None, self.min, None, None, _UNPAIRED, "x")
        low, high = _certain(found)
        met = True if low >= self.min else False if high < self.min else None
        reason = "the baseline itself" if before is None else _times(found)
        if met is None:
            reason += f", which does not decide {write_factor(self.min)}{_help(found, now)}"
        return Verdict("speedup", met, found.ratio, self.min, found.low, found.high, reason, "x")


def reaches(trial: Trial, latency: records.Latency, least_per_s: float) -> tuple[bool | None, str]:
    """Say whether a trial answers so many samples a second at a point, and why.

    An open loop shows no more than it offers, and a busy machine proves nothing against a model.
    """
    low, high = latency.throughput_low_per_s, latency.throughput_high_per_s
    asked = human_rate(least_per_s)
    if low is None or high is None:
        return None, f"too few samples bound the throughput, of which {asked} is asked: measure longer"
    interval = f"{human_rate(low)} to {human_rate(high)} (95% interval) are answered where {asked} is asked"
    if low >= least_per_s:
        return True, interval
    offered_per_s = math.inf if latency.offered_per_s is None else latency.offered_per_s * batch(latency)
    if offered_per_s <= least_per_s and not latency.overloaded:
        few = f"the load offers {human_rate(offered_per_s)}, which cannot show {asked}"
        return None, f"{few}: raise its rate, or use a closed load"
    if high >= least_per_s:
        more = blame(latency, trial) if busy(latency) else ": measure longer"
        return None, f"{interval}, which is not decided{more}"
    return (None, interval + blame(latency, trial)) if busy(latency) else (False, interval)


def relation(speedup: records.Speedup) -> Literal["faster", "slower", "same", "undecided"]:
    """Say what a speed-up shows: a difference beyond doubt and of more than 2 %, none of as much, or neither.

    On a busy machine the interval is too narrow, because all pairs of a round share its luck: every round must show it.
    """
    low, high = _certain(speedup)
    if low > MINIMUM_EFFECT:
        return "faster"
    if high * MINIMUM_EFFECT < 1:
        return "slower"
    return "same" if speedup.low * MINIMUM_EFFECT >= 1 and speedup.high <= MINIMUM_EFFECT else "undecided"


def not_slower(speedup: records.Speedup) -> Verdict:
    """Judge whether a model is as fast as the one it was paired with, but for 2 %."""
    least = 1 / MINIMUM_EFFECT
    met = True if speedup.low >= least else False if relation(speedup) == "slower" else None
    reason = _times(speedup)
    if met is None:
        reason += f", which does not decide whether it is slower{_help(speedup)}"
    return Verdict(REGRESSION, met, speedup.ratio, least, speedup.low, speedup.high, reason, "x")


def extremes(speedup: records.Speedup) -> tuple[float, float]:
    """Give what interval and rounds cover together; everything where the rounds were not kept."""
    if speedup.lowest is None or speedup.highest is None:
        return 0.0, math.inf
    return min(speedup.low, speedup.lowest), max(speedup.high, speedup.highest)


def _certain(speedup: records.Speedup) -> tuple[float, float]:
    return extremes(speedup) if busy(speedup) else (speedup.low, speedup.high)


def _times(speedup: records.Speedup) -> str:
    interval = f"95% interval {speedup.low:.3g} to {speedup.high:.3g}"
    return f"{speedup.ratio:.3g} times as fast ({interval})"


def _help(speedup: records.Speedup, *trials: Trial) -> str:
    return blame(speedup, *trials) if busy(speedup) else ": more pairs would, measure longer"
