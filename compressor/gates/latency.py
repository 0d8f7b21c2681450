"""The gate on a percentile of the latency.

Another percentile is a field of `Latency` and a name in `PERCENTILES`.
"""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field, field_validator, model_validator

from compressor import records
from compressor.gates.at import At, batch, found, named, where
from compressor.gates.busy import blame, busy
from compressor.records import Bound, Target, Trial, Verdict
from compressor.units import (
    Fraction,
    Seconds,
    human_duration,
    human_ms,
    human_number,
    human_rate,
    write_fraction,
    write_seconds,
)

PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")
_BURSTS = 1.5  # index of dispersion above which violations are said to come in bursts
_GROWING = "requests waited longer and longer: the queue has no end at this rate; lower the rate or measure longer"


class Latency(
    BaseModel,
    frozen=True,
    extra="forbid",
    serialize_by_alias=True,
    json_schema_extra={"oneOf": [{"properties": {p: {"type": "string"}}, "required": [p]} for p in PERCENTILES]},
):
    """One percentile of the warm latency is proved to be at or below a limit, less what `reserve` keeps from it.

    Proved: its one-sided upper limit at `confidence` is; it is not met where the one-sided lower limit is above.
    """

    p50: Seconds | None = None
    p90: Seconds | None = None
    p95: Seconds | None = None
    p99: Seconds | None = None
    p99_9: Seconds | None = Field(default=None, alias="p99.9")
    reserve: Seconds = Field(default=0.0, description="What network and pre- and post-processing take of the limit.")
    confidence: Fraction = 0.95
    at: At | None = Field(default=None, description="Where it is measured; unset: at the recipe's shapes.")

    @field_validator("confidence")
    @classmethod
    def _check_confidence(cls, value: float) -> float:
        if not 0.5 <= value < 1:  # noqa: PLR2004 - below one half the limits would cross
            raise ValueError(f"expected a confidence from 50% to less than 100%, found {write_fraction(value)}")
        return value

    @model_validator(mode="after")
    def _check_limit(self) -> Self:
        limits = self._limits()
        if len(limits) != 1:
            found = " and ".join(limits) or "none"
            raise ValueError(f"expected exactly one of {', '.join(PERCENTILES)}, found {found}")
        ((name, limit_s),) = limits.items()
        if limit_s <= 0:
            raise ValueError(f"expected a time above 0, found {write_seconds(limit_s)}")
        if self.reserve >= limit_s:
            raise ValueError(
                f"expected a reserve below {name}: {write_seconds(limit_s)}, found {write_seconds(self.reserve)}"
            )
        return self

    def target(self) -> Target:
        """Give the percentile to decide."""
        ((name, limit_s),) = self._limits().items()
        return Target(float(name[1:]), self.confidence, (limit_s - self.reserve) * 1000)

    def judge(self, _before: Trial | None, now: Trial) -> Verdict:
        """Judge the bound that was measured for `target`; observed, limit, low and high are in milliseconds.

        `observed` is None where the samples are too few for an upper limit of the percentile.
        """
        target, latency = self.target(), found(now, self.at)
        bound = _telling(latency, target) if latency else None
        name = f"latency p{target.percentile:g}{where(self.at)}"
        if latency is None or (bound is None and not latency.overloaded):
            reason = f"{_asked(target)} was not measured{where(self.at)}: measure with this gate"
            return Verdict(name, None, None, target.limit_ms, None, None, reason, named(self.at), "ms")
        met = _met(latency, bound, target.limit_ms)
        disturbed = met is not True and _disturbed(latency, target.limit_ms)
        return Verdict(
            gate=name,
            met=None if disturbed else met,
            observed=None if bound is None or bound.high_ms is None or not _same(bound, target) else bound.value_ms,
            limit=target.limit_ms,
            low=bound.low_ms if bound else None,
            high=bound.high_ms if bound else None,
            reason=_finding(latency, bound, target) + (blame(latency, now) if disturbed else ""),
            at=named(self.at),
            unit="ms",
        )

    def _limits(self) -> dict[str, float]:
        values = (self.p50, self.p90, self.p95, self.p99, self.p99_9)
        return {name: value for name, value in zip(PERCENTILES, values, strict=True) if value is not None}


def _telling(latency: records.Latency, target: Target) -> Bound | None:
    """Give the bound that was measured for this very target, else one that proves the same: a report may be old.

    What holds for a higher percentile, a stricter confidence or a lower limit holds for the target, too; and what a
    lower percentile exceeds, it exceeds.
    """
    answers = (bound for bound in latency.bounds if _answers(bound, target))
    return next(answers, None) or next((bound for bound in latency.bounds if _implies(bound, target)), None)


def _answers(bound: Bound, target: Target) -> bool:
    return _same(bound, target) and bound.limit_ms in (None, target.limit_ms)


def _same(bound: Bound, target: Target) -> bool:
    return (bound.percentile, bound.confidence) == (target.percentile, target.confidence)


def _implies(bound: Bound, target: Target) -> bool:
    if bound.confidence < target.confidence:
        return False
    if bound.low_ms is not None and bound.low_ms > target.limit_ms:
        return bound.percentile <= target.percentile
    # bursts were looked for above the bound's own limit: what lies above a higher one is a part of that
    looked = bound.limit_ms is not None and bound.limit_ms <= target.limit_ms
    proved = looked and bound.high_ms is not None and bound.high_ms <= target.limit_ms and bound.steady is not False
    return proved and bound.percentile >= target.percentile


def _asked(target: Target) -> str:
    return f"p{target.percentile:g} <= {human_ms(target.limit_ms)} with {write_fraction(target.confidence)} confidence"


def _met(latency: records.Latency, bound: Bound | None, limit_ms: float) -> bool | None:
    if bound is None or latency.overloaded or (bound.low_ms is not None and bound.low_ms > limit_ms):
        return False
    steady = bound.steady is not False and not latency.growing
    return True if steady and bound.high_ms is not None and bound.high_ms <= limit_ms else None


def _disturbed(latency: records.Latency, limit_ms: float) -> bool:
    """Say whether a quieter machine could turn it round: that is no proof against a model, and it is never for it."""
    return busy(latency) and (latency.overloaded or latency.p50_ms <= limit_ms)


def _finding(latency: records.Latency, bound: Bound | None, target: Target) -> str:
    """Say what the samples prove, or how many would prove something."""
    if bound is None or latency.overloaded:
        return _overload(latency)
    bursts = f"come in bursts (dispersion {bound.dispersion:.1f})" if (bound.dispersion or 0) > _BURSTS else ""
    match _met(latency, bound, target.limit_ms):
        case True:
            text = f"p{bound.percentile:g} is at most {human_ms(bound.high_ms or 0.0)}"
            return f"{text}; violations {bursts}" if bursts else text
        case False:
            return f"p{bound.percentile:g} is over {human_ms(bound.low_ms or 0.0)}"
    return _GROWING if latency.growing else _open(latency, bound, target, bursts)


def _open(latency: records.Latency, bound: Bound, target: Target, bursts: str) -> str:
    if bound.violations is None:
        return f"{latency.n} samples do not decide {_asked(target)}"
    seen = f"{bound.violations} violations in {latency.n} samples{bursts and f' that {bursts}'}"
    more = "no number of samples would, it lies on the limit" if bound.needed is None else _more(latency, bound.needed)
    return f"{seen} do not decide {_asked(target)}: {more}"


def _more(latency: records.Latency, needed: int) -> str:
    """Say how many samples would decide, to two digits, and how long they take where the rate of calls is known."""
    calls_per_s = latency.offered_per_s or (latency.throughput_per_s or 0.0) / batch(latency)
    time = f", some {human_duration(needed / calls_per_s)}" if calls_per_s else ""
    return f"about {human_number(float(f'{needed:.2g}'))} samples would{time}: raise limits.measure or --duration"


def _overload(latency: records.Latency) -> str:
    """Compare the requests that came with those that were answered; throughput counts the samples of a batch."""
    words = ["overloaded: requests came"]
    if latency.offered_per_s is not None:
        words.append(f"at {human_rate(latency.offered_per_s)}")
    if latency.throughput_per_s is None:
        return f"{' '.join(words)} faster than they were answered"
    return f"{' '.join(words)} and were answered at {human_rate(latency.throughput_per_s / batch(latency))}"
