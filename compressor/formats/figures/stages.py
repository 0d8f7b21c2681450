"""The stages that a figure can show one at a time: what each is called, and which comes first.

What else a figure of stages needs of them belongs here.
"""

from __future__ import annotations

from collections.abc import Sequence

from compressor.formats.figures.figure import short
from compressor.formats.sentence import deciding_trial
from compressor.formats.staged import Staged
from compressor.records import Report


def label(one: Staged) -> str:
    """Give what a stage is called among others."""
    more = f" and {len(one.rungs) - 1} more" if len(one.rungs) > 1 else ""
    return f"{short(one.applied.stage)} of {short(one.rungs[0])}{more}"


def first(found: Sequence[Staged], report: Report) -> int:
    """Give the place of the stage to show first: one of the rung that decided, of those the first."""
    decided = deciding_trial(report)
    rung = decided.rung if decided else None
    return next((place for place, one in enumerate(found) if rung in one.rungs), 0)
