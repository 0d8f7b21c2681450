"""Gates on what a model needs besides its time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from trials import measuring, read, trial

from compressor.records import Bound, Size, Trial

COST = {"cost": {"max": "0.50 USD/1M", "per_hour": 0.526}}
COUNTED = Size(size_bytes=1, parameters=5_000_000, macs=300_000_000, nodes=200)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": {"max": 4096}}, "Value error, expected a size such as 4MiB, found 4096"),
        ({"size": {"max": "0B"}}, "Input should be greater than 0"),
        ({"memory": {"max": "200"}}, "Value error, expected a size such as 4MiB, found '200'"),
        ({"startup": {"max": 0.5}}, "Value error, expected a time such as 50ms, found 0.5"),
        ({"startup": {"max": "0ms"}}, "Input should be greater than 0"),
        (
            {"macs": {"max": "300 million"}},
            "Value error, expected a whole number such as 200 or 300M, found '300 million'",
        ),
        ({"parameters": {"max": 0}}, "Input should be greater than 0"),
        ({"nodes": {"max": 1.5}}, "Value error, expected a whole number such as 200 or 300M, found 1.5"),
        ({"nodes": {}}, "Field required"),
        ({"nodes": {"min": 3}}, "Field required"),
        (
            {"cost": {"max": 0.5, "per_hour": 1}},
            "Value error, expected a price for a million such as 0.50 USD/1M, found 0.5",
        ),
        ({"cost": {"max": "1 USD/1M"}}, "Field required"),
        ({"cost": {"max": "1 USD/1M", "per_hour": "0.5"}}, "Input should be a valid number"),
        ({"cost": {"max": "1 USD/1M", "per_hour": 0}}, "Input should be greater than 0"),
    ],
)
def test_a_budget_that_cannot_be_judged_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        read(settings)
    assert caught.value.errors()[0]["msg"] == message


def having(gate: str, amount: int) -> Trial:
    if gate in {"size", "memory"}:
        return measuring(trial(), **{f"{gate}_bytes": amount})
    return replace(trial(), model=replace(COUNTED, **{gate: amount}))


@pytest.mark.parametrize("over_met", [(-1, True), (0, True), (1, False)])
@pytest.mark.parametrize(
    ("gate", "limit", "limit_text", "unit"),
    [
        ("size", 4_194_304, "4MiB", "B"),
        ("memory", 209_715_200, "200MiB", "B"),
        ("macs", 300_000_000, "300M", ""),
        ("parameters", 5_000_000, "5M", ""),
        ("nodes", 200, 200, ""),
    ],
)
def test_a_budget_that_needs_no_timing_is_exact(
    gate: str, limit: int, limit_text: Any, unit: str, over_met: Any
) -> None:
    over, met = over_met
    verdict = read({gate: {"max": limit_text}}).judge(None, having(gate, limit + over))
    assert (verdict.gate, verdict.met) == (gate, met)
    found = (verdict.observed, verdict.limit, verdict.low, verdict.high, verdict.unit)
    assert found == (limit + over, limit, None, None, unit)
    assert f"{limit + over:,}" in verdict.reason
    assert ("over the limit" in verdict.reason) == (not met)


@pytest.mark.parametrize(
    ("settings", "found", "advice"),
    [
        ({"size": {"max": "4MiB"}}, Trial("int8"), "the artifact was not measured"),
        ({"memory": {"max": "4MiB"}}, trial(), "run it in a process of its own"),
        ({"memory": {"max": "4MiB"}}, Trial("int8"), "run it in a process of its own"),
        ({"startup": {"max": "1s"}}, trial(), "were not measured: measure with this gate"),
        ({"startup": {"max": "1s"}}, Trial("int8"), "were not measured: measure with this gate"),
        ({"macs": {"max": 3}}, Trial("int8", model=replace(COUNTED, macs=None)), "give static shapes with --shape"),
        ({"macs": {"max": 3}}, trial(), "give static shapes with --shape"),
        ({"parameters": {"max": 3}}, trial(), "the model was not counted"),
        ({"nodes": {"max": 3}}, trial(), "the model was not counted"),
        (COST, Trial("int8"), "throughput was not measured"),
        (COST, trial(), "too few samples bound the cost of a million, limit 0.5 USD: measure longer"),
        (COST, trial(stalled=0.9), "measure longer"),
        (COST, trial(throughput_per_s=300.0, offered_per_s=300.0), "an open loop shows what came"),
    ],
)
def test_what_is_not_known_is_undecided_and_says_what_to_do(
    settings: dict[str, Any], found: Trial, advice: str
) -> None:
    verdict = read(settings).judge(None, found)
    assert (verdict.met, verdict.observed) == (None, None)
    assert verdict.limit is not None
    assert advice in verdict.reason


def started(low: float | None, high: float | None) -> Trial:
    return measuring(trial(), startup=Bound(50, 0.95, value_ms=480, low_ms=low, high_ms=high))


@pytest.mark.parametrize(
    ("low", "high", "met", "words"),
    [
        (450, 500, True, "load and first call take at most 500 ms in half of all processes"),
        (450, 501, None, "lies between 450 ms and 501 ms: use a quieter machine"),
        (500, 600, None, "lies between 500 ms and 600 ms: use a quieter machine"),
        (501, 600, False, "load and first call take over 501 ms in half of all processes"),
        (450, None, None, "too few fresh processes"),
        (None, None, None, "too few fresh processes"),
        (501, None, False, "over 501 ms"),
    ],
)
def test_a_start_is_judged_by_the_limits_of_its_median(
    low: float | None, high: float | None, met: Any, words: str
) -> None:
    verdict = read({"startup": {"max": "500ms"}}).judge(None, started(low, high))
    assert (verdict.gate, verdict.met) == ("startup", met)
    assert words in verdict.reason
    assert verdict.observed == (None if high is None else 480)
    assert (verdict.limit, verdict.low, verdict.high, verdict.unit) == (500, low, high, "ms")


def answered(low: float, high: float, **known: Any) -> Trial:
    return trial(throughput_per_s=300.0, throughput_low_per_s=low, throughput_high_per_s=high, **known)


@pytest.mark.parametrize(
    ("low", "high", "met"),
    [(293, 310, True), (292, 310, None), (280, 293, None), (280, 292, False)],
)
def test_a_cost_is_judged_by_the_throughput_that_the_price_asks(low: float, high: float, met: Any) -> None:
    verdict = read(COST).judge(None, answered(low, high))  # 0.526 / 3600 / 0.5e-6 = 292.2 a second
    assert (verdict.gate, verdict.met, verdict.limit, verdict.unit) == ("cost", met, 0.5, "USD/1M")
    assert verdict.observed == pytest.approx(0.526 / (300 * 3600) * 1e6)
    assert verdict.low == pytest.approx(0.526 / (high * 3600) * 1e6)
    assert verdict.high == pytest.approx(0.526 / (low * 3600) * 1e6)


def test_a_cost_speaks_of_money_and_says_what_would_decide() -> None:
    met = read(COST).judge(None, answered(1000, 2000)).reason  # 0.526 / 3.6e-3 = 146 USD a million at one a second
    assert met == "0.0731 to 0.146 USD a million (95% interval), limit 0.5 USD"
    undecided = read(COST).judge(None, answered(280, 310)).reason
    assert undecided.endswith("limit 0.5 USD: measure longer (limits.measure, or --duration)")
    busy = read(COST).judge(None, answered(280, 310, preempted=0.65)).reason
    assert busy.endswith("limit 0.5 USD; the process was preempted in 65% of its calls: use a quieter machine")


@pytest.mark.parametrize(("low", "high", "met"), [(293, 310, True), (280, 310, None), (260, 280, None)])
def test_a_cost_is_not_too_high_where_a_quieter_machine_may_lower_it(low: float, high: float, met: Any) -> None:
    assert read(COST).judge(None, answered(low, high, stalled=0.9)).met is met


@pytest.mark.parametrize("known", [{}, {"overloaded": True}, {"preempted": 0.65}])
def test_what_came_in_an_open_loop_is_never_priced(known: dict[str, Any]) -> None:
    verdict = read(COST).judge(None, answered(500, 600, offered_per_s=600.0, **known))
    assert (verdict.met, verdict.observed, verdict.low, verdict.high, verdict.limit) == (None, None, None, None, 0.5)
    assert verdict.reason.endswith("so the price is unknown: measure with a closed load")
