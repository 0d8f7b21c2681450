"""What the stages of rungs make: a model for each rung, each from the untouched original.

What a climb knows of a plan and needs to apply stages is in `Making`; how what is made outlives the run, in `reuse`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from compressor import gates
from compressor.engines import Engine, Onnxruntime, Tensorrt
from compressor.errors import RungError
from compressor.pipeline import reuse, work
from compressor.pipeline.reuse import Keep, Step
from compressor.pipeline.search import Search, left, searched
from compressor.pipeline.steps import Steps
from compressor.plan import Plan
from compressor.recipe import Rung
from compressor.records import Applied, Candidate, Model, Work
from compressor.stages import Stage
from compressor.workspace import HOME, Store

_Chain = tuple[Engine, tuple[Stage, ...]]


@dataclass(frozen=True)
class Place:
    """Where a climb works: the run's folder, which stays, one that goes away, and the folder of what runs share."""

    run: Path
    scratch: Path
    home: Path


def home(reports: Path) -> Path:
    """Give the folder of what runs share, beside their reports."""
    return reports.absolute() / HOME


def store(place: Path, scope: str = "") -> Store:
    """Give the store in the folder of what runs share."""
    return Store(place / "store", scope)


class Making:
    """Applies the stages of rungs; what one rung's first stages made serves the next rung."""

    def __init__(self, plan: Plan, place: Place, steps: Steps) -> None:
        """Take what to do, where, and what calls the pieces of work."""
        kept = store(place.home, reuse.scope(plan))
        self.plan, self.scratch, self.steps = plan, place.scratch, steps
        self.given = work.given(plan, place.run, kept)
        self.keep = Keep(kept, steps, self.given, place.scratch)
        self._float: Candidate | None = None  # the normalised original
        self._made: dict[_Chain, tuple[Stage, Candidate]] = {}

    def rung(self, rung: Rung) -> Work[Candidate]:
        """Apply the rung's stages to the normalised original."""
        candidate = yield from self._normalised()
        for chain in self._chains(rung):
            if chain not in self._made:
                self._made[chain] = yield from self._applied(rung, chain[1][-1], candidate)
            _, candidate = self._made[chain]
        return candidate

    def resolved(self) -> tuple[Rung, ...]:
        """Give the recipe's rungs with the choices that were made while climbing written out."""
        return tuple(rung.model_copy(update={"stages": self._settled(rung)}) for rung in self.plan.recipe.rungs)

    def _normalised(self) -> Work[Candidate]:
        if self._float is None:
            step = yield from self.keep.normalised()
            self._float = Candidate(step.made.model, (step.applied(gates.NORMALISE),))
        return self._float

    def _applied(self, rung: Rung, stage: Stage, before: Candidate) -> Work[tuple[Stage, Candidate]]:
        """Apply one stage, in the best of the ways that it leaves open; give it with nothing left open."""
        name = work.name(stage)
        if stage.open:
            search = self._search(rung, before)
            parts = (before.model.sha256, name, work.settings(stage), search.depends_on, self.plan.scheme.name)
            best = partial(self._best, rung, stage, search)
            step = yield from self.keep.model(f"{rung.name}: {name}", stage, parts, best)
        else:
            step = yield from self.keep.apply(f"{rung.name}: {name}", stage, before.model)
        did, model = step.applied(name), step.made.model
        if did.audit and did.audit.integer_nodes:
            did = yield from self._profiled(rung.name, before.model, step, did)
        if model.macs is None:  # shapes cannot be inferred past some integer operators; they change no MACs
            model = replace(model, macs=before.model.macs)
        return type(stage).model_validate(step.settings), Candidate(model, (*before.stages, did))

    def _best(self, rung: Rung, stage: Stage, search: Search, _: Path) -> Work[Step]:
        """Make, look at and compare the ways that a stage leaves open; none of them writes elsewhere than the store."""
        arguments = (stage, search.before, self.plan.scheme)
        label = f"{rung.name}: {work.name(stage)}"
        *ways, last = (yield from self.steps.call(label, work.candidates, *arguments)).value
        outcome = yield from searched(self.keep, ways, search)
        if outcome.taken:
            return replace(outcome.taken.step, tried=outcome.tried, lasting=outcome.lasting)
        step = yield from self.keep.apply(label, last, search.before)
        return left(step, outcome) if ways else step

    def _profiled(self, rung: str, before: Model, step: Step, did: Applied) -> Work[Applied]:
        """Add what operators take, which is good to know and not worth a rung."""
        try:
            arguments = (did.stage, before, step.made, self.given.supply)
            audit = yield from self.steps.call(f"{rung}: profile", work.profiled, *arguments)
        except RungError as error:
            return replace(did, notes=(*did.notes, f"operators could not be timed: {error}"))
        return replace(did, audit=audit.value)

    def _search(self, rung: Rung, before: Candidate) -> Search:
        engine = (rung.engine or self.plan.recipe.engine).resolve(self.plan.environment.cpus_usable)
        if isinstance(engine, Tensorrt):  # ways are looked at as graphs, on the CPU
            engine = Onnxruntime().resolve(self.plan.environment.cpus_usable)
        return Search(
            rung=rung.name,
            before=before.model,
            engine=engine,
            given=self.given,
            scratch=self.scratch / "ways",
            seed=self.plan.recipe.seed,
            saturates=self.plan.environment.saturates,
            timed=self.plan.scheme.here,
            small=any(isinstance(gate, gates.Size) for gate in self.plan.recipe.gates),
        )

    def _settled(self, rung: Rung) -> tuple[Stage, ...]:
        chains = zip(self._chains(rung), rung.stages, strict=True)
        return tuple(self._made[chain][0] if chain in self._made else stage for chain, stage in chains)

    def _chains(self, rung: Rung) -> tuple[_Chain, ...]:
        """Name what each stage of a rung makes by all that it depends on; which way wins depends on the engine."""
        engine = rung.engine or self.plan.recipe.engine
        return tuple((engine, rung.stages[: last + 1]) for last in range(len(rung.stages)))
