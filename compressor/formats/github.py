"""What GitHub Actions reads of a run: a summary of the step, annotations of the recipe, the outputs of the step.

Another output is a line in `outputs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from compressor.errors import printable
from compressor.formats.markdown.markup import table, text
from compressor.formats.sections.measured import outcome
from compressor.formats.sentence import chosen_trial, deciding_trial, sentence
from compressor.formats.words import (
    MET,
    NOTHING,
    at_most,
    between,
    median,
    ratio,
    score_words,
    unmet,
    with_unit,
)
from compressor.records import Measurement, Report, Trial, Verdict
from compressor.units import human_bytes, human_duration

ROOM_BYTES = 2**20
"""What all summaries of one step may take together. Source: GitHub's documentation of job summaries."""
MOST = 10
"""Annotations of one level that a step may make. Source: GitHub's documentation of workflow commands."""
_CUT = "\n\n(This summary is cut: GitHub shows no more than 1 MiB of a step. The rest stands in the report.)\n"
_GATE = ("gate", "verdict", "observed", "limit", "reason")
_RUNG = ("rung", "size", "p50", "p99 at most", "speed-up", "score", "outcome")
_CHAMPION, _BASELINE = "champion", "baseline"
_LONGEST, _LONGEST_TITLE = 500, 120
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


class Place(Protocol):
    """A line of a file, counted from 1."""

    @property
    def file(self) -> Path: ...  # noqa: D102

    @property
    def line(self) -> int: ...  # noqa: D102


def summary(report: Report, where: str, room_bytes: int = ROOM_BYTES) -> str:
    """Give what a step's page shows, as Markdown of at most `room_bytes`; `where` the whole report lies.

    Empty where there is room for nothing.
    """
    return _cut("\n\n".join(section for section in _sections(report, where) if section) + "\n", room_bytes)


def commands(report: Report, places: Mapping[str, Place]) -> tuple[str, ...]:
    """Give a workflow command a gate that is not met, or is open where nothing is worse, at its line in the recipe.

    `places`: where the recipe asks for a gate, by the name of its verdict, and where its baseline is named. A run that
    does not pass says so in one command at least.
    """
    decided, level = deciding_trial(report), "error" if report.verdict == "fail" else "warning"
    if report.verdict == "pass":
        return ()
    told = unmet(decided.verdicts if decided else ())
    shown = [one for one in told if (one.met is False) == (level == "error")]
    if decided is None or not shown:
        return (annotation(level, f"compress: {report.verdict}", sentence(report)),)
    lines = [_annotated(decided, verdict, places) for verdict in shown]
    if len(lines) <= MOST:
        return tuple(lines)
    more = ", ".join(verdict.gate for verdict in shown[MOST - 1 :])
    return (*lines[: MOST - 1], annotation(level, f"{len(lines) - MOST + 1} more gates", more))


def annotation(level: str, title: str, message: str, place: Place | None = None) -> str:
    """Give the workflow command that annotates a line, in which nothing reads as another command."""
    properties = {"title": printable(title, _LONGEST_TITLE)}
    if place:
        properties = {"file": printable(str(place.file)), "line": str(place.line), **properties}
    pairs = ",".join(f"{name}={_escaped(value, _PROPERTY)}" for name, value in properties.items())
    return f"::{level} {pairs}::{_escaped(printable(message, _LONGEST), _DATA)}"


def outputs(report: Report, folder: Path) -> Mapping[str, str]:
    """Give the outputs of the step by name; empty is what there is not."""
    chosen = chosen_trial(report)
    artifact = chosen.artifacts[0].files[0].path if chosen and chosen.artifacts else None
    size, quality = (chosen.size_bytes, chosen.quality) if chosen else (None, None)
    speedup = chosen.measurement.speedup if chosen and chosen.measurement else None
    return {
        "verdict": report.verdict,
        "chosen": report.chosen or "",
        "artifact": "" if artifact is None else str(folder / artifact),
        "report": str(folder / "report.json"),
        "folder": str(folder),
        "size-bytes": "" if size is None else str(size),
        "ratio": _figure(report.model.size_bytes / size if size else None),
        "speedup": _figure(speedup.ratio if speedup else None),
        "score": _figure(quality.value if quality else None),
        "model-version": (report.registry.version if report.registry else None) or "",
    }


def _sections(report: Report, where: str) -> Iterator[str]:
    yield f"## {text(report.model.name)}: {report.verdict}"
    yield f"**{report.verdict.capitalize()}:** {sentence(report, text)}"
    decided = deciding_trial(report)
    if decided and decided.verdicts:
        yield f"### Gates of {text(decided.rung)}\n\n{table(_GATE, map(_gate, decided.verdicts))}"
    rungs = (_rung(trial, report.chosen) for trial in (report.baseline, *report.trials))
    yield f"### Rungs\n\n{table(_RUNG, rungs)}"
    yield "\n".join(f"- {text(warning)}" for warning in report.warnings)
    machine = f"{report.environment.threads} threads of {report.environment.cpu}"
    yield f"Report: {text(where)}. Measured with {text(machine)}, in {human_duration(report.duration_s)}."


def _gate(verdict: Verdict) -> list[str]:
    return [
        text(verdict.gate),
        MET[verdict.met],
        with_unit(verdict.observed, verdict.low, verdict.high, text(verdict.unit)),
        with_unit(verdict.limit, None, None, text(verdict.unit)),
        text(verdict.reason),
    ]


def _rung(trial: Trial, chosen: str | None) -> list[str]:
    return [
        f"**{text(trial.rung)}** (chosen)" if trial.rung == chosen else text(trial.rung),
        NOTHING if trial.size_bytes is None else human_bytes(trial.size_bytes),
        *(_speed(trial.measurement) if trial.measurement else [NOTHING] * 3),
        text(score_words(trial.quality)) if trial.quality else NOTHING,
        outcome(trial, text),
    ]


def _speed(measured: Measurement) -> list[str]:
    latency, speedup = measured.latency, measured.speedup
    return [
        median(latency),
        at_most(latency.p99_ms, latency.p99_high_ms, latency),
        f"{ratio(speedup.ratio)} ({between(speedup)})" if speedup else NOTHING,
    ]


def _cut(whole: str, room_bytes: int) -> str:
    """Leave out lines at the end until a text fits, and say so."""
    if len(whole.encode()) <= room_bytes:
        return whole
    left = room_bytes - len(_CUT.encode())
    kept = whole.encode()[: max(left, 0)].decode(errors="ignore").rpartition("\n")[0]
    return f"{kept}{_CUT}" if left >= 0 else ""


def _annotated(trial: Trial, verdict: Verdict, places: Mapping[str, Place]) -> str:
    level = "error" if verdict.met is False else "warning"
    key = _BASELINE if verdict.gate.partition(" ")[0] == _CHAMPION else verdict.gate
    title = f"{verdict.gate} {MET[verdict.met]} ({trial.rung})"
    limit = with_unit(verdict.limit, None, None, verdict.unit)
    told = verdict.reason if verdict.limit is None else f"{verdict.reason} (limit {limit})"
    return annotation(level, title, told, places.get(key))


def _escaped(value: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(character, character) for character in value)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
