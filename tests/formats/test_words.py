from __future__ import annotations

import math
from dataclasses import replace

import pytest
from found import BENCHED

from compressor import records as r
from compressor.formats import words

SCORE = r.Score("top1", 0.75, 40, 0.6, 0.9, drop=0.0123, drop_low=-0.006, drop_high=0.03)
CLOSED = BENCHED.side.measurement.latency


@pytest.mark.parametrize(
    ("value", "low", "high", "unit", "written"),
    [
        (80.25, 79.0, 82.0, "ms", "80.25 [79, 82] ms"),
        (80.25, None, None, "ms", "80.25 ms"),
        (25_600_000, None, None, "B", "25.6 MB"),
        (12_000_000, 11_000_000, 13_000_000, "B", "12 MB [11 MB, 13 MB]"),
        (1234.5, 1200.0, 1250.0, "/s", "1,234/s [1,200/s, 1,250/s]"),
        (1.5, 1.25, 1.75, "x", "1.50x [1.25x, 1.75x]"),
        (0.31, None, None, "USD/1M", "0.31 USD/1M"),
        (0.005, -0.01, 0.02, "", "0.005 [-0.01, 0.02]"),
        (79_086_208.0, None, None, "", "79,086,208"),
        (1234.0, None, None, "", "1234"),
        (None, 1.0, 2.0, "B", "-"),
    ],
)
def test_a_number_is_written_with_its_unit_as_people_write_it(
    value: float | None, low: float | None, high: float | None, unit: str, written: str
) -> None:
    assert words.with_unit(value, low, high, unit) == written


def test_a_share_is_per_cent_and_never_minus_nothing() -> None:
    assert words.percent(0.0123) == "1.23 %"
    assert words.percent(-0.0) == "0.00 %"
    assert words.percent(math.inf) == "inf"


def test_a_drop_stands_with_its_interval() -> None:
    assert words.dropped(SCORE) == "drops by 1.23 % (-0.60 % to 3.00 %)"
    assert words.dropped(replace(SCORE, drop_low=None)) == "drops by 1.23 %"
    assert words.dropped(replace(SCORE, drop=None)) == ""


def test_what_became_better_rises_or_shrinks() -> None:
    better = replace(SCORE, drop=-0.024, drop_low=-0.05, drop_high=0.005)
    assert words.dropped(better) == "rises by 2.40 % (-0.50 % to 5.00 %)"
    assert words.dropped(replace(better, relative=True)) == "shrinks by 2.40 % of itself (-0.50 % to 5.00 %)"
    assert words.dropped(replace(SCORE, drop=0.0, drop_low=None)) == "drops by 0.00 %"


@pytest.mark.parametrize(
    ("metric", "told"), [("agreement", "agreement with"), ("cosine", "compared with"), ("sqnr", "compared with")]
)
def test_only_an_agreement_is_called_one(metric: str, told: str) -> None:
    score = r.Score(metric, 0.98, 40, None, None, reference=True)
    assert words.score_words(score) == f"0.98 ({told} the original model, n = 40)"


def test_a_closed_loop_has_a_throughput_with_its_interval() -> None:
    assert words.throughput(CLOSED) == "120/s [110/s, 130/s]"
    assert words.throughput(replace(CLOSED, throughput_low_per_s=None)) == "120/s"
    assert words.throughput(replace(CLOSED, throughput_per_s=None)) == "-"


def test_an_open_loop_answers_what_is_offered_and_no_interval_says_more() -> None:
    opened = replace(CLOSED, offered_per_s=300.0)
    assert words.throughput(opened) == "offered 300/s, answered 120/s"
    assert words.throughput(replace(opened, throughput_per_s=None)) == "offered 300/s"


def test_a_batch_is_counted_in_samples() -> None:
    batch = replace(CLOSED, shape={"x": "8x3", "y": "1"})
    assert words.throughput(batch) == "120 samples/s [110 samples/s, 130 samples/s]"
    opened = replace(batch, offered_per_s=300.0)
    assert words.throughput(opened) == "offered 2,400 samples/s, answered 120 samples/s"
    assert words.throughput(replace(CLOSED, shape={"x": ""})).startswith("120/s"), "a scalar is one sample"


def test_a_limit_is_a_number_only_where_samples_support_it() -> None:
    assert words.at_most(60.0, 80.0, CLOSED) == "80 ms"
    assert words.at_most(60.0, None, CLOSED) == "n = 100, too few"
    assert words.at_most(60.0, None, replace(CLOSED, n=2000)) == "n = 2000, not independent"
    assert words.median(CLOSED) == "1 ms"


@pytest.mark.parametrize("strained", [{"overloaded": True}, {"growing": True}, {"overloaded": True, "growing": True}])
def test_an_overload_makes_every_percentile_a_lower_limit(strained: dict[str, bool]) -> None:
    latency = replace(CLOSED, **strained)
    assert words.at_most(60.0, None, latency) == "at least 60 ms"
    assert words.at_most(60.0, 80.0, latency) == "at least 60 ms"
    assert words.median(latency) == "at least 1 ms"
    assert words.strain(latency) == ("overloaded" if latency.overloaded else "requests wait longer and longer")


def test_gates_that_say_no_come_before_those_that_say_nothing() -> None:
    met, open_, failed = (r.Verdict(f"{m}", m, None, None, None, None, "") for m in (True, None, False))
    assert words.unmet((met, open_, failed)) == [failed, open_]


def test_a_drop_of_decibels_is_no_share() -> None:
    score = r.Score("sqnr", 31.25, 40, 30.0, 32.0, drop=128.75, drop_low=128.0, drop_high=130.0, reference=True)
    assert words.dropped(score) == "drops by 128.8 (128 to 130)"


def test_an_error_grows_by_a_share_of_itself() -> None:
    assert words.dropped(replace(SCORE, relative=True, drop_low=None)) == "grows by 1.23 % of itself"


def test_the_worst_class_is_named_where_it_lost_something() -> None:
    worst = r.ClassScore(7, 60, 0.98, 0.9, 0.08, 0.01, 0.15)
    told = "class 7, 98.00 % → 90.00 % of 60 samples, drops by 8.00 % (1.00 % to 15.00 %)"
    assert words.worst(replace(SCORE, worst=worst)) == told
    assert words.worst(replace(SCORE, worst=replace(worst, drop=0.0))) == ""
    assert words.worst(SCORE) == ""


def test_an_output_s_error_is_told_in_full() -> None:
    far = r.OutputError(n=600, sqnr_db=31.26, mean=0.0271, p95=0.0512, max_abs=0.34567)
    assert words.error(far) == (
        "SQNR 31.3 dB; relative error 2.71 % on average, 5.12 % at the 95th percentile; largest difference 0.3457 "
        "(n = 600)"
    )


def test_kernels_are_blamed_only_for_what_exact_arithmetic_changes() -> None:
    told = "top1 is 0.75 here and 0.79 with exact integers: the integer kernels of this CPU saturate, so that the "
    assert words.saturated(replace(SCORE, emulated=0.79)) == f"{told}difference is the CPU's and not the model's"
    assert words.saturated(replace(SCORE, emulated=0.75)) == ""
    assert words.saturated(SCORE) == ""


def test_rounds_stand_with_their_extremes() -> None:
    speedup = r.Speedup(1.5, 1.4, 1.6, rounds=8, lowest=1.31, highest=1.72)
    assert words.rounds(speedup) == "8 rounds (1.31 to 1.72)"
    assert words.rounds(replace(speedup, lowest=None)) == "8 rounds"
    assert words.rounds(replace(speedup, rounds=0)) == ""


def test_a_file_is_smaller_or_larger() -> None:
    assert words.smaller(700, 200) == "3.50 times smaller"
    assert words.smaller(200, 300) == "1.50 times larger"


def test_how_busy_the_machine_was_says_nothing_of_what_nobody_counts() -> None:
    assert words.busy(0.034, 0.125) == "some task waited for a CPU 12 % of the time"
    assert words.busy(0.0, None) == "preempted in 0 % of the calls"


def test_a_start_stands_with_its_limit() -> None:
    bound = r.Bound(50.0, 0.95, 120.0, 100.0, 150.0)
    assert words.startup(bound) == "120 ms (at most 150 ms)"
    assert words.startup(replace(bound, high_ms=None)) == "-", "one start bounds nothing"
    assert words.startup(None) == "-"
