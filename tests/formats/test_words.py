from __future__ import annotations

import math
from dataclasses import replace

import pytest

from compressor import records as r
from compressor.formats import words

SCORE = r.Score("top1", 0.75, 40, 0.6, 0.9, drop=0.0123, drop_low=-0.006, drop_high=0.03)


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
