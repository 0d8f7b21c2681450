"""The text of a recipe for one model: commented, with what was found of the model and its data.

What a kind of network needs that another does not is a line in `_KINDS` or `_rungs`; every comment goes through
`_comment`, for names may hold anything.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from compressor import gates
from compressor.errors import printable
from compressor.gates import Accuracy, Gate, Latency
from compressor.grammar import key
from compressor.graph.kinds import Kind
from compressor.plan.data import Files
from compressor.recipe import Recipe, escaped
from compressor.records import Model, Shapes
from compressor.samples import Preprocess, is_name
from compressor.units import human_bytes, human_ms, write_seconds, write_shape

_WIDTH = 112
_ROOM = 2.0
"""Times the median that the default budget is: room for the slowest percent."""
_LEAST_S = 0.001
"""The least default budget: below it the scheduler, and not the model, makes the slowest percent."""
_KINDS: Mapping[Kind, tuple[str, str]] = {
    "quantized": ("a model that is quantized already, which is neither quantized nor pruned again", ""),
    "detector": ("a detector: convolutions that end in boxes", "detector"),
    "transformer": ("a transformer: attention over matrix products", "transformer-encoder"),
    "recurrent": ("a recurrent network", "audio"),
    "mobile": ("a network of depthwise convolutions, as for mobile phones", "mobile"),
    "frames": ("a network of convolutions along one axis, as for audio and other series", "audio"),
    "images": ("a convolutional network", "cnn-classifier"),
    "products": ("a network of matrix products", ""),
    "other": ("no network of convolutions or matrix products, so that there is nothing to quantize or prune", ""),
}
"""What each kind is, and the checked-in recipe that was proved on such a model."""
_NORMALISED = {
    "mean": [123.675, 116.28, 103.53],
    "std": [58.395, 57.12, 57.375],
}
"""What torchvision trains with on ImageNet, in units of 8-bit values."""


@dataclass(frozen=True)
class Found:
    """What a model and its data show.

    `assumed`: for each input, sizes of axes, from 1, that nothing settles. `shares`: of the multiply-accumulates, by
    operator. `counts`: samples that calibrate and that are scored. `raw`: the samples are 8-bit values. `scores`: what
    the original scores with each normalisation of these that was tried.
    """

    model: Model
    shapes: Shapes
    assumed: Mapping[str, Mapping[int, int]]
    kind: Kind
    shares: Mapping[str, float]
    int8_share: float
    files: Files | None
    counts: tuple[int, int]
    labels: str | None
    preprocess: Preprocess | None
    raw: bool
    scores: Mapping[str, float]
    metric: str | None
    call_s: float
    removable: int

    @property
    def scored(self) -> bool:
        """Whether there are samples to score."""
        return self.files is not None and self.metric is not None


def draft(found: Found, asked: Recipe, folder: Path) -> str:
    """Give the text of the recipe, whose relative paths start in `folder`."""
    parts = (_head(found), _shapes(found, asked), _data(found, folder), _rungs(found), _gates(found, asked))
    return "\n".join("".join(f"{line}\n" for line in part) for part in parts)


def notes(found: Found, asked: Recipe) -> Iterator[str]:
    """Say what was assumed, and what the reader alone can know."""
    for name, axes in found.assumed.items():
        yield f"{_axes(name, axes)} assumed, because the model leaves it open: put what you serve under shapes"
    if found.files is None:
        yield "no data was found: give --calibration and --evaluation, or put files into calibration_data"
    if found.raw and found.scores:
        yield "data.preprocess is what scores best of a few usual ones: put that of the training in its place"
    elif found.raw:
        yield "8-bit values go into the model as they are: put its mean and std under data.preprocess"
    if not any(isinstance(gate, Latency) for gate in asked.gates):
        yield f"the budget of {_budget(found)} comes from a quick timing here: put your own under gates, or give --sla"


def _head(found: Found) -> Iterator[str]:
    model = found.model
    what, proved = _KINDS[found.kind]
    yield "# yaml-language-server: $schema=recipe.v1.json"
    yield "# `compress recipe schema > recipe.v1.json` writes what an editor completes this file with."
    doing = "".join(f", {share:.0%} of them in {operator}" for operator, share in list(found.shares.items())[:1])
    macs = "" if model.macs is None else f", {_count(model.macs)} multiply-accumulates{doing}"
    facts = f"{human_bytes(model.size_bytes)}, {_count(model.parameters)} parameters{macs}"
    yield from _comment(
        f"{model.path.name}: {what}; {facts}. {found.int8_share:.0%} of its weights could become INT8. A call takes "
        f"{human_ms(found.call_s * 1e3)} on this machine."
    )
    if proved:
        yield from _comment(f"recipes/{proved}.yaml in the sources of compress was proved on such a model.")
    yield "version: 1"


def _shapes(found: Found, asked: Recipe) -> Iterator[str]:
    written = ", ".join(f"{name} {write_shape(dims) or 'scalar'}" for name, dims in found.shapes.items())
    for name, axes in found.assumed.items():
        yield from _comment(
            f"{_axes(name, axes)} assumed: the model leaves it open, no sample settles it, and it runs with that. Put "
            "here what you serve: times at another size prove nothing."
        )
    if found.assumed or asked.shapes:
        yield f"shapes: {_flow({name: write_shape(dims) for name, dims in found.shapes.items()})}"
    else:
        yield from _comment(f"The model and its samples settle what is measured: {written}. Another size goes here:")
        yield _example(f"shapes: {_flow({name: write_shape(dims) for name, dims in found.shapes.items()})}")


def _data(found: Found, folder: Path) -> Iterator[str]:
    if found.files is None:
        yield from _comment(
            "No data was found. Without it, ranges come from made-up inputs and accuracy is unknown, so that no rung "
            f"can pass. Put {found.model.path.stem}.npz into a folder calibration_data beside the model, or say where:"
        )
        yield "# data:"
        yield "#   calibration: {path: inputs.npz, samples: 200}   # an array for each input, first axis: samples"
        yield "#   evaluation: {path: labelled.npz}                # others, with the labels as `label`"
        return
    calibrating, scored = found.counts
    yield "data:"
    once = found.files.calibration == found.files.evaluation
    both = " (one file for both, which is split by the seed)" if once else ""
    yield from _comment(f"{calibrating} samples settle the ranges, {scored} are scored{both}.", "  ")
    yield f"  calibration: {_flow({'path': _path(found.files.calibration, folder), 'samples': calibrating})}"
    yield f"  evaluation: {_flow({'path': _path(found.files.evaluation, folder)})}"
    yield from _preparing(found)
    if found.metric is not None:
        why = (
            f"The labels are {found.labels}."
            if found.labels
            else "There are no labels: outputs are held against the original's."
        )
        yield from _comment(f"{why} Another metric, or a function: docs/measuring.md.", "  ")
        yield f"  {_flow({'metric': found.metric})[1:-1]}"


def _preparing(found: Found) -> Iterator[str]:
    settings = found.preprocess.model_dump(mode="json", exclude_none=True) if found.preprocess else {}
    if found.scores:
        tried = ", ".join(f"{value:.0%} {name}" for name, value in found.scores.items())
        yield from _comment(
            f"The samples are 8-bit values. Which of the usual ways of making inputs of them is best, labels tell: the "
            f"original is right on {tried}. That is evidence, no knowledge: take layout, resize, crop, mean and std "
            "from the model's training.",
            "  ",
        )
    elif found.raw:
        yield from _comment(
            "The samples are 8-bit values, 0 to 255, which become inputs as they are. What the model wants no file "
            "shows: take mean and std from its training, in units of these values. Many networks want:",
            "  ",
        )
        yield _example(f"preprocess: {_flow({**settings, **_NORMALISED})}", "  ")
    if settings:
        yield f"  preprocess: {_flow(settings)}"


def _rungs(found: Found) -> Iterator[str]:
    if found.kind in {"quantized", "other"}:
        yield from _comment("Nothing here can be quantized or pruned; what is left is a simpler graph.")
        yield from ("rungs:", "  - {name: fused, stages: [fuse]}")
        return
    yield from _comment(
        "The ladder, least risky first, each rung from the original. `quantize` tries every form that may win on this "
        "machine and keeps float where none is faster."
    )
    yield from ("rungs:", "  - {name: int8, stages: [quantize]}", "  - {name: int8-fused, stages: [quantize, fuse]}")
    if not found.removable:
        yield from _comment("No rung prunes: no channel can be removed. `compress inspect --prune` says why.", "  ")
    elif not found.scored:
        yield from _comment(
            f"{found.removable} channels could be pruned; with data to score, add what this loses:", "  "
        )
        yield _example("- {name: prune20-int8-fused, stages: [{prune: {ratio: 20%}}, quantize, fuse]}", "  ")
    else:
        yield from _comment(
            f"{found.removable} channels could be removed; pruning follows where INT8 is not enough.", "  "
        )
        for ratio in (20, 40):
            yield f"  - {{name: prune{ratio}-int8-fused, stages: [{{prune: {{ratio: {ratio}%}}}}, quantize, fuse]}}"


def _gates(found: Found, asked: Recipe) -> Iterator[str]:
    yield from _comment("The first rung that meets every gate is chosen.")
    yield "gates:"
    stated: list[Gate] = [gate for gate in asked.gates if isinstance(gate, Latency)]
    if not stated:
        yield from _comment(
            f"Twice what a call took here at the median, {human_ms(found.call_s * 1e3)}, and 1 ms at the least: room "
            "for the slowest percent. Put your own budget in its place.",
            "  ",
        )
        yield f"  - latency: {{p99: {_budget(found)}}}"
    for gate in (*stated, *(gate for gate in asked.gates if isinstance(gate, Accuracy))):
        if isinstance(gate, Accuracy) and found.metric and (reason := gates.unfit((gate,), found.metric)):
            yield from _comment(f"No accuracy gate: {reason}.", "  ")
        else:
            yield f"  - {_gate(gate)}"
    if not found.scored:
        yield from _comment("Without data to score, accuracy stays open, and a run ends with exit 4.", "  ")


def _gate(gate: Gate) -> str:
    settings = gate.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)
    return f"{key(type(gate))}: {_flow(settings)}"


def _budget(found: Found) -> str:
    """Write the default budget, in two digits."""
    return write_seconds(max(_LEAST_S, float(f"{_ROOM * found.call_s:.2g}")))


def _axes(name: str, axes: Mapping[int, int]) -> str:
    listed = ", ".join(f"axis {axis + 1} is {size}" for axis, size in axes.items())
    return f"input {printable(name)!r}: {listed},"


def _count(number: int) -> str:
    """Write a count for people, in three digits and a unit."""
    size, unit = next(((s, u) for s, u in ((1e9, " G"), (1e6, " M"), (1e3, " k")) if number >= s), (1.0, ""))
    return f"{number / size:.3g}{unit}"


def _path(path: Path, folder: Path) -> str:
    """Give a path as seen from the recipe, where the two have more in common than the root."""
    if is_name(path) and not path.exists():
        return str(path)
    whole, start = path.absolute(), folder.absolute()
    return os.path.relpath(whole, start) if len(Path(os.path.commonpath([whole, start])).parts) > 1 else str(whole)


def _flow(value: object) -> str:
    """Write values on one line so that they read back as they are."""
    return str(
        yaml.safe_dump(escaped(value), default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6)
    ).strip()


def _example(text: str, indent: str = "") -> str:
    """Write what takes effect without its #."""
    return f"{indent}# {printable(text)}"


def _comment(text: str, indent: str = "") -> list[str]:
    begin = f"{indent}# "
    return textwrap.wrap(
        printable(text),
        _WIDTH,
        initial_indent=begin,
        subsequent_indent=begin,
        break_long_words=False,
        break_on_hyphens=False,
    )
