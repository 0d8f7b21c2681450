"""Intel's NNCF: per-tensor activations, rewritten from signed to unsigned so that ONNX Runtime fuses them.

Its workarounds stand here, each with version and symptom.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from compressor import graph
from compressor.records import Feeds, Progress, Work
from compressor.stages.quantize.job import Job

if TYPE_CHECKING:
    import onnx

_SIGNED_TO_UNSIGNED = 128
_POLL_S = 0.1


def quantize(job: Job) -> Work[None]:
    """Insert Q/DQ pairs by NNCF's post-training quantization with fast bias correction.

    NNCF knows no generators: it runs in a thread, and how many feeds it has taken is told meanwhile.
    """
    import onnx

    model = onnx.load(job.model)
    feeds = _Counted(job)
    with ThreadPoolExecutor(1) as executor:
        made = executor.submit(_insert, model, feeds, job)
        while not made.done():
            yield Progress("quantize", feeds.taken, job.feeds)
            time.sleep(_POLL_S)
    graph.save(graph.inherit(model, unsigned(made.result())), job.out)


def unsigned(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give the same model with every signed 8-bit activation quantizer shifted to unsigned: equal numbers, other codes.

    Weights (quantized constants) stay signed.
    """
    import onnx
    from onnx import numpy_helper

    result = onnx.ModelProto()
    result.CopyFrom(model)
    constants = {tensor.name: tensor for tensor in result.graph.initializer}
    quantized = {
        node.output[0]
        for node in result.graph.node
        if node.op_type == "QuantizeLinear" and node.input[0] not in constants and _is_signed(constants, node)
    }
    for node in result.graph.node:
        if node.op_type in {"QuantizeLinear", "DequantizeLinear"} and quantized & {node.input[0], node.output[0]}:
            zero_point = numpy_helper.to_array(constants[node.input[2]])
            shifted = (zero_point.astype(np.int16) + _SIGNED_TO_UNSIGNED).astype(np.uint8)
            name = f"{node.input[2]}_unsigned"
            if name not in constants:
                result.graph.initializer.append(numpy_helper.from_array(shifted, name))
                constants[name] = result.graph.initializer[-1]
            node.input[2] = name
    del result.graph.value_info[:]  # they still give the signed type
    return result


class _Counted:
    """Feeds that count how many of them were taken."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.taken = 0

    def __iter__(self) -> Iterator[Feeds]:
        self.taken = 0
        for feeds in self._job.samples:
            self.taken += 1
            yield feeds

    def __len__(self) -> int:
        return self._job.feeds


def _insert(model: onnx.ModelProto, feeds: _Counted, job: Job) -> onnx.ModelProto:
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # NNCF then falls back to its own stub
    import nncf

    settings = nncf.quantization.advanced_parameters
    overflow = settings.OverflowFix.ENABLE if job.reduce_range else settings.OverflowFix.DISABLE
    # nncf 3.4 quantizes the activations of depthwise Conv per channel, which ONNX Runtime cannot fuse
    activations = settings.QuantizationParameters(per_channel=False)
    return nncf.quantize(
        model,
        nncf.Dataset(feeds),
        subset_size=len(feeds),
        model_type=nncf.ModelType.TRANSFORMER if graph.looks_like_transformer(job.model) else None,
        ignored_scope=nncf.IgnoredScope(names=list(job.excluded), validate=False),
        advanced_parameters=settings.AdvancedQuantizationParameters(
            activations_quantization_params=activations, overflow_fix=overflow
        ),
    )


def _is_signed(constants: dict[str, onnx.TensorProto], node: onnx.NodeProto) -> bool:
    from onnx import TensorProto

    has_zero_point = len(node.input) > 2 and node.input[2] in constants  # noqa: PLR2004 - the third input, by the standard
    return has_zero_point and constants[node.input[2]].data_type == TensorProto.INT8
