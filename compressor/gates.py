"""The gates: what a candidate's measurement must show before it is chosen.

Add a gate as a class with a `judge`, and to the union at the foot. A gate that needs a percentile decided has a
`target` too.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from compressor.grammar import Keyed
from compressor.records import Bound, Measurement, Score, Speedup, Target, Verdict
from compressor.units import Fraction, Seconds, human_ms, write_fraction, write_seconds

_PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")
_BURSTS = 1.5  # index of dispersion above which violations are said to come in bursts
_BUSY = 0.1  # share of preempted calls above which a reason mentions it
REGRESSION = "not slower than the rung before"
"""Name of the gate that no recipe names."""
_MINIMUM_EFFECT = 1.02  # ratios of time closer to 1 are no difference
_NAME_DATA = "name real samples in the recipe under data.evaluation"
_ROUNDING = 1e-9  # 0.81 - 0.80 is a drop of 1 %


class Latency(
    BaseModel,
    frozen=True,
    extra="forbid",
    serialize_by_alias=True,
    json_schema_extra={"oneOf": [{"properties": {p: {"type": "string"}}, "required": [p]} for p in _PERCENTILES]},
):
    """One percentile of the warm latency is proved to be at or below a limit, less what `reserve` keeps from it."""

    p50: Seconds | None = None
    p90: Seconds | None = None
    p95: Seconds | None = None
    p99: Seconds | None = None
    p99_9: Seconds | None = Field(default=None, alias="p99.9")
    reserve: Seconds = Field(default=0.0, description="What network and pre- and post-processing take of the limit.")
    confidence: Fraction = 0.95

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
            raise ValueError(f"expected exactly one of {', '.join(_PERCENTILES)}, found {found}")
        ((name, limit_s),) = limits.items()
        if self.reserve >= limit_s:
            raise ValueError(
                f"expected a reserve below {name}: {write_seconds(limit_s)}, found {write_seconds(self.reserve)}"
            )
        return self

    def target(self) -> Target:
        """Give the percentile to decide."""
        ((name, limit_s),) = self._limits().items()
        return Target(float(name[1:]), self.confidence, (limit_s - self.reserve) * 1000)

    def judge(self, _before: Measurement | None, now: Measurement) -> Verdict:
        """Judge the bound that was measured for `target`; observed, limit, low and high are in milliseconds.

        `observed` is None where the samples are too few for an upper limit of the percentile.
        """
        target = self.target()
        bound = next((b for b in now.latency.bounds if _answers(b, target)), None)
        if bound is None:
            reason = f"{_asked(target)} was not measured: measure with this gate"
            return Verdict(_name(target), None, None, target.limit_ms, None, None, reason)
        met = _met(bound, target.limit_ms)
        busy = "" if met else _busy(now.latency.preempted)
        return Verdict(
            gate=_name(target),
            met=met,
            observed=None if bound.high_ms is None else bound.value_ms,
            limit=target.limit_ms,
            low=bound.low_ms,
            high=bound.high_ms,
            reason=_finding(bound, target, now.latency.n) + busy,
        )

    def _limits(self) -> dict[str, float]:
        values = (self.p50, self.p90, self.p95, self.p99, self.p99_9)
        return {name: value for name, value in zip(_PERCENTILES, values, strict=True) if value is not None}


class Accuracy(BaseModel, frozen=True, extra="forbid"):
    """The score on the evaluation samples drops by no more than `max_drop` below the baseline's on the same samples.

    A drop is absolute, in points of a metric between 0 and 1: from 80 % to 79 % it is 1 %. Where the score is agreement
    with the original model, the drop is what is missing to full agreement.
    """

    max_drop: Fraction
    confidence: Literal["point", "95%"] = Field(
        default="point", description="`point` judges the observed drop, `95%` the interval of it."
    )

    def judge(self, _before: Measurement | None, now: Measurement) -> Verdict:
        """Judge the drop; observed, limit, low and high are shares."""
        score = now.score
        if score is None:
            return Verdict("accuracy", None, None, self.max_drop, None, None, f"no evaluation data: {_NAME_DATA}")
        met, reason = self._finding(score)
        return Verdict(
            gate="accuracy",
            met=met,
            observed=_finite(score.drop or 0.0),
            limit=self.max_drop,
            low=_finite(score.drop_low),
            high=_finite(score.drop_high),
            reason=reason,
        )

    def _finding(self, score: Score) -> tuple[bool | None, str]:
        if not all(map(math.isfinite, (score.value, score.drop or 0.0))):
            return False, f"{score.metric} is not a finite number: the model's outputs are broken"
        if score.synthetic:
            return None, f"the evaluation data is synthetic and says nothing about accuracy: {_NAME_DATA}"
        if score.drop is None:
            return True, f"{score.metric} is {score.value:.4g}, the reference"
        met = self._met(score, score.drop)
        more = f", which {score.n} samples do not decide: evaluate on more" if met is None else ""
        return met, _drop(score, score.drop) + more + self._saturation(score)

    def _met(self, score: Score, drop: float) -> bool | None:
        most = self.max_drop + _ROUNDING
        if self.confidence == "point":
            return drop <= most
        if score.drop_high is not None and score.drop_high <= most:
            return True
        return False if score.drop_low is not None and score.drop_low > most else None

    def _saturation(self, score: Score) -> str:
        if score.emulated is None or abs(score.emulated - score.value) <= self.max_drop / 2:
            return ""
        return (
            f"; this CPU's integer kernels saturate: with exact arithmetic {score.metric} is {score.emulated:.4g} "
            f"instead of {score.value:.4g}"
        )


def regression(previous: Measurement | None, now: Measurement) -> Verdict | None:
    """Give an unmet verdict if a rung is slower than the one before it, beyond doubt and by more than 2 %; else None.

    Both are compared by their speedups over the same baseline; the baseline's own is None and counts as exactly 1.
    """
    if previous is None or now.speedup is None:
        return None
    before = previous.speedup or Speedup(1.0, 1.0, 1.0)
    if now.speedup.high * _MINIMUM_EFFECT >= before.low:
        return None
    times = before.ratio / now.speedup.ratio
    return Verdict(
        gate=REGRESSION,
        met=False,
        observed=now.speedup.ratio,
        limit=before.ratio,
        low=now.speedup.low,
        high=now.speedup.high,
        reason=f"takes {times:.3g} times as long as the rung before",
    )


def _answers(bound: Bound, target: Target) -> bool:
    same = (bound.percentile, bound.confidence) == (target.percentile, target.confidence)
    return same and bound.limit_ms in (None, target.limit_ms)


def _name(target: Target) -> str:
    return f"latency p{target.percentile:g}"


def _asked(target: Target) -> str:
    return f"p{target.percentile:g} <= {human_ms(target.limit_ms)} with {write_fraction(target.confidence)} confidence"


def _met(bound: Bound, limit_ms: float) -> bool | None:
    if bound.high_ms is not None and bound.high_ms <= limit_ms and bound.steady is not False:
        return True
    return False if bound.low_ms is not None and bound.low_ms > limit_ms else None


def _finding(bound: Bound, target: Target, n: int) -> str:
    """Say what the samples prove, or how many would prove something."""
    match _met(bound, target.limit_ms):
        case True:
            return f"p{target.percentile:g} is at most {human_ms(bound.high_ms or 0.0)}"
        case False:
            return f"p{target.percentile:g} is over {human_ms(bound.low_ms or 0.0)}"
    if bound.violations is None:
        return f"{n} samples do not decide {_asked(target)}"
    bursts = f" that come in bursts (dispersion {bound.dispersion:.1f})" if (bound.dispersion or 0) > _BURSTS else ""
    more = "no number of samples would, it lies on the limit"
    if bound.needed is not None:
        more = f"about {bound.needed} samples would, raise limits.measure"
    return f"{bound.violations} violations in {n} samples{bursts} do not decide {_asked(target)}: {more}"


def _busy(preempted: float) -> str:
    if preempted <= _BUSY:
        return ""
    return f"; the process was preempted in {preempted:.0%} of its calls: use an idle machine"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _drop(score: Score, drop: float) -> str:
    text = f"{score.metric} drops by {drop:.2%}"
    if score.drop_low is None or score.drop_high is None:
        return text
    return f"{text} (95% interval {score.drop_low:.2%} to {score.drop_high:.2%})"


Gate = Annotated[Latency | Accuracy, Keyed(Latency, Accuracy)]
