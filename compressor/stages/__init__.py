"""Stages: what a rung does to a model. Each takes a model, samples and an output path, and writes a new model there.

A new stage is a module here and its class in `Stage`; it has `resolve`, which settles what depends on the model or the
machine, `candidates`, the ways of applying it that only making and timing can tell apart, and `apply`. The last of the
candidates is taken where no other is faster than the model before the stage.
"""

from __future__ import annotations

from typing import Annotated

from compressor.grammar import Keyed
from compressor.stages.fuse import Fuse
from compressor.stages.prune import Prune, removable
from compressor.stages.quantize import Quantize
from compressor.stages.recover import Recover
from compressor.stages.supply import Supply

Stage = Annotated[Quantize | Fuse | Prune | Recover, Keyed(Quantize, Fuse, Prune, Recover)]

__all__ = ["Fuse", "Prune", "Quantize", "Recover", "Stage", "Supply", "removable"]
