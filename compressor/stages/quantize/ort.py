"""ONNX Runtime's quantizers: static, dynamic, and of weights only.

Its workarounds stand here, each with version and symptom; another of its schemes is a public function.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compressor import graph
from compressor.stages.quantize.job import Job, Ranges
from compressor.stages.quantize.ranges import usable

if TYPE_CHECKING:
    import onnx

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_CORE = (
    *("Conv", "Gemm", "MatMul", "Add", "Clip", "Relu", "AveragePool", "GlobalAveragePool", "MaxPool"),
    *("Concat", "Flatten", "Gather", "Pad", "Reshape", "Resize", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
)
"""What has integer kernels worth their while, and what hands integers on; a ConvTranspose has none in 1.32."""
_DYNAMIC = ("Attention", "EmbedLayerNormalization", "Gather", "LSTM", "MatMul", "Transpose")
"""Without Conv, whose dynamic kernel is 4 to 18 times slower than float; a Gemm is a MatMul and an Add there."""
_BLOCK = 128
_INT8_ARITHMETIC = 4  # of MatMulNBits' levels of accuracy
_NO_RANGE = "it reads or gives a tensor of which no finite values were seen"
_WIDER = "what 8 bits cover, which holds 0, does not end where it cuts off"
_GIVEN = "its input is an output of the graph, which would get its range"


def static(job: Job) -> None:
    """Insert Q/DQ pairs by the ranges of the job: activations per tensor, weights in S8 per output channel.

    What is `unquantizable` stays float.
    """
    import onnx
    from onnxruntime import quantization as q

    signed = job.symmetric or job.activations == "s8"
    with tempfile.TemporaryDirectory() as folder:
        cache, raw = Path(folder) / "ranges.json", Path(folder) / "quantized.onnx"
        _write_cache(usable(job.ranges), cache)
        q.quantize_static(
            job.model,
            raw,
            per_channel=True,
            reduce_range=job.reduce_range,
            activation_type=q.QuantType.QInt8 if signed else q.QuantType.QUInt8,
            weight_type=q.QuantType.QInt8,
            nodes_to_exclude=sorted({*job.excluded, *unquantizable(job)}),
            calibration_cache_path=cache,
            **_placement(job),
        )
        _finish(onnx.load(job.model), onnx.load(raw), job.out)


def dynamic(job: Job) -> None:
    """Quantize weights to S8 per channel; activations are quantized at run time."""
    import onnx
    from onnxruntime import quantization as q

    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "quantized.onnx"
        q.quantize_dynamic(
            job.model,
            raw,
            op_types_to_quantize=list(_DYNAMIC),
            per_channel=True,
            reduce_range=job.reduce_range,
            weight_type=q.QuantType.QInt8,
            nodes_to_exclude=_also_as_matmul(job.excluded),
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
        _finish(onnx.load(job.model), onnx.load(raw), job.out)


def weights(job: Job) -> None:
    """Store the constant weights of MatMul and Gemm in 8 bits by blocks; activations stay float.

    The products are computed with activations that are quantized by blocks at run time. Tables that a Gather reads
    stay float: onnxruntime 1.32 can only make 4 bits of them.
    """
    import onnx
    from onnxruntime.quantization import matmul_nbits_quantizer as q
    from onnxruntime.quantization.onnx_model import ONNXModel

    model = ONNXModel(onnx.load(job.model))
    model.replace_gemm_with_matmul()
    quantizer = q.MatMulNBitsQuantizer(
        model.model,
        bits=8,
        block_size=_BLOCK,
        is_symmetric=True,
        accuracy_level=_INT8_ARITHMETIC,
        nodes_to_exclude=_also_as_matmul(job.excluded),
        op_types_to_quantize=("MatMul",),
    )
    quantizer.process()
    _finish(onnx.load(job.model), quantizer.model.model, job.out)


def unquantizable(job: Job) -> dict[str, str]:
    """Give the nodes that `static` leaves float because of their ranges, with the reason."""
    import onnx

    main, ranges = onnx.load(job.model).graph, usable(job.ranges)
    kinds = _kinds(job)
    found = {**dict.fromkeys(_rangeless(main, ranges), _NO_RANGE), **_undroppable(main, ranges)}
    return {node.name: found[node.name] for node in main.node if node.name in found and node.op_type in kinds}


def _rangeless(main: onnx.GraphProto, ranges: Ranges) -> Iterator[str]:
    """Give the names of the nodes around tensors without a range, for which onnxruntime 1.32 fails."""
    from onnx import TensorProto

    others = {
        value.name
        for value in (*main.value_info, *main.input, *main.output)
        if value.type.tensor_type.elem_type not in {TensorProto.FLOAT, TensorProto.UNDEFINED}
    }
    known = {"", *ranges, *others, *(tensor.name for tensor in main.initializer)}
    return (node.name for node in main.node if not known.issuperset((*node.input, *node.output)))


def _undroppable(main: onnx.GraphProto, ranges: Ranges) -> dict[str, str]:
    """Give the activations that the range of their output does not replace, with the reason.

    onnxruntime 1.32 drops every Relu and Clip, though a range, which always holds 0, may be wider than a Clip; and it
    gives their input the range of their output, though that input may be an output of the graph.
    """
    constants = {tensor.name: tensor for tensor in main.initializer}
    outputs = {value.name for value in main.output}
    found = {}
    for node in main.node:
        if node.op_type in {"Clip", "Relu"} and node.output[0] in ranges:
            (least, greatest), (low, high) = _bounds(node, constants), ranges[node.output[0]]
            if node.input[0] in outputs:
                found[node.name] = _GIVEN
            elif not (least <= min(low, 0) and max(high, 0) <= greatest):
                found[node.name] = _WIDER
    return found


def _bounds(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> tuple[float, float]:
    """Give what a Relu or Clip cuts its values to; NaN for a bound that is computed."""
    from onnx import numpy_helper

    if node.op_type == "Relu":
        return 0.0, math.inf
    found = [-math.inf, math.inf]
    for place, name in enumerate(node.input[1:]):
        if name:
            found[place] = numpy_helper.to_array(constants[name]).item() if name in constants else math.nan
    return found[0], found[1]


def _write_cache(ranges: Ranges, cache: Path) -> None:
    from onnxruntime.quantization import calibrate as q

    pairs = {name: (np.array(low, np.float32), np.array(high, np.float32)) for name, (low, high) in ranges.items()}
    q.save_tensors_data(q.TensorsData(q.CalibrationMethod.MinMax, pairs), cache)


def _placement(job: Job) -> dict[str, Any]:
    """Say which kinds of nodes are quantized, and how.

    For TensorRT these are the inputs of what has weights, and nothing behind it: it fuses what follows by itself, and
    knows neither zero points nor quantized biases. Source: NVIDIA's TensorRT documentation, "Explicit Quantization".
    """
    if not job.symmetric:
        return {"op_types_to_quantize": _kinds(job)}
    return {
        "op_types_to_quantize": _kinds(job),
        "extra_options": {
            "ActivationSymmetric": True,
            "WeightSymmetric": True,
            "QuantizeBias": False,
            "OpTypesToExcludeOutputQuantization": list(_WEIGHTED),
        },
    }


def _kinds(job: Job) -> list[str]:
    from onnxruntime.quantization import registry

    if job.symmetric:
        return list(_WEIGHTED)
    return list(_CORE) if job.operators == "core" else sorted({*registry.QLinearOpsRegistry, *registry.QDQRegistry})


def _also_as_matmul(excluded: Collection[str]) -> list[str]:
    """Give the names, and those that onnxruntime 1.32 gives to the MatMul it makes of a Gemm before it looks."""
    return [name for node in excluded for name in (node, f"{node}_MatMul")]


def _finish(original: onnx.ModelProto, made: onnx.ModelProto, out: Path) -> None:
    """Write what the quantizer made with the original's metadata and declared shapes, its nodes sorted.

    onnxruntime 1.32 forgets what subgraphs read when it sorts, declares shapes of tensors that are gone, and marks the
    metadata.
    """
    import onnx_ir as ir

    del made.metadata_props[:]
    model = ir.from_proto(graph.inherit(original, made))
    model.graph.sort()
    proto = ir.to_proto(model)
    there = {name for node in proto.graph.node for name in node.output}
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(value for value in original.graph.value_info if value.name in there)
    graph.save(proto, out)
