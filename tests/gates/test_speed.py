"""Gates on speed, and when one model is called faster or slower than another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from trials import TIMES, measuring, read, rung, threads, trial

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
    assert undecided.reason.endswith("asked, which is not decided: measure longer (limits.measure, or --duration)")
    few = read(THROUGHPUT).judge(None, trial(**answered(None, None, stalled=0.9)))
    assert few.reason.startswith("too few samples bound the throughput, of which 500/s is asked: measure longer")


def test_throughput_at_a_point_is_that_of_the_point() -> None:
    gate = read({"throughput": {"min": "500/s", "at": {"batch": 32}}})
    at_32 = replace(TIMES, at="batch 32", **answered(600, 700))
    assert gate.judge(None, trial(at_32, **answered(100, 200))).met is True
    assert gate.judge(None, trial(at_32)).gate == "throughput at batch 32"


@pytest.mark.parametrize("found", [trial(**answered(600, 700)), trial(replace(TIMES, at="batch 32")), Trial("int8")])
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


def opened(offered: float, per_s: float, **known: Any) -> Trial:
    return trial(throughput_per_s=per_s, offered_per_s=offered, **known)


@pytest.mark.parametrize(
    ("found", "met", "reason"),
    [
        (opened(600, 599), True, "the load offered 600/s and all were answered, where 500/s is asked"),
        (opened(500, 495), True, "the load offered 500/s and all were answered, where 500/s is asked"),
        (opened(499.9999, 499), True, "the load offered 500/s and all were answered, where 500/s is asked"),
        (opened(499, 499), None, "the load offers only 499/s, which cannot show 500/s: measure with a closed load"),
        (
            opened(400, 390, growing=True),
            None,
            "the load offers only 400/s, which cannot show 500/s: measure with a closed load",
        ),
        (
            opened(600, 590, growing=True),
            None,
            "requests waited longer and longer at 600/s, which does not show 500/s: measure with a closed load",
        ),
        (
            opened(600, 490, overloaded=True),
            False,
            "overloaded: 600/s came and 490/s were answered where 500/s is asked",
        ),
        (
            opened(600, 490, overloaded=True, growing=True),
            False,
            "overloaded: 600/s came and 490/s were answered where 500/s is asked",
        ),
        (
            opened(400, 300, overloaded=True),
            False,
            "overloaded: 400/s came and 300/s were answered where 500/s is asked",
        ),
        (
            opened(600, 510, overloaded=True),
            None,
            "600/s came and 510/s were answered, which does not show 500/s: measure with a closed load",
        ),
        (
            opened(5000, 100),
            None,
            "5,000/s came and 100/s were answered, which does not show 500/s: measure with a closed load",
        ),
    ],
)
def test_an_open_loop_shows_no_more_than_it_offers(found: Trial, met: Any, reason: str) -> None:
    verdict = read(THROUGHPUT).judge(None, found)
    assert (verdict.met, verdict.reason, verdict.low, verdict.high) == (met, reason, None, None)


def test_an_open_loop_is_judged_by_what_came_whatever_its_interval() -> None:
    assert read(THROUGHPUT).judge(None, trial(**answered(490, 510, offered_per_s=500.0))).met is True
    assert read(THROUGHPUT).judge(None, trial(**answered(520, 530, offered_per_s=480.0))).met is None


@pytest.mark.parametrize(("requests", "met"), [(62.5, True), (62.4, None)])
def test_an_open_loop_offers_the_samples_of_its_batches(requests: float, met: Any) -> None:
    assert read(THROUGHPUT).judge(None, opened(requests, 499, shape={"x": "8x3"})).met is met


def test_an_overload_of_a_busy_machine_proves_no_lack_of_throughput() -> None:
    verdict = read(THROUGHPUT).judge(None, threads(opened(400, 300, overloaded=True, preempted=0.65), 4))
    assert verdict.met is None
    assert verdict.reason.endswith("use fewer threads or a quieter machine")


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
    assert read(SPEEDUP).judge(rung(), rung(1.3, 1.25, 1.4)).reason == "1.30 times as fast (95% interval 1.25 to 1.40)"
    assert read(SPEEDUP).judge(rung(), rung(1.3, 1.1, 1.4)).reason == (
        "1.30 times as fast (95% interval 1.10 to 1.40), which does not decide 1.2x: more pairs would, "
        "measure longer (limits.measure, or --duration)"
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
    assert "measure longer (limits.measure, or --duration), or with load: {closed: {concurrency: 1}}" in verdict.reason


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
    verdict = read(SPEEDUP).judge(rung(), rung(*interval, rounds=5, lowest=lowest, highest=highest, stalled=0.5))
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
        (0.99, 1.01, 0.981, 1.02, "same"),
        (0.99, 1.01, 0.9, 1.01, "undecided"),
        (0.99, 1.01, 0.99, 1.03, "undecided"),
        (0.97, 1.01, 0.99, 1.01, "undecided"),
        (0.99, 1.01, None, None, "undecided"),
    ],
)
def test_on_a_busy_machine_every_round_must_show_a_difference(
    low: float, high: float, lowest: float | None, highest: float | None, expected: str
) -> None:
    speedup = Speedup(1.0, low, high, rounds=5, lowest=lowest, highest=highest, preempted=0.11)
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
    assert verdict.reason.endswith(
        "whether it is slower: more pairs would, measure longer (limits.measure, or --duration)"
    ) == (met is None)


def test_a_busy_machine_calls_no_model_slower_unless_every_round_does() -> None:
    slower = Speedup(0.85, 0.8, 0.9, rounds=5, lowest=0.7, highest=0.95, preempted=0.5)
    assert not_slower(slower).met is False
    undecided = not_slower(replace(slower, highest=1.0))
    assert undecided.met is None
    assert undecided.reason.endswith("; the process was preempted in 50% of its calls: use a quieter machine")


@pytest.mark.parametrize(
    ("lowest", "highest", "stalled", "met"),
    [
        (0.99, 1.0, 0.8, True),
        (0.981, 1.3, 0.8, True),
        (0.98, 1.0, 0.8, None),
        (0.90, 1.08, 0.8, None),
        (None, None, 0.8, None),
        (0.90, 1.08, 0.1, True),
    ],
)
def test_on_a_busy_machine_no_round_may_be_slower(
    lowest: float | None, highest: float | None, stalled: float, met: Any
) -> None:
    speedup = Speedup(0.99, 0.985, 0.996, rounds=5, lowest=lowest, highest=highest, stalled=stalled)
    assert not_slower(speedup).met is met


@pytest.mark.parametrize(("rounds", "enough"), [(0, False), (1, False), (4, False), (5, True)])
def test_a_few_rounds_of_a_busy_machine_decide_nothing(rounds: int, enough: bool) -> None:  # noqa: FBT001
    busy = Speedup(0.99, 0.985, 0.996, rounds=rounds, lowest=0.985, highest=0.996, stalled=0.8)
    assert relation(busy) == ("same" if enough else "undecided")
    assert not_slower(busy).met is (True if enough else None)
    slower = replace(busy, ratio=0.5, low=0.5, high=0.5, lowest=0.5, highest=0.5)
    assert not_slower(slower).met is (False if enough else None)
    quiet = replace(busy, stalled=0.1)
    assert (relation(quiet), not_slower(quiet).met) == ("same", True)


@given(
    st.tuples(*[st.floats(0.8, 1.25)] * 5).map(sorted),
    st.integers(0, 8),
    st.sampled_from([0.5, 0.98, 1.0, 1.02, 1.2]),
)
def test_no_verdict_is_better_for_a_machine_that_is_busy(ends: list[float], rounds: int, least: float) -> None:
    lowest, low, ratio, high, highest = ends
    quiet = Speedup(ratio, low, high, rounds=rounds, lowest=lowest, highest=highest, stalled=0.0)
    busy = replace(quiet, stalled=0.9)
    gate = read({"speedup": {"min": f"{least}x"}})
    judged = [
        (not_slower(one).met, gate.judge(rung(), measuring(trial(), speedup=one)).met, relation(one))
        for one in (quiet, busy)
    ]
    for calm, hectic in zip(*judged, strict=True):
        assert hectic in {calm, None, "undecided"}


def test_a_rate_that_is_reached_needs_no_upper_limit() -> None:
    verdict = read(THROUGHPUT).judge(None, trial(**answered(600, None)))
    assert verdict.met is True
    assert verdict.reason.startswith("at least 600/s (95% interval) are answered where ")
    assert read(THROUGHPUT).judge(None, trial(**answered(100, None))).met is None
