"""Recipes: their tree of settings (`tree`), their file form (`file`) and what the command line changes (`override`)."""

from __future__ import annotations

from compressor.recipe.file import Place, of_report, parse, places, read, schema, starter, write
from compressor.recipe.override import Overrides, batches, override, shapes
from compressor.recipe.tree import BASELINE, ENGINE_LADDER, LADDER, Calibration, Data, Evaluation, Recipe, Rung, default
from compressor.recipe.variables import escaped

__all__ = [
    "BASELINE",
    "ENGINE_LADDER",
    "LADDER",
    "Calibration",
    "Data",
    "Evaluation",
    "Overrides",
    "Place",
    "Recipe",
    "Rung",
    "batches",
    "default",
    "escaped",
    "of_report",
    "override",
    "parse",
    "places",
    "read",
    "schema",
    "shapes",
    "starter",
    "write",
]
