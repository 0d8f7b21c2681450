"""Recipes: their tree of settings (`tree`), their file form (`file`) and what the command line changes (`override`)."""

from __future__ import annotations

from compressor.recipe.file import parse, read, schema, starter, write
from compressor.recipe.override import Overrides, batches, override, shapes
from compressor.recipe.tree import BASELINE, ENGINE_LADDER, LADDER, Calibration, Data, Evaluation, Recipe, Rung, default

__all__ = [
    "BASELINE",
    "ENGINE_LADDER",
    "LADDER",
    "Calibration",
    "Data",
    "Evaluation",
    "Overrides",
    "Recipe",
    "Rung",
    "batches",
    "default",
    "override",
    "parse",
    "read",
    "schema",
    "shapes",
    "starter",
    "write",
]
