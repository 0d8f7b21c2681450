"""The files for trackers of benchmarks, held against what these tools read."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import found
import jsonschema

from compressor import formats
from compressor import records as r

BENCHER = {  # Source: https://bencher.dev/docs/reference/bencher-metric-format
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "patternProperties": {
                ".+": {
                    "type": "object",
                    "properties": {key: {"type": "number"} for key in ("value", "lower_value", "upper_value")},
                    "required": ["value"],
                    "additionalProperties": False,
                }
            },
        }
    },
}
BENCHMARK = {  # Source: README of github-action-benchmark, and its extract.ts, which takes these five
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {"value": {"type": "number"}}
        | {key: {"type": "string"} for key in ("name", "unit", "range", "extra")},
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
    },
}


def _latency(measured: r.Measurement, **changes: object) -> r.Measurement:
    return replace(measured, latency=replace(measured.latency, **changes))  # type: ignore[arg-type]


def _changed(report: r.Report, measured: r.Measurement) -> r.Report:
    return replace(report, trials=(replace(found.INT8, measurement=measured),))


def test_github_action_benchmark_reads_what_is_better_when_less(report: r.Report) -> None:
    entries = json.loads(formats.render(report, "benchmark"))
    jsonschema.validate(entries, BENCHMARK)
    values = {entry["name"]: (entry["value"], entry["unit"]) for entry in entries}
    assert len(values) == len(entries)
    assert values == {
        "net/baseline p50": (1.0, "ms"),
        "net/baseline p99": (80.25, "ms"),
        "net/baseline size": (25_600_000, "bytes"),
        "net/baseline peak memory": (5_000_000, "bytes"),
        "net/int8 p50": (1.0, "ms"),
        "net/int8 p99": (31.5, "ms"),
        "net/int8 size": (6_400_000, "bytes"),
        "net/int8 peak memory": (4_000_000, "bytes"),
        "net/int8 cost per million": (0.12, "USD"),
    }


def test_the_range_covers_the_further_limit(report: r.Report) -> None:
    assert found.INT8.measurement
    measured = _latency(found.INT8.measurement, p50_ms=30.0, p50_low_ms=29.5, p50_high_ms=31.25)
    ranges = {e["name"]: e.get("range") for e in json.loads(formats.render(_changed(report, measured), "benchmark"))}
    assert ranges["net/int8 p50"] == "± 1.25"
    assert ranges["net/int8 p99"] is None  # it has no lower limit
    assert ranges["net/int8 size"] is None


def test_bencher_reads_measures_with_their_limits_and_latency_in_nanoseconds(report: r.Report) -> None:
    tree = json.loads(formats.render(report, "bencher"))
    jsonschema.validate(tree, BENCHER)
    assert tree.keys() == {"net/baseline", "net/int8"}
    assert tree["net/int8"] == {
        "latency": {"value": 1e6, "lower_value": 1e6, "upper_value": 1e6},
        "latency-p99": {"value": 31.5e6, "upper_value": 33.25e6},
        "throughput": {"value": 120.0, "lower_value": 110.0, "upper_value": 130.0},
        "file-size": {"value": 6_400_000},
        "memory": {"value": 4_000_000},
        "score": {"value": 0.745, "lower_value": 0.59, "upper_value": 0.89},
        "speedup": {"value": 2.5, "lower_value": 2.25, "upper_value": 2.75},
    }
    assert all(len(name) <= 1024 and all(len(slug) <= 64 for slug in found) for name, found in tree.items())


def test_times_of_a_stand_in_or_of_an_overrun_server_are_no_figures(report: r.Report) -> None:
    assert found.INT8.measurement
    for measured in (
        replace(found.INT8.measurement, proxy="cpu-proxy"),
        _latency(found.INT8.measurement, overloaded=True),
    ):
        changed = _changed(report, measured)
        tree = json.loads(formats.render(changed, "bencher"))["net/int8"]
        assert not {"latency", "latency-p99", "throughput"} & tree.keys()
        assert tree["file-size"] == {"value": 6_400_000}
        names = [entry["name"] for entry in json.loads(formats.render(changed, "benchmark"))]
        assert "net/int8 size" in names
        assert "net/int8 p50" not in names


def test_what_is_not_finite_is_left_out(report: r.Report) -> None:
    assert found.INT8.measurement
    measured = replace(
        _latency(found.INT8.measurement, p99_ms=math.nan, p50_high_ms=math.inf),
        score=replace(found.INT8.measurement.score, value=math.nan),  # type: ignore[type-var]
    )
    changed = _changed(report, measured)
    tree = json.loads(formats.render(changed, "bencher"))["net/int8"]
    assert not {"latency-p99", "score"} & tree.keys()
    assert tree["latency"] == {"value": 1e6, "lower_value": 1e6}
    entries = {entry["name"]: entry for entry in json.loads(formats.render(changed, "benchmark"))}
    assert "net/int8 p99" not in entries
    assert "range" not in entries["net/int8 p50"]


def test_hostile_names_are_printable_and_short(report: r.Report) -> None:
    hostile = replace(report, model=replace(report.model, name="\x1b[31m\n\u202e" + "n" * 5000))
    assert all(name.isprintable() and len(name) <= 1024 for name in json.loads(formats.render(hostile, "bencher")))
    assert all(entry["name"].isprintable() for entry in json.loads(formats.render(hostile, "benchmark")))
