"""The figures of a report, as Vega-Lite charts and as pictures: the only package that loads altair and vl-convert.

Each module but `figure`, `look` and `pictures` holds one figure: a function that takes the report and gives None where
there is nothing to show, and beside it the function that prepares its numbers. A new one is such a module and a line in
`_FIGURES`.
"""

from __future__ import annotations

from collections.abc import Iterator

from compressor.errors import printable
from compressor.formats.figures import channels, errors, front, integers, latency, operators, sizes, speed
from compressor.formats.figures.figure import Figure, Key
from compressor.formats.figures.look import DARK, LIGHT, PAGE, PAPER
from compressor.formats.figures.pictures import Drawn, bundle, draw, png
from compressor.records import Report

__all__ = ["DARK", "LIGHT", "PAGE", "PAPER", "Drawn", "Figure", "Key", "bundle", "draw", "drawn", "figures", "png"]

_LONGEST_REASON = 200
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
    return tuple(one for one in _made(report) if isinstance(one, Figure))


def drawn(report: Report) -> tuple[tuple[Drawn, ...], tuple[str, ...]]:
    """Draw the figures for which a report has numbers; of each whose numbers cannot be drawn, say why."""
    tried = [_drawn(one) if isinstance(one, Figure) else one for one in _made(report)]
    return tuple(one for one in tried if isinstance(one, Drawn)), tuple(one for one in tried if isinstance(one, str))


def _made(report: Report) -> Iterator[Figure | str]:
    """Make each figure, or say why it cannot be made.

    None takes another with it: a report may come from elsewhere, with numbers that nothing here would write.
    """
    for make in _FIGURES:
        try:
            figure = make(report)
        except (ArithmeticError, LookupError, ValueError) as error:
            yield _refusal(make.__module__.rpartition(".")[2], error)
        else:
            yield from (figure,) if figure else ()


def _drawn(figure: Figure) -> Drawn | str:
    try:
        return draw(figure)
    except ValueError as error:
        return _refusal(figure.name, error)


def _refusal(name: str, error: Exception) -> str:
    return f"the figure of {name} cannot be drawn: {printable(str(error), _LONGEST_REASON)}"
