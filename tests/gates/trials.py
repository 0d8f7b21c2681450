"""Trials as gates judge them, with what a test changes put in its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from compressor import records
from compressor.gates import Gate
from compressor.records import Artifact, Bound, Measurement, Score, Speedup, Trial

GATES: TypeAdapter[Any] = TypeAdapter(Gate)
TIMES = records.Latency(
    **{f"p{p}{end}_ms": None for p in (50, 90, 95, 99) for end in ("_low", "_high")},  # type: ignore[arg-type]
    **dict.fromkeys(("p50_ms", "p90_ms", "p95_ms", "p99_ms", "mean_ms"), 40.0),
    n=1000,
    cold_ms=None,
    load_ms=None,
    shape={"x": "1x3"},
    load="closed concurrency=1",
    preempted=0.0,
)
SCORE = Score(metric="top1", value=0.79, n=500, low=0.75, high=0.83, drop=0.008, drop_low=-0.002, drop_high=0.018)


def read(text: Any) -> Any:
    """Read a gate as a recipe does."""
    return GATES.validate_python(text)


def trial(*others: records.Latency, score: Score | None = None, **times: Any) -> Trial:
    """Give a trial with these further points, and with these fields of the main one."""
    return Trial("int8", measurement=Measurement(1, replace(TIMES, **times), 25.0, None, score, others=others))


def measuring(known: Trial, **fields: Any) -> Trial:
    """Give a trial of which other fields were measured."""
    assert known.measurement
    return replace(known, measurement=replace(known.measurement, **fields))


def threads(known: Trial, n: int) -> Trial:
    """Give a trial that was measured with so many threads."""
    return replace(known, artifacts=(Artifact("onnxruntime", "cpu", (), 0.0, {"intra_op_num_threads": str(n)}),))


def p99(low: float | None, high: float | None, **known: Any) -> Bound:
    """Give what was found about p99 <= 50 ms."""
    plain = Bound(99, 0.95, value_ms=45, low_ms=low, high_ms=high, limit_ms=50, violations=3, dispersion=1.0)
    return replace(plain, **{"steady": True, **known})


def rung(*interval: float, name: str = "int8", stages: tuple[records.Applied, ...] = (), **pairs: Any) -> Trial:
    """Give a trial that is faster by (ratio, low, high) than the baseline, or the baseline's own."""
    speedup = Speedup(*interval, **pairs) if interval else None
    return replace(measuring(trial(), speedup=speedup), rung=name, stages=stages)
