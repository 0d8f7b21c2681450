"""The key figures of a report: size, speed, latency and score of the candidate that decided.

A tile more is a line in `tiles`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from compressor.formats.sentence import chosen_trial, deciding_trial
from compressor.formats.words import (
    Escape,
    at_most,
    between,
    dropped,
    number,
    ratio,
    score_words,
    smaller,
    strain,
    unmet,
)
from compressor.records import Bound, Latency, Report, Trial, Verdict
from compressor.units import human_bytes, human_ms

STATE = {True: "good", False: "bad", None: "open"}
"""How a verdict looks, by whether the gate is met."""
_FULL = 100


@dataclass(frozen=True)
class Tile:
    """A figure, what it is of, and what stands below it; `state` is empty where no gate asks, `share` fills a meter."""

    label: str
    figure: str
    notes: tuple[str, ...]
    state: str = ""
    share: float | None = None


def tiles(report: Report, text: Escape) -> tuple[Tile, ...]:
    """Give the key figures of what was chosen, or else of what came nearest."""
    trial = nearest(report)
    return tuple(_tiles(report, trial, text)) if trial else ()


def nearest(report: Report) -> Trial | None:
    """Give what was chosen, else the rung that misses least, else the baseline; None where nothing was built."""
    rungs = deciding_trial(replace(report, baseline=Trial(report.baseline.rung)))
    return chosen_trial(report) or rungs or deciding_trial(report)


def _tiles(report: Report, trial: Trial, text: Escape) -> Iterator[Tile]:
    measured, own = trial.measurement, trial is report.baseline
    if trial.size_bytes is not None:
        before = report.model.size_bytes
        less = (smaller(before, trial.size_bytes), f"from {human_bytes(before)}")
        yield Tile("size", human_bytes(trial.size_bytes), () if own else less, _state(trial, "size"))
    if measured and (speedup := measured.speedup):
        over = "" if speedup.baseline_p50_ms is None else f"over {human_ms(speedup.baseline_p50_ms)} at the median"
        shown = tuple(filter(None, (between(speedup), over)))
        yield Tile("times as fast", f"{ratio(speedup.ratio)}x", shown, _state(trial, "speed"))
    if measured:
        yield _latency(trial, measured.latency)
    if score := trial.quality:
        lost = dropped(score) if score.drop is not None and not own else ""
        told = tuple(filter(None, (lost, score_words(score).partition(" ")[2])))
        yield Tile(text(score.metric), number(score.value), told, _state(trial, "accuracy"))


def _latency(trial: Trial, latency: Latency) -> Tile:
    """Give the percentile whose gate is missed or open, else the highest that one asks for, else the p99."""
    judged = {verdict.gate: verdict.met for verdict in trial.verdicts}

    def worst(bound: Bound) -> tuple[bool, bool, float]:
        met = judged.get(_gate(bound), True)
        return met is False, met is None, bound.percentile

    plain = Bound(99.0, 0.95, latency.p99_ms, latency.p99_low_ms, latency.p99_high_ms)
    asked = max((bound for bound in latency.bounds if bound.limit_ms is not None), key=worst, default=plain)
    known = asked.high_ms is not None and not strain(latency)
    upper = f"upper {asked.confidence * _FULL:g} % limit, n = {latency.n:,}"
    notes = [upper if known else f"p{asked.percentile:g} seen {human_ms(asked.value_ms)}"]
    share = None
    if asked.limit_ms:
        notes.append(f"limit {human_ms(asked.limit_ms)}")
        used = (asked.high_ms or asked.value_ms) / asked.limit_ms
        share = min(_FULL, _FULL * used) if math.isfinite(used) else None
    figure = at_most(asked.value_ms, asked.high_ms, latency)
    label = f"p{asked.percentile:g}{' at most' if known else ''}"
    state = STATE[judged[_gate(asked)]] if _gate(asked) in judged else ""
    return Tile(label, figure, tuple(notes), state, share)


def _gate(bound: Bound) -> str:
    """Name the gate on a percentile of the main load."""
    return f"latency p{bound.percentile:g}"


def _state(trial: Trial, gate: str) -> str:
    """Give the worst verdict of the gates whose name begins so; empty where there is none."""
    asked = [verdict for verdict in trial.verdicts if _kind(verdict) == gate]
    first = next(iter([*unmet(asked), *asked]), None)
    return STATE[first.met] if first else ""


def _kind(verdict: Verdict) -> str:
    return verdict.gate.partition(" ")[0]
