"""The champion: the registered version that is served now, fetched and measured beside what would follow it.

What else is learnt of it is a field of `Contender`, or of `Beside` where it is of a rung.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from compressor import formats, gates, graph, registry, runtime, workspace
from compressor.bench.load import Closed
from compressor.errors import InputError, RungError
from compressor.pipeline import measuring, subject
from compressor.pipeline import quality as judging
from compressor.pipeline.built import Built
from compressor.pipeline.measuring import Scene
from compressor.pipeline.quality import Quality, Scoring
from compressor.pipeline.steps import Steps
from compressor.plan import Plan
from compressor.recipe import default
from compressor.records import Beside, File, Model, Report, Served, Size, Work
from compressor.score import Recorded, metric

_STEP = "champion"
_UNSCORED = "no evaluation data: give --evaluation"
_RETRAINED = (
    "{} was made of another model, and {} compares with the original's outputs, which says nothing between the two: "
    "give labels"
)
_REPORT = Path(registry.REPORTS) / "report.json"


@dataclass(frozen=True)
class Contender:
    """The champion as it is run here; `outputs` for the evaluation samples, None where there are none: `unscored`."""

    served: Served
    built: Built
    outputs: Recorded | None
    unscored: str = _UNSCORED


def contender(plan: Plan, steps: Steps, folder: Path, scoring: Scoring | None) -> Work[Contender | None]:
    """Fetch the version that a plan names, and run it over the evaluation samples; None where it names none.

    It is opened with the session options that it was registered with.

    Raises:
        InputError: It is nothing that can be measured beside the model: an engine, or other inputs and outputs.
        MachineError: The registry does not answer.
    """
    if plan.champion is None:
        return None
    version = plan.champion.version
    source = str(version)
    with steps.of(source), _told_of(source, folder):
        found = yield from subject.resolve(source, plan.registry, folder / "champion", steps)
        model, files = (yield from steps.call(f"{_STEP}: open", _opened, found.path, plan)).value
        built = found.built(model, default(), plan.environment.cpus_usable)
        built = replace(built, artifact=replace(built.artifact, files=files))
    outputs, unscored = (yield from _outputs(steps, built, scoring, folder)) if scoring else (None, _UNSCORED)
    report = _report(found.path)
    served = Served(
        source=source,
        name=version.model,
        version=version.wanted,
        model=_size(model, report),
        artifact=replace(built.artifact, files=tuple(_named(file, found.path.parent) for file in files)),
        original_sha256=report.model.sha256 if report else None,
        asked=str(plan.champion.asked),
    )
    return Contender(served, built, outputs, unscored)


@dataclass(frozen=True)
class Contest:
    """How rungs are held against the champion. `scoring`: None where nothing is scored.

    `original_sha256`: of the model that the rungs are made of.
    """

    champion: Contender
    scene: Scene
    scoring: Scoring | None
    original_sha256: str

    def held(
        self, steps: Steps, rung: str, built: Built, quality: tuple[Quality, Quality] | None, *, timed: bool
    ) -> Work[Beside]:
        """Hold a rung against the champion; `quality` is of the original and the rung."""
        if _is_same(self.champion.built, built):
            return Beside(same=True)
        found = yield from self._scored(steps, rung, quality)
        if not timed:
            return found
        pair, name = (self.champion.built, built), f"{rung}: {_STEP}"
        try:
            then, now = yield from measuring.side_by_side(steps, pair, self.scene, name)
        except RungError as error:  # it costs the comparison, not the rung
            return replace(found, failure=f"the rung and {self.champion.served.source} cannot be measured: {error}")
        return replace(found, champion=then, now=now)

    def _scored(self, steps: Steps, rung: str, quality: tuple[Quality, Quality] | None) -> Work[Beside]:
        champion, scoring = self.champion, self.scoring
        if scoring is None or scoring.wanted is None or champion.outputs is None or quality is None:
            return Beside(unscored=champion.unscored)
        if metric(scoring.wanted.metric).reference and champion.served.original_sha256 != self.original_sha256:
            return Beside(unscored=_RETRAINED.format(champion.served.source, scoring.wanted.metric))
        original, now = quality
        arguments = (scoring, original.outputs, champion.outputs, now.outputs)
        try:
            scores = (yield from steps.call(f"{rung}: {_STEP} score", judging.contrasted, *arguments)).value
        except RungError as error:
            return Beside(unscored=f"{champion.served.source} cannot be scored: {error}")
        return Beside(champion_score=scores[0], score=scores[1])


def scene(whole: Scene, asked: gates.Champion) -> Scene:
    """Give the scene of a contest: the main point, back to back, until it is decided who is slower."""
    starts = tuple(gate for gate in whole.recipe.gates if isinstance(gate, gates.Startup))
    recipe = whole.recipe.model_copy(update={"gates": starts, "load": Closed()})
    return replace(whole, recipe=recipe, points=whole.points[:1], raw=None, ratios=(asked.slowest(),))


def doubt(contender: Contender, now: Built) -> str | None:
    """Say in what the sessions of the two differ; None where they do not."""
    own, new = contender.built.artifact.options, now.artifact.options
    differ = [name for name in sorted(own.keys() | new.keys()) if own.get(name) != new.get(name)]
    if not differ:
        return None
    told = ", ".join(f"{name} {own.get(name, 'unset')} (here {new.get(name, 'unset')})" for name in differ)
    return f"{contender.served.source} is run with the session options that it is served with: {told}"


@contextmanager
def _told_of(source: str, folder: Path) -> Iterator[None]:
    """Name the version in the place of the folder that it was fetched into, which nobody will find."""
    try:
        yield
    except InputError as error:
        told = str(error).replace(str(folder / "champion"), source)
        raise InputError(f"baseline: {told}; name another version, or leave baseline and --against out") from error


def _outputs(steps: Steps, built: Built, scoring: Scoring, folder: Path) -> Work[tuple[Recorded | None, str]]:
    """Run the champion over the samples; that it cannot be costs the comparison, not the run."""
    arguments = (built, scoring, folder, folder / "champion-outputs")
    try:
        return (yield from steps.call(f"{_STEP}: score", judging.recorded, *arguments)).value, ""
    except RungError as error:
        return None, f"the champion cannot be scored: {error}"


def _opened(path: Path, plan: Plan) -> tuple[Model, tuple[File, ...]]:
    """Give the model and its files: the graph, then what lies beside it."""
    model = graph.open_model(path)
    subject.check_alike(plan.model, model)
    runtime.check_runs(path, next(iter(plan.calibration)))
    files = (File(str(part), workspace.sha256(part), part.stat().st_size) for part in graph.parts(path))
    return graph.at_shapes(model, plan.shapes), tuple(files)


def _named(file: File, folder: Path) -> File:
    """Give a file by its name in the version that holds it."""
    return replace(file, path=Path(file.path).relative_to(folder).as_posix())


def _report(model: Path) -> Report | None:
    """Give the report that is registered beside a model."""
    path = model.parent / _REPORT
    return formats.read(path) if path.is_file() else None


def _size(model: Model, report: Report | None) -> Size:
    """Give what its run counted: past some integer operators nobody can infer the shapes that MACs follow from."""
    counted = formats.chosen_trial(report) if report else None
    known = counted.model if counted else None
    macs = model.macs if model.macs is not None or known is None else known.macs
    return Size(model.size_bytes, model.parameters, macs, model.nodes)


def _is_same(one: Built, other: Built) -> bool:
    """Tell whether the same bytes are run in the same way."""
    files = [[file.sha256 for file in built.artifact.files] for built in (one, other)]
    return files[0] == files[1] and one.artifact.options == other.artifact.options
