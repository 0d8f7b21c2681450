"""The verdicts that no recipe asks for."""

from __future__ import annotations

from typing import Any

import pytest
from trials import rung, threads

from compressor.gates import NORMALISE, REGRESSION, implicit, regression
from compressor.records import Applied, Trial

BUSY = "; the process was preempted in 65% of its calls: use a quieter machine"


def stage(name: str, **known: Any) -> Applied:
    return Applied(name, {}, known.pop("did", "did it"), 1.0, 1, {}, **known)


def test_a_rung_slower_than_another_beyond_doubt_is_named() -> None:
    verdict = regression(rung(2.0, 1.9, 2.1, name="int8-fused"), rung(1.5, 1.4, 1.6))
    assert verdict is not None
    assert (verdict.gate, verdict.met, verdict.unit) == (REGRESSION, False, "x")
    assert (verdict.observed, verdict.limit, verdict.low, verdict.high) == (1.5, 2.0, 1.4, 1.6)
    assert verdict.reason == "takes 1.33 times as long as int8-fused"


@pytest.mark.parametrize(
    ("rival", "trial"),
    [
        (rung(2.0, 1.9, 2.1), rung(1.8, 1.7, 1.88)),  # within the minimum effect
        (rung(2.0, 1.9, 2.1), rung(1.8, 1.6, 2.0)),  # the intervals overlap
        (rung(1.0, 0.9, 1.1), rung(2.0, 1.9, 2.1)),  # faster
        (rung(), rung(0.985, 0.98, 0.99)),  # 1 % slower than the baseline
        (Trial("never measured"), rung(0.5, 0.4, 0.6)),
        (rung(2.0, 1.9, 2.1), rung()),
        (rung(2.0, 1.9, 2.1), Trial("never measured")),
    ],
)
def test_a_rung_that_may_be_as_fast_is_no_regression(rival: Trial, trial: Trial) -> None:
    assert regression(rival, trial) is None


def test_the_baseline_itself_counts_as_one() -> None:
    assert regression(rung(), rung(0.9, 0.88, 0.97)) is not None
    assert regression(rung(), rung(0.9, 0.88, 0.985)) is None


@pytest.mark.parametrize(
    ("rival", "trial", "met"), [(0.65, 0.0, None), (0.0, 0.65, None), (0.65, 0.02, None), (0.1, 0.1, False)]
)
def test_a_machine_that_was_busy_on_either_side_decides_no_regression(rival: float, trial: float, met: Any) -> None:
    verdict = regression(rung(2.0, 1.9, 2.1, preempted=rival), rung(1.5, 1.4, 1.6, preempted=trial))
    assert verdict is not None
    assert (verdict.gate, verdict.met) == (REGRESSION, met)
    assert verdict.reason.endswith(BUSY) == (met is None)


@pytest.mark.parametrize(
    ("lowest", "highest", "met"),
    [
        (1.8, 1.7, False),
        (1.8, 1.75, False),
        (1.8, 1.77, None),  # within the minimum effect
        (1.8, 1.81, None),
        (1.5, 1.6, None),
        (None, 1.6, None),
        (1.8, None, None),
    ],
)
def test_on_a_busy_machine_every_round_must_show_a_regression(
    lowest: float | None, highest: float | None, met: Any
) -> None:
    rival = rung(2.0, 1.9, 2.1, rounds=5, lowest=lowest, highest=2.2)
    trial = rung(1.5, 1.4, 1.6, rounds=5, lowest=1.3, highest=highest, preempted=0.65)
    verdict = regression(rival, trial)
    assert verdict is not None
    assert verdict.met is met


def test_against_the_baseline_only_the_rungs_own_rounds_count() -> None:
    for highest, met in ((0.97, False), (0.99, None)):
        verdict = regression(rung(), rung(0.9, 0.88, 0.92, rounds=5, lowest=0.85, highest=highest, stalled=0.9))
        assert verdict is not None
        assert verdict.met is met


@pytest.mark.parametrize(("rival", "trial", "met"), [(5, 5, False), (4, 5, None), (5, 4, None), (1, 1, None)])
def test_a_few_rounds_of_a_busy_machine_show_no_regression(rival: int, trial: int, met: Any) -> None:
    faster = rung(2.0, 1.9, 2.1, rounds=rival, lowest=1.8, highest=2.2)
    verdict = regression(faster, rung(1.5, 1.4, 1.6, rounds=trial, lowest=1.3, highest=1.7, stalled=0.9))
    assert verdict is not None
    assert verdict.met is met


def test_a_busy_machine_with_several_threads_is_told_to_use_fewer() -> None:
    verdict = regression(threads(rung(2.0, 1.9, 2.1), 8), rung(1.5, 1.4, 1.6, preempted=0.65))
    assert verdict is not None
    assert verdict.reason.endswith("use fewer threads or a quieter machine")


IDLE = stage("quantize", did="left as it is: it is quantized already", changed=False)
MADE_UP = stage("quantize", uncalibrated=True)
SLOW, FAST = (0.5, 0.4, 0.6), (2.0, 1.9, 2.1)


def test_a_rung_that_did_something_and_is_as_fast_has_no_implicit_verdict() -> None:
    assert implicit(rung(*FAST, stages=(stage("quantize"), stage("fuse", changed=False))), (rung(),)) == ()
    assert implicit(rung(), ()) == ()


def test_a_rung_of_which_no_stage_changed_the_model_is_not_met() -> None:
    (verdict,) = implicit(rung(*FAST, stages=(stage(NORMALISE), IDLE, stage("fuse", changed=False))), (rung(),))
    assert (verdict.gate, verdict.met) == ("change", False)
    assert verdict.reason == "no stage changed the model: left as it is: it is quantized already"


def test_a_rung_calibrated_on_made_up_inputs_is_undecided() -> None:
    (verdict,) = implicit(rung(*FAST, stages=(stage(NORMALISE), MADE_UP, stage("fuse"))), (rung(),))
    assert (verdict.gate, verdict.met) == ("calibration", None)
    assert "give --calibration" in verdict.reason


def test_a_rung_is_compared_with_each_rival() -> None:
    (verdict,) = implicit(rung(1.5, 1.4, 1.6), (rung(name="baseline"), rung(*FAST, name="first"), rung(*FAST)))
    assert verdict.reason.endswith("as long as first")


@pytest.mark.parametrize(
    ("interval", "stages", "gate"),
    [
        (SLOW, (IDLE, MADE_UP), "speed"),
        (SLOW, (IDLE,), "speed"),
        (FAST, (IDLE,), "change"),
        (FAST, (stage("quantize", uncalibrated=True, changed=False),), "change"),
        (FAST, (IDLE, MADE_UP), "calibration"),
    ],
)
def test_a_rung_has_one_implicit_verdict_at_most(interval: Any, stages: tuple[Applied, ...], gate: str) -> None:
    assert [verdict.gate for verdict in implicit(rung(*interval, stages=stages), (rung(),))] == [gate]
