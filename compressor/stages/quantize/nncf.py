"""Intel's NNCF, which decides where Q/DQ pairs stand; the ranges of activations are ours.

Its workarounds stand here, each with version and symptom.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from compressor import graph, runtime
from compressor.errors import RungError
from compressor.records import Array, Feeds
from compressor.stages.quantize.job import Job, Ranges
from compressor.stages.quantize.ranges import usable
from compressor.units import human_bytes

if TYPE_CHECKING:
    import onnx

_MOST_BYTES = 1_800_000_000
_STEPS = 255
_SYMMETRIC_STEPS = 127
"""On either side of 0."""


class _Codes(NamedTuple):
    """Scale and zero point of one activation."""

    scale: Array
    zero_point: Array


def static(job: Job, feeds: Iterable[Feeds]) -> None:
    """Insert Q/DQ pairs where NNCF wants them, by the ranges of the job: per tensor, weights in S8 per channel.

    NNCF itself looks at `feeds`, of which one is enough; a tensor without a range of ours keeps the one it saw.
    """
    import onnx

    if runtime.custom_ops.libraries():
        raise RungError("nncf runs the model in sessions of its own, which know no custom operators")
    if (size := graph.summary(job.model).size_bytes) > _MOST_BYTES:
        raise RungError(f"nncf holds a model several times over, for which {human_bytes(size)} are too much")
    model = onnx.load(job.model)
    made = _insert(model, [dict(feed) for feed in feeds], job)
    signed = job.symmetric or job.activations == "s8"
    made = with_ranges(made, job.ranges, signed=signed, symmetric=job.symmetric)
    graph.save(graph.inherit(model, made), job.out)


def with_ranges(model: onnx.ModelProto, ranges: Ranges, *, signed: bool, symmetric: bool = False) -> onnx.ModelProto:
    """Give the model with these ranges in its activations' Q/DQ pairs, all in signed or all in unsigned codes.

    A pair without a range keeps the one it has. If `symmetric`, codes are signed and their zero points 0. Quantized
    constants stay as they are; NNCF quantizes no bias.
    """
    import onnx
    from onnx import numpy_helper

    result = onnx.ModelProto()
    result.CopyFrom(model)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in result.graph.initializer}
    known = usable(ranges)
    codes = {}
    for node in result.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] not in constants:
            low, high = known.get(node.input[0]) or _found(node, constants)
            codes[node.output[0]] = _symmetric(low, high) if symmetric else _codes(low, high, signed=signed)
    _replace(result.graph, codes)
    del result.graph.value_info[:]  # they may give the other type
    return result


def _insert(model: onnx.ModelProto, feeds: list[dict[str, Array]], job: Job) -> onnx.ModelProto:
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # NNCF then falls back to its own stub
    import nncf

    settings = nncf.quantization.advanced_parameters
    overflow = settings.OverflowFix.ENABLE if job.reduce_range else settings.OverflowFix.DISABLE
    # nncf 3.4 quantizes the activations of depthwise Conv per channel, which ONNX Runtime cannot fuse
    activations = settings.QuantizationParameters(per_channel=False)
    # it would make new tensors, whose ranges nobody but its few feeds knows
    unsmoothed = settings.AdvancedSmoothQuantParameters(convolution=-1, matmul=-1)
    return nncf.quantize(
        model,
        nncf.Dataset(feeds),
        subset_size=len(feeds),
        model_type=nncf.ModelType.TRANSFORMER if graph.looks_like_transformer(job.model) else None,
        ignored_scope=nncf.IgnoredScope(names=list(job.excluded), validate=False),
        advanced_parameters=settings.AdvancedQuantizationParameters(
            activations_quantization_params=activations,
            overflow_fix=overflow,
            disable_bias_correction=True,
            smooth_quant_alphas=unsmoothed,
        ),
    )


def _found(node: onnx.NodeProto, constants: dict[str, Array]) -> tuple[float, float]:
    """Give the range that a QuantizeLinear covers; without a zero point it gives UINT8 around 0."""
    zero_point = constants[node.input[2]] if len(node.input) > 2 else np.zeros((), np.uint8)  # noqa: PLR2004 - the third, by the standard
    limits, step = np.iinfo(zero_point.dtype), constants[node.input[1]].astype(np.float64)
    ends = [(end - zero_point.astype(np.int64)) * step for end in (limits.min, limits.max)]
    return float(np.min(ends)), float(np.max(ends))


def _codes(low: float, high: float, *, signed: bool) -> _Codes:
    """Cover the range with 256 codes, 0.0 among them."""
    kind = np.int8 if signed else np.uint8
    low, high = min(low, 0.0), max(high, 0.0)
    step = (high - low) / _STEPS
    return _Codes(np.array(step, np.float32), np.array(np.round(np.iinfo(kind).min - low / step), kind))


def _symmetric(low: float, high: float) -> _Codes:
    return _Codes(np.array(max(-low, high) / _SYMMETRIC_STEPS, np.float32), np.zeros((), np.int8))


def _replace(main: onnx.GraphProto, codes: Mapping[str, _Codes]) -> None:
    """Let the Q/DQ pairs around these quantized tensors read parameters of their own, and drop the old ones."""
    from onnx import numpy_helper

    old: set[str] = set()
    for node in main.node:
        quantized = {"QuantizeLinear": node.output, "DequantizeLinear": node.input}.get(node.op_type, [""])[0]
        if quantized in codes:
            old |= {*node.input[1:]}
            del node.input[1:]
            node.input.extend(f"{quantized}_{field}" for field in _Codes._fields)
    unread = old - {name for node in main.node for name in node.input}
    kept = [tensor for tensor in main.initializer if tensor.name not in unread]
    del main.initializer[:]
    main.initializer.extend(kept)
    for quantized, pair in codes.items():
        for field, array in pair._asdict().items():
            main.initializer.append(numpy_helper.from_array(array, f"{quantized}_{field}"))
