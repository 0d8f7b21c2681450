"""A run as the files that trackers of benchmarks read: github-action-benchmark and Bencher.

They follow numbers over time, which is no gate: another day's machine is another machine. Another tracker is a function
here and a line in `EXPORTS` of the package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from compressor.errors import printable
from compressor.formats.words import strain
from compressor.records import Latency, Measurement, Report

_NS_PER_MS = 1e6
_LONGEST_NAME = 1000  # Bencher takes 1024 characters


class _Figure(NamedTuple):
    """A number with its limits, None where it has none."""

    value: float
    low: float | None = None
    high: float | None = None


def benchmark(report: Report) -> str:
    """Give the input of github-action-benchmark's tool `customSmallerIsBetter`: all figures of which less is better.

    Source of the format: its README, "Examples", `customSmallerIsBetter`.
    """
    entries = [
        {
            "name": f"{name} {what}",
            "unit": unit,
            "value": figure.value,
            **_range(figure),
            "extra": _extra(report, found),
        }
        for name, found in _measured(report)
        for what, unit, figure in _smaller_is_better(found)
        if math.isfinite(figure.value)
    ]
    return json.dumps(entries, indent=2, allow_nan=False) + "\n"


def bencher(report: Report) -> str:
    """Give Bencher Metric Format; latencies in nanoseconds, as its own measure `latency` is.

    Source of the format: https://bencher.dev/docs/reference/bencher-metric-format
    """
    found = {
        name: {what: _metric(figure) for what, figure in _measures(one) if math.isfinite(figure.value)}
        for name, one in _measured(report)
    }
    return json.dumps(found, indent=2, allow_nan=False) + "\n"


def _measured(report: Report) -> Iterator[tuple[str, Measurement]]:
    for trial in (report.baseline, *report.trials):
        if trial.measurement:
            yield printable(f"{report.model.name}/{trial.rung}", _LONGEST_NAME), trial.measurement


def _smaller_is_better(measured: Measurement) -> Iterator[tuple[str, str, _Figure]]:
    for what, figure in _times(measured):
        yield what, "ms", figure
    yield "size", "bytes", _Figure(measured.size_bytes)
    if measured.memory_bytes is not None:
        yield "peak memory", "bytes", _Figure(measured.memory_bytes)
    if measured.cost_per_million is not None:
        yield "cost per million", "USD", _Figure(measured.cost_per_million)


def _measures(measured: Measurement) -> Iterator[tuple[str, _Figure]]:
    """Give Bencher's measures by their slug."""
    for what, figure in _times(measured):
        slug = "latency" if what == "p50" else f"latency-{what}"
        yield slug, _Figure(*(None if ms is None else ms * _NS_PER_MS for ms in figure))  # type: ignore[arg-type]
    if _timed(measured) and (throughput := _throughput(measured.latency)):
        yield "throughput", throughput
    yield "file-size", _Figure(measured.size_bytes)
    if measured.memory_bytes is not None:
        yield "memory", _Figure(measured.memory_bytes)
    if (score := measured.score) is not None:
        yield "score", _Figure(score.value, score.low, score.high)
    if (speedup := measured.speedup) is not None and not measured.proxy:
        yield "speedup", _Figure(speedup.ratio, speedup.low, speedup.high)


def _times(measured: Measurement) -> Iterator[tuple[str, _Figure]]:
    """Give the percentiles in milliseconds; none of what only stands in, or was overrun by its load."""
    if _timed(measured):
        latency = measured.latency
        yield "p50", _Figure(latency.p50_ms, latency.p50_low_ms, latency.p50_high_ms)
        yield "p99", _Figure(latency.p99_ms, latency.p99_low_ms, latency.p99_high_ms)


def _timed(measured: Measurement) -> bool:
    return measured.proxy is None and not strain(measured.latency)


def _throughput(latency: Latency) -> _Figure | None:
    if latency.throughput_per_s is None:
        return None
    return _Figure(latency.throughput_per_s, latency.throughput_low_per_s, latency.throughput_high_per_s)


def _range(figure: _Figure) -> Mapping[str, str]:
    """Give how far the further limit is; that format has one number for both sides."""
    if figure.low is None or figure.high is None:
        return {}
    further = max(figure.high - figure.value, figure.value - figure.low)
    return {"range": f"± {further:.4g}"} if math.isfinite(further) else {}


def _extra(report: Report, measured: Measurement) -> str:
    latency, where = measured.latency, report.environment
    return printable(f"n = {latency.n}, {latency.load}, {where.threads} threads, {where.cpu}")


def _metric(figure: _Figure) -> Mapping[str, float]:
    limits = {"lower_value": figure.low, "upper_value": figure.high}
    found = {name: value for name, value in limits.items() if value is not None and math.isfinite(value)}
    return {"value": figure.value, **found}
