"""The figures of a report, as Vega-Lite charts and as pictures: the only package that loads altair and vl-convert.

Each module but `figure`, `look` and `pictures` holds one figure: a function that takes the report and gives None where
there is nothing to show, and beside it the function that prepares its numbers. A new one is such a module and a line in
`_FIGURES`.
"""

from __future__ import annotations

from compressor.formats.figures import channels, errors, front, integers, latency, operators, sizes, speed
from compressor.formats.figures.figure import Figure, Key
from compressor.formats.figures.look import DARK, LIGHT, PAGE, PAPER
from compressor.formats.figures.pictures import bundle, png, svg
from compressor.records import Report

__all__ = ["DARK", "LIGHT", "PAGE", "PAPER", "Figure", "Key", "bundle", "figures", "png", "svg"]

_FIGURES = (
    latency.figure,
    front.figure,
    speed.figure,
    sizes.figure,
    integers.figure,
    operators.figure,
    errors.figure,
    channels.figure,
)


def figures(report: Report) -> tuple[Figure, ...]:
    """Give the figures for which a report has numbers."""
    return tuple(found for make in _FIGURES if (found := make(report)))
