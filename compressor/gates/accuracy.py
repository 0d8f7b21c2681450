"""The gate on the quality that is left.

Another way to judge a score is a field of `Accuracy` and a part in its `judge`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from compressor.records import Score, Trial, Verdict
from compressor.units import Fraction, write_fraction

_FEWEST = 30  # samples below which no drop seen means no more than none looked for
_NO_DATA = "no evaluation data: give --evaluation, or name real samples in the recipe under data.evaluation"
_ROUNDING = 1e-9  # 0.81 - 0.80 is a drop of 1 %
_SCALES = {"sqnr": "in dB, of which {} is no drop: ask accuracy: {{min: 30}}"}
"""What to say of a built-in metric that is no share, with the drop that was asked."""
_AT_LEAST_ONE = {
    "oneOf": [
        {"properties": {"max_drop": {"type": "string"}}, "required": ["max_drop"]},
        {"properties": {"max_drop": {"type": "null"}, "min": {"type": "number"}}, "required": ["min"]},
    ]
}


class Accuracy(BaseModel, frozen=True, extra="forbid", json_schema_extra=_AT_LEAST_ONE):
    """The score on the evaluation samples drops by no more than `max_drop` below the baseline's on the same samples.

    A drop is absolute, in points of a metric between 0 and 1: from 80 % to 79 % it is 1 %. Where the score is agreement
    with the original model, the drop is what is missing to full agreement. Of an error, of which lower is better, the
    drop is its growth as a share of the baseline's. Instead of a drop or beside it, the score is at least `min`. With
    `confidence: 95%` all of the two-sided 95 % interval must lie within the limit.
    """

    max_drop: Fraction | None = None
    min: Annotated[float, Field(strict=True, allow_inf_nan=False)] | None = Field(
        default=None, description="The least value of the metric, such as 0.75, or 30 for sqnr."
    )
    confidence: Literal["point", "95%"] = Field(
        default="point", description="`point` judges what was observed, `95%` the interval of it."
    )

    @model_validator(mode="after")
    def _check_something(self) -> Self:
        if self.max_drop is None and self.min is None:
            raise ValueError("expected max_drop, min or both, found neither")
        return self

    def judge(self, before: Trial | None, now: Trial) -> Verdict:
        """Judge drop and value; observed, limit, low and high are those of the part that decides, the drop first."""
        score, reference = _score(now), _score(before)
        if score is None:
            return self._nothing(met=None, observed=None, reason=_NO_DATA)
        if not all(map(math.isfinite, (score.value, score.drop or 0.0))):
            reason = f"{score.metric} is not a finite number: the model's outputs, or the metric, are broken"
            return self._nothing(met=False, observed=_finite(score.drop), reason=reason)
        drop = [] if self.max_drop is None else [self._drop(self.max_drop, score, reference)]
        value = [] if self.min is None else [self._value(self.min, score)]
        parts = sorted((*drop, *value), key=lambda part: (part.met is not False, part.met is True))
        reason = "; ".join(dict.fromkeys(part.reason for part in parts))
        return replace(parts[0], reason=reason + _worst(score) + self._saturation(score))

    def unfit(self, metric: str) -> str | None:
        """Say why a built-in metric cannot show such a drop; None where it can."""
        if self.max_drop is None or metric not in _SCALES:
            return None
        return f"{metric} is {_SCALES[metric].format(write_fraction(self.max_drop))}"

    def _nothing(self, *, met: bool | None, observed: float | None, reason: str) -> Verdict:
        limit = self.min if self.max_drop is None else self.max_drop
        return Verdict("accuracy", met, observed, limit, None, None, reason)

    def _drop(self, most: float, score: Score, reference: Score | None) -> Verdict:
        if reference and not score.relative and not -1 <= reference.value <= 1:
            reason = f"{score.metric} is {reference.value:.4g}, of which {write_fraction(most)} is no drop"
            more = ": let the metric give a number from 0 to 1, or judge it by min"
            return Verdict("accuracy", None, None, most, None, None, reason + more)
        if score.drop is None:
            reason = f"{score.metric} is {score.value:.4g}, the reference"
            return Verdict("accuracy", met=True, observed=0.0, limit=most, low=None, high=None, reason=reason)
        met = self._met(most - score.drop, _minus(most, score.drop_high), _minus(most, score.drop_low))
        low, high = _finite(score.drop_low), _finite(score.drop_high)
        return _concluded(Verdict("accuracy", met, score.drop, most, low, high, _dropped(score, score.drop)), score)

    def _value(self, least: float, score: Score) -> Verdict:
        low, high = _finite(score.low), _finite(score.high)
        if score.relative:
            reason = f"{score.metric} is an error, of which lower is better: judge it by max_drop"
            return Verdict("accuracy", None, score.value, least, low, high, reason)
        met = self._met(score.value - least, _minus(low, least), _minus(high, least))
        interval = "" if low is None or high is None else f" (95% interval {low:.4g} to {high:.4g})"
        reason = f"{score.metric} is {score.value:.4g}{interval} where {least:.4g} is asked"
        return _concluded(Verdict("accuracy", met, score.value, least, low, high, reason), score)

    def _met(self, margin: float, worst: float | None, best: float | None) -> bool | None:
        """Judge by how much is left to the limit: as observed, or at both ends of the interval."""
        if self.confidence == "point":
            return margin >= -_ROUNDING
        if worst is not None and worst >= -_ROUNDING:
            return True
        return False if best is not None and best < -_ROUNDING else None

    def _saturation(self, score: Score) -> str:
        if score.emulated is None or not self._differs(score.value, score.emulated):
            return ""
        return (
            f"; this CPU's integer kernels saturate: with exact arithmetic {score.metric} is {score.emulated:.4g} "
            f"instead of {score.value:.4g}"
        )

    def _differs(self, value: float, emulated: float) -> bool:
        """Say whether exact arithmetic changes more than half of the drop allowed, or reaches what is asked."""
        moves = self.max_drop is not None and abs(emulated - value) > self.max_drop / 2
        return moves or (self.min is not None and value < self.min <= emulated)


def _score(trial: Trial | None) -> Score | None:
    return trial.quality if trial else None


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _dropped(score: Score, drop: float) -> str:
    unit = " of itself" if score.relative else ""
    text = f"{score.metric} {'grows' if score.relative else 'drops'} by {drop:.2%}{unit}"
    if score.drop_low is None or score.drop_high is None:
        return text
    return f"{text} (95% interval {score.drop_low:.2%} to {score.drop_high:.2%})"


def _concluded(verdict: Verdict, score: Score) -> Verdict:
    """Leave open what so few samples cannot show, and say that more of them would help."""
    if verdict.met and score.n < _FEWEST:
        reason = f"{score.n} samples are too few to show a drop: evaluate on at least {_FEWEST}"
        return replace(verdict, met=None, reason=reason)
    more = f", which {score.n} samples do not decide: evaluate on more" if verdict.met is None else ""
    return replace(verdict, reason=verdict.reason + more)


def _worst(score: Score) -> str:
    """Name the class that lost most, where it lost something beyond doubt."""
    found = score.worst
    if found is None or found.drop_low <= 0:
        return ""
    interval = f"95% interval {found.drop_low:.2%} to {found.drop_high:.2%}, {found.n} samples"
    return f"; class {found.label} lost most: {found.drop:.2%} ({interval})"
