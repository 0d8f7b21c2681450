"""When a machine was too busy to be trusted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trials import TIMES, threads, trial

from compressor.gates.busy import blame, busy
from compressor.records import Speedup


@pytest.mark.parametrize(
    ("preempted", "stalled", "expected"),
    [(0.1, None, False), (0.11, None, True), (0.1, 0.3, False), (0.0, 0.31, True), (0.5, 0.0, False)],
)
def test_a_machine_is_busy_if_tasks_waited_and_preempted_calls_count_only_where_nobody_knows(
    preempted: float, stalled: float | None, *, expected: bool
) -> None:
    assert busy(replace(TIMES, preempted=preempted, stalled=stalled)) is expected
    assert busy(Speedup(1.0, 1.0, 1.0, preempted=preempted, stalled=stalled)) is expected


def test_only_the_signs_that_were_seen_are_named() -> None:
    moment = replace(TIMES, preempted=0.2, stalled=None)
    assert blame(moment) == "; the process was preempted in 20% of its calls: use a quieter machine"
    waited = replace(TIMES, preempted=0.02, stalled=0.5)
    assert blame(waited) == "; some task waited for a CPU 50% of the time: use a quieter machine"


def test_fewer_threads_are_advised_if_any_of_the_trials_has_several() -> None:
    moment = replace(TIMES, preempted=0.2)
    assert blame(moment, threads(trial(), 1), trial()).endswith(": use a quieter machine")
    assert blame(moment, threads(trial(), 1), threads(trial(), 2)).endswith(": use fewer threads or a quieter machine")
