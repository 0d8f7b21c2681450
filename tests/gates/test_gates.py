"""How gates are written, and what all gates of a recipe ask to be measured."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError
from trials import GATES, p99, read, trial

from compressor import gates
from compressor.gates import At
from compressor.records import Target

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
    assert gates.cost(priced, 1000.0) == pytest.approx(1.0)  # 3.6 million inferences for 3.6 dollars
    assert gates.cost(priced, 0.0) is None
    assert gates.cost(ASKED, 1000.0) is None


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
