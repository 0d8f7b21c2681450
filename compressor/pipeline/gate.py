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
from compressor.recipe import BASELINE, Recipe, of_report
from compressor.records import Report, Served, Trial


@dataclass(frozen=True)
class Gated:
    """What is to be judged, by which recipe; `any_hardware`: wherever it was measured."""

    path: Path
    recipe: Recipe
    any_hardware: bool = False


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
    environment, recipe = report.environment, _as_measured(asked.recipe, report, asked.path)
    scheme = schemes.settled(recipe.target, environment.isa, saturates=environment.saturates)
    judge, served = Judge.of(recipe, scheme), _held_against(recipe, report)
    if _had_none(recipe, report):
        judge = replace(judge, champion=None)
    trials = _judged(raw.against(report, asked.path.absolute().parent, recipe.gates), judge, served)
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


def _as_measured(recipe: Recipe, report: Report, path: Path) -> Recipe:
    """Give the gates of the recipe, and all else as it was when the report was made."""
    then = of_report(report.recipe, str(path))
    return then.model_copy(update={"gates": recipe.gates, "baseline": recipe.baseline, "proved_on": recipe.proved_on})


def _held_against(recipe: Recipe, report: Report) -> Served | None:
    """Give the champion of a report, if it is the one that the recipe asks for; an alias stands for what it did."""
    served = report.champion
    if served is None or recipe.baseline is None:
        return None
    asked = recipe.baseline.model
    versions = (f"models:/{served.name}/{version}" for version in (served.version, "latest"))
    return served if asked.startswith(f"models:/{served.name}@") or asked in versions else None


def _had_none(recipe: Recipe, report: Report) -> bool:
    """Tell whether there was no champion yet, when the run looked for the one that the recipe asks for."""
    then = (report.recipe.get("baseline") or {}).get("model")
    return report.champion is None and recipe.baseline is not None and recipe.baseline.model == then


def _judged(report: Report, judge: Judge, served: Served | None) -> tuple[Trial, ...]:
    """Judge all trials in their order, since each is held against those before it."""
    bare = replace(report.baseline, verdicts=())
    first = report.baseline if bare.failure else judge.contested(judge.judged(bare, None, ()), served)
    trials: tuple[Trial, ...] = (first,)
    for trial in report.trials:
        if trial.failure:
            trials = (*trials, trial)
            continue
        rivals = (previous(trials), trials[0])
        now = judge.judged(replace(trial, verdicts=()), trials[0], rivals)
        trials = (*trials, judge.contested(now, served))
    return trials


def _doubts(before: Report, now: Report, recipe: Recipe) -> Iterator[str]:
    if now.chosen != before.chosen:
        yield f"by these gates {now.chosen or 'nothing'} would be chosen; the run chose {before.chosen or 'nothing'}"
    left = [rung.name for rung in recipe.rungs[len(before.trials) :]]
    if now.verdict != "pass" and left and not before.verifies:
        yield f"not climbed in that run: {', '.join(left)}; run again by this recipe"
    if recipe.baseline is not None and not _held_against(recipe, before) and not _had_none(recipe, before):
        yield f"{recipe.baseline.model}: the run was not held against it: run again by this recipe"
