"""In what a recipe asks for something else than a report measured, so that its numbers are no answer.

Another part of a recipe that numbers depend on is a function in `_PARTS`, of the data a line in `_OF_DATA`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel

from compressor import gates, schemes
from compressor.bench.load import Load, Trace
from compressor.engines import Auto, Engine
from compressor.grammar import key
from compressor.recipe import Data, Recipe, Rung
from compressor.records import Trial, Verdict
from compressor.units import write_shape

_TIMES = frozenset({"latency", "throughput", "speedup", "speed", "cost"})
_RUNS = _TIMES | {"startup", "memory"}
_ALL = _RUNS | {"accuracy", "size", "macs", "parameters", "nodes", gates.CHAMPION}
_SCORED = frozenset({"accuracy"})
_OPEN = ("auto", None)
_ENGINE = ("threads", "spinning", "provider", "precision", "devices")
"""What a recipe may say of an engine that changes its times, and stays as it was written when it is settled."""


@dataclass(frozen=True)
class Difference:
    """What is asked otherwise than it was measured, in a sentence, and the gates whose numbers depend on it."""

    told: str
    gates: frozenset[str]


_Found = Iterator[Difference]


@dataclass(frozen=True)
class Unlike:
    """A recipe, held against the settled one of a report; what the recipe leaves open asks for nothing else."""

    asked: Recipe
    measured: Recipe

    def over(self, trial: Trial) -> Trial:
        """Leave open what was decided by numbers that answer another question."""
        found = (*self._parts(), *self._rung(trial.rung))
        return replace(trial, verdicts=tuple(_opened(verdict, found) for verdict in trial.verdicts))

    def _parts(self) -> _Found:
        for part in _PARTS:
            yield from part(self.asked, self.measured)

    def _rung(self, name: str) -> _Found:
        """Compare how a rung is made; a recipe that names no rungs takes those of the report."""
        found = next((rung for rung in self.measured.rungs if rung.name == name), None)
        if found is None or "rungs" not in self.asked.model_fields_set:
            return
        wanted = next((rung for rung in self.asked.rungs if rung.name == name), None)
        if wanted is None:
            yield Difference(f"the recipe has no rung {name}", _ALL)
        else:
            yield from _stages(wanted, found)
            yield from _engines(wanted.engine, found.engine or self.measured.engine)


def _opened(verdict: Verdict, found: tuple[Difference, ...]) -> Verdict:
    words = verdict.gate.split()
    kind = words[1] if words[0] == gates.CHAMPION and len(words) > 1 else words[0]
    told = "; ".join(one.told for one in found if kind in one.gates)
    if verdict.met is None or not told:
        return verdict
    return replace(verdict, met=None, reason=f"{verdict.reason}; but {told}: run again by this recipe")


def _other(name: str, wanted: object, found: object, of: frozenset[str]) -> Difference:
    return Difference(f"the recipe asks for {name} {wanted}, and {found} was measured", of)


def _load(asked: Recipe, measured: Recipe) -> _Found:
    wanted, found = (_words(recipe.load) for recipe in (asked, measured))
    if "load" in asked.model_fields_set and wanted != found:
        yield _other("the load", wanted, found, _TIMES)


def _words(load: Load) -> str:
    """Describe a load; a trace by its name, since a report names it by where it lay."""
    told = load.describe()
    return told.replace(str(load.path), load.path.name) if isinstance(load, Trace) else told


def _shapes(asked: Recipe, measured: Recipe) -> _Found:
    for name, dims in asked.shapes.items():
        if (found := measured.shapes.get(name)) != dims:
            shown = write_shape(found) if found else "another"
            yield _other(f"the shape of {name}", write_shape(dims), shown, _RUNS | {"macs", "accuracy"})


def _target(asked: Recipe, measured: Recipe) -> _Found:
    if asked.target not in {schemes.AUTO, measured.target}:
        yield _other("the target", asked.target, measured.target, _ALL)


def _engine(asked: Recipe, measured: Recipe) -> _Found:
    return _engines(asked.engine, measured.engine)


def _engines(wanted: Engine | None, found: Engine) -> _Found:
    if wanted is None or isinstance(wanted, Auto):
        return
    if type(wanted) is not type(found):
        yield _other("the engine", key(type(wanted)), key(type(found)), _ALL)
        return
    for name, one, other in _differing(wanted, found):
        if name in _ENGINE:
            yield _other(f"engine.{name}", one, other, _RUNS)


def _stages(wanted: Rung, found: Rung) -> _Found:
    wants, has = (", ".join(key(type(stage)) for stage in rung.stages) for rung in (wanted, found))
    if wants != has:
        yield _other(f"{wanted.name} of", wants, has, _ALL)
        return
    for stage, made in zip(wanted.stages, found.stages, strict=True):
        for name, one, other in _differing(stage, made):
            yield _other(f"{wanted.name}: {key(type(stage))}.{name}", one, other, _ALL)


def _differing(wanted: BaseModel, found: BaseModel) -> Iterator[tuple[str, object, object]]:
    """Give the fields in which something was said that is not so; what is left open was settled in some way."""
    for name in sorted(wanted.model_fields_set):
        one, other = getattr(wanted, name), getattr(found, name)
        if one not in _OPEN and one != other:
            yield name, one, other


def _data(asked: Recipe, measured: Recipe) -> _Found:
    for what, read in _OF_DATA.items():
        wanted, found = read(asked.data), read(measured.data)
        if wanted is not None and wanted != found:
            yield _other(what, wanted, found, _SCORED)


def _file_name(path: Path | None) -> str | None:
    """Compare files by their names: a report names them by where they lay."""
    return path.name if path else None


_OF_DATA: Mapping[str, Callable[[Data], object]] = {
    "the metric": lambda data: data.metric,
    "the samples of": lambda data: _file_name(data.named.get("evaluation")),
    "a number of samples of": lambda data: data.evaluation.samples if data.evaluation else None,
    "the preprocessing": lambda data: data.preprocess,
    "the alphabet": lambda data: _file_name(data.alphabet),
}
_PARTS: tuple[Callable[[Recipe, Recipe], _Found], ...] = (_load, _shapes, _target, _engine, _data)
