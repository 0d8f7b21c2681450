"""The sections on how the best way of applying a stage was found, and where the time goes now.

A section is a function here that takes the report and how names are escaped; None where there is nothing to tell.
"""

from __future__ import annotations

from collections.abc import Iterator

from compressor.formats.sections.blocks import Cell, Section, Strong, Table
from compressor.formats.staged import staged
from compressor.formats.tried import way
from compressor.formats.words import NOTHING, Escape, ratio
from compressor.records import Applied, OperatorTime, Report, Tried
from compressor.units import human_bytes, human_ms

_OPERATORS_SHOWN = 12
_NODES_SHOWN = 5


def tried(report: Report, text: Escape) -> Section | None:
    """Show every way of applying a stage that was tried, and why it was taken or not."""
    header = ("rung", "stage", "way", "size", "SQNR", "speed-up", "taken", "why")
    rows = [[*named, *_tried(one, text)] for *named, stage in _stages(report, text) for one in stage.tried]
    foot = (
        "Each way was made, held against the model before the stage on held-out samples (where there are fewer "
        "than 16, on those it learnt from), and timed in turn with it; brackets hold 95 % intervals. SQNR is of the "
        "worst output; “exact” is with exact integers."
    )
    return Section("What was tried", (Table.of(header, rows), foot)) if rows else None


def operators(report: Report, text: Escape) -> Section | None:
    """Show what each operator takes before and after a stage."""
    header = ("rung", "stage", "operator", "nodes", "before", "now", "speed-up")
    audits = [(named, stage.audit) for *named, stage in _stages(report, text) if stage.audit]
    rows = [[*named, *row] for named, audit in audits for row in _times(audit.operators, text)]
    foot = (
        "Of one inference on one thread, by ONNX Runtime's profiler: before the stage and after it. What is fused "
        "counts for the operator that it is fused into; nodes are those of the model before the stage."
    )
    slow = filter(None, (_slower(rungs, stage, text) for rungs, _, stage in _stages(report, text)))
    return Section("What the operators take", (Table.of(header, rows), foot, *slow)) if rows else None


def _slower(rungs: str, stage: Applied, text: Escape) -> str:
    """Name the nodes that lost most, which are the first to leave float; empty where none did."""
    if stage.audit is None or not (slower := stage.audit.slower):
        return ""
    named = [f"{node} ({human_ms(before)} → {human_ms(now)})" for node, (before, now) in slower.items()]
    more = f" and {len(named) - _NODES_SHOWN} more" if len(named) > _NODES_SHOWN else ""
    return f"Slower after {text(stage.stage)} ({rungs}): {text(', '.join(named[:_NODES_SHOWN]))}{more}."


def _stages(report: Report, text: Escape) -> Iterator[tuple[str, str, Applied]]:
    """Give each stage once, with the rungs that share it."""
    return ((text(", ".join(one.rungs)), text(one.applied.stage), one.applied) for one in staged(report))


def _tried(one: Tried, text: Escape) -> list[Cell]:
    return [
        text(way(one.settings)),
        NOTHING if one.size_bytes is None else human_bytes(one.size_bytes),
        _sqnr(one),
        _speedup(one),
        Strong("yes") if one.taken else "no",
        text(one.why),
    ]


def _sqnr(one: Tried) -> str:
    if one.sqnr_db is None:
        return NOTHING
    return f"{one.sqnr_db:.1f} dB" + ("" if one.exact_db is None else f" (exact: {one.exact_db:.1f} dB)")


def _speedup(one: Tried) -> str:
    if one.ratio is None:
        return NOTHING
    interval = "" if one.low is None or one.high is None else f" [{ratio(one.low)}, {ratio(one.high)}]"
    return f"{ratio(one.ratio)}{interval}"


def _times(times: tuple[OperatorTime, ...], text: Escape) -> Iterator[list[str]]:
    """Give the rows of the costliest operators, of all others together, and of the whole."""
    shown, others = times[:_OPERATORS_SHOWN], times[_OPERATORS_SHOWN:]
    yield from (_time(one, text) for one in shown)
    if others:
        yield _time(_sum(f"{len(others)} others", others), text)
    if times:
        yield _time(_sum("all", times), text)


def _sum(name: str, times: tuple[OperatorTime, ...]) -> OperatorTime:
    nodes, before_ms, now_ms = (sum(column) for column in zip(*map(_numbers, times), strict=True))
    return OperatorTime(name, int(nodes), before_ms, now_ms)


def _numbers(one: OperatorTime) -> tuple[float, float, float]:
    return one.nodes, one.before_ms, one.now_ms


def _time(one: OperatorTime, text: Escape) -> list[str]:
    before, now = (human_ms(ms) if ms else NOTHING for ms in (one.before_ms, one.now_ms))
    gained = ratio(one.before_ms / one.now_ms) if one.before_ms and one.now_ms else NOTHING
    return [text(one.operator), str(one.nodes), before, now, gained]
