"""What the operators take before a stage and after it, the costliest first.

What is drawn is prepared in `times`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compressor.formats.figures.figure import (
    CHOSEN,
    PICKED,
    Figure,
    Key,
    choices,
    colours,
    distinct,
    listed,
    tooltip,
    values,
)
from compressor.formats.figures.look import Look
from compressor.formats.figures.stages import first, label
from compressor.formats.staged import Staged, staged
from compressor.formats.words import NOTHING, ratio
from compressor.records import OperatorTime, Report
from compressor.units import human_ms

if TYPE_CHECKING:
    import altair as alt

_SHOWN = 10
_STEP = 40
_KEYS = (Key("before", "s0"), Key("after", "s1"))


@dataclass(frozen=True)
class Time:
    """What an operator takes, before or after the stage at the place `k`; `place`: its own among the operators."""

    k: int
    place: int
    operator: str
    series: str
    ms: float
    time: str
    nodes: int
    gained: str
    label: str


def figure(report: Report) -> Figure | None:
    """Draw the times of operators for each stage that was profiled."""
    found = [one for one in staged(report) if one.applied.audit and one.applied.audit.operators]
    if not found:
        return None
    place = first(found, report)
    rows = [row for k, one in enumerate(found) for row in times(k, one)]
    return Figure(
        name="operators",
        title="What the operators take",
        caption=(
            "Of one inference on one thread, by ONNX Runtime's profiler. What is fused counts for the operator that it "
            "is fused into, so that activations and additions vanish into convolutions. Before and after were timed "
            "in turn; times of different stages were not."
        ),
        alternative=f"Time by operator before and after {label(found[place])}. "
        + listed([f"{row.operator} {row.series}: {row.time}" for row in rows if row.k == place])
        + ".",
        draw=lambda look: _chart(rows, place, look),
        keys=_KEYS,
        choices=choices(list(map(label, found))),
        first=place,
    )


def times(k: int, one: Staged) -> Iterator[Time]:
    """Give the times of a stage's operators, of the costliest by themselves, and of all others together."""
    assert one.applied.audit  # noqa: S101
    every = sorted(one.applied.audit.operators, key=lambda each: -max(each.before_ms, each.now_ms))
    shown, others = every[:_SHOWN], every[_SHOWN:]
    if others:
        before_ms, now_ms = sum(each.before_ms for each in others), sum(each.now_ms for each in others)
        shown = [*shown, OperatorTime(f"{len(others)} others", sum(e.nodes for e in others), before_ms, now_ms)]
    for place, (each, name) in enumerate(zip(shown, distinct([each.operator for each in shown]), strict=True)):
        gained = f"{ratio(each.before_ms / each.now_ms)}x as fast" if each.before_ms and each.now_ms else ""
        for what, ms in (("before", each.before_ms), ("after", each.now_ms)):
            label = f"{human_ms(ms)} · {gained}" if gained and what == "after" else _written(ms)
            yield Time(k, place, name, what, ms, _written(ms), each.nodes, gained or NOTHING, label)


def _written(ms: float) -> str:
    return human_ms(ms) if ms else "none"


def _chart(rows: Sequence[Time], place: int, look: Look) -> alt.LayerChart:
    import altair as alt

    most = max(row.ms for row in rows)
    chart = alt.Chart(values(rows)).transform_filter(CHOSEN)
    chart = chart.encode(
        y=alt.Y(
            "operator",
            type="nominal",
            sort=alt.EncodingSortField("place", op="min"),
            title=None,
            axis=alt.Axis(ticks=False),
            scale=alt.Scale(paddingInner=0.28, paddingOuter=0.1),
        ),
        yOffset=alt.YOffset("series", type="nominal", sort=[key.label for key in _KEYS]),
        x=alt.X(
            "ms",
            type="quantitative",
            title="time, ms",
            axis=alt.Axis(format="~g", tickCount=5),
            scale=alt.Scale(domain=[0, most * 1.3], nice=False),
        ),
    )
    told = tooltip(_TOLD)
    label = chart.mark_text(align="left", dx=5, fontSize=11, color=look.colour("soft"))
    return (
        alt.layer(
            chart.mark_bar(height={"band": 0.82}).encode(color=colours(_KEYS, look), tooltip=told),
            label.encode(text=alt.Text("label", type="nominal")),
        )
        .properties(height=_STEP * (1 + max(row.place for row in rows)))
        .add_params(alt.param(PICKED, value=place))
    )


_TOLD = (
    ("operator", "operator"),
    ("series", "when"),
    ("time", "takes"),
    ("gained", "change"),
    ("nodes", "nodes before"),
)
