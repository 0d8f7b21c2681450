"""Which rung is taken: the rules of the design, on trials made by hand."""

from __future__ import annotations

import pytest

from compressor.pipeline import choose
from compressor.records import Failure, Latency, Measurement, Score, Trial, Verdict

LATENCY = Latency(
    **{f"p{p}{end}_ms": 1.0 for p in (50, 90, 95, 99) for end in ("", "_low", "_high")},
    mean_ms=1.0,
    n=300,
    cold_ms=None,
    load_ms=None,
    shape={},
    load="closed",
    preempted=0.0,
)


MET, UNMET = True, False


def trial(rung: str, *met: bool | None, score: Score | None = None) -> Trial:
    verdicts = tuple(Verdict(f"gate {i}", one, None, None, None, None, "") for i, one in enumerate(met))
    return Trial(rung, measurement=Measurement(1, LATENCY, 1.0, None, score), verdicts=verdicts)


FAILED = Trial("int8", failure=Failure("quantize", "crashed"))


@pytest.mark.parametrize(
    ("baseline", "trials", "expected"),
    [
        # the first rung that meets every gate, although a later one does too, and although the baseline does
        ((True, True), [("a", True, True), ("b", True, True)], ("pass", "a")),
        ((False, True), [("a", False, True), ("b", True, True)], ("pass", "b")),
        # the baseline only when no rung does
        ((True, True), [("a", False, True), ("b", True, None)], ("pass", "baseline")),
        ((True, True), [], ("pass", "baseline")),
        # inconclusive if one candidate misses no gate
        ((False, True), [("a", True, None), ("b", True, False)], ("inconclusive", None)),
        ((None, None), [("a", True, False)], ("inconclusive", None)),
        ((False, None), [("a", True, False)], ("fail", None)),
    ],
)
def test_the_outcome(baseline: tuple[bool, ...], trials: list[tuple[object, ...]], expected: tuple[str, str]) -> None:
    made = [trial(str(name), *met) for name, *met in trials]  # type: ignore[arg-type]
    assert choose.outcome(trial("baseline", *baseline), made) == expected


def test_a_rung_that_could_not_be_built_counts_as_unmet() -> None:
    assert choose.outcome(trial("baseline", UNMET), [FAILED]) == ("fail", None)
    assert choose.outcome(Trial("baseline", failure=Failure("measure", "hung")), []) == ("fail", None)


def test_evaluation_is_missing_when_no_measured_trial_has_a_score() -> None:
    scored = Score("top1", 0.9, 10, None, None)
    assert choose.lacks_evaluation([trial("baseline", MET)])
    assert not choose.lacks_evaluation([trial("baseline", MET, score=scored), FAILED])
