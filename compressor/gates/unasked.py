"""The verdicts that no recipe asks for: what no rung may be, whatever its gates.

Another is a function here, and a line in `implicit`.
"""

from __future__ import annotations

from compressor.gates.busy import blame, busy
from compressor.gates.speed import ITSELF, REGRESSION, extremes
from compressor.records import MINIMUM_EFFECT, Trial, Verdict

NORMALISE = "normalise"
"""The stage that comes before all others and counts as no change."""


def regression(rival: Trial, trial: Trial) -> Verdict | None:
    """Give an unmet verdict if a rung is slower than another, beyond doubt and by more than 2 %; else None.

    Where the machine was busy with either, every round must show it; it is undecided if only the intervals do.

    Both are compared by their speedups over the same baseline; the baseline's own is None and counts as exactly 1.
    """
    now = trial.measurement.speedup if trial.measurement else None
    if rival.measurement is None or now is None:
        return None
    before = rival.measurement.speedup or ITSELF
    if now.high * MINIMUM_EFFECT >= before.low:
        return None
    disturbed = next(filter(busy, (now, before)), None)
    doubtful = disturbed is not None and extremes(now)[1] * MINIMUM_EFFECT >= extremes(before)[0]
    return Verdict(
        gate=REGRESSION,
        met=None if doubtful else False,
        observed=now.ratio,
        limit=before.ratio,
        low=now.low,
        high=now.high,
        reason=f"takes {before.ratio / now.ratio:.3g} times as long as {rival.rung}"
        + (blame(disturbed, trial, rival) if disturbed and doubtful else ""),
        unit="x",
    )


def unchanged(trial: Trial) -> Verdict | None:
    """Give an unmet verdict if no stage changed the model, and no compiler; else None."""
    own = [stage for stage in trial.stages if stage.stage != NORMALISE]
    compiled = any(artifact.is_engine for artifact in trial.artifacts)
    if not own or compiled or any(stage.changed for stage in own):
        return None
    reason = f"no stage changed the model: {own[0].did}"
    return Verdict("change", met=False, observed=None, limit=None, low=None, high=None, reason=reason)


def uncalibrated(trial: Trial) -> Verdict | None:
    """Give an undecided verdict if a stage, or FP16 of an engine, was calibrated on made-up inputs; else None."""
    compiled = any(artifact.options.get("uncalibrated") == "1" for artifact in trial.artifacts)
    if not compiled and not any(stage.uncalibrated for stage in trial.stages):
        return None
    reason = "the ranges of its activations come from made-up inputs: give --calibration"
    return Verdict("calibration", met=None, observed=None, limit=None, low=None, high=None, reason=reason)
