"""Pieces of work in children that look at outputs: what they are worth, and how far they are from the original's.

What else a run over all samples tells is a field of `Quality`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from compressor import graph, runtime, score
from compressor.errors import InputError, RungError
from compressor.pipeline.built import Built
from compressor.records import File, OutputError, Outputs, Score, Work
from compressor.samples import Samples


@dataclass(frozen=True)
class Scoring:
    """How outputs are judged: by what is `wanted`, if anything, and, of a `steady` model, against the original's.

    `exact`: the arithmetic of integers and of FP16 is emulated, because the kernels that matter are another machine's.
    """

    wanted: score.Wanted | None
    samples: Samples
    saturates: bool
    steady: bool
    exact: bool = False

    def score(self, before: score.Recorded, now: score.Recorded) -> Score | None:
        """Score recorded outputs against the labels, or against the original's outputs."""
        if self.wanted is None:
            return None
        return score.score(self.wanted, before.open(), now.open(), self.samples.labels(), before.uneven)


@dataclass(frozen=True)
class Quality:
    """What an artifact gave for all samples, and what that is worth.

    `errors` are of outputs of floating-point numbers; `unequal` are the others that are not those of the original.
    """

    outputs: score.Recorded
    score: Score | None
    errors: Mapping[str, OutputError] = field(default_factory=dict)
    unequal: tuple[str, ...] = ()


def quality(built: Built, scoring: Scoring, before: score.Recorded | None, run: Path, folder: Path) -> Work[Quality]:
    """Run an artifact over the samples and judge it beside the baseline; by itself without `before`.

    Where this CPU's integer kernels can saturate, it is scored once more with exact integer arithmetic.

    Raises:
        InputError: The baseline is no better than guessing, or cannot be scored: a comparison would prove nothing.
    """
    outputs = yield from recorded(built, scoring, run, folder)
    if before is None:
        return Quality(outputs, _baseline_score(scoring, outputs))
    outputs.check_like(before)
    found = _candidate_score(scoring, before, outputs)
    if found and scoring.exact:
        found = replace(found, emulated=found.value)
    if found and scoring.saturates and not scoring.exact and graph.holds_qdq(run / built.artifact.files[0].path):
        ideal = yield from _outputs(_emulated(built), scoring, run, folder / "exact")
        exactly = scoring.score(before, ideal)
        found = replace(found, emulated=exactly.value if exactly else None)
    if not scoring.steady:
        return Quality(outputs, found)
    then, now = before.open(), outputs.open()
    return Quality(outputs, found, score.errors(then, now), _unequal(then, now))


def contrast(pair: tuple[Built, Built], scoring: Scoring, run: Path, folder: Path) -> Work[tuple[Quality, Quality]]:
    """Judge a first artifact by itself and a second beside it."""
    one = yield from quality(pair[0], scoring, None, run, folder / "before")
    return one, (yield from quality(pair[1], scoring, one.outputs, run, folder / "after"))


def recorded(built: Built, scoring: Scoring, run: Path, folder: Path) -> Work[score.Recorded]:
    """Run an artifact over the samples, with exact arithmetic where that is asked; its outputs lie in `folder`."""
    if scoring.exact:
        built = _emulated(_rounded(built, run, folder))
    return (yield from _outputs(built, scoring, run, folder / "real"))


def contrasted(
    scoring: Scoring, original: score.Recorded, before: score.Recorded, now: score.Recorded
) -> tuple[Score, Score]:
    """Score two artifacts on the same samples, the second beside the first.

    Raises:
        RungError: The first gives something else than can be scored.
    """
    if scoring.wanted is None:
        raise RungError("there is no metric")
    if missing := original.files.keys() - before.files.keys():
        raise RungError(f"output {min(missing)!r} is not there for every sample")
    before.check_like(original)
    outputs = before.open(), now.open()
    try:
        return score.contrast(scoring.wanted, outputs, scoring.samples.labels(), original.open(), original.uneven)
    except InputError as error:
        raise RungError(str(error)) from error


def _outputs(built: Built, scoring: Scoring, run: Path, folder: Path) -> Work[score.Recorded]:
    folder.mkdir(parents=True)
    return (yield from score.outputs(built.open(run), scoring.samples, folder))


def _emulated(built: Built) -> Built:
    return replace(built, artifact=replace(built.artifact, options=runtime.emulated(built.artifact.options)))


def _rounded(built: Built, run: Path, folder: Path) -> Built:
    """Give what rounds to FP16 as a GPU does, which a CPU does not, in the place of a graph with such types."""
    first, out = run / built.artifact.files[0].path, folder / "rounded" / "model.onnx"
    out.parent.mkdir(parents=True)
    if built.artifact.is_engine or not runtime.rounded(first, out):
        return built
    files = (File(str(out), "", out.stat().st_size),)  # nobody ships it
    return replace(built, artifact=replace(built.artifact, files=files))


def _candidate_score(scoring: Scoring, before: score.Recorded, recorded: score.Recorded) -> Score | None:
    if scoring.wanted and score.metric(scoring.wanted.metric).reference and score.mute(before.open(), before.shapes):
        raise RungError(
            "the original model gives the same for every sample, or for every class, so that nothing can be seen by "
            "comparing: give samples that differ, or the trained weights"
        )
    try:
        return scoring.score(before, recorded)
    except InputError as error:  # the metric took the baseline's outputs, so it is the candidate's that are wrong
        raise RungError(str(error)) from error


def _baseline_score(scoring: Scoring, recorded: score.Recorded) -> Score | None:
    if scoring.wanted is None:
        return None
    recorded.check()
    if broken := score.broken(recorded.open()):
        raise InputError(f"the original model: {broken}; nothing can be compared with that: repair model or data")
    found, labels = scoring.score(recorded, recorded), scoring.samples.labels()
    if found and not math.isfinite(found.value):
        raise InputError(
            f"data.metric: {found.metric} of the original model is {found.value}, with which nothing can be compared: "
            "repair the metric, the labels or the model"
        )
    if found and labels is not None and (doubt := score.near_chance(found, labels)):
        raise InputError(doubt)
    return found and replace(found, drop=None, drop_low=None, drop_high=None, worst=None)


def _unequal(before: Outputs, now: Outputs) -> tuple[str, ...]:
    exact = [name for name, value in before.items() if value.dtype.kind != "f"]
    return tuple(name for name in exact if not np.array_equal(before[name], now[name]))
