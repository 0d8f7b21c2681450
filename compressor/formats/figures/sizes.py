"""What of the model is left: file, multiply-accumulates and parameters of each rung, as shares of the original's.

What is drawn is prepared in `shares`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compressor.formats.figures.figure import Figure, Key, colours, listed, series, tooltip, values
from compressor.formats.figures.look import Look
from compressor.records import Report, Trial
from compressor.units import human_bytes, human_number

if TYPE_CHECKING:
    import altair as alt

_KEYS = (Key("file", "s1"), Key("MACs", "s6"), Key("parameters", "s3"))
_STEP = 70


@dataclass(frozen=True)
class Share:
    """What is left in a rung of a count of the original's, as a share and as the count itself."""

    i: int
    rung: str
    series: str
    share: float
    label: str
    told: str


@dataclass(frozen=True)
class _Whole:
    """The original."""

    x: float = 1.0


def figure(report: Report) -> Figure | None:
    """Draw what is left of size, MACs and parameters; None where nothing but the baseline was built."""
    rows = [row for row in shares(report) if row.i]
    rungs = list(dict.fromkeys(row.rung for row in rows))
    if not rows:
        return None
    return Figure(
        name="size",
        title="What is left of the model",
        caption=(
            "Of the original model's file, multiply-accumulates (MACs) and parameters. INT8 makes the file smaller and "
            "the arithmetic cheaper; pruning takes MACs away."
        ),
        alternative="Size relative to the original. "
        + listed([f"{row.rung}, {row.series}: {row.label} ({row.told})" for row in rows])
        + ".",
        draw=lambda look: _chart(rows, rungs, look),
        keys=tuple(key for key in _KEYS if any(row.series == key.label for row in rows)),
    )


def shares(report: Report) -> Iterator[Share]:
    """Give the shares of the original's that are left, each with its number."""
    for one in series(report):
        for what, now, before, told in _counts(report, one.trial):
            if now is not None and before:
                yield Share(one.i, one.label, what, now / before, f"{now / before:.0%}", told)


def _counts(report: Report, trial: Trial) -> Iterator[tuple[str, int | None, int | None, str]]:
    original, size = report.model, trial.size_bytes
    yield "file", size, original.size_bytes, "" if size is None else human_bytes(size)
    if (counted := trial.model) and trial.is_built:
        yield "MACs", counted.macs, original.macs, _count(counted.macs)
        yield "parameters", counted.parameters, original.parameters, _count(counted.parameters)


def _count(number: int | None) -> str:
    if number is None:
        return ""
    scale, unit = next(((s, u) for s, u in ((10**9, " G"), (10**6, " M"), (10**3, " k")) if number >= s), (1, ""))
    return f"{human_number(number / scale)}{unit}"


def _chart(rows: Sequence[Share], rungs: Sequence[str], look: Look) -> alt.LayerChart:
    import altair as alt

    most = max(row.share for row in rows)
    chart = alt.Chart(values(rows)).encode(
        y=alt.Y(
            "rung",
            type="nominal",
            sort=list(rungs),
            title=None,
            axis=alt.Axis(ticks=False),
            scale=alt.Scale(paddingInner=0.28, paddingOuter=0.1),
        ),
        yOffset=alt.YOffset("series", type="nominal", sort=[key.label for key in _KEYS]),
        x=alt.X(
            "share",
            type="quantitative",
            title="share of the original",
            axis=alt.Axis(format=".0%", tickCount=5),
            scale=alt.Scale(domain=[0, max(most, 1.0) * 1.16], nice=False),
        ),
    )
    told = tooltip(_TOLD)
    label = chart.mark_text(align="left", dx=5, fontSize=11, color=look.colour("soft"))
    whole = alt.Chart(values([_Whole()])).mark_rule(color=look.colour("soft"), strokeDash=[5, 4], strokeWidth=1.5)
    return alt.layer(
        whole.encode(x="x:Q"),
        chart.mark_bar(height={"band": 0.82}).encode(color=colours(_KEYS, look), tooltip=told),
        label.encode(text=alt.Text("label", type="nominal")),
    ).properties(height=_STEP * len(rungs))


_TOLD = (("rung", "rung"), ("series", "of"), ("label", "left"), ("told", "now"))
