"""The distribution of latencies: how large a share of the calls was answered within which time.

What is read off a measurement is prepared in `points` and `limits`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from compressor.formats.figures.figure import (
    CHOSEN,
    HIDDEN,
    PICKED,
    SHOWN,
    Figure,
    Series,
    colours,
    distinct,
    listed,
    series,
    tooltip,
    values,
)
from compressor.formats.figures.look import Look
from compressor.formats.words import at_most
from compressor.records import Bound, Latency, Measurement, Report, quantile_levels
from compressor.units import human_ms

if TYPE_CHECKING:
    import altair as alt

_WIDE = 4.0
"""From the least to the greatest by so much: a logarithmic axis."""
_FAR = 20.0
"""A limit further away than so many times would take the room of what was measured."""
_P99 = 99.0
_ROOM = 1.04
_SECOND_MS = 1e3
_DECADES = 30
_HEIGHT = 300
_ABOVE, _LINE = 6, 16
"""Pixels: the words on a limit above the axis, and lines of words above each other."""


@dataclass(frozen=True)
class _Scale:
    """The axis of time: in which unit, from where to where, and which times are named on it."""

    per_ms: float
    unit: str
    low_ms: float
    high_ms: float
    ticks_ms: tuple[float, ...] | None  # None: linear

    @property
    def domain(self) -> list[float]:
        return [self.low_ms * self.per_ms, self.high_ms * self.per_ms]

    def rules(self, marks: Iterable[Limit]) -> Iterator[_Rule]:
        """Give the limit of each gate once, the words of each on a line of their own."""
        limits = dict.fromkeys((mark.asked, mark.limit) for mark in marks if mark.limit)
        for line, (asked, ms) in enumerate(sorted(limits, key=lambda limit: limit[1])):
            low, at, high = (math.log(t) if self.ticks_ms else t for t in (self.low_ms, ms, self.high_ms))
            yield _Rule(asked, ms * self.per_ms, (at - low) / (high - low), _HEIGHT - _ABOVE - line * _LINE)


@dataclass(frozen=True)
class Level:
    """How many calls, as a share, were answered within a time at the point of measurement with the place `k`."""

    i: int
    series: str
    k: int
    ms: float
    share: float
    within: str
    time: str
    x: float | None = None  # on the axis


@dataclass(frozen=True)
class Limit:
    """A percentile that a gate asks for: where it lies, its upper limit and the gate's, and all of it in words."""

    i: int
    series: str
    k: int
    ms: float
    share: float
    high: float | None
    limit: float | None
    asked: str
    told: str
    x: float | None = None


@dataclass(frozen=True)
class _Rule:
    """A limit on the axis; `share`: how far along it lies, which says on which side of it there is room for words.

    `y`: where these stand, in pixels from the top.
    """

    asked: str
    x: float
    share: float
    y: float


def figure(report: Report) -> Figure | None:
    """Draw the distributions of the baseline and of each rung, with the limit that a gate sets."""
    shown = [one for one in series(report) if one.trial.measurement and any(_points_of(one.trial.measurement))]
    if not shown:
        return None
    choices = tuple(dict.fromkeys(latency.at for one in shown for latency in _points_of(one.trial.measurement)))
    times = [row for one in shown for row in points(one, choices)]
    marks = [row for one in shown for row in limits(one, choices)]
    return Figure(
        name="latency",
        title="How long a call takes",
        caption=_caption(times, marks),
        alternative=f"Shares of calls answered within a time. {listed([_told(one) for one in shown])}.",
        draw=lambda look: _chart(times, marks, shown, look),
        keys=tuple(one.key for one in shown),
        choices=distinct([at or "main load" for at in choices]) if len(choices) > 1 else (),
    )


def points(one: Series, choices: Sequence[str]) -> Iterator[Level]:
    """Give the distributions of a measurement; `k` is the place of the point of measurement among the choices."""
    for latency in _points_of(one.trial.measurement):
        for level, ms in zip(quantile_levels(latency.n), latency.quantiles_ms, strict=True):
            within = f"{level:g} % of the calls" if level else "the fastest call"
            yield Level(one.i, one.label, choices.index(latency.at), ms, level / 100, within, human_ms(ms))


def limits(one: Series, choices: Sequence[str]) -> Iterator[Limit]:
    """Give the percentiles that gates ask of each distribution, else the p99, with their limits and the gates'."""
    for latency in _points_of(one.trial.measurement):
        for bound in _asked(latency):
            name, high_ms = f"p{bound.percentile:g}", bound.high_ms
            limit = at_most(bound.value_ms, high_ms, latency)
            yield Limit(
                one.i,
                one.label,
                choices.index(latency.at),
                bound.value_ms,
                bound.percentile / 100,
                high=high_ms,
                limit=bound.limit_ms,
                asked="" if bound.limit_ms is None else f"{name} ≤ {human_ms(bound.limit_ms)}",
                told=f"{name} {human_ms(bound.value_ms)}, {limit if high_ms is None else f'at most {limit}'}",
            )


def _points_of(measured: Measurement | None) -> Iterator[Latency]:
    """Give the points whose distribution was kept whole."""
    for latency in (measured.latency, *measured.others) if measured else ():
        positive = latency.quantiles_ms and all(0 < ms < math.inf for ms in latency.quantiles_ms)
        if positive and len(latency.quantiles_ms) == len(quantile_levels(latency.n)):
            yield latency


def _asked(latency: Latency) -> Sequence[Bound]:
    asked = [bound for bound in latency.bounds if bound.limit_ms is not None]
    plain = Bound(_P99, 0.95, latency.p99_ms, latency.p99_low_ms, latency.p99_high_ms)
    return asked or [plain]


def _told(one: Series) -> str:
    latency = next(_points_of(one.trial.measurement))
    p99 = at_most(latency.p99_ms, latency.p99_high_ms, latency)
    return f"{one.label}: p50 {human_ms(latency.p50_ms)}, p99 at most {p99}"


def _caption(times: Sequence[Level], marks: Sequence[Limit]) -> str:
    asked = len({mark.share for mark in marks if mark.asked})
    dot = (
        "A dot is a percentile that a gate asks for"
        if asked > 1
        else "The dot is the percentile that the gate asks for"
    )
    dot = dot if asked else "The dot is the p99"
    limit = "upper limit at the gate's confidence, which is what the gate compares" if asked else "upper 95 % limit"
    told = (
        "The share of calls answered within a time, of all that were measured. "
        f"{dot}, and its band reaches to its {limit}."
    )
    far = dict.fromkeys(mark.asked for mark in marks if mark.asked and not _is_near(mark, times))
    lies = "The limit lies" if len(far) == 1 else "These limits lie"
    return f"{told} {lies} far off this figure: {', '.join(far)}." if far else told


def _is_near(mark: Limit, times: Sequence[Level]) -> bool:
    found = [level.ms for level in times]
    return mark.limit is not None and min(found) / _FAR <= mark.limit <= max(found) * _FAR


def _scale(times: Sequence[Level], marks: Sequence[Limit]) -> _Scale:
    near = [mark.limit for mark in marks if mark.limit is not None and _is_near(mark, times)]
    found = [*(level.ms for level in times), *near]
    low, high = min(found) / _ROOM, max(found) * _ROOM
    per_ms, unit = (1e3, "µs") if high < 1 else (1, "ms") if low < _SECOND_MS else (1 / _SECOND_MS, "s")
    if high / low < _WIDE:
        return _Scale(per_ms, unit, low, high, None)
    digits = (1, 1.5, 2, 3, 5, 7) if high / low < _DECADES else (1, 2, 5)
    steps = (digit * 10.0**power for power in range(-6, 9) for digit in digits)
    return _Scale(per_ms, unit, low, high, tuple(step for step in steps if low <= step <= high))


def _chart(times: Sequence[Level], marks: Sequence[Limit], shown: Sequence[Series], look: Look) -> alt.LayerChart:
    import altair as alt

    scale = _scale(times, marks)
    x = alt.X("x", type="quantitative", title=f"time of a call, {scale.unit}", axis=_axis(scale), scale=_on(scale))
    y = alt.Y("share", type="quantitative", title="share of calls", axis=alt.Axis(format=".0%", values=_SHARES))
    colour = colours([one.key for one in shown], look)
    lines, dots = [replace(level, x=level.ms * scale.per_ms) for level in times], [_on_axis(m, scale) for m in marks]
    curves, found = (_shown(rows).encode(x=x, y=y, color=colour) for rows in (lines, dots))
    hover = curves.mark_point(size=90, filled=True, opacity=0, aria=False)
    spans = found.transform_filter("isValid(datum.high)").mark_rule(strokeWidth=7, opacity=0.35, aria=False)
    return (
        alt.layer(
            curves.mark_line(strokeWidth=2, interpolate="step-after", aria=False).encode(order="share:Q"),
            *([] if look.alone else [hover.encode(tooltip=tooltip(_TOLD))]),
            spans.encode(x2="high"),
            found.mark_point(size=60, filled=True, opacity=1).encode(tooltip=tooltip(_SEEN)),
            *_limits(list(scale.rules(mark for mark in marks if _is_near(mark, times))), look),
        )
        .properties(height=_HEIGHT)
        .add_params(alt.param(HIDDEN, value=[]), alt.param(PICKED, value=0))
    )


def _on_axis(mark: Limit, scale: _Scale) -> Limit:
    """Give a percentile in the unit of the axis."""
    high = None if mark.high is None else mark.high * scale.per_ms
    return replace(mark, x=mark.ms * scale.per_ms, high=high)


def _shown(rows: Sequence[Level] | Sequence[Limit]) -> alt.Chart:
    import altair as alt

    return alt.Chart(values(rows)).transform_filter(SHOWN).transform_filter(CHOSEN)


def _limits(rules: Sequence[_Rule], look: Look) -> Iterator[alt.Chart]:
    """Draw what the gates allow."""
    import altair as alt

    if rules:
        chart = alt.Chart(values(rules)).encode(x=alt.X("x", type="quantitative"))
        yield chart.mark_rule(color=look.colour("bad"), strokeDash=[5, 4], strokeWidth=1.5, aria=False)
        told = chart.encode(text=alt.Text("asked", type="nominal"), y=alt.Y("y", type="quantitative", scale=None))
        for align, side, away in (("left", "<", 6), ("right", ">=", -6)):
            words = told.transform_filter(f"datum.share {side} 0.5")
            yield words.mark_text(color=look.colour("bad"), align=align, baseline="bottom", dx=away)


def _on(scale: _Scale) -> alt.Scale:
    import altair as alt

    if scale.ticks_ms is None:
        return alt.Scale(type="linear", domain=scale.domain, nice=False, zero=False)
    return alt.Scale(type="log", domain=scale.domain, nice=False)


def _axis(scale: _Scale) -> alt.Axis:
    import altair as alt

    if scale.ticks_ms is None:
        return alt.Axis(format="~g", tickCount=6)
    return alt.Axis(format="~g", values=[tick * scale.per_ms for tick in scale.ticks_ms])


_SHARES = [0, 0.25, 0.5, 0.75, 0.9, 1]
_TOLD = (("series", "rung"), ("within", "share"), ("time", "within"))
_SEEN = (("series", "rung"), ("told", "percentile"))
