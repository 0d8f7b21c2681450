"""ONNX Runtime's quantizer, static and dynamic.

Its workarounds stand here, each with version and symptom.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from compressor import graph
from compressor.records import Progress, Work
from compressor.stages.quantize.job import Job

_DYNAMIC = ("Attention", "EmbedLayerNormalization", "Gather", "LSTM", "MatMul", "Transpose")
"""Without Conv, whose dynamic kernel is 4 to 18 times slower than float; a Gemm is a MatMul and an Add there."""


def quantize_static(job: Job, cache: Path) -> None:
    """Insert Q/DQ pairs: U8 activations per tensor by the ranges in `cache`, S8 weights per channel."""
    from onnxruntime import quantization as q

    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "quantized.onnx"
        q.quantize_static(
            job.model,
            raw,
            quant_format=q.QuantFormat.QDQ,
            per_channel=True,
            reduce_range=job.reduce_range,
            activation_type=q.QuantType.QUInt8,
            weight_type=q.QuantType.QInt8,
            nodes_to_exclude=list(job.excluded),
            calibration_cache_path=cache,
        )
        _finish(job, raw)


def quantize_dynamic(job: Job) -> Work[None]:
    """Quantize weights to S8 per channel; activations are quantized at run time."""
    import onnx
    from onnxruntime import quantization as q

    yield Progress("quantize weights")
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "quantized.onnx"
        q.quantize_dynamic(
            job.model,
            raw,
            op_types_to_quantize=list(_DYNAMIC),
            per_channel=True,
            reduce_range=job.reduce_range,
            weight_type=q.QuantType.QInt8,
            # onnxruntime 1.32 makes a MatMul of each Gemm, under this name, before it looks at what to exclude
            nodes_to_exclude=[name for node in job.excluded for name in (node, f"{node}_MatMul")],
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
        _finish(job, raw)


def _finish(job: Job, raw: Path) -> None:
    """Write what the quantizer made with the original's metadata and declared shapes, its nodes sorted.

    onnxruntime 1.32 forgets what subgraphs read when it sorts, declares shapes of tensors that are gone, and marks the
    metadata.
    """
    import onnx
    import onnx_ir as ir

    original, made = onnx.load(job.model), onnx.load(raw)
    del made.metadata_props[:]
    model = ir.from_proto(graph.inherit(original, made))
    model.graph.sort()
    proto = ir.to_proto(model)
    there = {name for node in proto.graph.node for name in node.output}
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(value for value in original.graph.value_info if value.name in there)
    graph.save(proto, job.out)
