"""The gate on a percentile of the latency."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from trials import TIMES, p99, read, threads, trial

from compressor.bench import stats
from compressor.records import Bound, Target, Trial

GATE = {"latency": {"p99": "50ms"}}
AT_8 = {"latency": {"p99": "50ms", "at": {"batch": 8}}}


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
    verdict = read(GATE).judge(None, trial(bounds=(bound,)))
    assert verdict.met is met
    assert (verdict.gate, verdict.limit, verdict.low, verdict.high) == ("latency p99", 50, bound.low_ms, bound.high_ms)
    assert verdict.unit == "ms"


@pytest.mark.parametrize("violations", [0, 3, 6, 10, 14, 18, 30])
@pytest.mark.parametrize("n", [100, 400, 1000])
def test_a_gate_is_undecided_exactly_where_a_measurement_goes_on(n: int, violations: int) -> None:
    samples = np.full(n, 40.0)
    samples[np.linspace(0, n - 1, violations).astype(int)] = 60
    bound = stats.bound(samples, 99, 0.95, 50)
    assert (read(GATE).judge(None, trial(bounds=(bound,), n=n)).met is not None) == stats.decided(bound)


OTHERS = (
    replace(p99(40, 45), percentile=95),
    replace(p99(60, 70), confidence=0.9),
    replace(p99(40, 45), limit_ms=80),
)


def test_the_bound_of_the_gates_own_percentile_confidence_and_limit_is_used() -> None:
    assert read(GATE).judge(None, trial(bounds=(*OTHERS, p99(40, 45)))).met is True


@pytest.mark.parametrize("found", [trial(bounds=OTHERS), trial(), Trial("int8")])
def test_a_percentile_that_was_not_measured_is_undecided(found: Trial) -> None:
    missing = read(GATE).judge(None, found)
    assert (missing.met, missing.limit, missing.unit) == (None, 50, "ms")
    assert missing.reason == "p99 <= 50 ms with 95% confidence was not measured: measure with this gate"


@pytest.mark.parametrize(
    ("bound", "met"),
    [
        (replace(p99(40, 45), percentile=99.9), True),  # of 1000 at most 1 takes longer, so of 100 at most 1 does
        (replace(p99(40, 45), confidence=0.99), True),
        (replace(p99(40, 45), limit_ms=48), True),
        (replace(p99(40, 45), limit_ms=48, steady=False), None),  # bursts were seen
        (replace(p99(40, 52), limit_ms=48), None),
        (replace(p99(60, 70), percentile=95), False),  # of 100 more than 5 take longer, so more than 1 does
        (replace(p99(60, 70), percentile=99.9), None),  # 2 of 1000 may, and no more
        (replace(p99(60, 70), limit_ms=80), False),
        (replace(p99(60, 70), limit_ms=20, confidence=0.9), None),
    ],
)
def test_a_bound_for_another_gate_serves_where_it_proves_the_same(bound: Bound, met: bool | None) -> None:  # noqa: FBT001
    verdict = read(GATE).judge(None, trial(bounds=(bound,)))
    assert verdict.met is met
    assert met is None or f"p{bound.percentile:g} is" in verdict.reason


def test_a_gate_at_a_point_judges_what_was_measured_there() -> None:
    slow_at_8 = replace(TIMES, at="batch 8", bounds=(p99(60, 70),))
    verdict = read(AT_8).judge(None, trial(replace(slow_at_8, at="batch 4"), slow_at_8, bounds=(p99(40, 45),)))
    assert (verdict.gate, verdict.met, verdict.low) == ("latency p99 at batch 8", False, 60)
    assert read(GATE).judge(None, trial(slow_at_8, bounds=(p99(40, 45),))).met is True


def test_a_point_that_was_not_measured_is_undecided_whatever_the_main_one_shows() -> None:
    verdict = read(AT_8).judge(None, trial(bounds=(p99(40, 45),)))
    assert (verdict.gate, verdict.met) == ("latency p99 at batch 8", None)
    assert "was not measured at batch 8: measure with this gate" in verdict.reason


def test_how_busy_the_machine_was_is_read_where_the_gate_is_judged() -> None:
    at_8 = replace(TIMES, at="batch 8", bounds=(p99(60, 70),))
    assert read(AT_8).judge(None, trial(at_8, preempted=0.65)).met is False
    assert read(AT_8).judge(None, trial(replace(at_8, preempted=0.65))).met is None


def test_a_percentile_with_too_few_samples_is_not_shown_as_one() -> None:
    verdict = read(GATE).judge(None, trial(bounds=(p99(40, None, violations=0, needed=368),), n=100))
    assert verdict.observed is None
    assert verdict.reason == (
        "0 violations in 100 samples do not decide p99 <= 50 ms with 95% confidence: "
        "about 370 samples would: raise limits.measure or --duration"
    )
    assert read(GATE).judge(None, trial(bounds=(p99(40, 45),))).observed == 45


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"throughput_per_s": 458.0}, "about 110,000 samples would, some 4 min: raise limits.measure or --duration"),
        ({"throughput_per_s": 3664.0, "shape": {"x": "8x3"}}, "about 110,000 samples would, some 4 min: raise"),
        ({"throughput_per_s": 100.0, "offered_per_s": 458.0}, "about 110,000 samples would, some 4 min: raise"),
        ({}, "about 110,000 samples would: raise limits.measure or --duration"),
    ],
)
def test_how_many_samples_would_decide_comes_with_the_time_they_take(known: dict[str, Any], words: str) -> None:
    bound = p99(40, 60, needed=112_345)  # 245 s at 458 calls a second
    assert words in read(GATE).judge(None, trial(bounds=(bound,), **known)).reason


def test_a_percentile_on_its_limit_says_that_more_samples_do_not_help() -> None:
    verdict = read(GATE).judge(None, trial(bounds=(p99(49, 51, violations=10),)))
    assert "no number of samples would" in verdict.reason


def test_bursts_are_named_when_they_are_the_reason() -> None:
    verdict = read(GATE).judge(None, trial(bounds=(p99(40, 45, steady=False, dispersion=4.26, needed=3000),)))
    assert "3 violations in 1000 samples that come in bursts (dispersion 4.3)" in verdict.reason
    assert "bursts" not in read(GATE).judge(None, trial(bounds=(p99(40, 60, needed=3000),))).reason


def test_a_limit_that_is_met_in_spite_of_bursts_says_so() -> None:
    verdict = read(GATE).judge(None, trial(bounds=(p99(40, 45, dispersion=1.51),)))
    assert verdict.met is True
    assert verdict.reason == "p99 is at most 45 ms; violations come in bursts (dispersion 1.5)"
    assert read(GATE).judge(None, trial(bounds=(p99(40, 45, dispersion=1.5),))).reason == "p99 is at most 45 ms"


GROWING = "requests waited longer and longer: the queue has no end at this rate; lower the rate or measure longer"


@pytest.mark.parametrize(
    ("bound", "met", "reason"),
    [(p99(40, 45), None, GROWING), (p99(40, 60), None, GROWING), (p99(60, 70), False, "p99 is over 60 ms")],
)
def test_a_queue_that_grows_meets_no_limit(bound: Bound, met: Any, reason: str) -> None:
    verdict = read(GATE).judge(None, trial(bounds=(bound,), growing=True, offered_per_s=100.0))
    assert (verdict.met, verdict.reason) == (met, reason)


def test_a_queue_that_grows_on_a_busy_machine_blames_it_too() -> None:
    for bound in (p99(40, 45), p99(60, 70)):
        verdict = read(GATE).judge(None, trial(bounds=(bound,), growing=True, preempted=0.65))
        assert verdict.met is None
        assert verdict.reason.endswith(BUSY)


def test_an_overload_comes_before_a_queue_that_grows() -> None:
    verdict = read(GATE).judge(None, trial(bounds=(p99(40, 45),), growing=True, **OVERLOADED))
    assert verdict.met is False
    assert verdict.reason.startswith("overloaded")


BUSY = "; the process was preempted in 65% of its calls: use a quieter machine"


@pytest.mark.parametrize(
    ("bound", "idle", "busy"), [(p99(40, 45), True, True), (p99(40, 60), None, None), (p99(60, 70), False, None)]
)
def test_a_busy_machine_proves_nothing_against_a_model(bound: Bound, idle: Any, busy: Any) -> None:
    calm, hectic = (read(GATE).judge(None, trial(bounds=(bound,), preempted=share)) for share in (0.1, 0.65))
    assert (calm.met, hectic.met) == (idle, busy)
    assert "preempted" not in calm.reason
    assert hectic.reason.endswith(BUSY) == (busy is not True)


@pytest.mark.parametrize(("stalled", "met"), [(None, False), (0.3, False), (0.31, None), (0.8, None)])
def test_tasks_that_wait_for_a_cpu_make_a_machine_busy(stalled: float | None, met: Any) -> None:
    verdict = read(GATE).judge(None, trial(bounds=(p99(60, 70),), stalled=stalled))
    assert verdict.met is met
    assert ("; some task waited for a CPU" in verdict.reason) == (met is None)


def test_a_machine_that_is_busy_in_both_ways_says_both() -> None:
    verdict = read(GATE).judge(None, trial(bounds=(p99(60, 70),), preempted=0.2, stalled=0.5))
    assert verdict.reason == (
        "p99 is over 60 ms; the process was preempted in 20% of its calls and some task waited for a CPU "
        "50% of the time: use a quieter machine"
    )


@pytest.mark.parametrize(("n", "advice"), [(1, ": use a quieter machine"), (16, "use fewer threads or a quieter")])
def test_fewer_threads_are_advised_where_there_are_several(n: int, advice: str) -> None:
    assert advice in read(GATE).judge(None, threads(trial(bounds=(p99(60, 70),), preempted=0.65), n)).reason


def test_a_model_whose_median_is_over_the_limit_is_too_slow_for_an_idle_machine_too() -> None:
    for median_ms, met in ((50.0, None), (50.1, False)):
        verdict = read(GATE).judge(None, trial(bounds=(p99(60, 70),), preempted=0.65, p50_ms=median_ms))
        assert verdict.met is met
        assert verdict.reason.endswith(BUSY) == (met is None)


def test_what_the_reserve_leaves_is_what_a_median_must_keep() -> None:
    gate = read({"latency": {"p99": "60ms", "reserve": "25ms"}})
    bound = p99(60, 70, limit_ms=gate.target().limit_ms)
    assert gate.judge(None, trial(bounds=(bound,), preempted=0.65)).met is False


OVERLOADED = {"overloaded": True, "offered_per_s": 200.0, "throughput_per_s": 152.4}


@pytest.mark.parametrize("bounds", [(), (p99(40, 45),), (p99(60, 70),)])
def test_an_overloaded_model_is_too_slow_whatever_the_calls_before_took(bounds: tuple[Bound, ...]) -> None:
    verdict = read(GATE).judge(None, trial(bounds=bounds, **OVERLOADED))
    assert verdict.met is False
    assert verdict.reason == "overloaded: requests came at 200/s and were answered at 152/s"


def test_an_overload_counts_requests_and_not_the_samples_of_a_batch() -> None:
    at_8 = replace(TIMES, at="batch 8", shape={"x": "8x3"}, overloaded=True, offered_per_s=20, throughput_per_s=80)
    verdict = read(AT_8).judge(None, trial(at_8))
    assert verdict.reason == "overloaded: requests came at 20/s and were answered at 10/s"


def test_an_overload_of_unknown_rates_is_one_too() -> None:
    verdict = read(GATE).judge(None, trial(overloaded=True))
    assert verdict.met is False
    assert verdict.reason == "overloaded: requests came faster than they were answered"


@pytest.mark.parametrize("median_ms", [40.0, 4000.0])
def test_an_overload_of_a_busy_machine_is_undecided(median_ms: float) -> None:
    verdict = read(GATE).judge(None, trial(bounds=(p99(60, 70),), p50_ms=median_ms, preempted=0.65, **OVERLOADED))
    assert verdict.met is None
    assert verdict.reason.endswith(BUSY)
