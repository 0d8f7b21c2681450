"""What each layer loses by itself in INT8, in the order of the graph.

What is drawn is prepared in `layers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compressor.formats.figures.figure import CHOSEN, PICKED, Figure, Key, choices, listed, short, tooltip, values
from compressor.formats.figures.look import Look
from compressor.formats.figures.stages import first, label
from compressor.formats.staged import Staged, staged
from compressor.records import Report

if TYPE_CHECKING:
    import altair as alt

_HEIGHT = 240
_WORST = 3
_KEYS = (Key("a layer by itself", "s1"), Key("20 dB: noise is a tenth of the signal", "bad"))


@dataclass(frozen=True)
class Layer:
    """A layer's SQNR in the stage at the place `k`; `place`: its own in the order of the graph, from 1."""

    k: int
    place: int
    layer: str
    db: float
    told: str


@dataclass(frozen=True)
class _Floor:
    y: float = 20.0


def figure(report: Report) -> Figure | None:
    """Draw the error of each layer for each stage that says it."""
    found = [one for one in staged(report) if any(True for _ in layers(0, one))]
    if not found:
        return None
    place = first(found, report)
    rows = [row for k, one in enumerate(found) for row in layers(k, one)]
    worst = sorted((row for row in rows if row.k == place), key=lambda row: row.db)[:_WORST]
    return Figure(
        name="errors",
        title="What each layer loses in INT8",
        caption=(
            "Signal over quantization noise of each layer by itself, fed with what the float model gives it, in the "
            "order of the graph; higher is better. A layer far below the others is the first to leave float."
        ),
        alternative=f"SQNR by layer of {label(found[place])}. Worst: "
        + listed([f"{row.layer} {row.told}" for row in worst])
        + ".",
        draw=lambda look: _chart(rows, place, look),
        keys=_KEYS,
        choices=choices(list(map(label, found))),
        first=place,
    )


def layers(k: int, one: Staged) -> Iterator[Layer]:
    """Give the SQNR of each layer of a stage, as far as it is a number."""
    errors = one.applied.audit.errors if one.applied.audit else {}
    for place, (name, db) in enumerate(errors.items(), 1):
        if math.isfinite(db):
            yield Layer(k, place, short(name), db, f"{db:.1f} dB")


def _chart(rows: Sequence[Layer], place: int, look: Look) -> alt.LayerChart:
    import altair as alt

    low = min(0.0, *(row.db for row in rows))
    chart = alt.Chart(values(rows)).transform_filter(CHOSEN)
    chart = chart.encode(
        x=alt.X(
            "place",
            type="quantitative",
            title="layer, in the order of the graph",
            axis=alt.Axis(grid=False, format="d", tickMinStep=1),
            scale=alt.Scale(zero=False, padding=8, nice=False),
        ),
        y=alt.Y(
            "db",
            type="quantitative",
            title="SQNR, dB",
            axis=alt.Axis(tickCount=5),
            scale=alt.Scale(domainMin=low),
        ),
    )
    told = tooltip(_TOLD)
    floor = alt.Chart(values([_Floor()])).mark_rule(color=look.colour("bad"), strokeDash=[5, 4])
    stems = chart.mark_rule(color=look.colour("s1"), opacity=0.35, strokeWidth=2, aria=False)
    return (
        alt.layer(
            floor.encode(y="y:Q"),
            stems.encode(y2=alt.datum(low)),
            chart.mark_point(filled=True, size=45, opacity=1, color=look.colour("s1")).encode(tooltip=told),
        )
        .properties(height=_HEIGHT)
        .add_params(alt.param(PICKED, value=place))
    )


_TOLD = (("layer", "layer"), ("told", "SQNR"), ("place", "place"))
