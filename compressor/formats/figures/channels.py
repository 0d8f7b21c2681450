"""What pruning left of each group of channels, in the order of the graph.

What is drawn is prepared in `groups`.
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
    listed,
    short,
    tooltip,
    values,
)
from compressor.formats.figures.look import Look
from compressor.formats.figures.stages import first, label
from compressor.formats.staged import Staged, staged
from compressor.formats.words import NOTHING
from compressor.records import Report

if TYPE_CHECKING:
    import altair as alt

_HEIGHT = 240
_KEYS = (Key("kept", "s3"), Key("gone", "s2"), Key("cannot go", "s0"))


@dataclass(frozen=True)
class Part:
    """Channels of a group that went or stayed, in the stage at the place `k`; `place`: the group's, from 1."""

    k: int
    place: int
    layer: str
    series: str
    order: int
    n: int
    told: str
    macs: str


def figure(report: Report) -> Figure | None:
    """Draw the channels of each layer for each stage that pruned."""
    found = [one for one in staged(report) if one.applied.pruned and one.applied.pruned.groups]
    if not found:
        return None
    place = first(found, report)
    rows = [row for k, one in enumerate(found) for row in groups(k, one)]
    return Figure(
        name="channels",
        title="Which channels went",
        caption=(
            "Channels of each layer, with all that go with them, in the order of the graph; what cannot go is tied to "
            "something that must stay."
        ),
        alternative=f"Channels by layer of {label(found[place])}. {_told(found[place])}",
        draw=lambda look: _chart(rows, place, look),
        keys=tuple(key for key in _KEYS if any(row.series == key.label for row in rows)),
        choices=choices(list(map(label, found))),
        first=place,
    )


def groups(k: int, one: Staged) -> Iterator[Part]:
    """Give what was kept and what went of each group of channels."""
    assert one.applied.pruned  # noqa: S101
    for place, group in enumerate(one.applied.pruned.groups, 1):
        kept = group.channels if group.kept is None else group.kept
        share = f"{kept:,} of {group.channels:,} kept ({kept / group.channels:.0%})" if group.channels else NOTHING
        macs = NOTHING if group.macs is None else f"{group.macs:.1%}"
        parts = (("cannot go", kept),) if group.stay else (("kept", kept), ("gone", group.channels - kept))
        for order, (what, n) in enumerate(parts):
            yield Part(k, place, short(group.name), what, order, n, share, macs)


def _told(one: Staged) -> str:
    free = [group for group in one.applied.pruned.groups if not group.stay] if one.applied.pruned else []
    touched = [f"{short(g.name)} {g.kept} of {g.channels}" for g in free if g.kept is not None and g.kept < g.channels]
    return f"Pruned: {listed(touched) or 'none'}."


def _chart(rows: Sequence[Part], place: int, look: Look) -> alt.Chart:
    import altair as alt

    chart = alt.Chart(values(rows)).transform_filter(CHOSEN)
    told = tooltip(_TOLD)
    bars = chart.mark_bar(cornerRadius=1, width={"band": 0.8}).encode(
        x=alt.X(
            "place",
            type="ordinal",
            title="layer, in the order of the graph",
            axis=alt.Axis(labelAngle=0, labelOverlap="greedy", ticks=False),
        ),
        y=alt.Y("n", type="quantitative", title="channels", stack="zero", axis=alt.Axis(tickCount=5, tickMinStep=1)),
        color=colours(_KEYS, look),
        order="order:Q",
        tooltip=told,
    )
    return bars.properties(height=_HEIGHT).add_params(alt.param(PICKED, value=place))


_TOLD = (("layer", "layer"), ("series", "part"), ("n", "channels"), ("told", "in all"), ("macs", "share of MACs"))
