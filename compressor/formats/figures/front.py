"""Accuracy against latency: which rungs no other one beats in both.

What is drawn is prepared in `points`; `undominated` says which of them no other one beats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from compressor.formats.figures.figure import Figure, Series, colours, listed, series, short, tooltip, values
from compressor.formats.figures.look import Look
from compressor.formats.words import score_words
from compressor.records import Report
from compressor.units import human_ms

if TYPE_CHECKING:
    import altair as alt

_HEIGHT = 300
_FEWEST = 2


@dataclass(frozen=True)
class Point:
    """A candidate's median time and score with their limits, and whether no other one beats it in both."""

    i: int
    series: str
    ms: float
    left: float | None
    right: float | None
    score: float
    low: float | None
    high: float | None
    time: str
    told: str
    front: bool = False


def figure(report: Report) -> Figure | None:
    """Draw score against time where two candidates at least have both."""
    found = list(points(report))
    if len(found) < _FEWEST:
        return None
    shown = [one for one in series(report) if any(row.i == one.i for row in found)]
    metric, relative = _metric(report)
    front = undominated([(row.ms, row.score) for row in found], less_is_better=relative)
    rows = [replace(row, front=place in front) for place, row in enumerate(found)]
    told = listed([f"{row.series}: {row.time}, {row.told}" for row in rows])
    names = ", ".join(row.series for row in rows if row.front)
    return Figure(
        name="front",
        title=f"{metric[:1].upper()}{metric[1:]} against latency",
        caption=(
            "Median time of a call, with the lower and the upper 95 % limit, and score, with its 95 % interval. Filled "
            "are those that no other one beats in both as observed: further left and "
            f"{'lower' if relative else 'higher'} is better. The baseline's time is of its calls alone: how many times "
            "as fast a rung is, pairs of calls tell."
        ),
        alternative=f"{metric} against the median time of a call. On the Pareto front: {names}. {told}.",
        draw=lambda look: _chart(rows, shown, metric, look),
        keys=tuple(one.key for one in shown),
    )


def points(report: Report) -> Iterator[Point]:
    """Give time and score of each candidate that has both."""
    for one in series(report):
        measured = one.trial.measurement
        if measured is None or measured.score is None:
            continue
        latency, score = measured.latency, measured.score
        if not (0 < latency.p50_ms < math.inf and math.isfinite(score.value)):
            continue
        yield Point(
            one.i,
            one.label,
            latency.p50_ms,
            latency.p50_low_ms,
            latency.p50_high_ms,
            score.value,
            score.low,
            score.high,
            human_ms(latency.p50_ms),
            score_words(score),
        )


def undominated(points: Sequence[tuple[float, float]], *, less_is_better: bool = False) -> frozenset[int]:
    """Give the places of those (time, score) for which no other one is as good in both and better in one."""
    sign = -1 if less_is_better else 1
    ranked = sorted(range(len(points)), key=lambda i: (points[i][0], -sign * points[i][1]))
    front: list[int] = []
    for i in ranked:
        if not front or sign * points[i][1] > sign * points[front[-1]][1] or points[i] == points[front[-1]]:
            front.append(i)
    return frozenset(front)


def _metric(report: Report) -> tuple[str, bool]:
    """Give the name of the metric, and whether it is an error."""
    scores = (trial.quality for trial in (report.baseline, *report.trials))
    score = next(score for score in scores if score)
    return short(score.metric), score.relative


def _chart(rows: Sequence[Point], shown: Sequence[Series], metric: str, look: Look) -> alt.LayerChart:
    import altair as alt

    scale = alt.Scale(zero=False, padding=24, nice=True)
    x_axis, y_axis = (alt.Axis(format="~g", tickCount=n) for n in (6, 5))
    x = alt.X("ms", type="quantitative", title="median time of a call, ms", axis=x_axis, scale=scale)
    y = alt.Y("score", type="quantitative", title=metric, axis=y_axis, scale=scale)
    colour = colours([one.key for one in shown], look)

    def chart(found: Sequence[Point]) -> alt.Chart:
        return alt.Chart(values(found)).encode(x=x, y=y, color=colour)

    front, beaten = [row for row in rows if row.front], [row for row in rows if not row.front]
    line = alt.Chart(values(front)).encode(x=x, y=y)
    wide, tall = ([row for row in rows if getattr(row, end) is not None] for end in ("right", "high"))
    layers = [
        (front, line.mark_line(color=look.colour("soft"), strokeDash=[2, 3], strokeWidth=1.5, aria=False)),
        (wide, chart(wide).mark_rule(opacity=0.6, strokeWidth=1.5, aria=False).encode(x="left:Q", x2="right")),
        (tall, chart(tall).mark_rule(opacity=0.6, strokeWidth=1.5, aria=False).encode(y="low:Q", y2="high")),
        (front, chart(front).mark_point(size=110, opacity=1, filled=True).encode(tooltip=tooltip(_TOLD))),
        # a ring around what it may lie on
        (beaten, chart(beaten).mark_point(size=230, opacity=1, strokeWidth=2).encode(tooltip=tooltip(_TOLD))),
    ]
    return alt.layer(*(layer for found, layer in layers if found)).properties(height=_HEIGHT)


_TOLD = (("series", "rung"), ("time", "median time"), ("told", "score"))
