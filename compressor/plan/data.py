"""Samples for calibrating and scoring: found, read, kept apart.

A new rule about which samples serve for what belongs here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from compressor import graph, samples
from compressor.errors import InputError
from compressor.recipe import Calibration, Recipe
from compressor.records import Model, Shapes
from compressor.samples import Preprocess, Samples, Seen
from compressor.score.text import symbols
from compressor.units import write_shape

_SYNTHETIC = 32
_SHARED = 0.05
"""Share of the evaluation samples that may also stand in the calibration set by chance."""
_CHECKED = 64
"""Samples that are looked at where they only keep a model busy."""
_MADE_UP = "no samples: measured on made-up inputs"
_UNSCORED = (
    "no evaluation data: outputs are compared on made-up inputs; give --evaluation to compare what they are worth"
)
_NO_DATA = (
    "no calibration data: the ranges of static INT8 come from made-up inputs, so such an artifact is uncalibrated, and "
    "accuracy is unknown; give --calibration, or put {name}.npz into calibration_data beside the model"
)


@dataclass(frozen=True)
class Files:
    """Which files serve, the same one twice where it serves both; `observed`: the shape of one sample of each input."""

    calibration: Path
    evaluation: Path
    observed: Seen


@dataclass(frozen=True)
class Origin:
    """What a model was made of: the name of that one, where its samples may lie, and how they become inputs."""

    name: str
    places: tuple[Path, ...] = ()
    preprocess: Preprocess | None = None


@dataclass(frozen=True)
class Sets:
    """The samples of a run; calibration and evaluation share none. `measured`: those of the shapes that are timed."""

    calibration: Samples
    evaluation: Samples | None
    warnings: tuple[str, ...]
    measured: Samples


def inherited(recipe: Recipe, origin: Origin | None) -> Recipe:
    """Prepare the samples of an origin as they were prepared for it, unless the recipe names samples of its own."""
    asked = recipe.data
    if origin is None or asked.named or asked.preprocess:
        return recipe
    return recipe.model_copy(update={"data": asked.model_copy(update={"preprocess": origin.preprocess})})


def files(recipe: Recipe, model: Model, folder: Path, origin: Origin | None = None) -> Files | None:
    """Find the files: what the recipe names, else what lies beside the model or its origin; None if there is nothing.

    Raises:
        InputError: A named file is not there.
    """
    asked = recipe.data
    named = {name: located(path, folder) for name, path in asked.named.items()}
    calibration, evaluation = named.get("calibration"), named.get("evaluation")
    if calibration is None or evaluation is None:
        known = origin or Origin(model.path.stem)
        found = samples.roles(samples.find(known.name, (model.path.parent, Path.cwd(), *known.places)), known.name)
        calibration, evaluation = calibration or found.calibration, evaluation or found.evaluation
    one, other = calibration or evaluation, evaluation or calibration
    if one is None or other is None:
        return None
    return Files(one, other, samples.observed_shapes(one, model.inputs, asked.preprocess))


def seen(found: Files | None, hinted: Shapes) -> Seen:
    """Give what samples tell of shapes; what is hinted, where they tell nothing or differ."""
    told = found.observed if found else {}
    clear = {name: sizes for name, sizes in told.items() if all(isinstance(size, int) for size in sizes)}
    return {**told, **hinted, **clear}


def sets(found: Files | None, recipe: Recipe, model: Model, shapes: Shapes) -> Sets:
    """Read the samples' descriptions, keep the two sets apart, and check every sample once.

    Raises:
        InputError: A file does not serve the model, a value is not finite, or both sets hold the same samples.
    """
    if found is None:
        return _without(made_up(recipe, model, shapes), _NO_DATA.format(name=model.path.stem))
    calibration, evaluation, shared = _apart(found, recipe, model, shapes)
    notes = list(shared)
    for one in filter(None, (calibration, evaluation)):
        one.check()
        notes += one.notes
    if evaluation is None:
        why = "no sample is left to score" if shared else "a single sample cannot both calibrate and score"
        notes.append(f"{found.calibration}: {why}; accuracy is unknown")
    notes += samples.doubts(calibration, evaluation)
    measured, told = _measured(calibration, recipe, model, shapes)
    return Sets(calibration, evaluation, tuple(dict.fromkeys((*notes, *told))), measured)


def compared(found: Files | None, recipe: Recipe, model: Model, shapes: Shapes) -> Sets:
    """Give the samples that two models are compared on: all that are named for it, else those that a run would score.

    Raises:
        InputError: As for `sets`.
    """
    if found is None:
        return _without(made_up(recipe, model, shapes), _UNSCORED)
    asked = recipe.data.evaluation
    if asked is None or recipe.data.named.keys() != {"evaluation"}:
        return sets(found, recipe, model, shapes)
    named = _read(found.evaluation, recipe, model, shapes)
    named = named.take(asked.samples or len(named), recipe.seed)
    named.check()
    measured, told = _measured(named, recipe, model, shapes)
    return Sets(named, named, (*named.notes, *told), measured)


def busying(found: Files | None, recipe: Recipe, model: Model, shapes: Shapes) -> Sets:
    """Give samples that only keep a model busy, so that few of them are looked at.

    Raises:
        InputError: A file does not serve the model, or a value is not finite.
    """
    if found is None:
        return _without(made_up(recipe, model, shapes), _MADE_UP)
    whole = _read(found.calibration, recipe, model, shapes)
    few, told = _measured(whole, recipe, model, shapes)
    few = replace(few, indices=few.indices[:_CHECKED])
    few.check()
    return Sets(few, None, (*few.notes, *told), few)


def made_up(recipe: Recipe, model: Model, shapes: Shapes) -> Samples:
    """Give samples drawn from the recipe's seed.

    Raises:
        InputError: Values of an input's type cannot be made up.
    """
    return samples.synthetic(model.inputs, shapes, _SYNTHETIC, recipe.seed, graph.index_limits(model.path))


def at_shapes(found: Files | None, recipe: Recipe, model: Model, shapes: Shapes) -> tuple[Samples, str | None]:
    """Give the calibration samples at other shapes, or else made-up ones and why the samples do not serve there."""
    if found is None:
        return made_up(recipe, model, shapes), None
    try:
        whole = _read(found.calibration, recipe, model, shapes)
    except InputError as error:  # they serve at the main shapes
        return made_up(recipe, model, shapes), str(error)
    if (there := whole.at(shapes)) is None:
        return made_up(recipe, model, shapes), f"{found.calibration}: no sample has these shapes"
    return replace(there, indices=there.indices[:_CHECKED]), None


def resolved(sets: Sets, recipe: Recipe, folder: Path) -> Mapping[str, object]:
    """Give the recipe's data block with the files that are used, by absolute path.

    Raises:
        InputError: The alphabet is not there, or is none.
    """
    blocks: dict[str, object] = {}
    if recipe.data.alphabet is not None:
        blocks["alphabet"] = alphabet = located(recipe.data.alphabet, folder)
        symbols(alphabet)
    if not sets.calibration.source.synthetic:
        blocks["calibration"] = {"path": sets.calibration.source.source, "samples": len(sets.calibration)}
    if sets.evaluation:  # where more were asked for than there are, that is still what was asked
        asked = recipe.data.evaluation.samples if recipe.data.evaluation else None
        samples = max(asked or 0, len(sets.evaluation))
        blocks["evaluation"] = {"path": sets.evaluation.source.source, "samples": samples}
    return {**recipe.data.model_dump(mode="json", exclude_none=True), **blocks}


def located(path: Path, folder: Path) -> Path:
    """Find a path of the recipe: from the recipe's folder, else from the working folder; the name of a function stays.

    Raises:
        InputError: There is nothing there.
    """
    places = [place / path for place in (folder, Path.cwd())]
    try:
        if found := next((place for place in places if place.exists()), None):
            return found.resolve()
    except OSError as error:
        raise InputError(f"{str(path)[:200]}: no path ({error.strerror})") from error
    if samples.is_name(path):
        return path
    raise InputError(f"{path}: no such file or folder; looked for {' and '.join(map(str, dict.fromkeys(places)))}")


def _without(made: Samples, warning: str) -> Sets:
    return Sets(made, None, (warning,), made)


def _measured(whole: Samples, recipe: Recipe, model: Model, shapes: Shapes) -> tuple[Samples, tuple[str, ...]]:
    """Give the samples that are timed, of the shapes that are measured, or made-up ones with a warning."""
    found = whole.at(shapes)
    if found is not None:
        return found, ()
    listed = ", ".join(f"{name} {write_shape(dims)}" for name, dims in shapes.items())
    told = f"{whole.source.source}: no sample has the measured shapes ({listed}): latency is measured on made-up inputs"
    return made_up(recipe, model, shapes), (told,)


def _read(path: Path, recipe: Recipe, model: Model, shapes: Shapes) -> Samples:
    return samples.read(path, model.inputs, shapes, recipe.data.preprocess)


def _apart(
    found: Files, recipe: Recipe, model: Model, shapes: Shapes
) -> tuple[Samples, Samples | None, tuple[str, ...]]:
    def read(path: Path) -> Samples:
        return _read(path, recipe, model, shapes)

    wanted = (recipe.data.calibration or Calibration()).samples
    scored = recipe.data.evaluation.samples if recipe.data.evaluation else None
    if found.calibration == found.evaluation:
        calibration, rest, notes = _divided(read(found.calibration), wanted, recipe.seed)
        return calibration, rest and rest.take(scored or len(rest), recipe.seed), notes
    calibration = read(found.calibration).take(wanted, recipe.seed)
    evaluation, notes = _kept_apart(read(found.evaluation), calibration)
    return calibration, evaluation.take(scored or len(evaluation), recipe.seed), notes


def _divided(both: Samples, wanted: int, seed: int) -> tuple[Samples, Samples | None, tuple[str, ...]]:
    """Divide one set: at most half of it calibrates, and what equals a sample of that half is not scored."""
    half = len(both) // 2
    if not half:
        return both, None, ()
    calibration, rest = both.split(min(wanted, half), seed)
    kept = rest.without(calibration)
    twice = len(rest) - len(kept)
    notes = (f"{both.source.source}: {twice} samples that stand twice are not scored",) if twice else ()
    return calibration, kept if len(kept) else None, notes


def _kept_apart(evaluation: Samples, calibration: Samples) -> tuple[Samples, tuple[str, ...]]:
    """Leave out the few samples that real sets share, such as silence; refuse sets that are the same in part."""
    kept = evaluation.without(calibration)
    shared = len(evaluation) - len(kept)
    where = f"{evaluation.source.source}: {shared} of its {len(evaluation)} samples also calibrate"
    if shared > _SHARED * len(evaluation):
        raise InputError(
            f"{where} ({calibration.source.source}); a score on them proves nothing. Give other samples, or one file "
            "for both, which is then split"
        )
    return kept, (f"{where} and are not scored",) if shared else ()
