"""The stages of all rungs that a figure can show one at a time, each once, with the rungs that share it.

What else tells stages apart belongs in `Staged`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compressor.formats.figures.figure import short
from compressor.formats.sentence import deciding_trial
from compressor.records import Applied, Report


@dataclass(frozen=True)
class Staged:
    """A stage as it was applied, and the rungs that it was applied in."""

    rungs: tuple[str, ...]
    applied: Applied

    @property
    def label(self) -> str:
        """What it is called among others."""
        more = f" and {len(self.rungs) - 1} more" if len(self.rungs) > 1 else ""
        return f"{short(self.applied.stage)} of {short(self.rungs[0])}{more}"


def staged(report: Report) -> tuple[Staged, ...]:
    """Give each stage once."""
    found: list[tuple[list[str], Applied]] = []
    for trial in report.trials:
        for stage in trial.stages:
            rungs = next((rungs for rungs, known in found if known == stage), None)
            if rungs is None:
                found.append(([trial.rung], stage))
            else:
                rungs.append(trial.rung)
    return tuple(Staged(tuple(rungs), stage) for rungs, stage in found)


def first(found: Sequence[Staged], report: Report) -> int:
    """Give the place of the stage to show first: one of the rung that decided, of those the first."""
    decided = deciding_trial(report)
    rung = decided.rung if decided else None
    return next((place for place, one in enumerate(found) if rung in one.rungs), 0)
