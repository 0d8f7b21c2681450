"""How much of each rung runs as integer: the nodes of ONNX Runtime's optimized graph by how they compute.

What is drawn is prepared in `counts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compressor.errors import printable
from compressor.formats.figures.figure import Figure, Key, colours, listed, series, tooltip, values
from compressor.formats.figures.look import Look
from compressor.formats.words import NOTHING
from compressor.records import Audit, Report, Trial

if TYPE_CHECKING:
    import altair as alt

_KEYS = (
    Key("integer kernels", "s1"),
    Key("Conv, Gemm, MatMul in float", "s2"),
    Key("quantizing and back", "s0"),
)
_STEP = 34
_NAMED = 6
_LEGIBLE = 0.05
"""Share of the longest bar in which a number has room."""


@dataclass(frozen=True)
class Nodes:
    """How many nodes of a rung compute in one way, the `order`-th of all ways; `start`: those of the ways before."""

    i: int
    rung: str
    series: str
    order: int
    n: int
    start: int
    told: str


@dataclass(frozen=True)
class _Number:
    rung: str
    middle: float
    label: str


def figure(report: Report) -> Figure | None:
    """Draw what runs as integer in each rung that was quantized."""
    rows = list(counts(report))
    if not rows:
        return None
    rungs = list(dict.fromkeys(row.rung for row in rows))
    return Figure(
        name="integer",
        title="What runs as integer",
        caption=(
            "Nodes of the graph that ONNX Runtime runs, after its own fusions: those of integer kernels, those that "
            "multiply in float, and the conversions that are left between the two."
        ),
        alternative=f"Nodes by arithmetic. {listed([f'{row.rung}: {row.n} {row.series}' for row in rows])}.",
        draw=lambda look: _chart(rows, rungs, look),
        keys=_KEYS,
    )


def counts(report: Report) -> Iterator[Nodes]:
    """Give the nodes of each rung by how they compute, as its last audited stage left them."""
    for one in series(report):
        audit = _last(one.trial)
        if audit is None or not (audit.integer_nodes or audit.qdq_left or _quantized(one.trial)):
            continue
        kernels = [f"{n} {printable(name, 40)}" for name, n in audit.integer.items()]
        told = (", ".join(kernels[:_NAMED]) or NOTHING, NOTHING, NOTHING)
        start = 0
        for order, (key, n) in enumerate(zip(_KEYS, _numbers(audit), strict=True)):
            yield Nodes(one.i, one.label, key.label, order, n, start, told[order])
            start += n


def _numbers(audit: Audit) -> tuple[int, int, int]:
    return audit.integer_nodes, audit.float_nodes, audit.qdq_left


def _quantized(trial: Trial) -> bool:
    """Whether integers were asked for: that none run is what the figure is for."""
    return any(stage.stage == "quantize" for stage in trial.stages)


def _last(trial: Trial) -> Audit | None:
    """Give what was counted last; none of an engine, which has kernels of its own."""
    if any(artifact.is_engine for artifact in trial.artifacts):
        return None
    return next((stage.audit for stage in reversed(trial.stages) if stage.audit), None)


def _chart(rows: Sequence[Nodes], rungs: Sequence[str], look: Look) -> alt.LayerChart:
    import altair as alt

    chart = alt.Chart(values(rows)).encode(
        y=alt.Y("rung", type="nominal", sort=list(rungs), title=None, axis=alt.Axis(ticks=False)),
        x=alt.X("n", type="quantitative", title="nodes", stack="zero", axis=alt.Axis(tickMinStep=1, tickCount=6)),
        order="order:Q",
    )
    told = tooltip(_TOLD)
    bars = chart.mark_bar(height={"band": 0.62}, cornerRadius=2, stroke=look.colour("card"), strokeWidth=1)
    inside = alt.Chart(values(list(_inside(rows)))).encode(
        y=alt.Y("rung", type="nominal", sort=list(rungs)), x="middle:Q", text=alt.Text("label", type="nominal")
    )
    return alt.layer(
        bars.encode(color=colours(_KEYS, look), tooltip=told),
        inside.mark_text(color=look.colour("card"), fontWeight=600, fontSize=11),
    ).properties(height=_STEP * len(rungs))


def _inside(rows: Sequence[Nodes]) -> Iterator[_Number]:
    """Give the place of each number that has room within its bar."""
    longest = max(row.start + row.n for row in rows)
    for row in rows:
        if row.n > longest * _LEGIBLE:
            yield _Number(row.rung, row.start + row.n / 2, f"{row.n:,}")


_TOLD = (("rung", "rung"), ("series", "what"), ("n", "nodes"), ("told", "kernels"))
