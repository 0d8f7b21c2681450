"""Recovery of what a change took from a model: its weights are trained to answer as the original does.

No labels are needed: the original's answers to the calibration inputs, and to variations of them, are the target.
`interpreter` runs the graph in torch (with a module for each kind of operator), `batches` draws and varies inputs,
`loss` compares outputs, `distil` trains. Settings of recovery are fields of `Recover`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, Field, field_validator

from compressor import graph, machine, runtime
from compressor.errors import RungError
from compressor.records import Did, Feeds, Model, Progress, Work
from compressor.samples import Samples
from compressor.schemes import Scheme
from compressor.stages.recover.distil import BATCH, Limit, Pair, Trained, distilled, paired
from compressor.stages.recover.interpreter import Network
from compressor.stages.supply import Supply

_FEWEST = 10
_ROUNDING = 1e-6
"""Divergence, absolute and as a share: what is less says nothing."""
_NO_NUMBER = "expected a number of minutes such as 5"
_SHARE_ASIDE = 5
_MOST_ASIDE = 200
_QUANTIZED = (
    "the model is quantized already, and steps of integers cannot be trained: recover the float model, quantize what "
    "comes of it"
)


class Recover(BaseModel, frozen=True, extra="forbid"):
    """Train the weights of a pruned model to answer as the original does, on calibration inputs without labels.

    Nothing else is changed, and nothing at all unless the answers to inputs held out come closer to the original's.
    It needs torch; without it the model stays as it is.
    """

    open: ClassVar[bool] = False
    needs_evaluation: ClassVar[bool] = True
    """Nobody should train a model without data that shows what came of it."""
    imports: ClassVar[tuple[str, ...]] = ("torch",)

    steps: int = Field(600, ge=1, le=100_000)
    """Steps of 64 samples; fewer where the time is over before."""
    minutes: float = Field(5, gt=0, le=10_000)

    @field_validator("minutes", mode="before")
    @classmethod
    def _is_number(cls, given: object) -> object:
        if isinstance(given, str):
            try:
                float(given)
            except ValueError as error:
                raise ValueError(_NO_NUMBER) from error
        return given

    def resolve(self, _model: Path, _scheme: Scheme) -> Recover:
        """Give the settings as they are: none is left open."""
        return self

    def apply(self, model: Model, supply: Supply, out: Path) -> Work[Did]:
        """Write the model with trained weights to `out`, or as it is where that cannot be done or is no better.

        Raises:
            RungError: The model is quantized, or ONNX Runtime cannot run it or the original.
        """
        yield Progress("setting the model beside the original")
        if graph.is_quantized(model.path):
            raise RungError(_QUANTIZED)
        original, why = supply.original, _hindrance(supply)
        if original is None or why:
            return _unchanged(model, out, why)
        samples, held = _parts(supply)
        per_feed = samples.per_feed
        few = list(islice(held, max(2, BATCH // per_feed)))
        settings = runtime.options(machine.cpus_usable(), spinning=False)
        with closing(runtime.load(original, settings)) as teacher, closing(runtime.load(model.path, settings)) as now:
            try:
                pair = paired(Network(model.path), teacher, now, few, per_feed)
                return (yield from self._recovered(model, pair, (samples, held), out))
            except RungError as error:
                return _unchanged(model, out, str(error))

    def _recovered(self, model: Model, pair: Pair, data: tuple[Samples, _Held], out: Path) -> Work[Did]:
        """Train, and keep what comes of it if the file that was written is closer to the original."""
        samples, held = data
        trained = yield from distilled(pair, samples, held, Limit(self.steps, 60 * self.minutes))
        yield Progress("comparing with the original")
        pair.network.save(out)
        (before, feeds), (after, _) = (_divergence(pair, path, held) for path in (model.path, out))
        n = min(feeds * samples.per_feed, len(held))
        notes = tuple(self._notes(trained, len(held) - n, trained.unheard * samples.per_feed))
        of = f"divergence from the original on {n} samples held out"
        how = f"in {trained.steps} steps ({trained.seconds:.0f} s)"
        if not before - after > max(_ROUNDING, before * _ROUNDING):  # NaN is no success
            best = min(trained.best, after)
            why = f"{how} the {of} did not fall: {before:.4g} before, {best:.4g} at best"
            return replace(_unchanged(model, out, why), notes=notes)
        return Did(f"trained towards the original {how}: {of} fell from {before:.4g} to {after:.4g}", notes=notes)

    def _notes(self, trained: Trained, held_out: int, drawn: int) -> Iterator[str]:
        if trained.steps < self.steps:
            yield (
                f"recover: stopped by `minutes` after {trained.steps} of {self.steps} steps, so that another run ends "
                "with other weights; give more minutes"
            )
        if trained.skipped:
            yield f"recover: {trained.skipped} of {trained.steps} steps were skipped, their gradient was not finite"
        if held_out or drawn:
            yield (
                f"recover: samples were left out as the original's answer to them is not finite: {held_out} of those "
                f"held out, {drawn} of those drawn in training"
            )


@dataclass(frozen=True)
class _Held:
    """Samples that are not trained on, from several parts."""

    parts: tuple[Samples, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[Feeds]:
        return chain.from_iterable(self.parts)


def _hindrance(supply: Supply) -> str:
    """Say why nothing can be learnt; empty if something can."""
    try:
        import torch  # noqa: F401 - whether it is there
    except ImportError:
        return "torch is not installed; pip install 'compressor[torch]'"
    if supply.original is None:
        return "the original is not at hand"
    if not supply.steady:
        return "the outputs of this model do not repeat, so nothing can be learnt from them"
    if supply.calibration.source.synthetic:
        return "made-up inputs teach nothing; give calibration data"
    n = len(supply.calibration)
    return f"of {n} samples too few are left to hold some out; give {_FEWEST} or more" if n < _FEWEST else ""


def _parts(supply: Supply) -> tuple[Samples, _Held]:
    """Divide what calibrates into samples to train on and others, to which those come that are held out anyway."""
    n = len(supply.calibration)
    train, aside = supply.calibration.split(n - min(_MOST_ASIDE, n // _SHARE_ASIDE), seed=0)
    further = supply.held_out.without(train).without(aside)
    return _whole(train), _Held((_whole(aside), _whole(further)))


def _whole(samples: Samples) -> Samples:
    """Leave out what fills no feed, as its filler would count like samples; but keep what is less than one feed."""
    return samples.take(len(samples) // samples.per_feed * samples.per_feed or len(samples), seed=0)


def _divergence(pair: Pair, changed: Path, held: _Held) -> tuple[float, int]:
    """Give the divergence from the original of a file as ONNX Runtime computes it, and of how many feeds it is."""
    with closing(runtime.load(changed, runtime.options(machine.cpus_usable(), spinning=False))) as session:
        heard = ((wanted, feed) for feed in held if pair.loss.hears(wanted := pair.original(feed)))
        found = [pair.compared(wanted, session(feed)) for wanted, feed in heard]
    return sum(found) / len(found), len(found)


def _unchanged(model: Model, out: Path, why: str) -> Did:
    graph.save(graph.load(model.path), out)
    return Did(f"recover did nothing: {why}", changed=False)
