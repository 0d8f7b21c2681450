from __future__ import annotations

from dataclasses import replace

import pytest

from compressor import records as r
from compressor.formats import benched as words


def _verdict(gate: str, *, met: bool | None, reason: str = "why.") -> r.Verdict:
    return r.Verdict(gate, met, 1.0, 2.0, None, None, reason, "ms")


def _latency(benched: r.Benched, **changed: object) -> r.Benched:
    measured = benched.side.measurement
    latency = replace(measured.latency, **changed)  # type: ignore[arg-type]
    return replace(benched, side=replace(benched.side, measurement=replace(measured, latency=latency)))


def test_every_point_has_its_row(benched: r.Benched) -> None:
    assert words.points(benched) == [
        ["main load", "closed", "1 ms", "1 ms", "33.2 ms", "120/s [110/s, 130/s]", "-"],
        [
            *("batch 8", "closed", "1 ms", "1 ms", "n = 100, too few", "120/s [110/s, 130/s]"),
            "overloaded: 300/s were due",
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
    assert batch[-1] == "overloaded: 300/s were due; not met: latency p99 at batch 8"


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
    assert told == f"{facts}; latency p99 at batch 8 not met, p99 is over 3 ms."


def test_a_percentile_without_a_bound_is_no_number_in_the_sentence(benched: r.Benched) -> None:
    told = words.sentence(_latency(benched, p99_high_ms=None))
    assert told.startswith("net.onnx takes 1 ms at the median, its p99 unknown (n = 100, too few);")
