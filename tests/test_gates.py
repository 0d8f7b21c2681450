from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from pydantic import TypeAdapter, ValidationError

from compressor import records
from compressor.bench import stats
from compressor.gates import NORMALISE, REGRESSION, Accuracy, Gate, Latency, implicit, regression
from compressor.records import Applied, Bound, Measurement, Score, Speedup, Target, Trial

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


def rung(*interval: float, name: str = "int8", preempted: float = 0.0, stages: tuple[Applied, ...] = ()) -> Trial:
    """Give a trial that is faster by (ratio, low, high) than the baseline, or the baseline's own."""
    speedup = Speedup(*interval) if interval else None
    return Trial(name, stages, measurement=replace(measurement(preempted=preempted), speedup=speedup))


def stage(name: str, **known: Any) -> Applied:
    return Applied(name, {}, known.pop("did", "did it"), 1.0, 1, {}, **known)


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
        ({"p99": "0ms"}, "expected a time above 0, found 0ms"),
        ({"p50": "0s", "reserve": "5ms"}, "expected a time above 0, found 0ms"),
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
    assert verdict.unit == "ms"


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


BUSY = "the process was preempted in 65% of its calls: use an idle machine"


@pytest.mark.parametrize(
    ("bound", "idle", "busy"), [(p99(40, 45), True, True), (p99(40, 60), None, None), (p99(60, 70), False, None)]
)
def test_a_busy_machine_proves_nothing_against_a_model(bound: Bound, idle: Any, busy: Any) -> None:
    calm, hectic = (read(GATE).judge(None, measurement(bound, preempted=share)) for share in (0.1, 0.65))
    assert (calm.met, hectic.met) == (idle, busy)
    assert "preempted" not in calm.reason
    assert (BUSY in hectic.reason) == (busy is not True)


def test_a_model_whose_median_is_over_the_limit_is_too_slow_for_an_idle_machine_too() -> None:
    on = measurement(p99(60, 70), preempted=0.65)
    for median_ms, met in ((50.0, None), (50.1, False)):
        verdict = read(GATE).judge(None, replace(on, latency=replace(on.latency, p50_ms=median_ms)))
        assert verdict.met is met
        assert (BUSY in verdict.reason) == (met is None)


def test_what_the_reserve_leaves_is_what_a_median_must_keep() -> None:
    gate = read({"latency": {"p99": "60ms", "reserve": "25ms"}})
    bound = p99(60, 70, limit_ms=gate.target().limit_ms)
    assert gate.judge(None, measurement(bound, preempted=0.65)).met is False


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


@pytest.mark.parametrize("confidence", ["point", "95%"])
@pytest.mark.parametrize(("n", "drop", "met"), [(29, 0.0, None), (29, 0.5, False), (30, 0.0, True), (30, 0.5, False)])
def test_a_few_samples_show_a_drop_but_not_that_there_is_none(confidence: str, n: int, drop: float, met: Any) -> None:
    gate = read({"accuracy": {"max_drop": "1%", "confidence": confidence}})
    score = replace(SCORE, n=n, drop=drop, drop_low=drop, drop_high=drop)
    verdict = gate.judge(None, measurement(score=score))
    assert verdict.met is met
    assert (verdict.observed, verdict.low, verdict.high) == (drop, drop, drop)
    few = "29 samples are too few to show a drop: evaluate on at least 30"
    assert (verdict.reason == few) == (met is None)


@pytest.mark.parametrize(("value", "met"), [(79.0, None), (-1.1, None), (1.0, True), (-1.0, True)])
def test_a_metric_that_is_no_share_is_asked_to_be_one(value: float, met: bool | None) -> None:  # noqa: FBT001
    baseline = measurement(score=replace(SCORE, value=value, drop=None))
    verdict = read(ACCURACY).judge(baseline, measurement(score=SCORE))
    assert verdict.met is met
    if met is None:
        reason = f"top1 is {value:g}, of which 1% is no drop: let the metric give a number from 0 to 1"
        assert (verdict.reason, verdict.observed) == (reason, None)


def test_an_error_is_judged_by_its_growth_whatever_its_size() -> None:
    error = replace(SCORE, metric="mae", value=7.9, relative=True)
    verdict = read(ACCURACY).judge(measurement(score=replace(error, value=7.8, drop=None)), measurement(score=error))
    assert verdict.met is True
    assert verdict.reason == "mae grows by 0.80% of itself (95% interval -0.20% to 1.80%)"


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


def test_a_rung_slower_than_another_beyond_doubt_is_named() -> None:
    verdict = regression(rung(2.0, 1.9, 2.1, name="int8-fused"), rung(1.5, 1.4, 1.6))
    assert verdict is not None
    assert (verdict.gate, verdict.met) == (REGRESSION, False)
    assert (verdict.observed, verdict.limit, verdict.low, verdict.high) == (1.5, 2.0, 1.4, 1.6)
    assert verdict.reason == "takes 1.33 times as long as int8-fused"


@pytest.mark.parametrize(
    ("rival", "trial"),
    [
        (rung(2.0, 1.9, 2.1), rung(1.8, 1.7, 1.88)),  # within the minimum effect
        (rung(2.0, 1.9, 2.1), rung(1.8, 1.6, 2.0)),  # the intervals overlap
        (rung(1.0, 0.9, 1.1), rung(2.0, 1.9, 2.1)),  # faster
        (rung(), rung(0.985, 0.98, 0.99)),  # 1 % slower than the baseline
        (Trial("never measured"), rung(0.5, 0.4, 0.6)),
        (rung(2.0, 1.9, 2.1), rung()),
        (rung(2.0, 1.9, 2.1), Trial("never measured")),
    ],
)
def test_a_rung_that_may_be_as_fast_is_no_regression(rival: Trial, trial: Trial) -> None:
    assert regression(rival, trial) is None


def test_the_baseline_itself_counts_as_one() -> None:
    assert regression(rung(), rung(0.9, 0.88, 0.97)) is not None
    assert regression(rung(), rung(0.9, 0.88, 0.985)) is None


@pytest.mark.parametrize(
    ("rival", "trial", "met"), [(0.65, 0.0, None), (0.0, 0.65, None), (0.65, 0.02, None), (0.1, 0.1, False)]
)
def test_a_machine_that_was_busy_on_either_side_decides_no_regression(rival: float, trial: float, met: Any) -> None:
    verdict = regression(rung(2.0, 1.9, 2.1, preempted=rival), rung(1.5, 1.4, 1.6, preempted=trial))
    assert verdict is not None
    assert (verdict.gate, verdict.met) == (REGRESSION, met)
    assert (BUSY in verdict.reason) == (met is None)


IDLE = stage("quantize", did="left as it is: it is quantized already", changed=False)
MADE_UP = stage("quantize", uncalibrated=True)
SLOW, FAST = (0.5, 0.4, 0.6), (2.0, 1.9, 2.1)


def test_a_rung_that_did_something_and_is_as_fast_has_no_implicit_verdict() -> None:
    assert implicit(rung(*FAST, stages=(stage("quantize"), stage("fuse", changed=False))), (rung(),)) == ()
    assert implicit(rung(), ()) == ()


def test_a_rung_of_which_no_stage_changed_the_model_is_not_met() -> None:
    (verdict,) = implicit(rung(*FAST, stages=(stage(NORMALISE), IDLE, stage("fuse", changed=False))), (rung(),))
    assert (verdict.gate, verdict.met) == ("change", False)
    assert verdict.reason == "no stage changed the model: left as it is: it is quantized already"


def test_a_rung_calibrated_on_made_up_inputs_is_undecided() -> None:
    (verdict,) = implicit(rung(*FAST, stages=(stage(NORMALISE), MADE_UP, stage("fuse"))), (rung(),))
    assert (verdict.gate, verdict.met) == ("calibration", None)
    assert "give --calibration" in verdict.reason


def test_a_rung_is_compared_with_each_rival() -> None:
    (verdict,) = implicit(rung(1.5, 1.4, 1.6), (rung(name="baseline"), rung(*FAST, name="first"), rung(*FAST)))
    assert verdict.reason.endswith("as long as first")


@pytest.mark.parametrize(
    ("interval", "stages", "gate"),
    [
        (SLOW, (IDLE, MADE_UP), "speed"),
        (SLOW, (IDLE,), "speed"),
        (FAST, (IDLE,), "change"),
        (FAST, (replace(MADE_UP, changed=False),), "change"),
        (FAST, (IDLE, MADE_UP), "calibration"),
    ],
)
def test_a_rung_has_one_implicit_verdict_at_most(interval: Any, stages: tuple[Applied, ...], gate: str) -> None:
    assert [verdict.gate for verdict in implicit(rung(*interval, stages=stages), (rung(),))] == [gate]
