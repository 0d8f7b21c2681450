"""A machine whose integer kernels are exact, and samples made up for a model."""

from __future__ import annotations

from dataclasses import replace

from compressor import graph, schemes
from compressor.records import Model
from compressor.samples import Samples, synthetic

EXACT = replace(schemes.by_name("x86-vnni") or schemes.SCHEMES[0], here=True)


def made_up(model: Model, n: int, sizes: int = 1) -> Samples:
    """Draw samples; of open dimensions all but the first are of these sizes."""
    shapes = {
        t.name: tuple(d if isinstance(d, int) else sizes if axis else 1 for axis, d in enumerate(t.shape or ()))
        for t in model.inputs
    }
    return synthetic(model.inputs, shapes, n, 0, graph.index_limits(model.path))
