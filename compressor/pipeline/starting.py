"""A recipe to start from for one model: what is found of the model and its data, and a recipe that runs as it is.

What is looked for is a field of `Found`; how it is told stands in `drafting`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from compressor import graph, runtime, samples, stages
from compressor.errors import InputError, RungError
from compressor.graph.kinds import kind, shares
from compressor.isolation import Limits
from compressor.pipeline.drafting import Found, draft, notes
from compressor.pipeline.normalising import Normalised, normalised
from compressor.pipeline.run import Request, prepare
from compressor.pipeline.steps import Steps, nursery
from compressor.plan import Job, Plan, data, original
from compressor.plan.data import Files, Sets
from compressor.plan.dims import settle
from compressor.plan.estimate import estimated
from compressor.recipe import Recipe, parse
from compressor.records import Model, Shapes, Tensor, Work
from compressor.samples import Preprocess, Samples, Seen
from compressor.units import human_duration

_IMAGE = 4
"""Axes of an image input."""
_SIDES = (224, 256, 320, 128, 64, 48, 32, 512, 640)
"""Pixels that an open side of an image may have, the most usual first."""
_LENGTHS = (512, 128, 256, 1024, 16_000, 64, 32, 16, 8, 4, 2, 1)
"""What any other open dimension may be: the length of a text, of a frame, of a clip."""
_CHANNELS = 3
_CENTRE = 0.875
"""Share of an image's shorter side that evaluation usually keeps."""


@dataclass(frozen=True)
class Started:
    """A recipe's text, what its reader must know, and the plan that it makes."""

    text: str
    notes: tuple[str, ...]
    plan: Plan


def start(model: Path, asked: Recipe, folder: Path) -> Work[Started]:
    """Write a recipe for a model that will lie in `folder`, and make sure that a run would take it.

    `asked`: what the flags state; of a latency gate, it is taken, else the limit comes from a quick timing.

    Raises:
        InputError: The model or its data are wrong, or no shape was found that the model runs with.
    """
    steps = Steps(Limits(), verbose=False, nursery=(children := nursery()))
    with steps.of(str(model)):
        found = (yield from steps.call("look", looked, model, asked, Path.cwd())).value
    text = draft(found, asked, folder)
    written = parse(text, "the recipe for this model")
    unrecorded = written.model_copy(update={"registry": written.registry.model_copy(update={"uri": "none"})})
    settled = yield from prepare(Request(Job(model, unrecorded, Path("reports"), folder), nursery=children))
    took = estimated(settled)
    least, most = human_duration(took.least_s), human_duration(took.most_s)
    about = f"a run takes about {least} if the first rung is enough, {most} if all are climbed"
    return Started(text, (*notes(found, asked), about), settled)


def looked(path: Path, asked: Recipe, folder: Path) -> Found:
    """Look at a model and its data.

    Raises:
        InputError: As `start`.
    """
    unshaped = graph.open_model(path.absolute())
    files, shapes, sets, preprocess = _served(unshaped, asked, folder)
    settled = graph.at_shapes(unshaped, shapes)
    first = original.seen(asked, settled, sets)
    summary = graph.summary(path)
    raw, way = _is_raw(sets.calibration), Normalised(preprocess)
    if raw and asked.data.preprocess is None:
        way = normalised(settled.path, sets.evaluation, preprocess, first.metric)
    return Found(
        model=settled,
        shapes=shapes,
        assumed=_assumed(unshaped.inputs, asked.shapes, shapes, data.seen(files, {})),
        kind=kind(path),
        shares=shares(path, shapes),
        int8_share=summary.int8_share,
        files=files,
        counts=(len(sets.calibration), len(sets.evaluation) if sets.evaluation else 0),
        labels=_labels(sets.evaluation),
        preprocess=way.preprocess,
        raw=raw,
        scores=way.scores,
        metric=first.metric,
        call_s=first.call_s,
        removable=_removable(path, shapes),
    )


def _served(model: Model, asked: Recipe, folder: Path) -> tuple[Files | None, Shapes, Sets, Preprocess | None]:
    """Find data and shapes; the first way of preparing images is taken with which the data serve the model."""
    refused: InputError | None = None
    for preprocess in _preparations(model.inputs, asked):
        trying = asked.model_copy(update={"data": asked.data.model_copy(update={"preprocess": preprocess})})
        try:
            files = data.files(trying, model, folder)
            shapes = _shapes(model, asked.shapes, data.seen(files, {}))
            return files, shapes, data.sets(files, trying, graph.at_shapes(model, shapes), shapes), preprocess
        except InputError as error:
            refused = refused or error
            if trying.data.calibration is None and not _lies_beside(model, folder):
                break  # there are no data that another way could prepare
    raise refused or InputError("nothing was tried")


def _lies_beside(model: Model, folder: Path) -> bool:
    return bool(samples.find(model.path.stem, (model.path.parent, folder)))


def _preparations(inputs: Sequence[Tensor], asked: Recipe) -> Iterator[Preprocess | None]:
    """Give ways of preparing samples as inputs that their shapes could call for; values stay as they are."""
    yield asked.data.preprocess
    images = [tensor for tensor in inputs if tensor.shape is not None and len(tensor.shape) == _IMAGE]
    if asked.data.preprocess is not None or not images:
        return
    yield Preprocess(layout="nhwc")
    sides = [dim for dim in (images[0].shape or ())[1:] if isinstance(dim, int) and dim > _CHANNELS]
    side = min(sides, default=_SIDES[0])
    yield Preprocess(resize=round(side / _CENTRE), crop=side)


def _shapes(model: Model, given: Shapes, seen: Seen) -> Shapes:
    """Settle shapes; for dimensions that nothing settles, take the first usual ones that the model runs with.

    Raises:
        InputError: It runs with none of them, or the shapes that are given do not fit.
    """
    try:
        return settle(model.inputs, given, seen)
    except InputError as error:
        if any(tensor.shape is None for tensor in model.inputs):
            raise
        for guess in _guesses(model.inputs, given, seen):
            if (shapes := _running(model, guess)) is not None:
                return shapes
        raise InputError(f"{error} (no usual number was found that the model runs with)") from error


def _guesses(inputs: Sequence[Tensor], given: Shapes, seen: Seen) -> Iterator[Shapes]:
    """Give shapes for every input that has an open dimension, one number for all sides or lengths at a time."""
    images = any(len(tensor.shape or ()) == _IMAGE for tensor in inputs if tensor.name not in given)
    for size in _SIDES if images else _LENGTHS:
        yield {**given, **{t.name: _filled(t, size, seen) for t in inputs if t.name not in given}}


def _filled(tensor: Tensor, size: int, seen: Seen) -> tuple[int, ...]:
    dims = tensor.shape or ()
    known, symbol = _known(tensor, seen), dims[0] if dims else None
    filled: list[int] = []
    for axis, dim in enumerate(dims):
        batch = axis == 0 or (isinstance(dim, str) and (dim == symbol or dim.startswith("batch")))
        channels = len(dims) == _IMAGE and axis == 1
        usual = 1 if batch else _CHANNELS if channels else size
        filled.append(next(size for size in (dim, known.get(axis), usual) if isinstance(size, int)))
    return tuple(filled)


def _known(tensor: Tensor, seen: Seen) -> Mapping[int, int]:
    """Give what samples say of the axes of an input; they leave out the batch, or hold complete feeds."""
    sample = seen.get(tensor.name, ())
    first = len(tensor.shape or ()) - len(sample)
    return {axis: size for axis, size in enumerate(sample, first) if isinstance(size, int)}


def _running(model: Model, guess: Shapes) -> Shapes | None:
    """Give settled shapes if they fit and the model runs with them."""
    try:
        shapes = settle(model.inputs, guess, {})
        made = samples.synthetic(model.inputs, shapes, 1, 0, graph.index_limits(model.path))
        runtime.check_runs(model.path, next(iter(made)))
    except (InputError, RungError):
        return None
    return shapes


def _assumed(inputs: Sequence[Tensor], given: Shapes, shapes: Shapes, seen: Seen) -> Mapping[str, Mapping[int, int]]:
    """Give for each input the axes, from 1, whose sizes neither the file, the flags nor the samples say."""
    found: dict[str, Mapping[int, int]] = {}
    batches = {tensor.shape[0] for tensor in inputs if tensor.shape}  # 1 wherever they stand
    for tensor in inputs:
        known = _known(tensor, seen)
        open_ = {
            axis: shapes[tensor.name][axis]
            for axis, dim in enumerate(tensor.shape or ())
            if axis and not isinstance(dim, int) and axis not in known and (dim is None or dim not in batches)
        }
        if open_ and tensor.name not in given:
            found[tensor.name] = open_
    return found


def _labels(evaluation: Samples | None) -> str | None:
    """Say what labels there are."""
    labels = evaluation.labels() if evaluation else None
    if labels is None:
        return None
    if labels.dtype.kind in "iu" and labels.ndim == 1:
        return f"{len(set(labels.tolist()))} different whole numbers"
    return f"of type {labels.dtype}"


def _is_raw(calibration: Samples) -> bool:
    """Tell whether 8-bit values become floating-point inputs as they are."""
    return any(
        np.dtype(fit.column.dtype) == np.uint8
        and fit.dtype.startswith("float")
        and not (fit.preprocess and fit.preprocess.std)
        for fit in calibration.fits
    )


def _removable(path: Path, shapes: Shapes) -> int:
    """Count the channels that pruning could remove."""
    with TemporaryDirectory() as folder:
        graph.normalise(path, normalised := Path(folder) / "model.onnx")
        try:
            return sum(one.channels for one in stages.removable(normalised, shapes) if not one.stay)
        except (ArithmeticError, LookupError, RungError, ValueError):
            return 0  # quantized, or its shapes contradict each other where it does not run
