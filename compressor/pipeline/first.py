"""What is to be proved again: a report, the artifact that it chose and the original, on disk or in a registry.

Another place where a report may lie is a branch in `find`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from compressor import formats, recipe, registry, workspace
from compressor.errors import InputError
from compressor.pipeline import choose, subject
from compressor.pipeline.run import GOING_ON
from compressor.pipeline.steps import Steps
from compressor.recipe import Recipe
from compressor.records import REGISTERED, Artifact, Report, Trial, Work

_REPORT = Path(registry.REPORTS) / "report.json"


@dataclass(frozen=True)
class Wanted:
    """What is named beside a source: a registry, a rung, the original; None where the source says it."""

    registry: str | None = None
    rung: str | None = None
    original: Path | None = None


@dataclass(frozen=True)
class First:
    """A report and what it speaks of. `files`: where each file of the artifact lies, by its name in the report.

    `places`: where its samples may lie. `model` and `version`: under which it is registered, if it is, in `registry`.
    """

    report: Report
    recipe: Recipe
    trial: Trial
    files: Mapping[str, Path]
    original: Path
    places: tuple[Path, ...] = ()
    registry: str | None = None
    model: str | None = None
    version: str | None = None


def find(source: str, wanted: Wanted, folder: Path, steps: Steps) -> Work[First]:
    """Find what a source names; a registered version and its original are fetched into `folder`.

    Raises:
        InputError: It names nothing that was measured, or a file is not there or not what was measured.
        MachineError: The registry does not answer.
    """
    if source.startswith(REGISTERED):
        found = yield from _registered(source, wanted, folder, steps)
    else:
        found = _reported(source, wanted)
    _check_files(source, found)
    return found


def _registered(source: str, wanted: Wanted, folder: Path, steps: Steps) -> Work[First]:
    uri, pinned = registry.locate(wanted.registry, Path("reports")), None
    if uri is not None:  # an alias may move while files are fetched
        pinned = (yield from steps.call("find", registry.find, uri, subject.named(source))).value
    there = yield from subject.fetched(str(pinned or source), wanted.registry, folder / "fetched", steps)
    if not (there / _REPORT).is_file() or pinned is None:
        raise InputError(f"{source}: holds no report, so that nobody knows how it was measured: name a report.json")
    report = formats.read(there / _REPORT)
    if wanted.rung not in {None, report.chosen}:
        raise InputError(f"{source}: holds {report.chosen} and no other rung: leave out --rung, or name a report.json")
    found = _of(source, report, report.chosen)
    files = {file.path: there / name for name, file in registry.placed(found.trial.artifacts).items()}
    original = wanted.original
    if original is None:
        kept = (yield from steps.call("original", registry.fetch_original, uri, pinned, folder)).value
        original = kept and kept / Path(_baseline(source, report).files[0].path).name
    if original is None:
        raise InputError(
            f"{source}: its original, {report.model.name}, was not kept in the registry: name it with --original"
        )
    return replace(found, files=files, original=original, registry=uri, model=pinned.model, version=pinned.wanted)


def _reported(source: str, wanted: Wanted) -> First:
    path = Path(source).absolute()
    report = formats.read(path)
    if report.unfinished == GOING_ON:
        raise InputError(f"{path}: {report.unfinished}; wait for its end, or run again")
    found = _of(source, report, wanted.rung or report.chosen or _open(report))
    run, known = path.parent, report.registry
    files = {file.path: run / file.path for artifact in found.trial.artifacts for file in artifact.files}
    return replace(
        found,
        files=files,
        original=wanted.original or run / _baseline(source, report).files[0].path,
        places=subject.beside(run),
        registry=wanted.registry or (_own(known.uri, path) if known else None),
        model=known.model if known and found.trial.rung == report.chosen else None,
        version=known.version if known and found.trial.rung == report.chosen else None,
    )


def _own(uri: str, report: Path) -> str:
    """Give the registry that a report names, if it lies where a run puts it or is the one that this machine uses.

    Raises:
        InputError: It is another server, which would get whatever this machine logs in with, or a file elsewhere.
    """
    usual = registry.locate(None, Path("reports"))
    if usual and registry.public(usual, usual) == uri:
        return usual
    runs = report.resolve().parent.parent.parent  # beside which its registry lies by default
    if (file := registry.database(uri)) and file.resolve() == runs.parent / "mlflow.db":
        return uri
    raise InputError(
        f"{report}: is recorded at {registry.public(uri, uri)}, which is not this machine's registry: give --registry "
        f"with it to record there, or --registry none"
    )


def _of(source: str, report: Report, rung: str | None) -> First:
    """Give what a report says of a rung."""
    trials = {trial.rung: trial for trial in (report.baseline, *report.trials) if trial.artifacts}
    if rung is None or rung not in trials:
        built = ", ".join(trials) or "none"
        raise InputError(f"{source}: expected a rung that was built, found {rung!r}; give --rung, one of {built}")
    asked = recipe.of_report(report.recipe, source)
    return First(report, asked, trials[rung], {}, Path())


def _open(report: Report) -> str | None:
    """Give the first rung that misses no gate: what it lacks may be shown here."""
    return next((trial.rung for trial in report.trials if choose.undecided(trial)), None)


def _baseline(source: str, report: Report) -> Artifact:
    if not report.baseline.artifacts:
        raise InputError(f"{source}: its original was never built, so that there is nothing to measure beside")
    return report.baseline.artifacts[0]


def _check_files(source: str, found: First) -> None:
    """Return if every file is what was measured, and the options are those of a session."""
    for artifact in found.trial.artifacts:
        if not artifact.is_engine:
            subject.checked(artifact.options, Path(source))
        for file in artifact.files:
            if not (path := found.files[file.path]).is_file():
                raise InputError(f"{source}: {file.path}, which was measured, is not at {path}")
            if (sha256 := workspace.sha256(path)) != file.sha256:
                raise InputError(
                    f"{path}: is not what was measured (sha256 {file.sha256[:12]} then, {sha256[:12]} now): run again"
                )
    if not found.original.is_file():
        raise InputError(f"{source}: its original is not at {found.original}: name it with --original")
