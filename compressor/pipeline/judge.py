"""How trials are judged: by the recipe's gates, by those that no recipe asks for, and beside the champion.

Pure functions of trials, so that a report can be judged again. What else decides a verdict is a field of `Judge`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compressor import gates
from compressor.engines import Tensorrt
from compressor.gates import Champion, Gate
from compressor.pipeline import choose
from compressor.recipe import Recipe
from compressor.records import Served, Trial
from compressor.schemes import Scheme

_UNMEASURED = (
    "not measured: no such device is here; prove it where it will serve (`compress verify`), or ask for "
    "`measure: cpu-proxy`, which measures the graph on this CPU"
)


@dataclass(frozen=True)
class Judge:
    """What is asked of every trial. `scheme`: of the machine that it is for. `compiled`: engines of TensorRT."""

    gates: tuple[Gate, ...]
    champion: Champion | None
    scheme: Scheme
    compiled: bool

    @classmethod
    def of(cls, recipe: Recipe, scheme: Scheme) -> Judge:
        """Give what a recipe asks."""
        return cls(recipe.gates, recipe.baseline, scheme, isinstance(recipe.engine, Tensorrt))

    def judged(self, trial: Trial, baseline: Trial | None, rivals: Sequence[Trial]) -> Trial:
        """Ask every gate of the recipe, then those that no recipe asks for."""
        verdicts = tuple(gate.judge(baseline, trial) for gate in self.gates)
        if trial.measurement is None:
            verdicts = gates.unmeasured(verdicts, _UNMEASURED)
        elif trial.measurement.proxy:
            verdicts, rivals = gates.proxied(verdicts, trial.measurement.proxy), ()  # who is slower here is another
        if self.scheme.here or self.compiled:
            return replace(trial, verdicts=(*verdicts, *gates.implicit(trial, rivals)))
        asked = gates.elsewhere(verdicts, self.scheme.name)
        return replace(trial, verdicts=(*asked, *gates.implicit(trial, ())))  # who is slower here says nothing of there

    def contested(self, trial: Trial, served: Served | None) -> Trial:
        """Ask whether a trial that meets every gate is worse than the champion, if one is named."""
        if self.champion is None or not choose.passed(trial):
            return trial
        verdicts = self.champion.judge(self.gates, served, trial)
        if trial.measurement and trial.measurement.proxy:
            verdicts = gates.proxied(verdicts, trial.measurement.proxy)
        if not (self.scheme.here or self.compiled):
            verdicts = gates.elsewhere(verdicts, self.scheme.name)
        return replace(trial, verdicts=(*trial.verdicts, *verdicts))


def previous(trials: Sequence[Trial]) -> Trial:
    """Give the last that was measured and not slower itself, of the baseline and the rungs so far.

    Two slow rungs do not make each other fast.
    """
    baseline, *rungs = trials
    return next((trial for trial in reversed(rungs) if trial.is_built and not _is_slower(trial)), baseline)


def _is_slower(trial: Trial) -> bool:
    return any(verdict.gate == gates.REGRESSION for verdict in trial.verdicts)
