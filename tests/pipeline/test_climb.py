"""Which rung the next one is compared with."""

from __future__ import annotations

from dataclasses import replace

from test_choose import LATENCY

from compressor import gates
from compressor.pipeline.judge import previous
from compressor.records import Failure, Measurement, Speedup, Trial


def trial(rung: str, ratio: float | None, *, slower: bool = False) -> Trial:
    speedup = Speedup(ratio, ratio * 0.99, ratio * 1.01) if ratio else None
    made = Trial(rung, measurement=Measurement(1, LATENCY, 1.0, None, speedup=speedup))
    verdict = gates.regression(trial("baseline", None), made) if slower else None
    return replace(made, verdicts=(verdict,) if verdict else ())


BASELINE = trial("baseline", None)
FAILED = Trial("broken", failure=Failure("quantize", "crashed"))


def test_a_rung_is_compared_with_the_last_one_that_was_measured() -> None:
    fast = trial("int8", 1.5)
    assert previous([BASELINE]) == BASELINE
    assert previous([BASELINE, fast, FAILED]) == fast


def test_a_slow_rung_does_not_make_the_next_one_look_fast() -> None:
    slow = trial("int8", 0.86, slower=True)
    assert slow.verdicts, "a rung at 0.86 of the baseline's speed is slower"
    assert previous([BASELINE, slow]) == BASELINE
    assert gates.regression(BASELINE, trial("int8-fused", 0.88)) is not None
