"""Models between ONNX's messages and onnx_ir, with the types of values that onnx_ir 1.1 cannot hold.

Maps, which classic models give, are such types: they lie beside their value as text until the model is a message again.
Add here what else of a message onnx_ir does not keep.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

_KEY = "compressor.type"


def deserialised(proto: onnx.ModelProto) -> ir.Model:
    """Give the model that a message holds; the message is used up.

    Raises:
        onnx_ir.serde.SerdeError: The message is no valid model.
    """
    import onnx_ir as ir

    for graph in _graphs(proto.graph):
        for value in _values(graph):
            _taken(value)  # by a file that happens to have such a key
            if not _holds_map(value):
                continue
            text = base64.b64encode(value.type.SerializeToString(deterministic=True)).decode()
            value.metadata_props.add(key=_KEY, value=text)
            value.ClearField("type")
    return ir.from_proto(proto)


def serialised(model: ir.Model) -> onnx.ModelProto:
    """Give the message of a model; the data of its tensors stay where they lie."""
    import onnx_ir as ir

    proto: onnx.ModelProto = ir.to_proto(model)
    for graph in _graphs(proto.graph):
        for value in _values(graph):
            for text in _taken(value):
                value.type.ParseFromString(base64.b64decode(text))
    return proto


def _taken(value: onnx.ValueInfoProto) -> list[str]:
    """Take our entries out of the metadata of a value, and give them."""
    held = list(value.metadata_props)
    kept = [entry for entry in held if entry.key != _KEY]
    if len(kept) == len(held):
        return []
    del value.metadata_props[:]
    value.metadata_props.extend(kept)
    return [entry.value for entry in held if entry.key == _KEY]


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner)


def _values(graph: onnx.GraphProto) -> Iterable[onnx.ValueInfoProto]:
    return (*graph.input, *graph.output, *graph.value_info)


def _holds_map(value: onnx.ValueInfoProto) -> bool:
    held = value.type
    while (kind := held.WhichOneof("value")) in {"sequence_type", "optional_type"}:
        held = getattr(held, kind).elem_type
    return bool(kind == "map_type")
