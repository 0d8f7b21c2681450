"""The points of a measurement that a gate may state: another batch size, or other shapes.

A new way to state a point is a field of `At`.
"""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field, model_validator

from compressor.records import Latency, Trial
from compressor.units import Shape, shape, write_shape

_EXACTLY_ONE = {
    "oneOf": [
        {"properties": {"batch": {"type": "integer"}}, "required": ["batch"]},
        {"properties": {"shapes": {"minProperties": 1}}, "required": ["shapes"]},
    ]
}


class At(BaseModel, frozen=True, extra="forbid", json_schema_extra=_EXACTLY_ONE):
    """A point beside the one that the recipe's `shapes` state: the same with another batch size, or other shapes."""

    batch: int | None = Field(default=None, ge=1, le=65_536)
    shapes: dict[str, Shape] = {}

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.batch is None) != bool(self.shapes):
            found = "both" if self.shapes else "neither"
            raise ValueError(f"expected either batch or shapes, found {found}")
        return self

    def __hash__(self) -> int:
        return hash(self.name())

    def name(self) -> str:
        """Give the text under which the point stands in a measurement, the same however the inputs are ordered."""
        if self.batch is not None:
            return f"batch {self.batch}"
        return ", ".join(f"{name} {write_shape(dims) or 'scalar'}" for name, dims in sorted(self.shapes.items()))


def found(trial: Trial, at: At | None) -> Latency | None:
    """Give what a trial took at a point, None for the recipe's own; None where it was not measured."""
    if trial.measurement is None:
        return None
    if at is None:
        return trial.measurement.latency
    return next((other for other in trial.measurement.others if other.at == at.name()), None)


def named(at: At | None) -> str:
    """Give the name that a point has in a measurement and in a verdict, empty for the recipe's own."""
    return at.name() if at else ""


def where(at: At | None) -> str:
    """Give what follows the name of a gate at a point."""
    return f" at {at.name()}" if at else ""


def batch(latency: Latency) -> int:
    """Give the samples of one request: the leading axis of the first input, 1 for a scalar."""
    dims = shape(next(iter(latency.shape.values()), ""))
    return max(1, dims[0]) if dims else 1
