from __future__ import annotations

import math
from dataclasses import replace

from compressor import records as r
from compressor.formats import noise as words

SPEEDUP = r.Speedup(1.002, 0.99, 1.01, rounds=12, lowest=0.96, highest=1.04, preempted=0.02, stalled=0.4)
NOISE = r.Noise(SPEEDUP, seconds=20.3, p50_ms=2.5, detectable=0.0312)
BESIDE = "0.20 % less time (95 % interval -1.01 % to 0.99 %)"


def test_the_rows_say_what_was_seen_and_how_busy_the_machine_was() -> None:
    assert words.rows(NOISE) == [
        ("the same model twice", BESIDE),
        ("rounds", "12 rounds (0.96 to 1.04)"),
        ("p50", "2.5 ms"),
        ("took", "20 s"),
        ("slow-down that would be seen", "3.12 % or more"),
        ("machine", "some task waited for a CPU 40 % of the time"),
    ]


def test_the_sentence_says_which_difference_can_be_seen() -> None:
    told = (
        "in 20 s a slow-down of 3.12 % or more would be seen nine times in ten; "
        f"the second time, the same model took {BESIDE}"
    )
    assert words.sentence(NOISE, claimed=False, busy=False) == told
    assert words.sentence(NOISE, claimed=False, busy=True) == f"{told}; the machine was busy: repeat when it is quiet"


def test_a_difference_is_more_time_or_less() -> None:
    slower = replace(NOISE, speedup=r.Speedup(1 / 1.004, 1 / 1.01, 1 / 0.998))
    assert dict(words.rows(slower))["the same model twice"] == "0.40 % more time (95 % interval -0.20 % to 1.00 %)"


def test_a_machine_that_sees_nothing_for_sure_says_so() -> None:
    told = words.sentence(replace(NOISE, detectable=math.inf), claimed=False, busy=False)
    assert told.startswith("in 20 s no slow-down would be seen for sure: give it more --seconds, or a quieter machine")
    assert dict(words.rows(replace(NOISE, detectable=math.inf)))["slow-down that would be seen"] == "none for sure"


def test_a_machine_that_tells_a_model_from_itself_is_not_trusted() -> None:
    told = words.sentence(NOISE, claimed=True, busy=True)
    assert told.startswith("it told a model from itself: trust no comparison made now")
    assert told.endswith("; the machine was busy: repeat when it is quiet")
