"""One model measured as it stands, and judged by every gate that needs no other model.

What else `compress bench` asks of a model is a field of `Asked`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from compressor import plan, runtime, workspace
from compressor.gates import Accuracy, At, Gate, Latency, Speedup
from compressor.pipeline import measuring, subject
from compressor.pipeline.steps import Steps, nursery
from compressor.pipeline.subject import Subject
from compressor.pipeline.summary import original
from compressor.plan import Job, Plan
from compressor.recipe import Recipe, default
from compressor.records import Artifact, Benched, Measurement, Model, Outcome, Side, Size, Trial, Verdict, Work
from compressor.registry import Registry

SCHEMA_VERSION = 1
_PACED_S = 0.7  # for a p50, which is what pauses change; --duration has it long enough for more


@dataclass(frozen=True)
class Asked:
    """What the caller wants measured, how, and where the recipe's relative paths start.

    `registry`: where `models:/` is looked up. `batches`: the main point's first, then others. `fill`: measure to the
    end of `limits.measure` where nothing is to be decided.
    """

    source: str
    recipe: Recipe
    folder: Path
    registry: str | None = None
    batches: tuple[int, ...] = ()
    fill: bool = False
    verbose: bool = False

    def job(self, named: Subject, scratch: Path) -> Job:
        """Give what is to be planned, to measure and not to record anything."""
        recipe = named.settled(self.recipe).model_copy(update={"registry": Registry(uri="none"), "baseline": None})
        return Job(named.path, recipe, scratch, self.folder, compressed=False, origin=named.origin)

    def steps(self) -> Steps:
        """Give what calls the pieces of work, with the libraries of operators that the recipe names.

        Raises:
            InputError: One of them is not there.
            MachineError: There is no room for temporary files.
        """
        workspace.check_temporary()
        environment = runtime.custom_ops.environment(plan.libraries(self.recipe, self.folder))
        return Steps(self.recipe.limits, verbose=self.verbose, environment=environment, nursery=nursery())

    def place(self) -> str | None:
        """Give the registry that was named, if any."""
        return self.registry or self.recipe.registry.uri


def bench(asked: Asked) -> Work[Benched]:
    """Measure one model and judge it; nothing is left on disk.

    Raises:
        InputError: The source, the recipe or the data are wrong, or the model does not run.
        MachineError: The registry does not answer.
    """
    started, begin = datetime.now(UTC), time.monotonic()
    steps = asked.steps()
    with TemporaryDirectory(prefix="compress-") as scratch, steps.of(asked.source):
        named = yield from subject.resolve(asked.source, asked.place(), Path(scratch) / "fetched", steps)
        job = replace(_pointed(asked).job(named, Path(scratch)), scored=False, batch=next(iter(asked.batches), None))
        settled = (yield from steps.call("plan", plan.make, job)).value
        built = named.built(settled.model, asked.recipe, settled.environment.cpus_usable)
        measurement = yield from measuring.measurement(steps, "", (built,), _scene(settled, asked, Path(scratch)))
    judged = trial("model", settled.model, built.artifact, measurement)
    verdicts = tuple(gate.judge(None, judged) for gate in settled.recipe.gates)
    return Benched(
        schema_version=SCHEMA_VERSION,
        verdict=_outcome(verdicts),
        warnings=(*settled.warnings, *_unjudged(asked.recipe.gates)),
        side=Side(asked.source, original(settled.model), built.artifact.options, measurement),
        verdicts=verdicts,
        environment=settled.environment,
        started=started,
        duration_s=time.monotonic() - begin,
    )


def trial(name: str, model: Model, artifact: Artifact, measurement: Measurement) -> Trial:
    """Give what the gates judge: a model that is measured as it stands."""
    size = Size(model.size_bytes, model.parameters, model.macs, model.nodes)
    return Trial(name, artifacts=(artifact,), measurement=measurement, model=size)


def _pointed(asked: Asked) -> Asked:
    """State every batch as a point, and ask the latency gates at each; only gates that need no other model stay."""
    more = tuple(At(batch=size) for size in asked.batches[1:])
    kept = [gate for gate in asked.recipe.gates if not _needs_another(gate)]
    everywhere = [gate for gate in kept if isinstance(gate, Latency) and gate.at is None]
    repeated = (gate.model_copy(update={"at": at}) for at in more for gate in everywhere)
    update = {"gates": (*dict.fromkeys((*kept, *repeated)),), "others": (*asked.recipe.others, *more)}
    return replace(asked, recipe=asked.recipe.model_copy(update=update))


def _needs_another(gate: Gate) -> bool:
    return isinstance(gate, Accuracy | Speedup)


def _scene(settled: Plan, asked: Asked, run: Path) -> measuring.Scene:
    budget_s = settled.recipe.limits.measure
    paced_s = budget_s if asked.fill and not settled.recipe.gates else min(_PACED_S, budget_s)
    open_ = settled.recipe.load.open
    return replace(measuring.scene(settled, run), paced_s=None if open_ else paced_s, fill=asked.fill)


def _unjudged(gates: Iterable[Gate]) -> tuple[str, ...]:
    """Name gates that somebody asked for and that one model alone cannot meet."""
    ours = default().gates
    names = [type(gate).__name__.lower() for gate in gates if _needs_another(gate) and gate not in ours]
    return (f"not judged: {', '.join(names)}; `compress compare` judges it beside another model",) if names else ()


def _outcome(verdicts: tuple[Verdict, ...]) -> Outcome | None:
    if not verdicts:
        return None
    if any(verdict.met is False for verdict in verdicts):
        return "fail"
    return "pass" if all(verdict.met for verdict in verdicts) else "inconclusive"
