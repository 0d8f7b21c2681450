"""Pieces of work in children: their limits, how their progress is told, and whose failure it is."""

from __future__ import annotations

import re
import time

import pipeline_broken as broken
import pytest
from finished import finish

from compressor.errors import InputError
from compressor.isolation import Limits
from compressor.pipeline.steps import Steps
from compressor.records import Progress, Work


def scored() -> Work[str]:
    for step in ("score", "scor", "load"):
        yield Progress(step, 1, 2)
        time.sleep(0.1)  # progress is thinned
    return "done"


def slow() -> str:
    time.sleep(2.0)
    return "in time"


def test_progress_stands_under_the_step_and_is_told_apart_from_it() -> None:
    events: list[Progress] = []
    steps = Steps(Limits(), verbose=False)
    assert finish(steps.call("int8: score", scored), events).value == "done"
    assert [event.step for event in events] == ["int8: score", "int8: score", "int8: score, scor", "int8: score, load"]
    assert (events[1].done, events[1].total) == (1, 2)
    assert steps.now == "int8: score"


def test_a_step_that_hangs_is_stopped_by_the_limits_and_named() -> None:
    steps = Steps(Limits(seconds=1), verbose=False)
    with pytest.raises(InputError, match=r"net\.onnx: measure failed: .*limits\.seconds"), steps.of("net.onnx"):
        finish(steps.call("measure", broken.hang))


def test_a_step_that_is_told_to_take_long_may() -> None:
    assert finish(Steps(Limits(seconds=1), verbose=False).call("measure", slow, more_s=30)).value == "in time"


def test_a_step_that_is_stopped_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    step = Steps(Limits(), verbose=False).call("int8: score", scored)
    assert [next(step).step for _ in range(2)] == ["int8: score"] * 2
    with pytest.raises(SystemExit):
        step.throw(SystemExit(143))
    (line,) = caplog.messages
    assert re.fullmatch(r"step: int8: score: stopped after \d+\.\d{3} s", line)
