"""In what a recipe asks for something else than a report measured, so that its numbers are no answer.

Another part of a recipe that numbers depend on is a function in `_TIMES` or `_SCORES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from compressor import gates, schemes
from compressor.bench.load import Load, Trace
from compressor.engines import Auto
from compressor.grammar import key
from compressor.recipe import Recipe
from compressor.records import Trial, Verdict
from compressor.units import write_shape

_Found = Iterator[tuple[str, str, str]]
_Part = Callable[[Recipe, Recipe], _Found]
_ENGINE = ("threads", "spinning", "provider", "precision", "devices")
"""What a recipe may say of an engine that changes its times, and stays as it was written when it is settled."""


@dataclass(frozen=True)
class Unlike:
    """What differs, in sentences: of what times depend on, and of what scores depend on."""

    times: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()

    def over(self, trial: Trial) -> Trial:
        """Leave open what was decided by numbers that answer another question."""
        return replace(trial, verdicts=tuple(map(self._opened, trial.verdicts)))

    def _opened(self, verdict: Verdict) -> Verdict:
        told = self.times if gates.is_timed(verdict) else self.scores if gates.is_scored(verdict) else ()
        if verdict.met is None or not told:
            return verdict
        return replace(verdict, met=None, reason=f"{verdict.reason}; but {'; '.join(told)}: run again by this recipe")


def unlike(asked: Recipe, measured: Recipe) -> Unlike:
    """Hold a recipe against the settled one of a report; what it leaves open asks for nothing else."""

    def told(parts: tuple[_Part, ...]) -> tuple[str, ...]:
        return tuple(
            f"the recipe asks for {name} {wanted}, and {found} was measured"
            for part in parts
            for name, wanted, found in part(asked, measured)
        )

    return Unlike(told(_TIMES), told(_SCORES))


def _load(asked: Recipe, measured: Recipe) -> _Found:
    wanted, found = (_words(recipe.load) for recipe in (asked, measured))
    if wanted != found:
        yield "the load", wanted, found


def _words(load: Load) -> str:
    """Describe a load; a trace by its name, since a report names it by where it lay."""
    told = load.describe()
    return told.replace(str(load.path), load.path.name) if isinstance(load, Trace) else told


def _shapes(asked: Recipe, measured: Recipe) -> _Found:
    for name, dims in asked.shapes.items():
        if (found := measured.shapes.get(name)) != dims:
            yield f"the shape of {name}", write_shape(dims), write_shape(found) if found else "another"


def _target(asked: Recipe, measured: Recipe) -> _Found:
    if asked.target not in {schemes.AUTO, measured.target}:
        yield "the target", asked.target, measured.target


def _engine(asked: Recipe, measured: Recipe) -> _Found:
    wanted, found = asked.engine, measured.engine
    if isinstance(wanted, Auto):
        return
    if type(wanted) is not type(found):
        yield "the engine", key(type(wanted)), key(type(found))
        return
    for name in _ENGINE:
        if name in wanted.model_fields_set and (one := getattr(wanted, name)) != (other := getattr(found, name)):
            yield f"engine.{name}", str(one), str(other)


def _metric(asked: Recipe, measured: Recipe) -> _Found:
    if asked.data.metric not in {None, measured.data.metric}:
        yield "the metric", str(asked.data.metric), str(measured.data.metric)


def _samples(asked: Recipe, measured: Recipe) -> _Found:
    """Compare files by their names: a report names them by where they lay."""
    wanted, found = (recipe.data.named.get("evaluation") for recipe in (asked, measured))
    if wanted and (found is None or wanted.name != found.name):
        yield "the evaluation samples", wanted.name, found.name if found else "nothing"
    if asked.data.preprocess not in {None, measured.data.preprocess}:
        yield "the preprocessing", str(asked.data.preprocess), str(measured.data.preprocess)


_TIMES: tuple[_Part, ...] = (_load, _shapes, _target, _engine)
_SCORES: tuple[_Part, ...] = (_shapes, _target, _metric, _samples)
