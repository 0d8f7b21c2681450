"""Models that follow a champion: the same function with more work or more bytes, or one that is worse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import small
from onnx import helper, numpy_helper

_WIDE = 96
_BYTES = 1 << 12


def slower(model: Path) -> Path:
    """Put layers ahead of a classifier that take many times as long as it does, and whose result is not used."""
    proto = onnx.load(model)
    rng = np.random.default_rng(1)
    sizes = [(small.CHANNELS if at == 0 else _WIDE, _WIDE) for at in range(4)]
    names = ["b", *(f"idle{at}" for at in range(len(sizes)))]
    nodes = [
        helper.make_node("Conv", [names[at], f"idle_w{at}"], [names[at + 1]], pads=[1, 1, 1, 1])
        for at in range(len(sizes))
    ]
    _beside(proto, "b", [*nodes, helper.make_node("ReduceMean", [names[-1]], ["idle"], keepdims=1)])
    proto.graph.initializer.extend(
        numpy_helper.from_array(rng.normal(0, 0.05, (out, into, 3, 3)).astype(np.float32), f"idle_w{at}")
        for at, (into, out) in enumerate(sizes)
    )
    onnx.save(proto, model)
    return model


def bigger(model: Path) -> Path:
    """Put weights beside those of a classifier that take many bytes and little time, and whose result is not used."""
    proto = onnx.load(model)
    rng = np.random.default_rng(1)
    weights = rng.normal(0, 0.05, (small.CHANNELS, _BYTES)).astype(np.float32)
    product = helper.make_node("MatMul", ["f", "idle_w"], ["products"])
    _beside(proto, "f", [product, helper.make_node("ReduceMean", ["products"], ["idle"], keepdims=1)])
    proto.graph.initializer.append(numpy_helper.from_array(weights, "idle_w"))
    onnx.save(proto, model)
    return model


def worse(model: Path, share: float) -> Path:
    """Disturb the last weights of a classifier, by a share of how large they are."""
    proto = onnx.load(model)
    rng = np.random.default_rng(1)
    for tensor in proto.graph.initializer:
        if tensor.name == "w3":
            weight = numpy_helper.to_array(tensor)
            disturbed = weight + share * weight.std() * rng.normal(0, 1, weight.shape)
            tensor.CopyFrom(numpy_helper.from_array(disturbed.astype(np.float32), "w3"))
    onnx.save(proto, model)
    return model


def _beside(proto: onnx.ModelProto, tensor: str, nodes: list[onnx.NodeProto]) -> None:
    """Let nodes make `idle` of a tensor, and add nothing times it to what reads the tensor."""
    graph = proto.graph
    at = next(place for place, node in enumerate(graph.node) if tensor in node.output) + 1
    for node in list(graph.node)[at:]:
        node.input[:] = [f"{tensor}_too" if name == tensor else name for name in node.input]
    mixed = [
        helper.make_node("Mul", ["idle", "nothing"], ["zero"]),
        helper.make_node("Add", [tensor, "zero"], [f"{tensor}_too"]),
    ]
    for place, node in enumerate([*nodes, *mixed]):
        graph.node.insert(at + place, node)
    graph.initializer.append(numpy_helper.from_array(np.float32(0).reshape(()), "nothing"))
