"""Structured pruning: the recipe's words for it. The surgery on the graph is not part of this version.

Settings of pruning are fields of `Prune`.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from compressor.errors import RungError
from compressor.records import Did, Model, Work
from compressor.schemes import Scheme
from compressor.stages.supply import Supply
from compressor.units import Fraction


class Prune(BaseModel, frozen=True, extra="forbid"):
    """Remove whole channels until `ratio` of the multiply-accumulates are gone."""

    open: ClassVar[bool] = False
    needs_evaluation: ClassVar[bool] = True
    """Nobody should prune a model without data that shows what it lost."""

    ratio: Fraction

    def resolve(self, _model: Path, _scheme: Scheme) -> Prune:
        """Nothing depends on the model or the machine."""
        return self

    def apply(self, _model: Model, _supply: Supply, _out: Path) -> Work[Did]:
        """Refuse: this version cannot prune.

        Raises:
            RungError: Always.
        """
        raise RungError("structured pruning is not part of this version; remove the rung, or ignore it")
        yield  # a stage is a generator
