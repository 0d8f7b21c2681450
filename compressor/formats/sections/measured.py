"""The sections on what was measured of each rung, and how it was judged.

A section is a function here that takes the report and how names are escaped; None where there is nothing to tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from compressor.formats.sections.blocks import Cell, Items, Section, Strong, Table, pairs
from compressor.formats.words import (
    MET,
    NOTHING,
    Escape,
    at_most,
    cost,
    error,
    memory,
    ratio,
    rounds,
    saturated,
    score_words,
    startup,
    strain,
    throughput,
    with_interval,
    with_unit,
    worst,
)
from compressor.records import Artifact, Latency, Measurement, Report, Score, Speedup, Trial, Verdict
from compressor.units import human_bytes, human_ms


def rungs(report: Report, text: Escape) -> Section:
    """Compare the rungs: size, latency, speed-up, score, verdict."""
    header = ("rung", "verdict", "size", "p50", "p99", "speed-up", "score", "drop")
    rows = [_rung_row(trial, report.chosen, text) for trial in _trials(report)]
    foot = (
        "Times are warm; “at most” is the upper 95 % limit. Brackets hold 95 % intervals. In a closed loop of one "
        "worker, a rung's times are of calls that alternate with the baseline's in the same process; the baseline's "
        "own row is of its calls alone. A speed-up is of such pairs, over the baseline's time in them. For each of its "
        "rounds both models are loaded anew; in parentheses, the slowest and the fastest round."
    )
    measured = report.baseline.measurement
    if proxies := dict.fromkeys(measured.proxy for _, measured in _measured(report) if measured.proxy):
        foot += f" All times are of this CPU: {text('; '.join(proxies))}."
    if not any(_measured(report)):
        foot = "Brackets hold 95 % intervals. Nothing was run on the device that it is for, so no time is known."
    if measured:
        foot += f" Measured at {pairs(measured.latency.shape, text)}, load {text(measured.latency.load)}."
    return Section("Rungs", (Table.of(header, rows), foot))


def engines(report: Report, text: Escape) -> Section | None:
    """Show what was compiled for which devices."""
    header = ("rung", "file", "devices", "size", "built in", "computes")
    found = [(trial.rung, one) for trial in _trials(report) for one in trial.artifacts if one.is_engine]
    rows = [_engine_row(rung, one, text) for rung, one in found]
    return Section("Engines", (Table.of(header, rows),)) if rows else None


def gates(report: Report, text: Escape) -> Section | None:
    """Show every verdict with the numbers that it rests on."""
    header = ("rung", "gate", "verdict", "observed", "limit", "reason")
    rows = [_gate_row(trial.rung, verdict, text) for trial in _trials(report) for verdict in trial.verdicts]
    return Section("Gates", (Table.of(header, rows),)) if rows else None


def others(report: Report, text: Escape) -> Section | None:
    """Show the other points that were measured."""
    header = ("rung", "at", "shape", "load", "p50", "p99", "throughput")
    rows = [_other_row(rung, other, text) for rung, measured in _measured(report) for other in measured.others]
    return Section("Other shapes and loads", (Table.of(header, rows),)) if rows else None


def quality(report: Report, text: Escape) -> Section | None:
    """Show how far each output is from the original's, and which class lost most."""
    lines = [line for trial in _trials(report) for line in _losses(trial, text)]
    foot = "A relative error is the Euclidean norm of a sample's difference over that of the original's output."
    return Section("What changed in the outputs", (Items.of(lines), foot)) if lines else None


def costs(report: Report, text: Escape) -> Section | None:
    """Show what a server needs to serve each rung."""
    header = ("rung", "load", "first call", "start", "peak memory", "throughput", "cost per million")
    rows = [_cost_row(rung, measured, text) for rung, measured in _measured(report) if not measured.proxy]
    own = [f"{text(rung)} {human_ms(one.gpu_ms)}" for rung, one in _measured(report) if one.gpu_ms is not None]
    foot = (f"Of these times, the device itself takes, copies not counted: {', '.join(own)}. " if own else "") + (
        "Of fresh processes that load and run the rung alone: loading, the first call, the median of both together "
        "over several starts where a gate asks for it, and the peak of resident memory."
    )
    return Section("What it takes", (Table.of(header, rows), foot)) if rows else None


def outcome(trial: Trial, text: Escape) -> str:
    """Say how the gates judged a rung, or why it was not built."""
    if trial.failure:
        return f"not built ({text(trial.failure.stage)}): {text(trial.failure.reason)}"
    for met in (False, None):
        if open_gates := [text(verdict.gate) for verdict in trial.verdicts if verdict.met is met]:
            return f"{MET[met]}: {', '.join(open_gates)}"
    return MET[True] if trial.verdicts else NOTHING


def _trials(report: Report) -> tuple[Trial, ...]:
    return report.baseline, *report.trials


def _measured(report: Report) -> Iterator[tuple[str, Measurement]]:
    return ((trial.rung, trial.measurement) for trial in _trials(report) if trial.measurement)


def _rung_row(trial: Trial, chosen: str | None, text: Escape) -> list[Cell]:
    name = text(trial.rung)
    measured, score = trial.measurement, trial.quality
    return [
        Strong(name, " (chosen)") if trial.rung == chosen else name,
        outcome(trial, text),
        NOTHING if trial.size_bytes is None else human_bytes(trial.size_bytes),
        *(_speed(measured) if measured else [NOTHING] * 3),
        score_words(score) if score else NOTHING,
        with_interval(score.drop, score.drop_low, score.drop_high) if score else NOTHING,
    ]


def _speed(measured: Measurement) -> list[str]:
    latency, speedup = measured.latency, measured.speedup
    return [
        _percentile(latency.p50_ms, latency.p50_high_ms, latency),
        _percentile(latency.p99_ms, latency.p99_high_ms, latency),
        _speedup(speedup) if speedup else NOTHING,
    ]


def _speedup(speedup: Speedup) -> str:
    against = f"over {human_ms(speedup.baseline_p50_ms)}" if speedup.baseline_p50_ms is not None else ""
    interval = f"{ratio(speedup.ratio)} [{ratio(speedup.low)}, {ratio(speedup.high)}]"
    return ", ".join(filter(None, (interval, against, rounds(speedup))))


def _percentile(value_ms: float, high_ms: float | None, latency: Latency) -> str:
    limit = at_most(value_ms, high_ms, latency)
    return limit if high_ms is None or strain(latency) else f"{human_ms(value_ms)} (at most {limit})"


def _engine_row(rung: str, artifact: Artifact, text: Escape) -> list[str]:
    first = artifact.files[0]
    return [
        text(rung),
        text(PurePosixPath(first.path).name),
        text(artifact.device.replace("+", ", ")),
        human_bytes(first.size_bytes),
        f"{artifact.build_s:.3g} s",
        text(artifact.options.get("computes", NOTHING)),
    ]


def _gate_row(rung: str, verdict: Verdict, text: Escape) -> list[str]:
    return [
        *map(text, (rung, verdict.gate, MET[verdict.met])),
        with_unit(verdict.observed, verdict.low, verdict.high, text(verdict.unit)),
        with_unit(verdict.limit, None, None, text(verdict.unit)),
        text(verdict.reason),
    ]


def _other_row(rung: str, latency: Latency, text: Escape) -> list[str]:
    return [
        *map(text, (rung, latency.at or NOTHING)),
        pairs(latency.shape, text),
        f"{text(latency.load)} ({strain(latency)})" if strain(latency) else text(latency.load),
        _percentile(latency.p50_ms, latency.p50_high_ms, latency),
        _percentile(latency.p99_ms, latency.p99_high_ms, latency),
        throughput(latency),
    ]


def _losses(trial: Trial, text: Escape) -> Iterator[Strong]:
    rung, score = text(trial.rung), trial.quality
    for output, found in (trial.measurement.errors if trial.measurement else trial.errors).items():
        yield Strong(rung, f", {text(output)}: {error(found)}")
    if score and (lost := _worst(score, text)):
        yield Strong(rung, f", {lost}")
    if score and (blamed := saturated(score)):
        yield Strong(rung, f": {text(blamed)}")


def _worst(score: Score, text: Escape) -> str:
    lost = worst(score)
    return f"worst {lost} ({text(score.metric)})" if lost else ""


def _cost_row(rung: str, measured: Measurement, text: Escape) -> list[str]:
    latency = measured.latency
    return [
        text(rung),
        *(NOTHING if ms is None else human_ms(ms) for ms in (latency.load_ms, latency.cold_ms)),
        startup(measured.startup),
        memory(measured.memory_bytes),
        throughput(latency),
        cost(measured.cost_per_million),
    ]
