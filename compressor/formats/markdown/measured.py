"""The sections of report.md on what was measured of each rung, and how it was judged.

A section is a function here that takes the report and gives its text, empty where there is nothing to tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from compressor.formats.markdown.markup import pairs, table, text
from compressor.formats.words import (
    MET,
    NOTHING,
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


def rungs(report: Report) -> str:
    """Compare the rungs: size, latency, speed-up, score, verdict."""
    header = ("rung", "size", "p50", "p99", "speed-up", "score", "drop", "verdict")
    rows = [_rung_row(trial, report.chosen) for trial in _trials(report)]
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
    where = f" Measured at {pairs(measured.latency.shape)}, load {text(measured.latency.load)}." if measured else ""
    return f"## Rungs\n\n{table(header, rows)}\n\n{foot}{where}"


def engines(report: Report) -> str:
    """Show what was compiled for which devices."""
    header = ("rung", "file", "devices", "size", "built in", "computes")
    rows = [_engine_row(trial.rung, one) for trial in _trials(report) for one in trial.artifacts if one.is_engine]
    return f"## Engines\n\n{table(header, rows)}" if rows else ""


def gates(report: Report) -> str:
    """Show every verdict with the numbers that it rests on."""
    header = ("rung", "gate", "verdict", "observed", "limit", "reason")
    rows = [_gate_row(trial.rung, verdict) for trial in _trials(report) for verdict in trial.verdicts]
    return f"## Gates\n\n{table(header, rows)}" if rows else ""


def others(report: Report) -> str:
    """Show the other points that were measured."""
    header = ("rung", "at", "shape", "load", "p50", "p99", "throughput")
    rows = [_other_row(rung, other) for rung, measured in _measured(report) for other in measured.others]
    return f"## Other shapes and loads\n\n{table(header, rows)}" if rows else ""


def quality(report: Report) -> str:
    """Show how far each output is from the original's, and which class lost most."""
    lines = [line for trial in _trials(report) for line in _losses(trial)]
    foot = "A relative error is the Euclidean norm of a sample's difference over that of the original's output."
    return "\n".join(["## What changed in the outputs\n", *lines, f"\n{foot}"]) if lines else ""


def costs(report: Report) -> str:
    """Show what a server needs to serve each rung."""
    header = ("rung", "load", "first call", "start", "peak memory", "throughput", "cost per million")
    rows = [_cost_row(rung, measured) for rung, measured in _measured(report) if not measured.proxy]
    own = [f"{text(rung)} {human_ms(one.gpu_ms)}" for rung, one in _measured(report) if one.gpu_ms is not None]
    foot = (f"Of these times, the device itself takes, copies not counted: {', '.join(own)}. " if own else "") + (
        "Of fresh processes that load and run the rung alone: loading, the first call, the median of both together "
        "over several starts where a gate asks for it, and the peak of resident memory."
    )
    return f"## What it takes\n\n{table(header, rows)}\n\n{foot}" if rows else ""


def outcome(trial: Trial) -> str:
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


def _rung_row(trial: Trial, chosen: str | None) -> list[str]:
    name = f"**{text(trial.rung)}** (chosen)" if trial.rung == chosen else text(trial.rung)
    measured, score = trial.measurement, trial.quality
    return [
        name,
        NOTHING if trial.size_bytes is None else human_bytes(trial.size_bytes),
        *(_speed(measured) if measured else [NOTHING] * 3),
        score_words(score) if score else NOTHING,
        with_interval(score.drop, score.drop_low, score.drop_high) if score else NOTHING,
        outcome(trial),
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


def _engine_row(rung: str, artifact: Artifact) -> list[str]:
    first = artifact.files[0]
    return [
        text(rung),
        text(PurePosixPath(first.path).name),
        text(artifact.device.replace("+", ", ")),
        human_bytes(first.size_bytes),
        f"{artifact.build_s:.3g} s",
        text(artifact.options.get("computes", NOTHING)),
    ]


def _gate_row(rung: str, verdict: Verdict) -> list[str]:
    return [
        *map(text, (rung, verdict.gate, MET[verdict.met])),
        with_unit(verdict.observed, verdict.low, verdict.high, text(verdict.unit)),
        with_unit(verdict.limit, None, None, text(verdict.unit)),
        text(verdict.reason),
    ]


def _other_row(rung: str, latency: Latency) -> list[str]:
    return [
        *map(text, (rung, latency.at or NOTHING)),
        pairs(latency.shape),
        f"{text(latency.load)} ({strain(latency)})" if strain(latency) else text(latency.load),
        _percentile(latency.p50_ms, latency.p50_high_ms, latency),
        _percentile(latency.p99_ms, latency.p99_high_ms, latency),
        throughput(latency),
    ]


def _losses(trial: Trial) -> Iterator[str]:
    rung, score = text(trial.rung), trial.quality
    for output, found in (trial.measurement.errors if trial.measurement else trial.errors).items():
        yield f"- **{rung}**, {text(output)}: {error(found)}"
    if score and (lost := _worst(score)):
        yield f"- **{rung}**, {lost}"
    if score and (blamed := saturated(score)):
        yield f"- **{rung}**: {text(blamed)}"


def _worst(score: Score) -> str:
    lost = worst(score)
    return f"worst {lost} ({text(score.metric)})" if lost else ""


def _cost_row(rung: str, measured: Measurement) -> list[str]:
    latency = measured.latency
    return [
        text(rung),
        *(NOTHING if ms is None else human_ms(ms) for ms in (latency.load_ms, latency.cold_ms)),
        startup(measured.startup),
        memory(measured.memory_bytes),
        throughput(latency),
        cost(measured.cost_per_million),
    ]
