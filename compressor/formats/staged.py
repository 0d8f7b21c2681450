"""The stages of all rungs, each once, with the rungs that share it.

What else tells stages apart belongs in `Staged`.
"""

from __future__ import annotations

from dataclasses import dataclass

from compressor.records import Applied, Report


@dataclass(frozen=True)
class Staged:
    """A stage as it was applied, and the rungs that it was applied in."""

    rungs: tuple[str, ...]
    applied: Applied


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
