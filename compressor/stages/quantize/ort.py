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
from compressor.stages.quantize import large
from compressor.stages.quantize.decisions import undo_rounding
from compressor.stages.quantize.job import Job, Ranges
from compressor.stages.quantize.large import Shown
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
        seen = large.shown(job.model, Path(folder) / "shown.onnx")
        q.quantize_static(
            seen.path,
            raw,
            per_channel=True,
            reduce_range=job.reduce_range,
            activation_type=q.QuantType.QInt8 if signed else q.QuantType.QUInt8,
            weight_type=q.QuantType.QInt8,
            nodes_to_exclude=sorted({*job.excluded, *unquantizable(job)}),
            calibration_cache_path=cache,
            use_external_data_format=_is_pair(seen.path),
            **_placement(job),
        )
        _finish(onnx.load(raw), seen, job)


def dynamic(job: Job) -> None:
    """Quantize weights to S8 per channel; activations are quantized at run time."""
    import onnx
    from onnxruntime import quantization as q

    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "quantized.onnx"
        seen = large.shown(job.model, Path(folder) / "shown.onnx")
        q.quantize_dynamic(
            seen.path,
            raw,
            op_types_to_quantize=list(_DYNAMIC),
            per_channel=True,
            reduce_range=job.reduce_range,
            weight_type=q.QuantType.QInt8,
            nodes_to_exclude=_also_as_matmul(job.excluded),
            use_external_data_format=_is_pair(seen.path),
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
        _finish(onnx.load(raw), seen, job)


def weights(job: Job) -> None:
    """Store the constant weights of MatMul and Gemm in 8 bits by blocks; activations stay float.

    The products are computed with activations that are quantized by blocks at run time. Tables that a Gather reads
    stay float: onnxruntime 1.32 can only make 4 bits of them. A layer with a large weight is made by itself.
    """
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        seen = large.shown(job.model, Path(folder) / "shown.onnx")
        _finish(_weighed(onnx.load(seen.path), seen, job), seen, job)


def unquantizable(job: Job) -> dict[str, str]:
    """Give the nodes that `static` leaves float because of their ranges, with the reason."""
    import onnx

    main, ranges = onnx.load(job.model, load_external_data=False).graph, usable(job.ranges)
    kinds = _kinds(job)
    found = {**dict.fromkeys(_rangeless(main, ranges), _NO_RANGE), **_undroppable(main, ranges)}
    return {node.name: found[node.name] for node in main.node if node.name in found and node.op_type in kinds}


def _weighed(model: onnx.ModelProto, seen: Shown, job: Job) -> onnx.ModelProto:
    """Give the model, which is used up, with all its layers by blocks."""
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type in _WEIGHTED and node.input[1] in seen.weights:
            made = _by_blocks(_alone(node, seen, model), job).graph
            nodes += made.node
            model.graph.initializer.extend(tensor for tensor in made.initializer if tensor.name not in seen.weights)
        else:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return _by_blocks(model, job)


def _alone(node: onnx.NodeProto, seen: Shown, model: onnx.ModelProto) -> onnx.ModelProto:
    """Give a layer with its whole weight as a model."""
    import onnx

    whole = seen.weights[node.input[1]]
    weight = onnx.numpy_helper.from_array(whole.numpy(), node.input[1])
    large.release(whole)
    body = onnx.helper.make_graph([node], "layer", [], [], [weight])
    return onnx.helper.make_model(body, opset_imports=model.opset_import, ir_version=model.ir_version)


def _by_blocks(model: onnx.ModelProto, job: Job) -> onnx.ModelProto:
    from onnxruntime.quantization import matmul_nbits_quantizer as q
    from onnxruntime.quantization.onnx_model import ONNXModel

    wrapped = ONNXModel(model)
    wrapped.replace_gemm_with_matmul()
    quantizer = q.MatMulNBitsQuantizer(
        wrapped.model,
        bits=8,
        block_size=_BLOCK,
        is_symmetric=True,
        accuracy_level=_INT8_ARITHMETIC,
        nodes_to_exclude=_also_as_matmul(job.excluded),
        op_types_to_quantize=("MatMul",),
    )
    quantizer.process()
    made: onnx.ModelProto = quantizer.model.model
    return made


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


def _finish(made: onnx.ModelProto, seen: Shown, job: Job) -> None:
    """Write what the quantizer made with the original's metadata and declared shapes, its nodes sorted.

    onnxruntime 1.32 forgets what subgraphs read when it sorts, declares shapes of tensors that are gone, and marks the
    metadata.
    """
    import onnx

    original = onnx.load(job.model, load_external_data=False)
    del made.metadata_props[:]
    made = graph.inherit(original, made)
    there = {name for node in made.graph.node for name in node.output}
    del made.graph.value_info[:]
    made.graph.value_info.extend(value for value in original.graph.value_info if value.name in there)
    undo_rounding(made.graph)
    model = graph.deserialised(made)
    model.graph.sort()
    large.restore(model, seen)
    graph.save(model, job.out)


def _is_pair(path: Path) -> bool:
    """Tell whether a model is too large for one file, with weights of a kind that are given as they are."""
    return path.with_name(f"{path.name}.data").exists()
