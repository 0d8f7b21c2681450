"""What a rung may lose beside the model that is served now: the recipe's `baseline`, a registered version.

What else must not be worse is a field of `Tolerance` and a part in `Champion.judge`.
"""

from __future__ import annotations

import fractions
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema

from compressor.gates.accuracy import Accuracy
from compressor.gates.budgets import Macs, Memory, Nodes, Parameters, Size, Startup, within
from compressor.gates.speed import LONGER, not_slower
from compressor.records import REGISTERED, Beside, Bound, Measurement, Score, Served, Trial, Verdict, VersionName
from compressor.units import Fraction, human_ms, write_fraction

NAME = "champion"
"""The first word of every verdict on a rung beside the champion."""
_MAX_DROP = 0.01
"""Where the accuracy gate asks for a least value alone, which does not keep what is served from becoming worse."""
_UNPAIRED = f"too few pairs with the champion were measured: {LONGER}"
_APART = "the rung was not held against the champion: run again, so that both are measured here"
_BUDGETS = (Size, Macs, Parameters, Nodes)
_SAY = "tolerance: {accuracy: 5%}"
_EXACT = 10**6  # as a float 100 and 15 % are less than 115


class Tolerance(BaseModel, frozen=True, extra="forbid"):
    """How much worse than the champion a rung may be: shares of the champion's own value, of accuracy in points.

    `speed` is how much longer an inference may take. `accuracy` unset: what the accuracy gate allows, else 1 %; of a
    metric that exceeds 1, such as sqnr, it is a share of the champion's value, too. The others are asked only where the
    recipe has a gate of that name.
    """

    speed: Fraction = 0.02
    accuracy: Fraction | None = None
    size: Fraction = 0.02
    memory: Fraction = 0.05
    startup: Fraction = 0.1
    macs: Fraction = 0.02
    parameters: Fraction = 0.02
    nodes: Fraction = 0.02


class Champion(BaseModel, frozen=True, extra="forbid"):
    """A registered version, `models:/NAME@ALIAS` or `models:/NAME/VERSION`, that a rung must not be worse than.

    It is measured in the same run, in turn with each rung that meets every gate, and never against an older number.
    """

    model: str
    tolerance: Tolerance = Tolerance()

    def judge(self, asked: Sequence[BaseModel], served: Served | None, now: Trial) -> tuple[Verdict, ...]:
        """Judge a rung beside the champion: speed and score, and what the gates that are `asked` budget."""
        if served is None or now.beside is None:
            return (_undecided(NAME, _APART),)
        if now.beside.same:
            same = f"it is version {served.version} itself, byte for byte"
            return (Verdict(NAME, met=True, observed=None, limit=None, low=None, high=None, reason=same),)
        found = (
            *self._speed(now.beside),
            *self._accuracy(asked, now.beside),
            *self._budgets(asked, served, now),
            *self._spent(asked, now.beside),
        )
        return tuple(replace(verdict, gate=f"{NAME} {verdict.gate}") for verdict in found)

    def unfit(self, asked: Sequence[BaseModel], metric: str) -> str | None:
        """Say why a built-in metric cannot show the drop that is allowed beside the champion; None where it can."""
        gate = self._drop(asked)
        if self.tolerance.accuracy is not None or not gate.unfit(metric):
            return None
        return _unfit(metric)

    def slowest(self) -> float:
        """Give the speed-up over the champion that a rung must have at the least."""
        return 1 / (1 + self.tolerance.speed)

    def _speed(self, beside: Beside) -> Iterator[Verdict]:
        if beside.now is None:
            yield _undecided("speed", _untimed(beside), "x")
            return
        speedup = beside.now.speedup
        yield not_slower(speedup, 1 + self.tolerance.speed) if speedup else _undecided("speed", _UNPAIRED, "x")

    def _accuracy(self, asked: Sequence[BaseModel], beside: Beside) -> Iterator[Verdict]:
        if beside.score is None:
            yield _undecided("accuracy", beside.unscored)
            return
        if beside.champion_score and not math.isfinite(beside.champion_score.value):
            yield _undecided("accuracy", f"{beside.champion_score.metric} of the champion is not a finite number")
            return
        before, now = Trial(NAME, score=beside.champion_score), Trial(NAME, score=beside.score)
        whole = abs(beside.champion_score.value) if beside.champion_score else 0.0
        if whole > 1 and not beside.score.relative:  # a drop of 1 % is none of it
            if self.tolerance.accuracy is None:
                yield _undecided("accuracy", _unfit(beside.score.metric))
                return
            before, now = Trial(NAME), Trial(NAME, score=_as_share(beside.score, whole))
        yield self._drop(asked).judge(before, now)

    def _drop(self, asked: Sequence[BaseModel]) -> Accuracy:
        """Give the gate on the drop from the champion's score: that of the recipe, less what is no drop."""
        gate = next((gate for gate in asked if isinstance(gate, Accuracy)), Accuracy(max_drop="1%"))
        allowed = (self.tolerance.accuracy, gate.max_drop, _MAX_DROP)
        most = next(share for share in allowed if share is not None)
        return gate.model_copy(update={"max_drop": most, "min": None})

    def _budgets(self, asked: Sequence[BaseModel], served: Served, now: Trial) -> Iterator[Verdict]:
        """Judge what is counted: of the files, or of the graph."""
        sides: dict[str, tuple[int | None, int | None, str]] = {
            "size": (served.model.size_bytes, now.size_bytes, "bytes")
        }
        if now.model:
            sides |= {
                "macs": (served.model.macs, now.model.macs, "MACs"),
                "parameters": (served.model.parameters, now.model.parameters, "parameters"),
                "nodes": (served.model.nodes, now.model.nodes, "nodes"),
            }
        for kind in _BUDGETS:
            name = kind.__name__.lower()
            if name in sides and any(isinstance(gate, kind) for gate in asked):
                yield self._within(name, *sides[name])

    def _spent(self, asked: Sequence[BaseModel], beside: Beside) -> Iterator[Verdict]:
        """Judge what a fresh process takes."""
        then, now = beside.champion, beside.now
        if any(isinstance(gate, Memory) for gate in asked):
            memory = (then.memory_bytes, now.memory_bytes) if then and now else None
            untimed = _undecided("memory", _untimed(beside), "B")
            yield self._within("memory", *memory, "bytes of memory") if memory else untimed
        if any(isinstance(gate, Startup) for gate in asked):
            yield self._start(then, now) if then and now else _undecided("startup", _untimed(beside), "ms")

    def _within(self, name: str, before: int | None, now: int | None, what: str) -> Verdict:
        tolerance: float = getattr(self.tolerance, name)
        unit = "B" if "bytes" in what else ""
        if before is None:
            return _undecided(name, f"the champion's {what} are not known", unit)
        limit = int(before * (1 + fractions.Fraction(tolerance).limit_denominator(_EXACT)))
        met, reason = within(now, limit, what, f"the {what} of the rung are not known")
        more = f", the champion's {before:,} and {write_fraction(tolerance)}"
        return Verdict(name, met, now, limit, None, None, reason + more, unit=unit)

    def _start(self, before: Measurement, now: Measurement) -> Verdict:
        """Judge the start; five of each side say no more than that it is not longer beyond doubt."""
        then, since = before.startup, now.startup
        if then is None or then.high_ms is None or since is None or since.low_ms is None:
            return _undecided("startup", "too few fresh processes were started to compare the start", "ms")
        limit = then.high_ms * (1 + self.tolerance.startup)
        return Verdict(
            gate="startup",
            met=since.low_ms <= limit,
            observed=since.value_ms,
            limit=limit,
            low=since.low_ms,
            high=since.high_ms,
            reason=f"load and first call take {_spread(since)}, the champion's {_spread(then)}",
            unit="ms",
        )

    @field_validator("model")
    @classmethod
    def _check_named(cls, model: str) -> str:
        return str(VersionName.read(model))

    @model_validator(mode="before")
    @classmethod
    def _spelt_out(cls, value: Any) -> Any:
        """Read the name alone, too."""
        return {"model": value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe both spellings."""
        return {"anyOf": [{"type": "string", "pattern": f"^{REGISTERED}.+"}, handler(schema)]}


def _undecided(gate: str, reason: str, unit: str = "") -> Verdict:
    return Verdict(gate, None, None, None, None, None, reason, unit=unit)


def _unfit(metric: str) -> str:
    return f"{metric} is no share, of which 1 % could be lost: say how much of the champion's, as {_SAY}"


def _untimed(beside: Beside) -> str:
    """Say why the two were not run together: an engine is for another device, or one of them cannot be run."""
    return beside.failure or "nothing was timed here: prove it where it will serve"


def _as_share(score: Score, whole: float) -> Score:
    """Give a score whose drop is told as a share of a value, not in the metric's own unit."""
    low, high = (None if bound is None else bound / whole for bound in (score.drop_low, score.drop_high))
    return replace(score, drop=None if score.drop is None else score.drop / whole, drop_low=low, drop_high=high)


def _spread(bound: Bound) -> str:
    return f"{human_ms(bound.low_ms or 0.0)} to {human_ms(bound.high_ms or 0.0)}"
