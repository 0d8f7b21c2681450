"""INT8 from calibration data: which way of quantizing, which nodes stay float, and that something was quantized at all.

`ways` lists what is worth a look, `making` makes one of them: `prepare` and `exclude` before, `statistics` and
`ranges` for the activations, `ort` (with `decisions`) or `nncf` for the Q/DQ pairs, `bias`, `layers` and `repair` for
what they got wrong, `compact` for the file. A new way is a line in `ways` and its branch in `making`.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, model_validator

from compressor import graph
from compressor.errors import InputError
from compressor.records import Did, Model, Work
from compressor.schemes import Scheme
from compressor.stages.quantize.exclude import check_names
from compressor.stages.quantize.making import quantized
from compressor.stages.quantize.ways import ways
from compressor.stages.supply import Supply

_NNCF = ("nncf.torch", "nncf.onnx.quantization.quantize_model", "onnx.reference")
"""What nncf 3.4 loads; of torch it wants everything, whatever the model is."""


class Quantize(BaseModel, frozen=True, extra="forbid"):
    """Quantize weights to signed 8 bits per channel, and activations to 8 bits per tensor.

    `scheme: auto` makes every way that may win on the target, keeps those that are exact enough on held-out samples,
    and takes the fastest if it is faster than float; else the model stays float. Any other value is taken at its word.
    `static`: ranges of activations from calibration samples. `dynamic`: they are found at run time, right for
    transformers. `weights`: only the weights of matrix products are quantized. `float`: nothing is.
    """

    needs_evaluation: ClassVar[bool] = False

    scheme: Literal["auto", "static", "dynamic", "weights", "float"] = "auto"
    backend: Literal["onnxruntime", "nncf"] | None = None
    """Who decides where Q/DQ pairs stand; unset: whoever is faster, or onnxruntime where a scheme is named."""
    operators: Literal["core", "all"] | None = None
    """Of a static scheme: only operators with weights and what lies between them, or all that have integer kernels."""
    activations: Literal["u8", "s8"] | None = None
    """Unset: what the target's kernels are fast with."""
    symmetric: bool | None = None
    """Zero points of 0 and float biases, as TensorRT reads them; unset: what the target needs."""
    reduce_range: bool | None = None
    """Weights of 7 bits, with which kernels cannot saturate; unset: as the target and the scheme need it."""
    ranges: Literal["auto", "minmax", "percentile", "mse", "tensor"] = "auto"
    """How ranges come from calibration; tensor: for each what is best on held-out samples; auto: if the model gains."""
    correct_bias: bool = True
    """Take the mean error of quantized weights out of the biases of static INT8; it costs nothing at run time."""
    unsigned: tuple[str, ...] | None = None
    """Nodes with unsigned weights, with which kernels cannot saturate; unset: those that do on this machine."""
    exclude: tuple[str, ...] = ()
    """Names of nodes that stay float."""

    @property
    def open(self) -> bool:
        """Whether there is a choice that only making and timing can settle."""
        return self.scheme == "auto"

    @property
    def imports(self) -> tuple[str, ...]:
        """Vendor packages that applying it loads."""
        return _NNCF if self.backend == "nncf" else ()

    @model_validator(mode="after")
    def _check_scheme(self) -> Quantize:
        if self.backend == "nncf" and self.scheme in {"dynamic", "weights"}:
            raise ValueError(f"scheme {self.scheme} is one of the backend onnxruntime; nncf is static")
        return self

    def resolve(self, _model: Path, scheme: Scheme) -> Quantize:
        """Settle what depends on the target alone; what is stated already stays.

        Raises:
            InputError: The target cannot read the scheme.
        """
        if self.scheme == "float":
            return self
        if scheme.engine != "cpu" and self.scheme in {"dynamic", "weights"}:
            raise InputError(f"quantize: scheme {self.scheme} is for CPUs, not for {scheme.name}: use static, or auto")
        settled: dict[str, object] = {
            "activations": self.activations or scheme.activations,
            "symmetric": scheme.symmetric if self.symmetric is None else self.symmetric,
        }
        if not (scheme.saturates and scheme.here):
            settled["unsigned"] = self.unsigned or ()
        if self.scheme != "auto":
            # Where the CPU is another one, which of its layers saturate cannot be seen: 7 bits avoid it for all.
            seven = scheme.saturates and (self.scheme == "dynamic" or not scheme.here)
            settled["reduce_range"] = seven if self.reduce_range is None else self.reduce_range
            settled["backend"] = self.backend or "onnxruntime"
        if self.scheme == "static" and self.backend != "nncf":  # which decides by itself
            settled["operators"] = self.operators or "core"
        return self.model_copy(update=settled)

    def check(self, model: Path) -> None:
        """Make sure that a model that no stage has changed has the nodes that the settings name.

        Raises:
            InputError: `exclude` or `unsigned` names a node that is not there.
        """
        if named := (*self.exclude, *(self.unsigned or ())):
            check_names(model, named)

    def candidates(self, model: Path, scheme: Scheme) -> tuple[Quantize, ...]:
        """Give the ways worth a look that are as the recipe states and, last, to leave the model float."""
        if _needless(model):
            return (Quantize(scheme="float"),)
        stated = self.model_dump(exclude={"scheme"}, exclude_none=True)
        fitting = (way for way in ways(model, scheme) if all(stated.get(key, way[key]) == way[key] for key in way))
        found = (Quantize(**{**stated, **way}).resolve(model, scheme) for way in fitting)
        return (*dict.fromkeys(found), Quantize(scheme="float"))

    def apply(self, model: Model, supply: Supply, out: Path) -> Work[Did]:
        """Write the quantized model to `out`; one that is quantized, or has nothing for it, is left and said so.

        Raises:
            RungError: The backend refuses the model, or quantized nothing.
        """
        if self.scheme == "float" or _needless(model.path):
            graph.save(graph.load(model.path), out)
            return Did(f"left as it is: {_needless(model.path) or 'the recipe says so'}", changed=False)
        return (yield from quantized(self, model.path, supply, out))


def _needless(model: Path) -> str:
    """Say why nothing of a model can be quantized; empty where something may be."""
    if graph.is_quantized(model):
        return "it is quantized already"
    if graph.has_products(model):
        return ""
    operators = ", ".join(graph.summary(model).operators) or "none"
    return f"nothing to quantize, as no operator convolves, multiplies matrices or looks rows up (found: {operators})"
