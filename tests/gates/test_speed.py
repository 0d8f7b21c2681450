"""Gates on speed, and when one model is called faster or slower than another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from trials import TIMES, read, rung, threads, trial

from compressor.gates import REGRESSION, not_slower, relation
from compressor.records import Speedup, Trial

THROUGHPUT = {"throughput": {"min": "500/s"}}
SPEEDUP = {"speedup": {"min": "1.2x"}}


def answered(low: float | None, high: float | None, **known: Any) -> dict[str, Any]:
    return {"throughput_per_s": 500.0, "throughput_low_per_s": low, "throughput_high_per_s": high, **known}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"throughput": {"min": 500}}, "Value error, expected a rate such as 200/s, found 500"),
        ({"throughput": {"min": "0/s"}}, "Input should be greater than 0"),
        ({"throughput": {}}, "Field required"),
        ({"speedup": {"min": 1.2}}, "Value error, expected a factor such as 1.2x, found 1.2"),
        ({"speedup": {"min": "0x"}}, "Input should be greater than 0"),
    ],
)
def test_a_gate_on_speed_that_cannot_be_judged_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        read(settings)
    assert caught.value.errors()[0]["msg"] == message


@pytest.mark.parametrize(
    ("low", "high", "met"),
    [(501, 540, True), (500, 540, True), (499, 540, None), (460, 500, None), (460, 499, False), (None, None, None)],
)
def test_throughput_is_judged_by_its_interval(low: float | None, high: float | None, met: Any) -> None:
    verdict = read(THROUGHPUT).judge(None, trial(**answered(low, high)))
    assert verdict.met is met
    found = (verdict.gate, verdict.observed, verdict.limit, verdict.low, verdict.high, verdict.unit)
    assert found == ("throughput", 500, 500, low, high, "/s")


def test_throughput_says_what_was_answered_and_what_would_decide() -> None:
    met = read(THROUGHPUT).judge(None, trial(**answered(510, 540)))
    assert met.reason == "510/s to 540/s (95% interval) are answered where 500/s is asked"
    undecided = read(THROUGHPUT).judge(None, trial(**answered(480, 540)))
    assert undecided.reason.endswith("asked, which is not decided: measure longer")
    few = read(THROUGHPUT).judge(None, trial())
    assert few.reason == "too few samples bound the throughput, of which 500/s is asked: measure longer"


def test_throughput_at_a_point_is_that_of_the_point() -> None:
    gate = read({"throughput": {"min": "500/s", "at": {"batch": 32}}})
    at_32 = replace(TIMES, at="batch 32", **answered(600, 700))
    assert gate.judge(None, trial(at_32, **answered(100, 200))).met is True
    assert gate.judge(None, trial(at_32)).gate == "throughput at batch 32"


@pytest.mark.parametrize("found", [trial(**answered(600, 700)), Trial("int8")])
def test_throughput_that_was_not_measured_is_undecided(found: Trial) -> None:
    verdict = read({"throughput": {"min": "500/s", "at": {"batch": 32}}}).judge(None, found)
    assert (verdict.met, verdict.limit) == (None, 500)
    assert verdict.reason == "throughput was not measured at batch 32: measure with this gate"


@pytest.mark.parametrize(("preempted", "stalled"), [(0.65, None), (0.0, 0.9)])
def test_a_busy_machine_proves_no_lack_of_throughput(preempted: float, stalled: float | None) -> None:
    for low, high, met in ((510, 540, True), (480, 540, None), (400, 450, None)):
        busy = trial(**answered(low, high, preempted=preempted, stalled=stalled))
        verdict = read(THROUGHPUT).judge(None, threads(busy, 4))
        assert verdict.met is met
        assert verdict.reason.endswith("use fewer threads or a quieter machine") == (met is None)


@pytest.mark.parametrize(
    ("offered", "low", "high", "met"),
    [
        (400, 390, 410, None),
        (500, 495, 499, None),
        (501, 495, 499, False),
        (600, 590, 610, True),
        (500, 500, 501, True),
    ],
)
def test_an_open_loop_shows_no_more_than_it_offers(offered: float, low: float, high: float, met: Any) -> None:
    verdict = read(THROUGHPUT).judge(None, trial(**answered(low, high, offered_per_s=offered)))
    assert verdict.met is met
    words = f"the load offers {offered}/s, which cannot show 500/s: raise its rate, or use a closed load"
    assert (verdict.reason == words) == (met is None)


def test_an_open_loop_offers_the_samples_of_its_batches() -> None:
    batches = answered(600, 640, offered_per_s=80.0, shape={"x": "8x3"})
    assert read(THROUGHPUT).judge(None, trial(**batches)).met is True
    assert (
        read(THROUGHPUT).judge(None, trial(**answered(390, 410, offered_per_s=62.6, shape={"x": "8x3"}))).met is False
    )
    assert read(THROUGHPUT).judge(None, trial(**answered(390, 410, offered_per_s=62.5, shape={"x": "8x3"}))).met is None


def test_an_overload_shows_what_a_model_cannot_answer_though_less_was_offered() -> None:
    load = answered(290, 310, offered_per_s=400.0, overloaded=True)
    assert read(THROUGHPUT).judge(None, trial(**load)).met is False
    assert read(THROUGHPUT).judge(None, trial(**load, preempted=0.65)).met is None


@pytest.mark.parametrize(
    ("low", "high", "met"),
    [(1.25, 1.4, True), (1.2, 1.4, True), (1.19, 1.4, None), (1.1, 1.2, None), (1.1, 1.19, False)],
)
def test_a_speedup_is_judged_by_its_paired_interval(low: float, high: float, met: Any) -> None:
    verdict = read(SPEEDUP).judge(rung(), rung(1.18, low, high))
    assert verdict.met is met
    found = (verdict.gate, verdict.observed, verdict.limit, verdict.low, verdict.high, verdict.unit)
    assert found == ("speedup", 1.18, 1.2, low, high, "x")


def test_a_speedup_says_what_was_found_and_what_would_decide() -> None:
    assert read(SPEEDUP).judge(rung(), rung(1.3, 1.25, 1.4)).reason == "1.3 times as fast (95% interval 1.25 to 1.4)"
    assert read(SPEEDUP).judge(rung(), rung(1.3, 1.1, 1.4)).reason == (
        "1.3 times as fast (95% interval 1.1 to 1.4), which does not decide 1.2x: more pairs would, measure longer"
    )


@pytest.mark.parametrize(("least", "met"), [("1.2x", False), ("1x", True), ("0.9x", True)])
def test_the_baseline_is_exactly_as_fast_as_itself(least: str, met: bool) -> None:  # noqa: FBT001
    verdict = read({"speedup": {"min": least}}).judge(None, rung())
    assert (verdict.met, verdict.observed, verdict.low, verdict.high) == (met, 1, 1, 1)
    assert verdict.reason == "the baseline itself"


@pytest.mark.parametrize("found", [rung(), Trial("int8")])
def test_a_speedup_without_pairs_is_undecided(found: Trial) -> None:
    verdict = read(SPEEDUP).judge(rung(), found)
    assert verdict.met is None
    assert "measure longer, or with load: {closed: {concurrency: 1}}" in verdict.reason


@pytest.mark.parametrize(
    ("interval", "lowest", "highest", "met"),
    [
        ((1.3, 1.25, 1.4), 1.2, 1.5, True),
        ((1.3, 1.25, 1.4), 1.19, 1.5, None),
        ((1.3, 1.25, 1.4), None, None, None),
        ((1.3, 1.1, 1.4), 1.25, 1.5, None),
        ((1.0, 0.9, 1.1), 0.8, 1.19, False),
        ((1.0, 0.9, 1.1), 0.8, 1.2, None),
    ],
)
def test_on_a_busy_machine_every_round_must_show_a_speedup(
    interval: tuple[float, ...], lowest: float | None, highest: float | None, met: Any
) -> None:
    verdict = read(SPEEDUP).judge(rung(), rung(*interval, lowest=lowest, highest=highest, stalled=0.5))
    assert verdict.met is met
    blamed = verdict.reason.endswith("; some task waited for a CPU 50% of the time: use a quieter machine")
    assert blamed == (met is None)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.021, 1.1, "faster"),
        (1.02, 1.1, "undecided"),
        (0.99, 1.1, "undecided"),
        (0.99, 1.01, "same"),
        (0.981, 1.02, "same"),
        (0.97, 1.01, "undecided"),
        (0.9, 0.981, "undecided"),
        (0.9, 0.98, "slower"),
        (0.5, 2.0, "undecided"),
    ],
)
def test_a_difference_is_one_where_the_whole_interval_lies_beyond_2_percent(
    low: float, high: float, expected: str
) -> None:
    assert relation(Speedup(1.0, low, high)) == expected


@pytest.mark.parametrize(
    ("low", "high", "lowest", "highest", "expected"),
    [
        (1.1, 1.2, 1.03, 1.3, "faster"),
        (1.1, 1.2, 1.02, 1.3, "undecided"),
        (1.01, 1.2, 1.03, 1.3, "undecided"),
        (1.1, 1.2, None, None, "undecided"),
        (0.8, 0.9, 0.7, 0.97, "slower"),
        (0.8, 0.9, 0.7, 1.0, "undecided"),
        (0.8, 0.9, None, None, "undecided"),
        (0.99, 1.01, 0.9, 1.1, "same"),
    ],
)
def test_on_a_busy_machine_every_round_must_show_a_difference(
    low: float, high: float, lowest: float | None, highest: float | None, expected: str
) -> None:
    speedup = Speedup(1.0, low, high, lowest=lowest, highest=highest, preempted=0.11)
    assert relation(speedup) == expected
    assert relation(replace(speedup, preempted=0.0, stalled=0.31)) == expected


@pytest.mark.parametrize(
    ("low", "high", "met"),
    [(0.981, 1.1, True), (1 / 1.02, 1.0, True), (0.98, 1.1, None), (0.9, 0.99, None), (0.9, 0.98, False)],
)
def test_a_model_is_not_slower_where_its_interval_does_not_lose_2_percent(low: float, high: float, met: Any) -> None:
    verdict = not_slower(Speedup(0.95, low, high))
    assert verdict.met is met
    assert (verdict.gate, verdict.observed, verdict.low, verdict.high) == (REGRESSION, 0.95, low, high)
    assert (verdict.limit, verdict.unit) == (pytest.approx(0.980392, abs=1e-6), "x")
    assert verdict.reason.endswith("whether it is slower: more pairs would, measure longer") == (met is None)


def test_a_busy_machine_calls_no_model_slower_unless_every_round_does() -> None:
    slower = Speedup(0.85, 0.8, 0.9, lowest=0.7, highest=0.95, preempted=0.5)
    assert not_slower(slower).met is False
    undecided = not_slower(replace(slower, highest=1.0))
    assert undecided.met is None
    assert undecided.reason.endswith("; the process was preempted in 50% of its calls: use a quieter machine")
