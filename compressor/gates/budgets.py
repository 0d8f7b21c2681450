"""Gates on what a model needs besides its time: bytes, memory, a start, operations, money.

A budget is a class with `max`; one that needs no timing is exact, and `within` judges it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from compressor.gates.at import found
from compressor.gates.busy import blame, busy
from compressor.gates.speed import LONGER, reached
from compressor.records import Bound, Trial, Verdict
from compressor.units import Bytes, Count, Price, Seconds, human_ms, human_number

_SECONDS_PER_HOUR = 3600
_MILLION = 1_000_000
_UNKNOWN = "the model was not counted"
_MACS = "the shapes do not settle its MACs: give static shapes with --shape, or in the recipe under shapes"
_OPEN = "an open loop shows what came, not what could be answered, so the price is unknown: measure with a closed load"
_UNSTARTED = "load and first call in fresh processes were not measured: measure with this gate"


class Size(BaseModel, frozen=True, extra="forbid"):
    """All files of the artifact together have at most `max` bytes."""

    max: Bytes = Field(gt=0)

    def judge(self, _before: Trial | None, now: Trial) -> Verdict:
        """Judge the artifact's bytes."""
        met, reason = within(now.size_bytes, self.max, "bytes", "the artifact was not measured")
        return Verdict("size", met, now.size_bytes, self.max, None, None, reason, unit="B")


class Memory(BaseModel, frozen=True, extra="forbid"):
    """A fresh process that loads and runs the artifact has at most `max` bytes of resident memory at its peak."""

    max: Bytes = Field(gt=0)

    def judge(self, _before: Trial | None, now: Trial) -> Verdict:
        """Judge the peak resident memory, in bytes."""
        memory = now.measurement.memory_bytes if now.measurement else None
        missing = "the peak memory of a fresh process was not measured: run it in a process of its own"
        met, reason = within(memory, self.max, "bytes of memory", missing)
        return Verdict("memory", met, memory, self.max, None, None, reason, unit="B")


class Startup(BaseModel, frozen=True, extra="forbid"):
    """Half of all fresh processes load the artifact and answer the first call within `max`, beyond doubt.

    Beyond doubt: the one-sided upper 95 % limit of the median is; it is not met where the lower one is above.
    """

    max: Seconds = Field(gt=0)

    def judge(self, _before: Trial | None, now: Trial) -> Verdict:
        """Judge the limits of the median over fresh processes; observed, limit, low and high are in milliseconds."""
        bound, limit_ms = now.measurement.startup if now.measurement else None, self.max * 1000
        if bound is None:
            return Verdict("startup", None, None, limit_ms, None, None, _UNSTARTED, unit="ms")
        met, reason = _started(bound, limit_ms)
        observed = None if bound.high_ms is None else bound.value_ms
        return Verdict("startup", met, observed, limit_ms, bound.low_ms, bound.high_ms, reason, unit="ms")


class Macs(BaseModel, frozen=True, extra="forbid"):
    """One inference takes at most `max` multiply-accumulates at the measured shapes."""

    max: Count = Field(gt=0)

    def judge(self, _before: Trial | None, now: Trial) -> Verdict:
        """Judge the multiply-accumulates."""
        macs = now.model.macs if now.model else None
        met, reason = within(macs, self.max, "MACs", _MACS)
        return Verdict("macs", met, macs, self.max, None, None, reason)


class Parameters(BaseModel, frozen=True, extra="forbid"):
    """The model has at most `max` parameters."""

    max: Count = Field(gt=0)

    def judge(self, _before: Trial | None, now: Trial) -> Verdict:
        """Judge the number of parameters."""
        parameters = now.model.parameters if now.model else None
        met, reason = within(parameters, self.max, "parameters", _UNKNOWN)
        return Verdict("parameters", met, parameters, self.max, None, None, reason)


class Nodes(BaseModel, frozen=True, extra="forbid"):
    """The graph has at most `max` nodes."""

    max: Count = Field(gt=0)

    def judge(self, _before: Trial | None, now: Trial) -> Verdict:
        """Judge the number of nodes."""
        nodes = now.model.nodes if now.model else None
        met, reason = within(nodes, self.max, "nodes", _UNKNOWN)
        return Verdict("nodes", met, nodes, self.max, None, None, reason)


class Cost(BaseModel, frozen=True, extra="forbid"):
    """A million inferences cost at most `max` on a machine that costs `per_hour`, at the throughput of a closed load.

    All of the two-sided 95 % interval must lie within; it is not met where all of it lies above.
    """

    max: Price = Field(gt=0)
    per_hour: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] = Field(
        description="What an hour of the machine costs, in US dollars."
    )

    def judge(self, _before: Trial | None, now: Trial) -> Verdict:
        """Judge the 95 % interval; observed, limit, low and high are US dollars for a million."""
        latency = found(now, None)
        if latency is None or latency.offered_per_s is not None:
            reason = _OPEN if latency else "throughput was not measured, so its cost is not known"
            return Verdict("cost", None, None, self.max, None, None, reason, unit="USD/1M")
        met, observed = reached(latency, self.least_per_s()), self.per_million(latency.throughput_per_s)
        low, high = map(self.per_million, (latency.throughput_high_per_s, latency.throughput_low_per_s))
        reason = self._interval(low, high)
        if met is None:
            reason += blame(latency, now) if busy(latency) and low is not None else f": {LONGER}"
        return Verdict("cost", met, observed, self.max, low, high, reason, unit="USD/1M")

    def least_per_s(self) -> float:
        """Give the samples a second at which a million cost exactly `max`."""
        return self.per_hour / _SECONDS_PER_HOUR / self.max * _MILLION

    def per_million(self, throughput_per_s: float | None) -> float | None:
        """Give the cost of a million inferences at a throughput; None where nothing is answered."""
        return self.per_hour / _SECONDS_PER_HOUR / throughput_per_s * _MILLION if throughput_per_s else None

    def _interval(self, low: float | None, high: float | None) -> str:
        limit = f"limit {human_number(self.max)} USD"
        if low is None or high is None:
            return f"too few samples bound the cost of a million, {limit}"
        return f"{human_number(low)} to {human_number(high)} USD a million (95% interval), {limit}"


def within(observed: int | None, limit: int, what: str, unknown: str) -> tuple[bool | None, str]:
    """Judge a count by its limit, and say so; undecided, and why, where it is not known."""
    if observed is None:
        return None, unknown
    met = observed <= limit
    return met, f"{observed:,} {what}, {'within' if met else 'over'} the limit of {limit:,}"


def _started(bound: Bound, limit_ms: float) -> tuple[bool | None, str]:
    if bound.high_ms is not None and bound.high_ms <= limit_ms:
        return True, f"load and first call take at most {human_ms(bound.high_ms)} in half of all processes"
    if bound.low_ms is not None and bound.low_ms > limit_ms:
        return False, f"load and first call take over {human_ms(bound.low_ms)} in half of all processes"
    if bound.high_ms is None or bound.low_ms is None:
        return None, "too few fresh processes were started to bound the median of load plus first call: start 5"
    interval = f"{human_ms(bound.low_ms)} and {human_ms(bound.high_ms)}"
    return None, f"the median of load plus first call lies between {interval}: use a quieter machine"
