"""Which rung is taken, and what the run's outcome is: pure functions of trials.

The rules stand in the docstring of `outcome`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compressor.records import Outcome, Trial


def passed(trial: Trial) -> bool:
    """Tell whether a rung was built and meets every gate."""
    return trial.is_built and all(verdict.met is True for verdict in trial.verdicts)


def undecided(trial: Trial) -> bool:
    """Tell whether a rung was built, misses no gate, but does not provably meet all."""
    return trial.is_built and not passed(trial) and all(v.met is not False for v in trial.verdicts)


def outcome(baseline: Trial, trials: Sequence[Trial]) -> tuple[Outcome, str | None]:
    """Give the verdict of the run and the name of the chosen rung.

    The first rung that meets every gate is chosen: the least change that is enough is the safest. That it is not
    slower than the rung before it is a gate of its own. The baseline is chosen when it meets every gate and no rung
    does. Without a choice the run is inconclusive if some candidate misses no gate, else it fails.
    """
    for trial in (*trials, baseline):
        if passed(trial):
            return "pass", trial.rung
    return ("inconclusive" if any(map(undecided, (baseline, *trials))) else "fail"), None


def proved(trial: Trial) -> tuple[Outcome, str | None]:
    """Give the verdict of a proof, which is that of what was to be proved, and its name where it is."""
    if passed(trial):
        return "pass", trial.rung
    return ("inconclusive" if undecided(trial) else "fail"), None


def lacks_evaluation(trials: Iterable[Trial]) -> bool:
    """Tell whether no trial could be scored although it was built: there is nothing to judge a lossy rung by."""
    return all(trial.quality is None for trial in trials if trial.is_built)
