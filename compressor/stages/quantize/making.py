"""One way of quantizing, from the float model to the file: prepared, calibrated, quantized, repaired, made small.

What is decided by looking at held-out samples is decided here; another kind of quantizer is a line in `_Making._make`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from compressor import graph, runtime
from compressor.errors import RungError
from compressor.records import Did, Feeds, Progress, Work
from compressor.samples import Samples
from compressor.stages.quantize import nncf, ort
from compressor.stages.quantize.bias import corrected
from compressor.stages.quantize.compact import compact
from compressor.stages.quantize.exclude import exclusions, too_wide
from compressor.stages.quantize.job import Job, translated
from compressor.stages.quantize.prepare import prepare
from compressor.stages.quantize.ranges import Fitted, Method, ranges
from compressor.stages.quantize.repair import repaired
from compressor.stages.quantize.statistics import Statistics, gather
from compressor.stages.quantize.unsigned import unsaturated, unsigned
from compressor.stages.supply import Supply

if TYPE_CHECKING:
    from compressor.stages.quantize import Quantize

_LOOKED_AT = 16
"""Held-out feeds over which choices are made."""
_WORTH_DB = 0.5
"""What a choice must gain over the simpler one; less may be another way round on other samples."""
_SAME_DB = 30.0
"""Rounding in float16 leaves 40 to 60 dB, a few classes that it flips of an output of classes over 30; a wrong graph is
below 20 dB."""
_NAMED = 3
"""Names in a note at the most."""
_UNSTEADY = "the model gives other outputs when it is run again: nothing was chosen or mended by looking at them"


def quantized(how: Quantize, model: Path, supply: Supply, out: Path) -> Work[Did]:
    """Write the model, quantized in one settled way, to `out`.

    Raises:
        RungError: The quantizer refuses the model, or quantized nothing; or no exact rewriting makes it fit for one.
    """
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        done = yield from _prepared(model, supply, prepared)
        job = Job(
            model=prepared,
            out=Path(folder) / "int8.onnx",
            excluded=exclusions(prepared, how.exclude),
            activations=how.activations or "u8",
            symmetric=bool(how.symmetric),
            reduce_range=bool(how.reduce_range),
            operators=how.operators or "core",
        )
        making = _Making(how, supply, exact=runtime.saturates())
        made = yield from (making.static(job) if how.scheme == "static" else making.mended(job, None))
        return (yield from making.finished(replace(made, notes=(*done, *made.notes)), out))


def _prepared(model: Path, supply: Supply, out: Path) -> Work[tuple[str, ...]]:
    """Prepare a model, and make sure by running both that it computes the same; all that follows is held against it."""
    done = prepare(model, out)
    if done and supply.steady:
        found_db = yield from runtime.worst_db(model, out, _First(supply.held_out))
        if found_db < _SAME_DB:
            raise RungError(
                f"rewritten for quantizers the model computes something else ({found_db:.0f} dB; {'; '.join(done)}): "
                "export it in float32"
            )
    return done


@dataclass(frozen=True)
class _Choice:
    """What was chosen for a static scheme: ranges by a method, and the statistics by which biases are corrected."""

    fitted: Fitted
    method: Method
    means: Statistics | None


@dataclass(frozen=True)
class _Built:
    """A file that was built, how, which nodes looking at it left float, and what there is to say about it."""

    job: Job
    choice: _Choice | None
    mended: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Making:
    """Makes one way of quantizing."""

    how: Quantize
    supply: Supply
    exact: bool  # arithmetic while making: of kernels that saturate, whose error is mended by itself, or are not these

    def static(self, job: Job) -> Work[_Built]:
        """Calibrate, choose how ranges and biases come from that, and mend what is still wrong."""
        seen = yield from gather(job.model, self.supply)
        job = replace(job, excluded={**too_wide(job.model, seen.extremes), **job.excluded})
        choice = yield from self._chosen(job, seen)
        job = replace(job, ranges=choice.fitted.ranges)
        if self.how.backend != "nncf":
            job = replace(job, excluded={**ort.unquantizable(job), **job.excluded})
        made = yield from self.mended(job, choice)
        return replace(made, notes=(*_dead(seen), *made.notes))

    def mended(self, job: Job, choice: _Choice | None) -> Work[_Built]:
        """Build, with the nodes that INT8 ruins left float."""
        yield Progress("quantize")
        if not self.supply.steady:
            self._build(job, choice)
            return _Built(job, choice, (), (_UNSTEADY,))
        found = yield from repaired(lambda each: self._build(each, choice), job, self._held_out(), exact=self.exact)
        mended = tuple(name for name in found.job.excluded if name not in job.excluded)
        return _Built(found.job, choice, mended, found.notes)

    def finished(self, made: _Built, out: Path) -> Work[Did]:
        """Give saturating layers unsigned weights, make the file small, and count what became INT8."""
        import onnx

        quantized, names = made.job.out, self.how.unsigned
        if self.how.scheme == "static" and names is None:
            names = yield from unsaturated(made.job.model, quantized, self._held_out())
        model = onnx.load(quantized)
        graph.save(compact(unsigned(model, names) if names else model), out)
        if self._made_up():
            graph.with_metadata(out, out, {"calibration": "synthetic"})
        share = graph.quantized_share(out)
        if not share:
            reasons = ", ".join(sorted(set(made.job.excluded.values()))) or f"{self.how.scheme} takes none of its kind"
            raise RungError(f"{self.how.backend} quantized no weight of the model: {reasons}")
        what = "; ".join(self._said(made, share, names or ()))
        settled = self._settled(made, names or ())
        return Did(what, uncalibrated=self._made_up(), excluded=made.job.excluded, settled=settled, notes=made.notes)

    def _chosen(self, job: Job, seen: Statistics) -> Work[_Choice]:
        """Take ranges of min-max unless the whole model gains on held-out samples by choosing tensor by tensor."""
        methods: tuple[Method, ...] = ("minmax", "tensor") if self.supply.steady else ("minmax",)
        methods = methods if self.how.ranges == "auto" else (self.how.ranges,)
        means = seen if self.how.correct_bias else None
        choices = [_Choice(ranges(seen, method, symmetric=job.symmetric), method, means) for method in methods]
        best, best_db = choices[0], -runtime.IDENTICAL_DB
        for number, choice in enumerate(choices if len(choices) > 1 else ()):
            yield Progress("choose ranges", number, len(choices))
            self._build(replace(job, ranges=choice.fitted.ranges), choice)
            found = yield from self._db(job)
            if found > best_db + (_WORTH_DB if number else 0):
                best, best_db = choice, found
        return best

    def _db(self, job: Job) -> Work[float]:
        try:
            return (yield from runtime.worst_db(job.model, job.out, self._held_out(), exact=self.exact))
        except RungError:  # not finite, or no model at all: worse than any other choice
            return -runtime.IDENTICAL_DB

    def _build(self, job: Job, choice: _Choice | None) -> None:
        with translated(self.how.backend or "onnxruntime"):  # what it wrote may not be readable either
            self._make(job)
            if choice and choice.means:
                corrected(job.model, job.out, job.out, choice.means)

    def _make(self, job: Job) -> None:
        """Let the quantizer write the file."""
        if self.how.scheme == "dynamic":
            ort.dynamic(job)
        elif self.how.scheme == "weights":
            ort.weights(job)
        elif self.how.backend == "nncf":
            nncf.static(job, islice(self.supply.calibration, 1))
        else:
            ort.static(job)

    def _held_out(self) -> _First:
        return _First(self.supply.held_out)

    def _made_up(self) -> bool:
        return self.how.scheme == "static" and self.supply.calibration.source.synthetic

    def _settled(self, made: _Built, unsigned_names: tuple[str, ...]) -> Mapping[str, object]:
        """Give the choices, with which the same file comes out again."""
        settled: dict[str, object] = {"exclude": (*self.how.exclude, *made.mended)}
        return {**settled, "ranges": made.choice.method, "unsigned": unsigned_names} if made.choice else settled

    def _said(self, made: _Built, share: float, unsigned_names: tuple[str, ...]) -> Iterator[str]:
        bits = "7-bit" if self.how.reduce_range else "8-bit"
        yield f"{self.how.scheme} {bits} INT8 by {self.how.backend}, {share:.0%} of the weights"
        if count := len(made.job.excluded):
            yield f"{count} node{'s' * (count > 1)} left float"
        if made.choice and (clipped := len(made.choice.fitted.clipped)):
            yield f"the ranges of {clipped} of {len(made.choice.fitted.ranges)} tensors are narrower than what was seen"
        if unsigned_names:
            yield f"unsigned weights, which cannot saturate, in {len(unsigned_names)} of the layers"
        if self._made_up():
            yield "uncalibrated: its ranges come from made-up inputs"


@dataclass(frozen=True)
class _First:
    """The first feeds of some samples, iterated anew each time."""

    samples: Samples

    def __iter__(self) -> Iterator[Feeds]:
        return islice(self.samples, _LOOKED_AT)


def _dead(seen: Statistics) -> Iterator[str]:
    """Say which tensors never moved: a branch that is dead, or samples that do not reach it."""
    for names, what in ((seen.zero, "always zero"), (seen.constant, "always the same")):
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            yield f"{what} on all calibration samples: {', '.join(map(repr, names[:_NAMED]))}{more}"
