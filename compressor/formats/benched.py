"""What a bench found: rows of its tables, and one plain sentence.

A column of the points is a cell in `_point`; a line on what the model takes is a line in `takes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compressor.formats.words import MET, NOTHING, at_most, busy, cost, memory, startup, throughput
from compressor.records import Benched, Latency, Measurement, Side, Verdict
from compressor.units import human_bytes, human_ms, human_rate

POINTS = ("point", "load", "p50", "p95 at most", "p99 at most", "throughput", "verdict")
_MAIN = "main load"


def points(found: Benched) -> list[list[str]]:
    """Give one row of `POINTS` for each load and shape that was measured."""
    measured = found.side.measurement
    latencies = (measured.latency, *measured.others)
    names = [latency.at for latency in latencies if latency.at]
    return [_point(latency, _asked(found.verdicts, latency.at, names)) for latency in latencies]


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


def sentence(found: Benched) -> str:
    """Say how long a call takes, and which gate decided."""
    latency = found.side.measurement.latency
    p99 = f"p99 is at most {human_ms(latency.p99_high_ms)}" if latency.p99_high_ms is not None else _too_few(latency)
    facts = f"{found.side.source} takes {human_ms(latency.p50_ms)} at the median, {p99}"
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


def _asked(verdicts: Sequence[Verdict], at: str, names: Sequence[str]) -> list[Verdict]:
    """Give the verdicts on one point: a gate ends in the name of its point, one of the main point in none."""
    if at:
        return [verdict for verdict in verdicts if verdict.gate.endswith(f" at {at}")]
    return [v for v in verdicts if not any(v.gate.endswith(f" at {name}") for name in names)]


def _point(latency: Latency, verdicts: Sequence[Verdict]) -> list[str]:
    return [
        latency.at or _MAIN,
        latency.load,
        human_ms(latency.p50_ms),
        at_most(latency.p95_high_ms, latency.n),
        at_most(latency.p99_high_ms, latency.n),
        throughput(latency),
        "; ".join((*_overload(latency), *_judged(verdicts))) or NOTHING,
    ]


def _overload(latency: Latency) -> Iterator[str]:
    if latency.overloaded:
        due = "" if latency.offered_per_s is None else f": {human_rate(latency.offered_per_s)} were due"
        yield f"overloaded{due}"


def _judged(verdicts: Sequence[Verdict]) -> Iterator[str]:
    for met in (False, None):
        if gates := [verdict.gate for verdict in verdicts if verdict.met is met]:
            yield f"{MET[met]}: {', '.join(gates)}"
            return
    if verdicts:
        yield MET[True]


def _busiest(measured: Measurement) -> str:
    latencies = (measured.latency, *measured.others)
    stalled = [latency.stalled for latency in latencies if latency.stalled is not None]
    return busy(max(latency.preempted for latency in latencies), max(stalled, default=None))


def _too_few(latency: Latency) -> str:
    return f"its p99 unknown ({at_most(None, latency.n)})"


def _outcome(found: Benched) -> str:
    open_ = sorted((v for v in found.verdicts if v.met is not True), key=lambda v: v.met is None)
    if open_:
        return f"{open_[0].gate} {MET[open_[0].met]}, {open_[0].reason.rstrip('.')}"
    if found.verdict is None:
        return "no limit was asked, --sla asks for one"
    return "every gate is met at every point asked"
