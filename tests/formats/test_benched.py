from __future__ import annotations

from dataclasses import replace

import pytest

from compressor import records as r
from compressor.formats import benched as words


def _verdict(gate: str, *, met: bool | None, reason: str = "why.") -> r.Verdict:
    return r.Verdict(gate, met, 1.0, 2.0, None, None, reason, gate.partition(" at ")[2], "ms")


def _latency(benched: r.Benched, **changed: object) -> r.Benched:
    measured = benched.side.measurement
    latency = replace(measured.latency, **changed)  # type: ignore[arg-type]
    return replace(benched, side=replace(benched.side, measurement=replace(measured, latency=latency)))


def test_every_point_has_its_row(benched: r.Benched) -> None:
    assert words.points(benched) == [
        ["main load", "closed", "1 ms", "1 ms", "33.2 ms", "120/s [110/s, 130/s]", "-"],
        [
            *("batch 8", "closed", "at least 1 ms", "at least 1 ms", "at least 60 ms"),
            *("offered 300/s, answered 120/s", "overloaded: percentiles are lower limits"),
        ],
    ]
    assert all(len(row) == len(words.POINTS) for row in words.points(benched))


def test_a_verdict_stands_in_the_row_of_its_point(benched: r.Benched) -> None:
    verdicts = (
        _verdict("latency p99", met=True),
        _verdict("size", met=True),
        _verdict("latency p50 at batch 8", met=None),
        _verdict("latency p99 at batch 8", met=False),
    )
    main, batch = words.points(replace(benched, verdicts=verdicts))
    assert main[-1] == "met"
    assert batch[-1] == "overloaded: percentiles are lower limits; not met: latency p99 at batch 8"


@pytest.mark.parametrize(("met", "word"), [(False, "not met"), (None, "undecided")])
def test_a_gate_that_is_not_met_is_named(benched: r.Benched, word: str, *, met: bool | None) -> None:
    verdicts = (_verdict("size", met=True), _verdict("latency p99", met=met))
    assert words.points(replace(benched, verdicts=verdicts))[0][-1] == f"{word}: latency p99"


def test_what_a_model_takes(benched: r.Benched) -> None:
    assert words.takes(benched) == [
        ("model", "net.onnx (6.4 MB)"),
        ("shape", "input 1x3x8x8"),
        ("cold start", "load 30.5 ms, first call 9 ms"),
        ("start", "120 ms (at most 150 ms)"),
        ("peak memory", "4 MB"),
        ("cost per million", "0.12 USD"),
        ("threads", "2 on 2 usable CPUs"),
        ("machine", "some task waited for a CPU 25 % of the time"),
    ]


def test_what_was_not_measured_is_not_shown(benched: r.Benched) -> None:
    measured = replace(benched.side.measurement, startup=None, cost_per_million=None, memory_bytes=None)
    rows = words.takes(_latency(replace(benched, side=replace(benched.side, measurement=measured)), cold_ms=None))
    assert [name for name, _ in rows] == ["model", "shape", "threads", "machine"]


def test_the_machine_is_as_busy_as_it_was_at_the_busiest_point(benched: r.Benched) -> None:
    found = dict(words.takes(_latency(benched, preempted=0.5, stalled=None)))
    assert found["machine"] == "some task waited for a CPU 25 % of the time"


def test_the_sentence_says_how_long_a_call_takes_and_what_decided(benched: r.Benched) -> None:
    facts = "net.onnx takes 1 ms at the median, p99 is at most 33.2 ms"
    assert words.sentence(benched) == f"{facts}; every gate is met at every point asked."
    assert words.sentence(replace(benched, verdict=None)) == f"{facts}; no limit was asked, --sla asks for one."
    verdicts = (_verdict("size", met=None), _verdict("latency p99 at batch 8", met=False, reason="p99 is over 3 ms."))
    told = words.sentence(replace(benched, verdict="fail", verdicts=verdicts))
    assert told == f"{facts}; latency p99 at batch 8 not met, p99 is over 3 ms; size undecided, why."


def test_a_verdict_belongs_to_the_point_that_it_names_whatever_its_gate_is_called(benched: r.Benched) -> None:
    verdict = replace(_verdict("latency p99", met=True), at="batch 8")
    main, batch = words.points(replace(benched, verdicts=(verdict,)))
    assert (main[-1], batch[-1]) == ("-", "overloaded: percentiles are lower limits; met")


@pytest.mark.parametrize(
    ("changed", "told"),
    [({"overloaded": True}, "overloaded"), ({"growing": True}, "requests wait longer and longer")],
)
def test_an_overload_comes_first_and_no_percentile_is_more_than_a_lower_limit(
    benched: r.Benched, changed: dict[str, bool], told: str
) -> None:
    found = _latency(benched, offered_per_s=300.0, p99_high_ms=None, n=2902, **changed)
    rates = "offered 300/s, answered 120/s"
    assert words.points(found)[0][2:] == [
        *("at least 1 ms", "at least 1 ms", "at least 31.5 ms", rates, f"{told}: percentiles are lower limits")
    ]
    assert words.sentence(found).startswith(
        f"{told}, {rates}: net.onnx takes at least 1 ms at the median, p99 is at least 31.5 ms;"
    )
    assert next(words.warnings(found)) == f"main load: {told}, {rates}: its percentiles are lower limits"


def test_only_points_that_are_overloaded_are_warned_of(benched: r.Benched) -> None:
    batch = "batch 8: overloaded, offered 300/s, answered 120/s: its percentiles are lower limits"
    assert list(words.warnings(benched)) == [batch]


def test_a_percentile_without_a_bound_is_no_number_in_the_sentence(benched: r.Benched) -> None:
    told = words.sentence(_latency(benched, p99_high_ms=None))
    assert told.startswith("net.onnx takes 1 ms at the median, its p99 unknown (n = 100, too few);")
