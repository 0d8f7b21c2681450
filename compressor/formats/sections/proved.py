"""The sections on what a run was held against besides its baseline: the champion, an earlier report.

A section is a function here that takes the report and how names are escaped; None where there is nothing to tell.
"""

from __future__ import annotations

from compressor.formats.sections.blocks import Section, Table, pairs
from compressor.formats.words import NOTHING, Escape, at_most, dropped, memory, number, times
from compressor.records import Beside, Latency, Report, Trial
from compressor.units import human_bytes

_SAME = "it is the champion itself, byte for byte"


def verified(report: Report, text: Escape) -> Section | None:
    """Tell which report was proved again, and what it said on the other machine."""
    if (first := report.verifies) is None:
        return None
    version = f", version {text(first.version)} of {text(first.model)}" if first.model and first.version else ""
    told = (
        f"This is the artifact of {text(first.source)}{version}, measured again on {text(report.environment.cpu)}: its "
        f"rung {text(first.rung)} was {text(first.verdict)} on {text(first.cpu)} ({text(first.identity)})."
    )
    return Section("", (told,))


def champion(report: Report, text: Escape) -> Section | None:
    """Set each rung that was held against the champion beside it."""
    held = [trial for trial in (report.baseline, *report.trials) if trial.beside]
    if report.champion is None or not held:
        return None
    served = report.champion
    who = f"{text(served.name)} version {text(served.version)} ({text(served.source)}), "
    what = f"{human_bytes(served.model.size_bytes)}, run with {pairs(served.artifact.options, text)}."
    header = ("rung", "speed", "p50 and p99 at most of both", "memory of both", "score of both", "drop")
    rows = [_row(trial, trial.beside, text) for trial in held if trial.beside]
    foot = "Both were called in turn on the same inputs in one process, and loaded anew for each round."
    return Section("Beside the champion", (f"{who}{what}", Table.of(header, rows), foot))


def _row(trial: Trial, beside: Beside, text: Escape) -> list[str]:
    if beside.same:
        return [text(trial.rung), _SAME, *([NOTHING] * 4)]
    then, now = beside.champion, beside.now
    speedup = now.speedup if now else None
    scores = beside.champion_score, beside.score
    return [
        text(trial.rung),
        times(speedup) if speedup else NOTHING,
        f"{_times(then.latency)} → {_times(now.latency)}" if then and now else NOTHING,
        f"{memory(then.memory_bytes)} → {memory(now.memory_bytes)}" if then and now else NOTHING,
        " → ".join(number(score.value) for score in scores if score) or text(beside.unscored) or NOTHING,
        dropped(beside.score) if beside.score else NOTHING,
    ]


def _times(latency: Latency) -> str:
    return ", ".join(
        at_most(value, high, latency)
        for value, high in ((latency.p50_ms, latency.p50_high_ms), (latency.p99_ms, latency.p99_high_ms))
    )
