"""A report judged again by other gates, without measuring: what its trials prove of them, they still prove.

What a report must be to be judged is a step of `gate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from compressor import formats, machine, schemes
from compressor.errors import InputError
from compressor.pipeline import choose, raw
from compressor.pipeline.judge import Judge, previous
from compressor.pipeline.run import GOING_ON
from compressor.pipeline.unlike import Unlike
from compressor.recipe import BASELINE, Recipe, of_report
from compressor.records import Report, Served, Trial


@dataclass(frozen=True)
class Gated:
    """What is to be judged, by which recipe; `any_hardware`: wherever it was measured."""

    path: Path
    recipe: Recipe
    any_hardware: bool = False


@dataclass(frozen=True)
class _Again:
    """How trials are judged again: as in a run, but for what the recipe asks otherwise than it was measured."""

    judge: Judge
    served: Served | None
    unlike: Unlike

    def all(self, report: Report) -> tuple[Trial, ...]:
        """Judge all trials in their order, since each is held against those before it."""
        bare = replace(report.baseline, verdicts=())
        trials: tuple[Trial, ...] = (report.baseline if bare.failure else self._judged(bare, ()),)
        for trial in report.trials:
            if trial.failure:
                trials = (*trials, trial)
                continue
            now = self._judged(replace(trial, verdicts=()), trials)
            trials = (*trials, self._contested(now))
        if any(map(choose.passed, trials[1:])) or (report.verifies and report.trials):
            return trials
        return (self._contested(trials[0]), *trials[1:])

    def _judged(self, trial: Trial, before: tuple[Trial, ...]) -> Trial:
        rivals = (previous(before), before[0]) if before else ()
        return self.unlike.over(self.judge.judged(trial, before[0] if before else None, rivals))

    def _contested(self, trial: Trial) -> Trial:
        return self.unlike.over(self.judge.contested(trial, self.served))


def gate(asked: Gated) -> Report:
    """Give a report as it would be if its trials had been judged by these gates.

    A gate that needs what was not measured is undecided. A champion is one of the report: nothing is fetched.

    Raises:
        InputError: The report is none, its run is going on, or it is from other hardware than the recipe is proved on.
    """
    report = formats.read(asked.path)
    if report.unfinished == GOING_ON:
        raise InputError(f"{asked.path}: {report.unfinished}; wait for its end, or run again")
    _check_hardware(report, asked)
    environment, then = report.environment, of_report(report.recipe, str(asked.path))
    recipe = _as_measured(asked.recipe, then)
    scheme = schemes.settled(recipe.target, environment.isa, saturates=environment.saturates)
    judge, served = Judge.of(recipe, scheme), _held_against(recipe, report)
    if _had_none(recipe, report):
        judge = replace(judge, champion=None)
    judging = _Again(judge, served, Unlike(asked.recipe, then))
    trials = judging.all(raw.against(report, asked.path.absolute().parent, recipe.gates))
    verdict, chosen = choose.proved(trials[-1]) if report.verifies else choose.outcome(trials[0], trials[1:])
    if report.unfinished and chosen in {None, BASELINE}:
        verdict, chosen = "inconclusive", None
    again = replace(report, baseline=trials[0], trials=trials[1:], verdict=verdict, chosen=chosen)
    if chosen != report.chosen:  # what is registered is another
        again = replace(again, registry=None)
    told = recipe.model_dump(mode="json", by_alias=True, exclude_none=True)
    return replace(again, recipe=told, warnings=(*report.warnings, *_doubts(report, again, recipe)))


def _check_hardware(report: Report, asked: Gated) -> None:
    wanted, found = asked.recipe.proved_on, report.environment.cpu
    if wanted is None or asked.any_hardware or machine.is_named(found, wanted):
        return
    raise InputError(
        f"{asked.path}: was measured on {found!r}, and the recipe is proved on {wanted!r}: run `compress verify "
        f"{asked.path}` there and judge that report, or give --any-hardware"
    )


def _as_measured(recipe: Recipe, then: Recipe) -> Recipe:
    """Give the gates of the recipe, and all else as it was when the report was made."""
    return then.model_copy(update={"gates": recipe.gates, "baseline": recipe.baseline, "proved_on": recipe.proved_on})


def _held_against(recipe: Recipe, report: Report) -> Served | None:
    """Give the champion of a report, if it is the one that the recipe asks for, by the same alias or its number."""
    served = report.champion
    if served is None or recipe.baseline is None:
        return None
    return served if recipe.baseline.model in {served.asked, served.source} else None


def _had_none(recipe: Recipe, report: Report) -> bool:
    """Tell whether there was no champion yet, when the run looked for the one that the recipe asks for."""
    then = (report.recipe.get("baseline") or {}).get("model")
    return report.champion is None and recipe.baseline is not None and recipe.baseline.model == then


def _doubts(before: Report, now: Report, recipe: Recipe) -> Iterator[str]:
    if now.chosen != before.chosen:
        yield f"by these gates {now.chosen or 'nothing'} would be chosen; the run chose {before.chosen or 'nothing'}"
    left = [rung.name for rung in recipe.rungs[len(before.trials) :]]
    if now.verdict != "pass" and left and not before.verifies:
        yield f"not climbed in that run: {', '.join(left)}; run again by this recipe"
    if recipe.baseline is not None and not _held_against(recipe, before) and not _had_none(recipe, before):
        yield f"{recipe.baseline.model}: the run was not held against it: run again by this recipe"
