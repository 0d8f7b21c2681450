"""The gate on the quality that is left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from trials import SCORE, read, trial

from compressor.records import ClassScore, Trial

ACCURACY = {"accuracy": {"max_drop": "1%"}}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "Value error, expected max_drop, min or both, found neither"),
        ({"min": "75%"}, "Input should be a valid number"),
        ({"min": True}, "Input should be a valid number"),
        ({"min": float("inf")}, "Input should be a finite number"),
        ({"max_drop": 0.01}, "Value error, expected a percentage such as 20%, found 0.01"),
    ],
)
def test_an_accuracy_gate_that_asks_nothing_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        read({"accuracy": settings})
    assert caught.value.errors()[0]["msg"] == message


@pytest.mark.parametrize(
    ("confidence", "drop", "low", "high", "met"),
    [
        ("point", 0.01, None, None, True),
        ("point", 0.81 - 0.80, None, None, True),
        ("point", 0.0101, None, None, False),
        ("point", -0.02, None, None, True),
        ("point", 0.008, -0.01, 0.03, True),
        ("95%", 0.005, -0.01, 0.01, True),
        ("95%", 0.005, -0.01, 0.81 - 0.80, True),
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
    verdict = gate.judge(None, trial(score=score))
    assert verdict.met is met
    assert (verdict.observed, verdict.limit, verdict.low, verdict.high) == (drop, pytest.approx(0.01), low, high)


@pytest.mark.parametrize(
    ("confidence", "value", "low", "high", "met"),
    [
        ("point", 0.75, None, None, True),
        ("point", 0.85 - 0.1, None, None, True),
        ("point", 0.7499, None, None, False),
        ("point", 0.76, 0.7, 0.8, True),
        ("95%", 0.78, 0.75, 0.81, True),
        ("95%", 0.78, 0.74, 0.82, None),
        ("95%", 0.72, 0.68, 0.75, None),
        ("95%", 0.72, 0.68, 0.749, False),
        ("95%", 0.78, None, None, None),
    ],
)
def test_accuracy_is_judged_by_its_value(
    confidence: str, value: float, low: float | None, high: float | None, met: Any
) -> None:
    gate = read({"accuracy": {"min": 0.75, "confidence": confidence}})
    verdict = gate.judge(None, trial(score=replace(SCORE, value=value, low=low, high=high, drop=0.5)))
    assert verdict.met is met
    assert (verdict.observed, verdict.limit, verdict.low, verdict.high) == (value, 0.75, low, high)


@pytest.mark.parametrize(
    ("value", "drop", "met", "limit"),
    [(0.79, 0.008, True, 0.01), (0.70, 0.008, False, 0.75), (0.79, 0.02, False, 0.01), (0.70, 0.02, False, 0.01)],
)
def test_of_drop_and_value_the_one_that_fails_decides(value: float, drop: float, met: Any, limit: float) -> None:
    gate = read({"accuracy": {"max_drop": "1%", "min": 0.75}})
    verdict = gate.judge(None, trial(score=replace(SCORE, value=value, drop=drop)))
    assert verdict.met is met
    assert verdict.limit == pytest.approx(limit)
    assert "drops by" in verdict.reason
    assert "0.75 is asked" in verdict.reason


def test_a_value_below_what_is_asked_fails_though_the_drop_is_undecided() -> None:
    gate = read({"accuracy": {"max_drop": "1%", "min": 0.9, "confidence": "95%"}})
    verdict = gate.judge(None, trial(score=SCORE))
    assert (verdict.met, verdict.limit) == (False, 0.9)
    assert verdict.reason.startswith("top1 is 0.79 (95% interval 0.75 to 0.83) where 0.9 is asked; top1 drops by 0.80%")


def test_the_baseline_too_must_have_the_value_that_is_asked() -> None:
    score = replace(SCORE, drop=None, drop_low=None, drop_high=None)
    assert read({"accuracy": {"max_drop": "1%", "min": 0.8}}).judge(None, trial(score=score)).met is False
    assert read({"accuracy": {"max_drop": "1%", "min": 0.7}}).judge(None, trial(score=score)).met is True


def test_accuracy_states_the_drop_and_its_interval() -> None:
    verdict = read(ACCURACY).judge(None, trial(score=SCORE))
    assert verdict.reason == "top1 drops by 0.80% (95% interval -0.20% to 1.80%)"


@pytest.mark.parametrize("settings", [{"max_drop": "1%"}, {"min": 0.75}, {"max_drop": "1%", "min": 0.75}])
@pytest.mark.parametrize("found", [trial(), Trial("int8")])
def test_accuracy_without_data_is_undecided_and_says_what_to_do(settings: dict[str, Any], found: Trial) -> None:
    nothing = read({"accuracy": settings}).judge(None, found)
    assert nothing.met is None
    assert "name real samples in the recipe under data.evaluation" in nothing.reason


@pytest.mark.parametrize("confidence", ["point", "95%"])
@pytest.mark.parametrize(("n", "drop", "met"), [(29, 0.0, None), (29, 0.5, False), (30, 0.0, True), (30, 0.5, False)])
def test_a_few_samples_show_a_drop_but_not_that_there_is_none(confidence: str, n: int, drop: float, met: Any) -> None:
    gate = read({"accuracy": {"max_drop": "1%", "confidence": confidence}})
    score = replace(SCORE, n=n, drop=drop, drop_low=drop, drop_high=drop)
    verdict = gate.judge(None, trial(score=score))
    assert verdict.met is met
    assert (verdict.observed, verdict.low, verdict.high) == (drop, drop, drop)
    few = "29 samples are too few to show a drop: evaluate on at least 30"
    assert (verdict.reason == few) == (met is None)


@pytest.mark.parametrize(("n", "value", "met"), [(29, 0.8, None), (29, 0.7, False), (30, 0.8, True), (30, 0.7, False)])
def test_a_few_samples_do_not_show_a_value_either(n: int, value: float, met: Any) -> None:
    verdict = read({"accuracy": {"min": 0.75}}).judge(None, trial(score=replace(SCORE, n=n, value=value)))
    assert verdict.met is met


@pytest.mark.parametrize(("value", "met"), [(79.0, None), (-1.1, None), (1.0, True), (-1.0, True)])
def test_a_metric_that_is_no_share_is_asked_to_be_one(value: float, met: bool | None) -> None:  # noqa: FBT001
    baseline = trial(score=replace(SCORE, value=value, drop=None))
    verdict = read(ACCURACY).judge(baseline, trial(score=SCORE))
    assert verdict.met is met
    if met is None:
        reason = (
            f"top1 is {value:g}, of which 1% is no drop: let the metric give a number from 0 to 1, or judge it by min"
        )
        assert (verdict.reason, verdict.observed) == (reason, None)


@pytest.mark.parametrize(("least", "met"), [(30, True), (31.5, True), (32, False)])
def test_a_metric_that_is_no_share_can_be_judged_by_its_value(least: float, met: bool) -> None:  # noqa: FBT001
    baseline = trial(score=replace(SCORE, metric="sqnr", value=60.0, drop=None))
    score = replace(SCORE, metric="sqnr", value=31.5, low=31.0, high=32.0, drop=28.5)
    assert read({"accuracy": {"min": least}}).judge(baseline, trial(score=score)).met is met


def test_an_error_is_judged_by_its_growth_whatever_its_size() -> None:
    error = replace(SCORE, metric="mae", value=7.9, relative=True)
    verdict = read(ACCURACY).judge(trial(score=replace(error, value=7.8, drop=None)), trial(score=error))
    assert verdict.met is True
    assert verdict.reason == "mae grows by 0.80% of itself (95% interval -0.20% to 1.80%)"


def test_an_error_has_no_least_value() -> None:
    verdict = read({"accuracy": {"min": 0.1}}).judge(None, trial(score=replace(SCORE, metric="mae", relative=True)))
    assert verdict.met is None
    assert verdict.reason == "mae is an error, of which lower is better: judge it by max_drop"


@pytest.mark.parametrize("confidence", ["point", "95%"])
def test_the_baseline_is_the_reference_and_meets(confidence: str) -> None:
    gate = read({"accuracy": {"max_drop": "1%", "confidence": confidence}})
    verdict = gate.judge(None, trial(score=replace(SCORE, drop=None, drop_low=None, drop_high=None)))
    assert (verdict.met, verdict.observed) == (True, 0)


@pytest.mark.parametrize("settings", [{"max_drop": "1%"}, {"min": 0.75}, {"max_drop": "1%", "min": 0.75}])
@pytest.mark.parametrize("broken", [{"value": float("nan")}, {"drop": float("nan")}, {"value": float("inf")}])
def test_a_score_that_is_no_number_is_not_met(settings: dict[str, Any], broken: dict[str, float]) -> None:
    verdict = read({"accuracy": settings}).judge(None, trial(score=replace(SCORE, **broken)))  # type: ignore[arg-type]
    assert verdict.met is False
    assert "not a finite number" in verdict.reason
    assert verdict.observed is None or verdict.observed == SCORE.drop


def test_kernels_that_saturate_are_blamed_where_exact_arithmetic_scores_otherwise() -> None:
    bad = replace(SCORE, value=0.70, drop=0.098, emulated=0.79)
    assert "integer kernels saturate" in read(ACCURACY).judge(None, trial(score=bad)).reason
    same = replace(bad, emulated=0.704)
    assert "saturate" not in read(ACCURACY).judge(None, trial(score=same)).reason


@pytest.mark.parametrize(("emulated", "blamed"), [(0.74, False), (0.75, True)])
def test_kernels_that_saturate_are_blamed_where_exact_arithmetic_has_the_value(emulated: float, blamed: bool) -> None:  # noqa: FBT001
    score = replace(SCORE, value=0.70, emulated=emulated)
    verdict = read({"accuracy": {"min": 0.75}}).judge(None, trial(score=score))
    assert verdict.met is False
    assert ("integer kernels saturate" in verdict.reason) == blamed


@pytest.mark.parametrize(("low", "named"), [(0.02, True), (0.0, False), (-0.03, False)])
def test_the_class_that_lost_most_is_named_where_it_lost_beyond_doubt(low: float, named: bool) -> None:  # noqa: FBT001
    worst = ClassScore(label=7, n=40, before=0.9, value=0.78, drop=0.12, drop_low=low, drop_high=0.3)
    verdict = read(ACCURACY).judge(None, trial(score=replace(SCORE, worst=worst)))
    assert verdict.met is True
    words = "; class 7 lost most: 12.00% (95% interval 2.00% to 30.00%, 40 samples)"
    assert verdict.reason.endswith(words) == named
    assert ("lost most" in verdict.reason) == named
