"""What a bench found: rows of its tables, and one plain sentence.

A column of the points is a cell in `_point`; a line on what the model takes is a line in `takes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compressor.formats.words import (
    MET,
    NOTHING,
    at_most,
    busy,
    cost,
    median,
    memory,
    startup,
    strain,
    throughput,
    unmet,
)
from compressor.records import Benched, Latency, Measurement, Side, Verdict
from compressor.units import human_bytes, human_ms

POINTS = ("point", "load", "p50", "p95 at most", "p99 at most", "throughput", "verdict")
_MAIN = "main load"


def points(found: Benched) -> list[list[str]]:
    """Give one row of `POINTS` for each load and shape that was measured."""
    return [_point(one, [v for v in found.verdicts if v.at == one.at]) for one in _latencies(found.side.measurement)]


def takes(found: Benched) -> list[tuple[str, str]]:
    """Give what the model takes besides time: a name and a value for each."""
    side, measured = found.side, found.side.measurement
    rows = [
        ("model", f"{side.source} ({human_bytes(measured.size_bytes)})"),
        ("shape", ", ".join(f"{name} {dims}" for name, dims in measured.latency.shape.items())),
        ("cold start", cold(measured.latency)),
        ("start", startup(measured.startup)),
        ("peak memory", memory(measured.memory_bytes)),
        ("cost per million", cost(measured.cost_per_million)),
        ("threads", threads(side, found.environment.cpus_usable)),
        ("machine", _busiest(measured)),
    ]
    return [(name, value) for name, value in rows if value != NOTHING]


def warnings(found: Benched) -> Iterator[str]:
    """Name the points at which requests came faster than they were answered."""
    for latency in _latencies(found.side.measurement):
        if strained := strain(latency):
            yield f"{latency.at or _MAIN}: {strained}, {throughput(latency)}: its percentiles are lower limits"


def sentence(found: Benched) -> str:
    """Say how long a call takes, after whether requests were answered as they came, and what was not shown."""
    latency = found.side.measurement.latency
    strained = f"{strain(latency)}, {throughput(latency)}: " if strain(latency) else ""
    facts = f"{strained}{found.side.source} takes {median(latency)} at the median, {_p99(latency)}"
    return f"{facts}; {_outcome(found)}."


def cold(latency: Latency) -> str:
    """Give what a fresh process takes to load a model and to answer for the first time."""
    if latency.load_ms is None or latency.cold_ms is None:
        return NOTHING
    return f"load {human_ms(latency.load_ms)}, first call {human_ms(latency.cold_ms)}"


def threads(side: Side, cpus_usable: int) -> str:
    """Give the threads of a session beside the CPUs that it may use."""
    asked = side.options.get("intra_op_num_threads", "the runtime's choice")
    return f"{asked} on {cpus_usable} usable CPUs"


def _latencies(measured: Measurement) -> tuple[Latency, ...]:
    return (measured.latency, *measured.others)


def _point(latency: Latency, verdicts: Sequence[Verdict]) -> list[str]:
    return [
        latency.at or _MAIN,
        latency.load,
        median(latency),
        at_most(latency.p95_ms, latency.p95_high_ms, latency),
        at_most(latency.p99_ms, latency.p99_high_ms, latency),
        throughput(latency),
        "; ".join((*_strained(latency), *_judged(verdicts))) or NOTHING,
    ]


def _strained(latency: Latency) -> Iterator[str]:
    if strained := strain(latency):
        yield f"{strained}: percentiles are lower limits"


def _judged(verdicts: Sequence[Verdict]) -> Iterator[str]:
    for met in (False, None):
        if gates := [verdict.gate for verdict in verdicts if verdict.met is met]:
            yield f"{MET[met]}: {', '.join(gates)}"
            return
    if verdicts:
        yield MET[True]


def _busiest(measured: Measurement) -> str:
    latencies = _latencies(measured)
    stalled = [latency.stalled for latency in latencies if latency.stalled is not None]
    return busy(max(latency.preempted for latency in latencies), max(stalled, default=None))


def _p99(latency: Latency) -> str:
    limit = at_most(latency.p99_ms, latency.p99_high_ms, latency)
    if strain(latency):
        return f"p99 is {limit}"
    return f"p99 is at most {limit}" if latency.p99_high_ms is not None else f"its p99 unknown ({limit})"


def _outcome(found: Benched) -> str:
    if open_ := unmet(found.verdicts):
        return "; ".join(f"{v.gate} {MET[v.met]}, {v.reason.rstrip('.')}" for v in open_)
    if found.verdict is None:
        return "no limit was asked, --sla asks for one"
    return "every gate is met at every point asked"
