"""What a run found, in one plain sentence.

What else the sentence should tell is a line in `_choice`.
"""

from __future__ import annotations

from collections.abc import Iterator

from compressor import schemes
from compressor.formats.words import MET, Escape, number, score_words, smaller, times, unmet, with_unit
from compressor.records import Measurement, Report, Trial, Verdict
from compressor.units import human_bytes

_BASELINE = "baseline"
_NO_CHOICE = {
    "inconclusive": "the evidence shows neither that a candidate meets every gate nor that none does.",
    "fail": "no candidate meets every gate.",
}


def sentence(report: Report, escape: Escape = str) -> str:
    """Say what was chosen and what it gains and loses, and which gates decided; names go through `escape`."""
    chosen = chosen_trial(report)
    outcome = _NO_CHOICE[report.verdict] if chosen is None else _choice(report, chosen, escape)
    if report.unfinished:
        outcome = " ".join([f"the run did not end ({escape(report.unfinished)}): {outcome}", *_best(report, escape)])
    return " ".join([outcome, *_deciding(report, escape), *_not_built(report, escape)])


def chosen_trial(report: Report) -> Trial | None:
    """Give the trial of the chosen rung."""
    return next((trial for trial in (report.baseline, *report.trials) if trial.rung == report.chosen), None)


def deciding_trial(report: Report) -> Trial | None:
    """Give the candidate that the verdict rests on: the chosen one, else of those built the one that misses least.

    None where none was built and judged.
    """
    judged = [trial for trial in (report.baseline, *report.trials) if trial.is_built and trial.verdicts]
    return chosen_trial(report) or min(judged, key=_misses, default=None)


def judged(verdict: Verdict) -> str:
    """Say how a gate judged, and by which numbers."""
    observed = with_unit(verdict.observed, verdict.low, verdict.high, verdict.unit)
    limit = with_unit(verdict.limit, None, None, verdict.unit)
    return f"{MET[verdict.met]}; observed {observed}, limit {limit}; {verdict.reason}"


def _choice(report: Report, chosen: Trial, escape: Escape) -> str:
    start = f"{escape(chosen.rung)} meets every gate"
    if chosen.measurement and chosen.measurement.proxy:
        start += f", as far as {escape(chosen.measurement.proxy)} can show"
    if chosen.rung == _BASELINE:
        return f"{start}: the original model is served as it is."
    facts = [_smaller(report, chosen), _faster(report, chosen.measurement), _scores(report.baseline, chosen, escape)]
    return f"{start}: {'; '.join(fact for fact in facts if fact)}."


def _smaller(report: Report, chosen: Trial) -> str:
    before, after = report.model.size_bytes, chosen.size_bytes
    if after is None:
        return ""
    kind = " as an engine" if any(artifact.is_engine for artifact in chosen.artifacts) else ""
    return f"{human_bytes(before)} → {human_bytes(after)}{kind} ({smaller(before, after)})"


def _faster(report: Report, measurement: Measurement | None) -> str:
    if measurement is None or measurement.speedup is None:
        return ""
    target, here = report.recipe.get("target", schemes.AUTO), schemes.of(report.environment.isa).name
    if measurement.proxy:
        return f"{times(measurement.speedup)} ({measurement.proxy})"
    where = "" if target in {schemes.AUTO, here} else f" here, which says nothing of {target}"
    return f"{times(measurement.speedup)}{where}"


def _scores(baseline: Trial, chosen: Trial, escape: Escape) -> str:
    before, after = (trial.quality for trial in (baseline, chosen))
    if after is None:
        return "its quality was not measured"
    came_from = f"{number(before.value)} → " if before else ""
    return f"{escape(after.metric)} {came_from}{score_words(after)}"


def _best(report: Report, escape: Escape) -> Iterator[str]:
    """Say how far the rung came that misses the fewest gates, where none was chosen."""
    measured = [trial for trial in report.trials if trial.measurement]
    if report.chosen is None and measured:
        best = min(measured, key=_misses)
        facts = [_smaller(report, best), _faster(report, best.measurement), _scores(report.baseline, best, escape)]
        yield f"Best so far: {escape(best.rung)}: {'; '.join(fact for fact in facts if fact)}."


def _misses(trial: Trial) -> tuple[int, int, float]:
    """Count the gates that are missed, then those that are open; of rungs with the same, the fastest is least."""
    speedup = trial.measurement.speedup if trial.measurement else None
    met = [verdict.met for verdict in trial.verdicts]
    return met.count(False), met.count(None), -speedup.ratio if speedup else 0.0


def _deciding(report: Report, escape: Escape) -> Iterator[str]:
    """Say which gates decided: those that kept out the rung before the chosen one, or the last candidate of all."""
    rungs = [trial.rung for trial in report.trials]
    before = report.trials[: rungs.index(report.chosen)] if report.chosen in rungs else report.trials
    candidates = before if report.verdict == "pass" else (report.baseline, *before)
    open_gates = [(trial, verdict) for trial in candidates for verdict in trial.verdicts if verdict.met is not True]
    if report.verdict == "inconclusive":
        open_gates = [(trial, verdict) for trial, verdict in open_gates if _is_open(trial)] or open_gates
    if open_gates:
        trial = open_gates[-1][0]
        first, *others = unmet(trial.verdicts)
        decided = (first, *(verdict for verdict in others if verdict.met is first.met))
        told = (f"{escape(v.gate)} {MET[v.met]}, {escape(v.reason).rstrip('.')}" for v in decided)
        start = f"{escape(trial.rung)} did not pass" if report.verdict == "pass" else f"Decided at {escape(trial.rung)}"
        yield f"{start}: {'; '.join(told)}."


def _not_built(report: Report, escape: Escape) -> Iterator[str]:
    """Say which rungs could not be built where none of them was chosen."""
    if report.chosen in {None, _BASELINE}:
        for trial in report.trials:
            if trial.failure:
                why = f"{escape(trial.failure.stage)}, {escape(trial.failure.reason).rstrip('.')}"
                yield f"{escape(trial.rung)} was not built: {why}."


def _is_open(trial: Trial) -> bool:
    return trial.failure is None and all(verdict.met is not False for verdict in trial.verdicts)
