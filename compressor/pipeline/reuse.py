"""What stages made, given again to a later run that asks for the same of the same model.

Only what is made is kept. What a run measures or scores it measures and scores afresh; the times by which the best way
of a stage was chosen stay with that choice, and the report says since when. What a result depends on stands in the
parts of its key, and what all depend on in `scope`.
"""

from __future__ import annotations

import hashlib
import platform
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

import compressor
from compressor import workspace
from compressor.pipeline import work
from compressor.pipeline.steps import Steps
from compressor.pipeline.work import Given, Made
from compressor.plan import Plan
from compressor.records import Applied, Audit, Model, Tried, Work, relayed
from compressor.stages import Stage
from compressor.workspace import Entry, Store

_MODEL = "model.onnx"
_DAMAGED = "what an earlier run had kept is damaged or incomplete, and was made again"
_READERS = ("pillow", "pyarrow", "scipy", "protobuf")
"""What else turns files into numbers, and models into files."""
_MORE_S = 60
"""How long to wait for another run beyond what its making may take, for what surrounds it."""


@dataclass(frozen=True)
class Step:
    """What a stage came to: its settings with nothing left open, what it made, what that took, and which ways it tried.

    `reused`: when an earlier run made it. `lasting`: making it again would give the same, so that it is kept.
    """

    settings: Mapping[str, Any]
    made: Made
    seconds: float
    peak_memory_bytes: int
    tried: tuple[Tried, ...] = ()
    reused: datetime | None = None
    lasting: bool = True

    def applied(self, name: str) -> Applied:
        """Say in the report's words what the stage did."""
        made, did = self.made, self.made.did
        return Applied(
            stage=name,
            settings=self.settings,
            did=did.what,
            seconds=self.seconds,
            peak_memory_bytes=self.peak_memory_bytes,
            sqnr_db=made.sqnr_db,
            audit=made.audit or (Audit(excluded=did.excluded) if did.excluded else None),
            changed=did.changed,
            uncalibrated=did.uncalibrated,
            tried=self.tried,
            notes=did.notes,
            pruned=did.pruned,
            reused=self.reused,
        )


class Keep:
    """Gives what the store holds, and makes and puts there what it does not; `warnings` name what was damaged."""

    def __init__(self, store: Store, steps: Steps, given: Given, scratch: Path) -> None:
        """Take a store, what makes, what all of it depends on, and a folder to make it in."""
        self.store, self.steps, self.given, self.scratch = store, steps, given, scratch
        self.began = datetime.now(UTC)
        self.warnings: tuple[str, ...] = ()

    def normalised(self) -> Work[Step]:
        """Give the float model that all stages start from."""

        def make(out: Path) -> Work[Step]:
            done = yield from self.steps.call("normalise", work.normalise, self.given, out)
            return Step({}, done.value, done.seconds, done.peak_memory_bytes)

        return (yield from self.model("normalise", None, ("normalise",), make))

    def apply(self, label: str, stage: Stage, before: Model) -> Work[Step]:
        """Give what a stage that leaves no way open makes of a model; `label` is the name of the step."""

        def make(out: Path) -> Work[Step]:
            arguments, more_s = (stage, before, self.given, out), work.longest_s(stage)
            done = yield from self.steps.call(label, work.apply, *arguments, more_s=more_s, imports=stage.imports)
            settled = stage.model_copy(update=dict(done.value.did.settled))
            return Step(work.settings(settled), done.value, done.seconds, done.peak_memory_bytes)

        parts = (before.sha256, work.name(stage), work.settings(stage))
        return (yield from self.model(label, stage, parts, make))

    def model(
        self, label: str, stage: Stage | None, parts: tuple[object, ...], make: Callable[[Path], Work[Step]]
    ) -> Work[Step]:
        """Give what `make` writes to its path, or takes from the store, unless it was made of the same parts before.

        The second of two processes that want the same thing waits, and takes what the first made.
        """
        key = self.store.key(*self._given(), *parts)
        waiting = self.store.alone(key, min(self.steps.limits.seconds + _MORE_S, self.steps.left_s))
        lock = yield from relayed(waiting, lambda progress: replace(progress, step=f"{progress.step}: {label}"))
        try:
            if (found := self._found(key, label, stage)) is not None:
                self.steps.reused(label)
                return found
            folder = self.scratch / secrets.token_hex(4)  # not the key's: what failed for one rung is tried for another
            folder.mkdir(parents=True)
            made = yield from make(folder / _MODEL)
            if not made.lasting:
                return made
            return self._put(key, label, folder, made) or self._found(key, label, stage) or made
        finally:
            lock.release()

    def _given(self) -> tuple[object, ...]:
        """Give what everything that is made of this model depends on."""
        return self.given.original.sha256, sorted(self.given.shapes.items()), self.given.supply.identity

    def _found(self, key: str, label: str, stage: Stage | None) -> Step | None:
        """Give what the store holds, made again by nobody; None where it holds nothing whole."""
        there, entry = self.store.holds(key), self.store.take(key)
        step = _read(entry, stage) if entry else None
        owner = entry if step is None or _owner(step) == key else self.store.take(_owner(step))
        if entry is None or step is None or owner is None or step.made.model.path.name not in owner.files:
            self.store.drop(key)
            self.warnings += (f"{label}: {_DAMAGED}",) if there else ()
            return None
        since = entry.made if entry.made < self.began else None
        return _with_path(replace(step, reused=step.reused or since), owner.folder / step.made.model.path.name)

    def _put(self, key: str, label: str, folder: Path, step: Step) -> Step | None:
        """Put what was made into the store and give it there; None where another process was faster.

        What it chose of other entries is there already, and is only named.
        """
        path = step.made.model.path
        if path.parent != folder and not path.is_relative_to(self.store.folder):  # a way that could not be kept
            return step
        kept = _with_path(step, Path(key, path.name) if path.parent == folder else path.relative_to(self.store.folder))
        ours = self.store.put(key, folder, label, _adapter().dump_python(kept, mode="json"))
        return _with_path(kept, self.store.folder / kept.made.model.path) if ours else None


def scope(plan: Plan) -> str:
    """Give a hash of what all results of a plan depend on besides model and samples: code, versions, machine."""
    here = plan.environment
    libraries = [workspace.sha256(path) for path in plan.recipe.custom_ops]
    machine = (here.machine, here.cpu, here.isa, here.cpus_usable, here.threads, here.spinning, here.saturates)
    read_by = [metadata.version(package) for package in _READERS]
    versions = (platform.python_version(), sorted(here.versions.items()), read_by)
    return workspace.digest(_code_sha256(), versions, machine, libraries)


@cache
def _code_sha256() -> str:
    """Hash the sources of this package: a version alone says nothing of a checkout that somebody works on."""
    root = Path(compressor.__file__).parent
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        whole.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return whole.hexdigest()


@cache
def _adapter() -> TypeAdapter[Step]:
    return TypeAdapter(Step)


def _read(entry: Entry, stage: Stage | None) -> Step | None:
    """Give what an entry of a stage's, or of normalising, says; None where it is nothing that could have been kept."""
    try:
        step = _adapter().validate_python(entry.value)
        if stage is not None:
            type(stage).model_validate(step.settings)
    except ValidationError:
        return None
    return step if workspace.is_key(_owner(step)) else None


def _owner(step: Step) -> str:
    """Give the key of the entry whose file a step that was read names."""
    return step.made.model.path.parent.as_posix()


def _with_path(step: Step, path: Path) -> Step:
    return replace(step, made=replace(step.made, model=replace(step.made.model, path=path)))
