from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from pydantic import TypeAdapter, ValidationError

from compressor import records
from compressor.bench import stats
from compressor.gates import Accuracy, Gate, Latency, regression
from compressor.records import Bound, Measurement, Score, Speedup, Target

GATES = TypeAdapter[Latency | Accuracy](Gate)
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
    return GATES.validate_python(text)


def measurement(*bounds: Bound, n: int = 1000, preempted: float = 0.0, score: Score | None = None) -> Measurement:
    return Measurement(1, replace(TIMES, bounds=bounds, n=n, preempted=preempted), 25.0, None, score)


def p99(low: float | None, high: float | None, **known: Any) -> Bound:
    plain = Bound(99, 0.95, value_ms=45, low_ms=low, high_ms=high, limit_ms=50, violations=3, dispersion=1.0)
    return replace(plain, steady=True, **known) if "steady" not in known else replace(plain, **known)


def times(ratio: float, low: float, high: float) -> Measurement:
    return replace(measurement(), speedup=Speedup(ratio, low, high))


GATE = {"latency": {"p99": "50ms"}}


@pytest.mark.parametrize(
    "text",
    [
        GATE,
        {"latency": {"p99.9": "1.5s", "reserve": "5ms", "confidence": "99%"}},
        {"accuracy": {"max_drop": "1%"}},
        {"accuracy": {"max_drop": "0.5%", "confidence": "95%"}},
    ],
)
def test_a_gate_is_written_as_it_was_read(text: Any) -> None:
    assert GATES.dump_python(read(text), mode="json", exclude_defaults=True) == text
    assert read(GATES.dump_python(read(text), mode="json")) == read(text)


@pytest.mark.parametrize("text", [GATE, {"accuracy": {"max_drop": "1%", "confidence": "95%"}}])
def test_the_schema_accepts_a_gate_in_full_and_in_short(text: Any) -> None:
    jsonschema.validate(text, GATES.json_schema())
    jsonschema.validate(GATES.dump_python(read(text), mode="json"), GATES.json_schema())


@pytest.mark.parametrize(
    "text",
    [
        {"latency": {}},
        {"latency": {"p50": "1ms", "p99": "2ms"}},
        {"latency": {"p99": "fast"}},
        {"latency": {"p98": "50ms"}},
        {"accuracy": {"max_drop": "1%", "confidence": "90%"}},
    ],
)
def test_the_schema_refuses_what_reading_refuses(text: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(text, GATES.json_schema())
    with pytest.raises(ValidationError):
        read(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "expected exactly one of p50, p90, p95, p99, p99.9, found none"),
        ({"p50": "1ms", "p99.9": "2ms"}, "expected exactly one of p50, p90, p95, p99, p99.9, found p50 and p99.9"),
        ({"p99": "5ms", "reserve": "5ms"}, "expected a reserve below p99: 5ms, found 5ms"),
        ({"p99": "5ms", "confidence": "100%"}, "expected a confidence from 50% to less than 100%, found 100%"),
    ],
)
def test_a_latency_gate_that_cannot_be_judged_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        read({"latency": settings})
    assert caught.value.errors()[0]["msg"] == f"Value error, {message}"


def test_the_default_confidence_can_be_written_out() -> None:
    assert read({"latency": {"p99": "50ms", "confidence": "95%"}}) == read(GATE)


def test_the_reserve_is_taken_from_the_limit() -> None:
    assert read({"latency": {"p95": "50ms", "reserve": "20ms"}}).target() == Target(95, 0.95, pytest.approx(30))
    assert read({"latency": {"p99.9": "2s", "confidence": "99%"}}).target() == Target(99.9, 0.99, 2000)


@pytest.mark.parametrize(
    ("bound", "met"),
    [
        (p99(40, 50), True),
        (p99(40, 50.1), None),
        (p99(50, 60), None),
        (p99(50.1, 60), False),
        (p99(40, None), None),
        (p99(60, None), False),
        (p99(None, None), None),
        (p99(40, 45, steady=False), None),
        (p99(60, 70, steady=False), False),
        (p99(40, 45, steady=None), True),
    ],
)
def test_latency_is_judged_by_its_limits_alone(bound: Bound, met: bool | None) -> None:  # noqa: FBT001
    verdict = read(GATE).judge(None, measurement(bound))
    assert verdict.met is met
    assert (verdict.gate, verdict.limit, verdict.low, verdict.high) == ("latency p99", 50, bound.low_ms, bound.high_ms)


@pytest.mark.parametrize("violations", [0, 3, 6, 10, 14, 18, 30])
@pytest.mark.parametrize("n", [100, 400, 1000])
def test_a_gate_is_undecided_exactly_where_a_measurement_goes_on(n: int, violations: int) -> None:
    import numpy as np

    samples = np.full(n, 40.0)
    samples[np.linspace(0, n - 1, violations).astype(int)] = 60
    bound = stats.bound(samples, 99, 0.95, 50)
    assert (read(GATE).judge(None, measurement(bound, n=n)).met is not None) == stats.decided(bound)


def test_the_bound_of_the_gates_own_percentile_confidence_and_limit_is_used() -> None:
    others = (
        replace(p99(60, 70), percentile=95),
        replace(p99(60, 70), confidence=0.99),
        replace(p99(60, 70), limit_ms=20),
    )
    assert read(GATE).judge(None, measurement(*others, p99(40, 45))).met is True
    missing = read(GATE).judge(None, measurement(*others))
    assert missing.met is None
    assert "p99 <= 50 ms with 95% confidence was not measured" in missing.reason


def test_a_percentile_with_too_few_samples_is_not_shown_as_one() -> None:
    verdict = read(GATE).judge(None, measurement(p99(40, None, violations=0, needed=368), n=100))
    assert verdict.observed is None
    assert verdict.reason == (
        "0 violations in 100 samples do not decide p99 <= 50 ms with 95% confidence: "
        "about 368 samples would, raise limits.measure"
    )
    assert read(GATE).judge(None, measurement(p99(40, 45))).observed == 45


def test_a_percentile_on_its_limit_says_that_more_samples_do_not_help() -> None:
    verdict = read(GATE).judge(None, measurement(p99(49, 51, violations=10)))
    assert "no number of samples would" in verdict.reason


def test_bursts_are_named_when_they_are_the_reason() -> None:
    verdict = read(GATE).judge(None, measurement(p99(40, 45, steady=False, dispersion=4.26, needed=3000)))
    assert "3 violations in 1000 samples that come in bursts (dispersion 4.3)" in verdict.reason
    assert "bursts" not in read(GATE).judge(None, measurement(p99(40, 60, needed=3000))).reason


def test_a_busy_machine_is_a_diagnosis_and_changes_no_verdict() -> None:
    for bound in (p99(40, 45), p99(40, 60), p99(60, 70)):
        calm, busy = (read(GATE).judge(None, measurement(bound, preempted=share)) for share in (0.02, 0.65))
        assert calm.met is busy.met
        assert ("preempted in 65% of its calls" in busy.reason) == (busy.met is not True)
        assert "preempted" not in calm.reason


@pytest.mark.parametrize(
    ("confidence", "drop", "low", "high", "met"),
    [
        ("point", 0.01, None, None, True),
        ("point", 0.81 - 0.80, None, None, True),
        ("point", 0.0101, None, None, False),
        ("point", -0.02, None, None, True),
        ("point", 0.008, -0.01, 0.03, True),
        ("95%", 0.005, -0.01, 0.01, True),
        ("95%", 0.008, -0.01, 0.03, None),
        ("95%", 0.012, 0.005, 0.03, None),
        ("95%", 0.02, 0.011, 0.03, False),
        ("95%", 0.005, None, None, None),
    ],
)
def test_accuracy_is_judged_by_its_drop(
    confidence: str, drop: float, low: float | None, high: float | None, met: Any
) -> None:
    gate = read({"accuracy": {"max_drop": "1%", "confidence": confidence}})
    score = replace(SCORE, drop=drop, drop_low=low, drop_high=high)
    verdict = gate.judge(None, measurement(score=score))
    assert verdict.met is met
    assert (verdict.observed, verdict.limit, verdict.low, verdict.high) == (drop, pytest.approx(0.01), low, high)


ACCURACY = {"accuracy": {"max_drop": "1%"}}


def test_accuracy_states_the_drop_and_its_interval() -> None:
    verdict = read(ACCURACY).judge(None, measurement(score=SCORE))
    assert verdict.reason == "top1 drops by 0.80% (95% interval -0.20% to 1.80%)"


def test_accuracy_without_data_is_undecided_and_says_what_to_do() -> None:
    nothing = read(ACCURACY).judge(None, measurement())
    assert nothing.met is None
    assert "name real samples in the recipe under data.evaluation" in nothing.reason


def test_synthetic_data_decides_nothing() -> None:
    for drop in (None, 0.0, 0.5):
        made_up = read(ACCURACY).judge(None, measurement(score=replace(SCORE, synthetic=True, drop=drop)))
        assert made_up.met is None
        assert "synthetic" in made_up.reason


@pytest.mark.parametrize("confidence", ["point", "95%"])
def test_the_baseline_is_the_reference_and_meets(confidence: str) -> None:
    gate = read({"accuracy": {"max_drop": "1%", "confidence": confidence}})
    verdict = gate.judge(None, measurement(score=replace(SCORE, drop=None, drop_low=None, drop_high=None)))
    assert (verdict.met, verdict.observed) == (True, 0)


@pytest.mark.parametrize("broken", [{"value": float("nan")}, {"drop": float("nan")}, {"value": float("inf")}])
def test_a_score_that_is_no_number_is_not_met(broken: dict[str, float]) -> None:
    verdict = read(ACCURACY).judge(None, measurement(score=replace(SCORE, **broken)))  # type: ignore[arg-type]
    assert verdict.met is False
    assert "not a finite number" in verdict.reason


def test_kernels_that_saturate_are_blamed_where_exact_arithmetic_scores_otherwise() -> None:
    bad = replace(SCORE, value=0.70, drop=0.098, emulated=0.79)
    assert "integer kernels saturate" in read(ACCURACY).judge(None, measurement(score=bad)).reason
    same = replace(bad, emulated=0.704)
    assert "saturate" not in read(ACCURACY).judge(None, measurement(score=same)).reason


def test_a_rung_slower_than_the_one_before_beyond_doubt_is_named() -> None:
    verdict = regression(times(2.0, 1.9, 2.1), times(1.5, 1.4, 1.6))
    assert verdict is not None
    assert (verdict.met, verdict.observed, verdict.limit, verdict.low, verdict.high) == (False, 1.5, 2.0, 1.4, 1.6)
    assert "1.33 times as long" in verdict.reason


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (times(2.0, 1.9, 2.1), times(1.8, 1.7, 1.88)),  # within the minimum effect
        (times(2.0, 1.9, 2.1), times(1.8, 1.6, 2.0)),  # the intervals overlap
        (times(1.0, 0.9, 1.1), times(2.0, 1.9, 2.1)),  # faster
        (measurement(), times(0.985, 0.98, 0.99)),  # 1 % slower than the baseline
        (None, times(0.5, 0.4, 0.6)),
        (times(2.0, 1.9, 2.1), measurement()),
    ],
)
def test_a_rung_that_may_be_as_fast_is_no_regression(before: Measurement | None, now: Measurement) -> None:
    assert regression(before, now) is None


def test_the_baseline_itself_counts_as_one() -> None:
    assert regression(measurement(), times(0.9, 0.88, 0.97)) is not None
    assert regression(measurement(), times(0.9, 0.88, 0.985)) is None
