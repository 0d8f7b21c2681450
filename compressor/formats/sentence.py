"""What a run found in one plain sentence, and how a score and its interval are written.

Words that more than one format uses belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from compressor.records import Measurement, Report, Score, Trial
from compressor.units import human_bytes

NOTHING = "-"
MET = {True: "met", False: "not met", None: "undecided"}
_BASELINE = "baseline"
_NO_CHOICE = {
    "inconclusive": "the evidence shows neither that a candidate meets every gate nor that none does.",
    "fail": "no candidate meets every gate.",
}
Escape = Callable[[str], str]


def sentence(report: Report, escape: Escape = str) -> str:
    """Say what was chosen and what it gains and loses, and which gate decided; names go through `escape`."""
    chosen = chosen_trial(report)
    outcome = _NO_CHOICE[report.verdict] if chosen is None else _choice(report, chosen, escape)
    return " ".join([outcome, *_deciding(report, escape)])


def chosen_trial(report: Report) -> Trial | None:
    """Give the trial of the chosen rung."""
    return next((trial for trial in (report.baseline, *report.trials) if trial.rung == report.chosen), None)


def score_words(score: Score) -> str:
    """Give a score with its interval and what it rests on."""
    of = "agreement with the original model, " if score.reference else ""
    exact = "" if score.emulated is None else f", {number(score.emulated)} with exact integers"
    return f"{with_interval(score.value, score.low, score.high)} ({of}n = {score.n}{exact})"


def with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """Give a number with its interval in brackets, where it has one."""
    if value is None or low is None or high is None:
        return number(value)
    return f"{number(value)} [{number(low)}, {number(high)}]"


def number(value: float | None) -> str:
    """Give a number with four significant digits."""
    return NOTHING if value is None else f"{value:.4g}"


def _choice(report: Report, chosen: Trial, escape: Escape) -> str:
    start = f"{escape(chosen.rung)} meets every gate"
    if chosen.rung == _BASELINE:
        return f"{start}: the original model is served as it is."
    facts = [_smaller(report, chosen), _faster(chosen.measurement), _scores(report.baseline, chosen, escape)]
    return f"{start}: {'; '.join(fact for fact in facts if fact)}."


def _smaller(report: Report, chosen: Trial) -> str:
    if chosen.measurement is None:
        return ""
    before, after = report.model.size_bytes, chosen.measurement.size_bytes
    times = f"{before / after:.2f} times smaller" if after <= before else f"{after / before:.2f} times larger"
    return f"{human_bytes(before)} → {human_bytes(after)} ({times})"


def _faster(measurement: Measurement | None) -> str:
    if measurement is None or measurement.speedup is None:
        return ""
    speedup = measurement.speedup
    return f"{speedup.ratio:.2f} times as fast (95 % interval {speedup.low:.2f} to {speedup.high:.2f})"


def _scores(baseline: Trial, chosen: Trial, escape: Escape) -> str:
    before, after = (trial.measurement.score if trial.measurement else None for trial in (baseline, chosen))
    if after is None:
        return "its quality was not measured"
    came_from = f"{number(before.value)} → " if before else ""
    return f"{escape(after.metric)} {came_from}{score_words(after)}"


def _deciding(report: Report, escape: Escape) -> Iterator[str]:
    """Say which gate decided: the one that kept out the rung before the chosen one, or the last candidate of all."""
    rungs = [trial.rung for trial in report.trials]
    before = report.trials[: rungs.index(report.chosen)] if report.chosen in rungs else report.trials
    candidates = before if report.verdict == "pass" else (report.baseline, *before)
    open_gates = [(trial, verdict) for trial in candidates for verdict in trial.verdicts if verdict.met is not True]
    if report.verdict == "inconclusive":
        open_gates = [(trial, verdict) for trial, verdict in open_gates if _is_open(trial)] or open_gates
    if open_gates:
        trial = open_gates[-1][0]
        verdict = min((v for t, v in open_gates if t is trial), key=lambda v: v.met is None)
        gate, reason = escape(verdict.gate), escape(verdict.reason).rstrip(".")
        start = f"{escape(trial.rung)} did not pass" if report.verdict == "pass" else f"Decided at {escape(trial.rung)}"
        yield f"{start}: {gate} {MET[verdict.met]}, {reason}."


def _is_open(trial: Trial) -> bool:
    return trial.failure is None and all(verdict.met is not False for verdict in trial.verdicts)
