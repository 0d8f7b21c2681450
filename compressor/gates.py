"""The gates: what a candidate's measurement must show before it is chosen.

Add a gate as a class with a `judge`, and to the union at the foot. A gate that needs a percentile decided has a
`target` too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from compressor.grammar import Keyed
from compressor.records import Bound, Measurement, Score, Speedup, Target, Trial, Verdict
from compressor.units import Fraction, Seconds, human_ms, write_fraction, write_seconds

PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")
_FEWEST = 30  # samples below which no drop seen means no more than none looked for
_BURSTS = 1.5  # index of dispersion above which violations are said to come in bursts
_BUSY = 0.1  # share of preempted calls above which a reason mentions it
NORMALISE = "normalise"
"""The stage that comes before all others and counts as no change."""
REGRESSION = "speed"
"""Name of the gate, which no recipe names, that a rung is not slower than the one before it."""
_MINIMUM_EFFECT = 1.02  # ratios of time closer to 1 are no difference
_NO_DATA = "no evaluation data: give --evaluation, or name real samples in the recipe under data.evaluation"
_ROUNDING = 1e-9  # 0.81 - 0.80 is a drop of 1 %


class Latency(
    BaseModel,
    frozen=True,
    extra="forbid",
    serialize_by_alias=True,
    json_schema_extra={"oneOf": [{"properties": {p: {"type": "string"}}, "required": [p]} for p in PERCENTILES]},
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
        # what an idle machine could turn round is no proof against the model; it is never proof for it
        disturbed = met is not True and now.latency.preempted > _BUSY and now.latency.p50_ms <= target.limit_ms
        busy = _busy(now.latency.preempted) if disturbed else ""
        return Verdict(
            gate=_name(target),
            met=None if disturbed else met,
            unit="ms",
            observed=None if bound.high_ms is None else bound.value_ms,
            limit=target.limit_ms,
            low=bound.low_ms,
            high=bound.high_ms,
            reason=_finding(bound, target, now.latency.n) + busy,
        )

    def _limits(self) -> dict[str, float]:
        values = (self.p50, self.p90, self.p95, self.p99, self.p99_9)
        return {name: value for name, value in zip(PERCENTILES, values, strict=True) if value is not None}


class Accuracy(BaseModel, frozen=True, extra="forbid"):
    """The score on the evaluation samples drops by no more than `max_drop` below the baseline's on the same samples.

    A drop is absolute, in points of a metric between 0 and 1: from 80 % to 79 % it is 1 %. Where the score is agreement
    with the original model, the drop is what is missing to full agreement. Of an error, of which lower is better, the
    drop is its growth as a share of the baseline's.
    """

    max_drop: Fraction
    confidence: Literal["point", "95%"] = Field(
        default="point", description="`point` judges the observed drop, `95%` the interval of it."
    )

    def judge(self, before: Measurement | None, now: Measurement) -> Verdict:
        """Judge the drop; observed, limit, low and high are shares."""
        score, reference = now.score, before.score if before else None
        if score is None:
            return Verdict("accuracy", None, None, self.max_drop, None, None, _NO_DATA)
        if reference and not score.relative and not -1 <= reference.value <= 1:
            reason = f"{score.metric} is {reference.value:.4g}, of which {write_fraction(self.max_drop)} is no drop"
            more = ": let the metric give a number from 0 to 1"
            return Verdict("accuracy", None, None, self.max_drop, None, None, reason + more)
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
            return False, f"{score.metric} is not a finite number: the model's outputs, or the metric, are broken"
        if score.drop is None:
            return True, f"{score.metric} is {score.value:.4g}, the reference"
        met = self._met(score, score.drop)
        if met and score.n < _FEWEST:
            return None, f"{score.n} samples are too few to show a drop: evaluate on at least {_FEWEST}"
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


def implicit(trial: Trial, rivals: Sequence[Trial]) -> tuple[Verdict, ...]:
    """Give the verdicts that no recipe asks for and every rung must not have.

    A rung is slower than one of its `rivals`, it changed nothing, or it was calibrated on made-up inputs: the first of
    these that is proved, or else the first that is open.
    """
    verdicts = (*(regression(rival, trial) for rival in rivals), _unchanged(trial), _uncalibrated(trial))
    return tuple(sorted((verdict for verdict in verdicts if verdict), key=lambda verdict: verdict.met is None))[:1]


def regression(rival: Trial, trial: Trial) -> Verdict | None:
    """Give an unmet verdict if a rung is slower than another, beyond doubt and by more than 2 %; else None.

    It is undecided where the machine was too busy to tell.

    Both are compared by their speedups over the same baseline; the baseline's own is None and counts as exactly 1.
    """
    now = trial.measurement.speedup if trial.measurement else None
    if rival.measurement is None or now is None:
        return None
    before = rival.measurement.speedup or Speedup(1.0, 1.0, 1.0)
    if now.high * _MINIMUM_EFFECT >= before.low:
        return None
    preempted = max(one.measurement.latency.preempted for one in (rival, trial) if one.measurement)
    return Verdict(
        gate=REGRESSION,
        met=None if preempted > _BUSY else False,
        observed=now.ratio,
        limit=before.ratio,
        low=now.low,
        high=now.high,
        reason=f"takes {before.ratio / now.ratio:.3g} times as long as {rival.rung}"
        + (_busy(preempted) if preempted > _BUSY else ""),
    )


def _unchanged(trial: Trial) -> Verdict | None:
    own = [stage for stage in trial.stages if stage.stage != NORMALISE]
    if not own or any(stage.changed for stage in own):
        return None
    reason = f"no stage changed the model: {own[0].did}"
    return Verdict("change", met=False, observed=None, limit=None, low=None, high=None, reason=reason)


def _uncalibrated(trial: Trial) -> Verdict | None:
    if not any(stage.uncalibrated for stage in trial.stages):
        return None
    reason = "the ranges of its activations come from made-up inputs: give --calibration"
    return Verdict("calibration", met=None, observed=None, limit=None, low=None, high=None, reason=reason)


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
    return f"; the process was preempted in {preempted:.0%} of its calls: use an idle machine"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _drop(score: Score, drop: float) -> str:
    unit = " of itself" if score.relative else ""
    text = f"{score.metric} {'grows' if score.relative else 'drops'} by {drop:.2%}{unit}"
    if score.drop_low is None or score.drop_high is None:
        return text
    return f"{text} (95% interval {score.drop_low:.2%} to {score.drop_high:.2%})"


Gate = Annotated[Latency | Accuracy, Keyed(Latency, Accuracy)]
