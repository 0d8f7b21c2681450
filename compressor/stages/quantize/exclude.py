"""Nodes that stay float, each with its reason: those the user names, and those that quantizers get silently wrong.

A newly found wrong kind is a line in `_unsafe`.
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compressor import graph
from compressor.errors import InputError, RungError
from compressor.graph import count
from compressor.stages.quantize.job import Ranges
from compressor.stages.quantize.prepare import prepare
from compressor.stages.quantize.ranges import ENDLESS

if TYPE_CHECKING:
    import onnx

_SOFTMAX_SPAN = 128.0
"""Beyond it one step of 8 bits is half a unit of the exponent."""
_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_BIAS = 2
_DOMAINS = frozenset({*count.STANDARD_DOMAINS, "com.microsoft"})
"""Of others, quantizers take an operator for the one that has its name here."""
_DROPPED = frozenset({"Clip", "Relu"})
_ELEMENTWISE = frozenset({"Add", "Div", "Mul", "Sub", "Where"})


def exclusions(path: Path, wanted: Iterable[str]) -> dict[str, str]:
    """Give the nodes of a prepared model that are not to be quantized, with the reason.

    Raises:
        RungError: The weights are no float32, or no node has a wanted name.
    """
    import onnx

    model = onnx.load(path, load_external_data=False)
    _refuse_other_floats(model)
    if unknown := _unknown(model.graph, wanted):
        raise RungError(unknown)
    ranks = _ranks(model.graph)
    found = {node.name: reason for node in model.graph.node if (reason := _mistaken(node) or _unsafe(node, ranks))}
    others = {**_in_other_floats(model.graph), **_read_inside(model.graph)}
    return {**found, **others, **dict.fromkeys(wanted, "the recipe says so")}


def check_names(path: Path, wanted: Iterable[str]) -> None:
    """Make sure that a model as it is given has nodes of these names once it is normalised and prepared.

    Raises:
        InputError: One is the name of no node.
    """
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        normalised = Path(folder) / "model.onnx"
        graph.normalise(path, normalised)
        prepare(normalised, prepared := Path(folder) / "prepared.onnx")
        main = onnx.load(prepared, load_external_data=False).graph
    if unknown := _unknown(main, wanted):
        raise InputError(unknown)


def too_wide(path: Path, ranges: Ranges) -> dict[str, str]:
    """Give the nodes that 8 bits would ruin because of the range of what they read or write, with the reason.

    Those are all around a tensor that is not finite or as good as infinite; and what an additive mask passes through
    on its way to Softmax, whose result the mask's one large constant would flatten.
    """
    import onnx

    nodes = onnx.load(path, load_external_data=False).graph.node
    spans = {name: high - low for name, (low, high) in ranges.items()}
    endless = {name for name, span in spans.items() if not span < ENDLESS}
    found = {
        node.name: "its values are infinite or nearly so" for node in nodes if endless & {*node.input, *node.output}
    }
    producers = {name: node for node in nodes for name in node.output}
    for node in nodes:
        if node.op_type == "Softmax" and spans.get(node.input[0], 0) > _SOFTMAX_SPAN:
            reason = f"what {node.name} reads spans {spans[node.input[0]]:.3g}: 8 bits are too coarse"
            found |= dict.fromkeys([node.name, *_masking(node, producers)], reason)
    return found


def _masking(softmax: onnx.NodeProto, producers: Mapping[str, onnx.NodeProto]) -> Iterator[str]:
    """Give the names of the elementwise nodes right before a Softmax."""
    node = producers.get(softmax.input[0])
    while node is not None and node.op_type in _ELEMENTWISE:
        yield node.name
        node = producers.get(node.input[0])


def _unknown(main: onnx.GraphProto, wanted: Iterable[str]) -> str:
    """Say which name no node has; nothing if all are there."""
    names = [node.name for node in main.node]
    for name in wanted:
        if name not in names:
            close = ", ".join(map(repr, difflib.get_close_matches(name, names, n=3, cutoff=0)))
            return f"quantize.exclude: no node is named {name!r}; the closest are {close}"
    return ""


def _refuse_other_floats(model: onnx.ModelProto) -> None:
    """Return if the weights are float32; of others onnxruntime 1.32 and nncf 3.4 make an invalid file."""
    others = _other_floats(model.graph)
    weights = {name for node in model.graph.node if node.op_type in _WEIGHTED for name in node.input}
    for tensor in model.graph.initializer:
        if tensor.name in weights and tensor.name in others:
            raise RungError(
                f"weight {tensor.name!r} is {others[tensor.name]}, quantization needs float32: "
                f"export the model in float32"
            )


def _in_other_floats(main: onnx.GraphProto) -> dict[str, str]:
    """Give the nodes that compute in floats other than float32, which nncf 3.4 quantizes all the same."""
    others = _other_floats(main)
    found = {n.name: others[name] for n in main.node if n.op_type != "Cast" for name in n.input if name in others}
    return {name: f"it computes in {kind}; 8 bits are made of float32 alone" for name, kind in found.items()}


def _other_floats(main: onnx.GraphProto) -> dict[str, str]:
    """Give the tensors of floats other than float32, with their type in words."""
    from onnx import TensorProto

    words = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16", TensorProto.DOUBLE: "float64"}
    values = (*main.value_info, *main.input, *main.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    types |= {tensor.name: tensor.data_type for tensor in main.initializer}
    return {name: words[kind] for name, kind in types.items() if kind in words}


def _mistaken(node: onnx.NodeProto) -> str | None:
    """Say for which operator of another domain the quantizer would take the node."""
    if node.domain not in _DOMAINS:
        return f"a custom operator, of the domain {node.domain}"
    if node.op_type == "Attention" and node.domain in count.STANDARD_DOMAINS:
        return "the quantizer knows Attention of com.microsoft alone, whose inputs are others"
    return None


def _unsafe(node: onnx.NodeProto, ranks: dict[str, int]) -> str | None:
    """Say why quantizing the node would be wrong.

    Source: microsoft/onnxruntime issues 28130 (Gemm), 15442 and 22639 (MatMul); measured with onnxruntime 1.32.
    """
    settings = {a.name: a.f or a.i for a in node.attribute}
    if node.op_type == "ConvTranspose" and settings.get("group", 1) > 1 and len(node.input) > _BIAS:
        return (
            "ConvTranspose in groups with a bias: weights have a scale for each channel of a group, the bias needs all"
        )
    if node.op_type == "Gemm":
        if settings.get("alpha", 1) != 1 or settings.get("beta", 1) != 1:
            return "Gemm with alpha or beta other than 1: the quantizer does not scale its bias"
        if settings.get("transA"):
            return "Gemm with transA: no integer kernel"
    if node.op_type == "MatMul" and any(ranks.get(name) == 1 for name in node.input):
        return "MatMul with a vector: it has no channel axis"
    return None


def _ranks(main: onnx.GraphProto) -> dict[str, int]:
    values = [
        value for value in (*main.value_info, *main.input, *main.output) if value.type.tensor_type.HasField("shape")
    ]
    inferred = {value.name: len(value.type.tensor_type.shape.dim) for value in values}
    return inferred | {tensor.name: len(tensor.dims) for tensor in main.initializer}


def _read_inside(main: onnx.GraphProto) -> dict[str, str]:
    """Give the activations before or after which a subgraph reads.

    onnxruntime 1.32 drops them without looking into subgraphs, which then read unclipped values, or nothing.
    """
    inside = {name for node in main.node for body in _bodies(node) for name in _names(body)}
    reason = "a branch or loop reads its input or output, which the quantizer would drop"
    return {n.name: reason for n in main.node if n.op_type in _DROPPED and inside & {n.input[0], n.output[0]}}


def _names(body: onnx.GraphProto) -> Iterator[str]:
    """Give the names of all that a subgraph, and those in it, read or give."""
    yield from (value.name for value in body.output)
    for node in body.node:
        yield from node.input
        for inner in _bodies(node):
            yield from _names(inner)


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        yield from ([attribute.g] if attribute.HasField("g") else attribute.graphs)
