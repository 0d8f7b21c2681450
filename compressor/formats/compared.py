"""What a comparison found: rows of its tables, and one plain sentence.

A line that sets the two models side by side is a line in `sides`.
"""

from __future__ import annotations

from compressor.formats.benched import cold, threads
from compressor.formats.words import (
    MET,
    MINIMUM,
    NOTHING,
    at_most,
    between,
    busy,
    dropped,
    error,
    median,
    memory,
    ratio,
    referred,
    rounds,
    score_words,
    smaller,
    throughput,
    times,
    unmet,
    worst,
)
from compressor.records import Compared, Measurement, Relation, Score, Speedup, Verdict
from compressor.units import human_bytes

SIDES = ("what", "A", "B")
DIFFERENCES = ("what", "B beside A")
GATES = ("gate", "verdict", "reason")
_PROVED = {
    "faster": "faster",
    "slower": "slower",
    "same": f"no difference beyond {MINIMUM}",
    "undecided": "undecided",
}


def sides(found: Compared) -> list[list[str]]:
    """Give the rows of `SIDES`: what each model takes."""
    a, b = found.before.measurement, found.after.measurement
    rows = [
        ["model", found.before.source, found.after.source],
        ["size", human_bytes(a.size_bytes), human_bytes(b.size_bytes)],
        ["p50", *(median(m.latency) for m in (a, b))],
        ["p99 at most", *(at_most(m.latency.p99_ms, m.latency.p99_high_ms, m.latency) for m in (a, b))],
        ["throughput", *(throughput(m.latency) for m in (a, b))],
        ["cold start", *(cold(m.latency) for m in (a, b))],
        ["peak memory", *(memory(m.memory_bytes) for m in (a, b))],
        ["threads", *(threads(side, found.environment.cpus_usable) for side in (found.before, found.after))],
        ["score", *(f"{m.score.metric} {score_words(m.score)}" if m.score else NOTHING for m in (a, b))],
    ]
    return [row for row in rows if row[1:] != [NOTHING, NOTHING]]


def differences(found: Compared, relation: Relation | None) -> list[tuple[str, str]]:
    """Give the rows of `DIFFERENCES`; `relation` is what the speed-up proves, None where there is none."""
    a, b = found.before.measurement, found.after.measurement
    rows = [
        ("speed", _speed(b.speedup, relation)),
        ("size", _size(a, b)),
        *([(b.score.metric, dropped(b.score)), ("worst class", worst(b.score))] if b.score else []),
        *((f"output {output}", error(far)) for output, far in b.errors.items()),
        ("machine", busy(b.speedup.preempted, b.speedup.stalled) if b.speedup else ""),
    ]
    return [(name, value) for name, value in rows if value]


def gates(found: Compared) -> list[list[str]]:
    """Give the rows of `GATES`."""
    return [[verdict.gate, MET[verdict.met], verdict.reason] for verdict in found.verdicts]


def sentence(found: Compared, relation: Relation | None) -> str:
    """Say how the second model stands to the first in speed, size and quality, and which gates it does not meet."""
    a, b = found.before.measurement, found.after.measurement
    facts = f"{_faster(b.speedup, relation)}, is {_size(a, b)}, and {_quality(found)}: {found.verdict}."
    return " ".join((facts, *map(_why, unmet(found.verdicts))))


def _size(a: Measurement, b: Measurement) -> str:
    return "of the same size" if a.size_bytes == b.size_bytes else smaller(a.size_bytes, b.size_bytes)


def _speed(speedup: Speedup | None, relation: Relation | None) -> str:
    if speedup is None or relation is None:
        return ""
    return ", ".join(filter(None, (f"{_PROVED[relation]}: {times(speedup)}", rounds(speedup))))


def _faster(speedup: Speedup | None, relation: Relation | None) -> str:
    if speedup is None:
        return "B was not timed beside A"
    if relation == "slower":
        interval = f"(95 % interval {ratio(1 / speedup.high)} to {ratio(1 / speedup.low)})"
        return f"B takes {ratio(1 / speedup.ratio)} times as long as A {interval}"
    if relation == "same":
        nearly = f"{ratio(speedup.ratio)} times, {between(speedup)}"
        return f"B is as fast as A, with no difference beyond {MINIMUM} ({nearly})"
    faster = f"{ratio(speedup.ratio)} times as fast as A ({between(speedup)}"
    return f"B is {faster})" if relation == "faster" else f"B seems {faster}, which decides nothing)"


def _quality(found: Compared) -> str:
    score = found.after.measurement.score
    if score is None:
        if any(verdict.gate == "accuracy" and verdict.met for verdict in found.verdicts):
            return "its outputs are those of A up to rounding"
        return "what it loses is unknown for want of evaluation data"
    name = _named(score)
    return f"{name} {dropped(score)}" if dropped(score) else f"{name} was not compared"


def _named(score: Score) -> str:
    """Give a metric's name with what it holds the outputs against, where that is the other model."""
    against = referred(score, "A").removeprefix(f"{score.metric} ")
    return f"{score.metric} {against}" if score.reference else score.metric


def _why(verdict: Verdict) -> str:
    return f"{verdict.gate} {MET[verdict.met]}: {verdict.reason.rstrip('.')}."
