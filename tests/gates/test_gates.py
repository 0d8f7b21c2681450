"""How gates are written, and what all gates of a recipe ask to be measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError
from trials import GATES, TIMES, p99, read, trial

from compressor import gates
from compressor.gates import At
from compressor.records import Target, Trial

SCHEMAS = {"validation": GATES.json_schema(), "serialization": GATES.json_schema(mode="serialization")}
WRITTEN = [
    {"latency": {"p99": "50ms"}},
    {"latency": {"p99.9": "1.5s", "reserve": "5ms", "confidence": "99%"}},
    {"latency": {"p99": "50ms", "at": {"batch": 8}}},
    {"latency": {"p99": "50ms", "at": {"shapes": {"x": "1x3x32x32"}}}},
    {"throughput": {"min": "500/s"}},
    {"throughput": {"min": "500/s", "at": {"batch": 32}}},
    {"speedup": {"min": "1.2x"}},
    {"accuracy": {"max_drop": "1%"}},
    {"accuracy": {"max_drop": "0.5%", "confidence": "95%"}},
    {"accuracy": {"min": 0.75}},
    {"accuracy": {"max_drop": "1%", "min": 30.0, "confidence": "95%"}},
    {"size": {"max": "4MiB"}},
    {"memory": {"max": "200MiB"}},
    {"startup": {"max": "500ms"}},
    {"macs": {"max": "300M"}},
    {"parameters": {"max": "5M"}},
    {"nodes": {"max": 250}},
    {"cost": {"max": "0.5 USD/1M", "per_hour": 0.526}},
]


@pytest.mark.parametrize("text", WRITTEN)
def test_a_gate_is_written_as_it_was_read(text: Any) -> None:
    assert GATES.dump_python(read(text), mode="json", exclude_defaults=True) == text
    assert read(GATES.dump_python(read(text), mode="json")) == read(text)


@pytest.mark.parametrize("text", WRITTEN)
@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_the_schema_accepts_a_gate_in_full_and_in_short(text: Any, mode: Any) -> None:
    jsonschema.validate(text, SCHEMAS[mode])
    jsonschema.validate(GATES.dump_python(read(text), mode="json"), SCHEMAS[mode])
    shown = GATES.dump_python(read(text), mode="json", exclude_none=True)
    jsonschema.validate(shown, SCHEMAS[mode])


@pytest.mark.parametrize("mode", ["validation", "serialization"])
@pytest.mark.parametrize(
    "text",
    [
        {"latency": {}},
        {"latency": {"p50": "1ms", "p99": "2ms"}},
        {"latency": {"p99": "fast"}},
        {"latency": {"p98": "50ms"}},
        {"latency": {"p99": "50ms", "at": {}}},
        {"latency": {"p99": "50ms", "at": {"batch": 8, "shapes": {"x": "1x3"}}}},
        {"latency": {"p99": "50ms", "at": 8}},
        {"throughput": {"min": 500}},
        {"throughput": "500/s"},
        {"speedup": {"min": "20%"}},
        {"accuracy": {"max_drop": "1%", "confidence": "90%"}},
        {"accuracy": {}},
        {"accuracy": {"min": "75%"}},
        {"size": {"max": "4 million"}},
        {"memory": {}},
        {"startup": {"max": "500"}},
        {"macs": {"max": "300T"}},
        {"nodes": {"max": 1.5}},
        {"parameters": {"max": -1}},
        {"cost": {"max": "0.50 USD/1M"}},
        {"cost": {"max": "0.50", "per_hour": 0.526}},
        "nodes",
    ],
)
def test_the_schema_refuses_what_reading_refuses(text: Any, mode: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(text, SCHEMAS[mode])
    with pytest.raises(ValidationError):
        read(text)


def test_an_unknown_gate_is_refused_with_the_known_ones() -> None:
    known = "latency, throughput, speedup, accuracy, size, memory, startup, macs, parameters, nodes, cost"
    with pytest.raises(ValidationError, match=f"expected one of {known}, found"):
        read({"energy": {"max": "1J"}})


LATENCIES = [
    {"latency": {"p99": "50ms"}},
    {"latency": {"p50": "20ms", "confidence": "90%"}},
    {"latency": {"p99": "200ms", "at": {"batch": 8}}},
    {"latency": {"p99": "20ms", "at": {"shapes": {"x": "1x3x32x32"}}}},
]
ASKED = tuple(
    read(text)
    for text in (
        *LATENCIES,
        {"throughput": {"min": "500/s", "at": {"batch": 8}}},
        {"throughput": {"min": "500/s", "at": {"batch": 32}}},
        {"throughput": {"min": "500/s"}},
        {"accuracy": {"min": 0.5}},
        {"speedup": {"min": "1.2x"}},
    )
)


def test_each_point_has_the_targets_of_its_own_latency_gates() -> None:
    assert gates.targets(ASKED, "") == (Target(99, 0.95, 50), Target(50, 0.9, 20))
    assert gates.targets(ASKED, "batch 8") == (Target(99, 0.95, 200),)
    assert gates.targets(ASKED, "x 1x3x32x32") == (Target(99, 0.95, 20),)
    assert gates.targets(ASKED, "batch 32") == gates.targets((), "") == ()


def test_each_point_that_a_gate_states_is_measured_once() -> None:
    assert gates.points(ASKED) == (At(batch=8), At(shapes={"x": "1x3x32x32"}), At(batch=32))
    assert gates.points(ASKED[:2]) == ()


def test_the_speedups_to_decide_are_those_of_the_gates() -> None:
    assert gates.ratios(ASKED) == (1.2,)
    assert gates.ratios(ASKED[:-1]) == ()


def test_a_start_is_repeated_where_a_gate_judges_it() -> None:
    assert gates.starts(ASKED) == 1
    assert gates.starts((*ASKED, read({"startup": {"max": "1s"}}))) == 5


def test_a_cost_is_known_where_a_gate_names_a_price() -> None:
    priced = (*ASKED, read({"cost": {"max": "1 USD/1M", "per_hour": 3.6}}))
    answered = replace(TIMES, throughput_per_s=1000.0)
    assert gates.cost(priced, answered) == pytest.approx(1.0)  # 3.6 million inferences for 3.6 dollars
    assert gates.cost(priced, replace(TIMES, throughput_per_s=0.0)) is None
    assert gates.cost(priced, TIMES) is None
    assert gates.cost(ASKED, answered) is None


def test_no_cost_is_made_of_the_rate_at_which_requests_came() -> None:
    priced = (read({"cost": {"max": "1 USD/1M", "per_hour": 3.6}}),)
    assert gates.cost(priced, replace(TIMES, throughput_per_s=1000.0, offered_per_s=1000.0)) is None


def test_the_rates_to_decide_are_those_of_the_gates_at_a_point_and_that_of_a_price_at_the_main_one() -> None:
    priced = (read({"cost": {"max": "0.5 USD/1M", "per_hour": 3.6}}), *ASKED)
    assert gates.rates(priced, "") == (500, pytest.approx(2000))  # 3.6 dollars pay 7.2 million in 3600 s
    assert gates.rates(priced, "batch 8") == gates.rates(priced, "batch 32") == (500,)
    assert gates.rates(ASKED, "") == (500,)
    assert gates.rates(priced, "batch 4") == gates.rates((), "") == ()


@pytest.mark.parametrize(
    ("settings", "metric", "words"),
    [
        ({"max_drop": "1%"}, "sqnr", "sqnr is in dB, of which 1% is no drop: ask accuracy: {min: 30}"),
        ({"max_drop": "0.5%", "min": 30}, "sqnr", "sqnr is in dB, of which 0.5% is no drop: ask accuracy: {min: 30}"),
        ({"min": 30}, "sqnr", None),
        ({"max_drop": "1%"}, "top1", None),
        ({"max_drop": "1%"}, "mae", None),
        ({"max_drop": "1%"}, "mine.metrics:sqnr", None),
    ],
)
def test_a_drop_that_a_built_in_metric_cannot_show_is_known_before_any_work(
    settings: dict[str, Any], metric: str, words: str | None
) -> None:
    latency, accuracy = read({"latency": {"p99": "50ms"}}), read({"accuracy": settings})
    assert gates.unfit((latency, accuracy), metric) == words
    assert gates.unfit((latency,), metric) is None


@pytest.mark.parametrize("measured", [Trial("int8"), trial(throughput_per_s=400.0, bounds=(p99(40, 45),))])
def test_a_verdict_names_the_point_that_it_judges(measured: Trial) -> None:
    points = [gate.judge(None, measured).at for gate in ASKED]
    assert points == ["", "", "batch 8", "x 1x3x32x32", "batch 8", "batch 32", "", "", ""]


def test_a_verdict_at_a_point_that_was_measured_names_it_too() -> None:
    at_8 = replace(TIMES, at="batch 8", bounds=(p99(40, 45),), throughput_per_s=400.0)
    for text in ({"latency": {"p99": "50ms", "at": {"batch": 8}}}, {"throughput": {"min": "5/s", "at": {"batch": 8}}}):
        verdict = read(text).judge(None, trial(at_8))
        assert (verdict.at, verdict.observed is None) == ("batch 8", False)


def test_verdicts_of_gates_that_differ_in_what_they_measure_have_different_names() -> None:
    names = [gate.judge(None, trial(bounds=(p99(40, 45),))).gate for gate in ASKED]
    assert names == [
        "latency p99",
        "latency p50",
        "latency p99 at batch 8",
        "latency p99 at x 1x3x32x32",
        "throughput at batch 8",
        "throughput at batch 32",
        "throughput",
        "accuracy",
        "speedup",
    ]
