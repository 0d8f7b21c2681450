"""How many times as fast as the baseline each rung is: the interval, and the extremes of the rounds.

What is drawn is prepared in `speeds`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compressor.formats.figures.figure import Figure, Series, colours, listed, series, tooltip, values
from compressor.formats.figures.look import Look
from compressor.formats.words import NOTHING, between, ratio, rounds
from compressor.records import Report

if TYPE_CHECKING:
    import altair as alt

_STEP = 38


@dataclass(frozen=True)
class Speed:
    """The speed-up of a rung, its limits, the extremes of its rounds, and all of it in words."""

    i: int
    series: str
    ratio: float
    low: float
    high: float
    slowest: float
    fastest: float
    label: str
    told: str
    rounds: str


@dataclass(frozen=True)
class _Same:
    """As fast as the baseline."""

    x: float = 1.0


def figure(report: Report) -> Figure | None:
    """Draw the speed-up of each rung that has one."""
    rows = list(speeds(report))
    if not rows:
        return None
    shown = [one for one in series(report) if any(row.i == one.i for row in rows)]
    return Figure(
        name="speed",
        title="Speed-up over the baseline",
        caption=(
            "Time of the baseline over that of the rung, called in turn with it; right of the line at 1 is faster. "
            "Thick: the 95 % interval; thin: from the slowest to the fastest round."
        ),
        alternative=f"Speed-up over the baseline. {listed([f'{one.series}: {one.told}' for one in rows])}.",
        draw=lambda look: _chart(rows, shown, look),
    )


def speeds(report: Report) -> Iterator[Speed]:
    """Give the speed-up of each rung with its limits and extremes."""
    for one in series(report):
        found = one.trial.measurement.speedup if one.trial.measurement else None
        if found and math.isfinite(found.ratio):
            yield Speed(
                one.i,
                one.label,
                found.ratio,
                found.low,
                found.high,
                slowest=found.low if found.lowest is None else found.lowest,
                fastest=found.high if found.highest is None else found.highest,
                label=f"{ratio(found.ratio)}x",
                told=f"{ratio(found.ratio)} ({between(found)})",
                rounds=rounds(found) or NOTHING,
            )


def _chart(rows: Sequence[Speed], shown: Sequence[Series], look: Look) -> alt.LayerChart:
    import altair as alt

    x = alt.X(
        "slowest",
        type="quantitative",
        title="times as fast as the baseline",
        axis=alt.Axis(format="~g", tickCount=6),
        scale=alt.Scale(zero=False, padding=16, nice=True),
    )
    y = alt.Y("series", type="nominal", sort=[one.label for one in shown], title=None, axis=alt.Axis(ticks=False))
    colour = colours([one.key for one in shown], look, legend=False)
    chart = alt.Chart(values(rows)).encode(y=y, color=colour)
    told = tooltip(_TOLD)
    one = alt.Chart(values([_Same()])).mark_rule(color=look.colour("soft"), strokeWidth=1.5, strokeDash=[5, 4])
    return alt.layer(
        one.encode(x="x:Q"),
        chart.mark_rule(strokeWidth=1.5, aria=False).encode(x=x, x2="fastest"),
        chart.mark_bar(height=12, cornerRadius=6, opacity=0.45, aria=False).encode(x="low:Q", x2="high"),
        chart.mark_point(filled=True, size=90, opacity=1).encode(x="ratio:Q", tooltip=told),
        chart.mark_text(dy=-13, fontWeight=600, fontSize=11).encode(
            x="ratio:Q", text=alt.Text("label", type="nominal"), color=alt.value(look.colour("ink"))
        ),
    ).properties(height=_STEP * len(rows))


_TOLD = (("series", "rung"), ("told", "times as fast"), ("rounds", "measured in"))
