"""What a caller names to be measured: an ONNX file, an artifact, a report's choice, a version in a registry.

Another kind of source is a branch in `resolve`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from compressor import formats, registry, runtime, workspace
from compressor.engines import Auto, Onnxruntime, Tensorrt
from compressor.errors import InputError
from compressor.pipeline.built import Built
from compressor.pipeline.steps import Steps
from compressor.plan import Origin
from compressor.recipe import Recipe
from compressor.records import REGISTERED, Artifact, File, Model, Report, VersionName, Work
from compressor.runtime.custom_ops import CUSTOM_OPS, SEPARATOR
from compressor.runtime.session import CPU, PROVIDERS
from compressor.samples import Preprocess

_SESSION, _REPORT, _ENGINES = "session.json", "report.json", "engine.json"
_PARENTS = 3
"""Above a run's folder: that of the runs of one model, that of all runs, and the folder that holds them."""
_MOST_THREADS = 4096
_NUMBERS = ("intra_op_num_threads", "inter_op_num_threads")
_SPINNING = "session.intra_op.allow_spinning"
_PROVIDERS = "providers"
_OPTIONS = runtime.emulated(runtime.options(1, spinning=False)).keys()
"""All that a run writes; other options of a session can write files."""


@dataclass(frozen=True)
class Subject:
    """A model file as `source` names it, the session options that came with it, if any did, and what it was made of."""

    source: str
    path: Path
    options: Mapping[str, str] | None = None
    origin: Origin | None = None

    def settled(self, recipe: Recipe) -> Recipe:
        """Let the options that came with the model decide what the recipe leaves to the engine."""
        if self.options is None or not isinstance(recipe.engine, Auto):
            return recipe
        threads = int(self.options.get(_NUMBERS[0], 0)) or None
        listed = self.options.get(_PROVIDERS, CPU)
        provider = next(name for name, names in PROVIDERS.items() if names == listed)
        spinning = self.options.get(_SPINNING, "0") != "0"
        engine = Onnxruntime(threads=threads, spinning=spinning, provider=provider)
        return recipe.model_copy(update={"engine": engine})

    def built(self, model: Model, asked: Recipe, cpus_usable: int) -> Built:
        """Give the file as it stands, to be opened with its own options unless the recipe asked for an engine."""
        engine = self.settled(asked).engine.resolve(cpus_usable)
        if isinstance(engine, Tensorrt):
            raise InputError(
                f"{self.source}: measured as it stands, by ONNX Runtime; `compress run` builds for tensorrt"
            )
        options = engine.options()
        if self.options is not None and isinstance(asked.engine, Auto):
            options = dict(self.options)
        file = File(str(self.path), model.sha256, model.size_bytes)
        return Built(engine, Artifact("onnxruntime", engine.device, (file,), 0.0, options))


def resolve(source: str, uri: str | None, folder: Path, steps: Steps) -> Work[Subject]:
    """Find what a source names; a registered model is fetched into a folder of its own in `folder`.

    Raises:
        InputError: It names nothing that can be measured, or with it come libraries that nobody said to trust.
        MachineError: The registry does not answer.
    """
    found = yield from _resolved(source, uri, folder, steps)
    if not (found.options or {}).get(CUSTOM_OPS):
        return found
    check_trusted(source, found.options or {}, found.path, steps)
    return replace(found, options={name: value for name, value in (found.options or {}).items() if name != CUSTOM_OPS})


def check_trusted(source: str, options: Mapping[str, str], path: Path, steps: Steps) -> None:
    """Return if no libraries come with a model, at `path` and with these options, or somebody said to trust some.

    Raises:
        InputError: Libraries come with it that nobody named.
    """
    if (libraries := options.get(CUSTOM_OPS)) and not runtime.custom_ops.named(steps.environment):
        beside = path.with_name(libraries.partition(SEPARATOR)[0])
        raise InputError(
            f"{source}: needs the custom operators of {libraries!r}, code that is never run unasked: give "
            f"--custom-ops {beside} if you trust it"
        )


def beside(run: Path) -> tuple[Path, ...]:
    """Give where the samples of a run may lie: above its folder."""
    return tuple(run.parents)[:_PARENTS]


def check_alike(before: Model, after: Model) -> None:
    """Return if the second model takes the inputs of the first and gives its outputs.

    Raises:
        InputError: It does not.
    """
    where, then, now = f"{after.path}: not comparable with {before.path}", before.inputs, after.inputs
    if (names := sorted(t.name for t in then)) != (found := sorted(t.name for t in now)):
        raise InputError(f"{where}: expected the inputs {', '.join(names)}, found {', '.join(found)}")
    others = {tensor.name: tensor for tensor in now}
    for tensor in then:
        other = others[tensor.name]
        if tensor.dtype != other.dtype or not _fit(tensor.shape, other.shape):
            raise InputError(
                f"{where}: input {tensor.name!r} is {tensor.dtype} {tensor.shape} in one and {other.dtype} "
                f"{other.shape} in the other"
            )
    missing = [tensor.name for tensor in before.outputs if tensor.name not in {t.name for t in after.outputs}]
    if missing:
        raise InputError(
            f"{where}: expected the output {missing[0]!r}, found {', '.join(t.name for t in after.outputs)}"
        )


def _resolved(source: str, uri: str | None, folder: Path, steps: Steps) -> Work[Subject]:
    if source.startswith(REGISTERED):
        model = _report_or_model((yield from fetched(source, uri, folder, steps)))
        return Subject(source, model, _options(model.with_name(_SESSION)), Origin(named(source).model))
    path = Path(source).absolute()
    if path.is_dir():
        path = _report_or_model(path)
    if path.suffix == ".json":
        return _chosen(source, path)
    return Subject(source, path, _options(path.with_name(_SESSION)), _origin(path))


def fetched(source: str, uri: str | None, folder: Path, steps: Steps) -> Work[Path]:
    """Give the folder of a registered version, copied into `folder`, which is made.

    Raises:
        InputError: There is no such version, or no registry.
        MachineError: The registry does not answer.
    """
    place = registry.locate(uri, Path("reports"))
    if place is None:
        raise InputError(f"{source}: there is no registry to look in; give --registry URI")
    folder.mkdir(parents=True)
    arguments = (place, named(source), folder)
    found: Path = (yield from steps.call("fetch", registry.fetch, *arguments)).value
    return found


def named(source: str) -> VersionName:
    """Read the name of a registered version.

    Raises:
        InputError: It is none.
    """
    try:
        return VersionName.read(source)
    except ValueError as error:
        raise InputError(f"{source}: {error}") from error


def _report_or_model(folder: Path) -> Path:
    """Give the report or the only model in a folder; what belongs to mlflow beside it does not matter."""
    if (folder / _ENGINES).is_file():
        raise InputError(
            f"{folder}: holds engines of TensorRT, which are not measured by themselves; name an ONNX file, such as "
            "model.onnx there, which is their graph"
        )
    models = sorted(folder.glob("*.onnx"))
    if not models and (folder / _REPORT).is_file():
        return folder / _REPORT
    if len(models) != 1:
        found = ", ".join(model.name for model in models) or "none"
        raise InputError(f"{folder}: expected a folder with one ONNX file, as an artifact has, found {found}")
    return models[0]


def _chosen(source: str, path: Path) -> Subject:
    report = formats.read(path)
    trials = {trial.rung: trial for trial in (report.baseline, *report.trials)}
    if report.chosen is None:
        built = ", ".join(rung for rung, trial in trials.items() if trial.artifacts)
        raise InputError(
            f"{path}: its run chose nothing; name the folder of an artifact, artifacts/ and one of {built}"
        )
    artifact = trials[report.chosen].artifacts[0]
    model = path.parent / artifact.files[0].path
    if artifact.is_engine:
        raise InputError(f"{path}: its run chose {model.name}, an engine of {artifact.engine}: name an ONNX file")
    _check_same(model, artifact.files[0], path)
    return Subject(source, model, checked(artifact.options, path), _original(report, path.parent))


def _check_same(model: Path, file: File, report: Path) -> None:
    if not model.is_file():
        raise InputError(f"{report}: what its run chose, {file.path}, is not beside it")
    if workspace.sha256(model) != file.sha256:
        raise InputError(
            f"{model}: is not what the run of {report} chose (another sha256); name the file itself to measure it"
        )


def _origin(model: Path) -> Origin | None:
    """Give what an artifact in the folder of a run was made of; None of any other file."""
    artifacts = model.parent.parent
    report = artifacts.parent / _REPORT  # the folder may be the root, which has no name
    if artifacts.name != "artifacts" or not (model.with_name(_SESSION).is_file() and report.is_file()):
        return None
    return _original(formats.read(report), report.parent)


def _original(report: Report, run: Path) -> Origin:
    """Give the model of a run; its samples may lie beside the run, or beside the folder of all runs."""
    return Origin(report.model.name, beside(run), prepared(report, str(run / _REPORT)))


def prepared(report: Report, source: str) -> Preprocess | None:
    """Give how the samples of a run become inputs.

    Raises:
        InputError: That is nothing that a run writes.
    """
    try:
        return Preprocess.model_validate(report.data.preprocess) if report.data.preprocess else None
    except ValidationError as error:
        raise InputError(f"{source}: data.preprocess: {error.errors()[0]['msg']}") from error


def _options(path: Path) -> Mapping[str, str] | None:
    if not path.is_file():
        return None
    try:
        return checked(json.loads(path.read_text(encoding="utf-8")), path)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: expected the session options of a model, found no JSON ({error})") from error


def checked(options: object, path: Path) -> Mapping[str, str]:
    """Return options that are a session's: this file may come from anywhere."""
    if not isinstance(options, Mapping) or not all(_is_option(*pair) for pair in options.items()):
        raise InputError(
            f"{path}: expected session options as `compress run` writes them, such as {_NUMBERS[0]}; move it away to "
            "measure with the default options"
        )
    return options


def _is_option(name: object, value: object) -> bool:
    if not isinstance(name, str) or not isinstance(value, str):
        return False
    if name in _NUMBERS:
        return value.isascii() and value.isdigit() and len(value) <= len("4096") and int(value) <= _MOST_THREADS
    if name == CUSTOM_OPS:
        return all(library not in {"", ".."} and Path(library).name == library for library in value.split(SEPARATOR))
    return value in PROVIDERS.values() if name == _PROVIDERS else name in _OPTIONS


def _fit(one: tuple[int | str | None, ...] | None, two: tuple[int | str | None, ...] | None) -> bool:
    """Tell whether some static shape is of both; a symbol may stand for any number."""
    if one is None or two is None:
        return True
    return len(one) == len(two) and all(
        a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in zip(one, two, strict=True)
    )
