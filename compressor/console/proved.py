"""What is known of a report and of registered versions: a second judgement, a history.

What else is shown of them is a line in `judged` or a column of `history`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compressor import formats
from compressor.console import out
from compressor.console.out import STYLES, say, table, warn
from compressor.formats.words import MET, NOTHING, number, with_unit
from compressor.records import Report
from compressor.registry import Past
from compressor.units import human_bytes, human_ms

_MINUTE = "%Y-%m-%d %H:%M"


def judged(report: Report, *, as_json: bool) -> None:
    """Show how a report was judged again; the table not where stdout is for JSON."""
    warn(report.warnings)
    say(f"{report.verdict}: {formats.sentence(report)}", style=STYLES[report.verdict], wrap=True)
    trial = formats.deciding_trial(report)
    if trial is None or as_json:
        return
    rows = [
        (
            verdict.gate,
            MET[verdict.met],
            with_unit(verdict.observed, verdict.low, verdict.high, verdict.unit),
            with_unit(verdict.limit, None, None, verdict.unit),
            verdict.reason,
        )
        for verdict in trial.verdicts
    ]
    table((f"gate of {trial.rung}", "verdict", "observed", "limit", "reason"), rows)


def history(found: Sequence[Past], *, as_json: bool) -> None:
    """Show the versions of a model."""
    if as_json:
        out.json([replace(past, verified=dict(past.verified)) for past in found])
        return
    header = ("version", "alias", "made (UTC)", "rung", "size", "p99", "score", "verdict", "recipe", "verified")
    table(header, [_row(past) for past in found])


def _row(past: Past) -> tuple[str, ...]:
    score = NOTHING if past.score is None else f"{past.metric or 'score'} {number(past.score)}"
    return (
        past.version,
        ", ".join(f"@{alias}" for alias in past.aliases) or NOTHING,
        f"{past.made:{_MINUTE}}",
        past.rung or NOTHING,
        NOTHING if past.size_bytes is None else human_bytes(past.size_bytes),
        _p99(past),
        score,
        past.verdict or NOTHING,
        past.recipe or NOTHING,
        "; ".join(f"{machine}: {told}" for machine, told in past.verified.items()) or NOTHING,
    )


def _p99(past: Past) -> str:
    """Give the percentile with its upper limit, where the samples were enough for one."""
    if past.p99_ms is None:
        return NOTHING
    return human_ms(past.p99_ms) + ("" if past.p99_high_ms is None else f", at most {human_ms(past.p99_high_ms)}")
