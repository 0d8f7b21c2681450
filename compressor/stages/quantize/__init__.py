"""INT8 from calibration data: which scheme, which nodes stay float, and that something was quantized at all.

A new backend is a module here with `quantize`, and its branch in `Quantize.apply`.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, model_validator

from compressor import graph
from compressor.errors import RungError
from compressor.records import Did, Model, Progress, Work
from compressor.samples import Samples
from compressor.stages.quantize import nncf, ort
from compressor.stages.quantize.calibrate import calibrate
from compressor.stages.quantize.exclude import check_names, exclusions, too_wide
from compressor.stages.quantize.job import Job, translated


class Quantize(BaseModel, frozen=True, extra="forbid"):
    """Quantize weights to signed 8 bits per channel and activations to unsigned 8 bits per tensor.

    That scheme is the one that ONNX Runtime fuses to integer kernels on x86; signed activations lose to float there.
    `dynamic` computes the activations' ranges at run time: the right choice for transformers. `reduce_range` keeps
    weights to 7 bits, which is needed where the CPU's kernels saturate.
    """

    needs_evaluation: ClassVar[bool] = False

    backend: Literal["onnxruntime", "nncf"] = "onnxruntime"
    scheme: Literal["auto", "static", "dynamic"] = "auto"
    reduce_range: bool | None = None
    exclude: tuple[str, ...] = ()
    """Names of nodes that stay float."""

    @model_validator(mode="after")
    def _check_scheme(self) -> Quantize:
        if self.backend == "nncf" and self.scheme == "dynamic":
            raise ValueError("scheme dynamic is one of the backend onnxruntime; nncf is static")
        return self

    def resolve(self, model: Path, *, saturates: bool) -> Quantize:
        """Settle the scheme by the model and the range by the machine.

        Raises:
            InputError: `exclude` names a node that is not there.
        """
        if self.exclude:
            check_names(model, self.exclude)
        scheme = self.scheme
        if scheme == "auto":
            transformer = self.backend == "onnxruntime" and graph.looks_like_transformer(model)
            scheme = "dynamic" if transformer else "static"
        reduce_range = saturates if self.reduce_range is None else self.reduce_range
        return self.model_copy(update={"scheme": scheme, "reduce_range": reduce_range})

    def apply(self, model: Model, samples: Samples, out: Path) -> Work[Did]:
        """Write the quantized model to `out`; a model that is quantized already is left as it is and said so.

        Raises:
            RungError: The backend refuses the model, or quantized nothing.
        """
        if graph.is_quantized(model.path):
            graph.save(graph.load(model.path), out)
            return Did("left as it is: it is quantized already", changed=False)
        job = Job(model.path, out, samples, bool(self.reduce_range), exclusions(model.path, self.exclude))
        with translated(self.backend):
            job = yield from self._run(job)
        did = self._check(job)
        if self.scheme == "dynamic" or not samples.source.synthetic:
            return did
        graph.with_metadata(out, out, {"calibration": "synthetic"})
        what = f"{did.what}; uncalibrated: its ranges come from made-up inputs"
        return replace(did, what=what, uncalibrated=True)

    def _run(self, job: Job) -> Work[Job]:
        """Quantize, and give the job with the nodes that calibration found to be unfit excluded too."""
        if self.scheme == "dynamic":
            yield from ort.quantize_dynamic(job)
            return job
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder) / "ranges.json"
            ranges = yield from calibrate(job, cache)
            job = replace(job, excluded={**too_wide(job.model, ranges), **job.excluded})
            if self.backend == "nncf":
                yield from nncf.quantize(job)
            else:
                yield Progress("quantize")
                ort.quantize_static(job, cache)
        return job

    def _check(self, job: Job) -> Did:
        """Trust no vendor's word: count what became INT8."""
        share = graph.quantized_share(job.out)
        if not share:
            reasons = ", ".join(sorted(set(job.excluded.values()))) or f"none is of a kind that {self.scheme} takes"
            raise RungError(f"{self.backend} quantized no weight of the model: {reasons}; remove the rung")
        bits = "7-bit" if self.reduce_range else "8-bit"
        left = f"; {len(job.excluded)} node{'s' * (len(job.excluded) > 1)} left float" if job.excluded else ""
        how = f"{self.scheme} {bits}" if self.backend == "onnxruntime" else "static"
        return Did(f"{how} INT8 by {self.backend}, {share:.0%} of the weights{left}", excluded=job.excluded)
