"""A quantized model made smaller without changing a number it computes.

Another saving is a step in `compact`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_ZERO_POINT = 2  # the place among the inputs of a Q/DQ node


def compact(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give the model with as few bytes around its quantized weights as the standard allows.

    Superfluous zero points go, equal scalars are stored once, and what only Q/DQ nodes give and read gets a short name.
    Other nodes, the tensors that they give, and the graph's inputs and outputs keep their names.
    """
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    main = result.graph
    _drop_zero_points(main)
    _share_scalars(main)
    _drop_unread(main)
    _shorten(main)
    _drop_stale_shapes(main)
    return result


def _drop_zero_points(main: onnx.GraphProto) -> None:
    """Leave out the zero points of quantized constants where they are 0: by the standard that is the default.

    onnxruntime 1.32 makes no integer kernel of a Gemm whose weight has none.
    """
    from onnx import numpy_helper

    constants = {tensor.name: tensor for tensor in main.initializer}
    needed = {node.input[1] for node in main.node if node.op_type == "Gemm"}
    for node in main.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in constants and node.output[0] not in needed:
            points = [numpy_helper.to_array(constants[name]) for name in node.input[_ZERO_POINT:] if name in constants]
            if points and not points[0].any():
                del node.input[_ZERO_POINT:]


def _share_scalars(main: onnx.GraphProto) -> None:
    """Let Q/DQ nodes that read equal scales or zero points read the same."""
    from onnx import numpy_helper

    first: dict[tuple[int, bytes], str] = {}
    same = {
        t.name: first.setdefault((t.data_type, numpy_helper.to_array(t).tobytes()), t.name)
        for t in main.initializer
        if not t.dims
    }
    for node in _qdq(main):
        parameters = [same.get(name, name) for name in node.input[1:]]
        del node.input[1:]
        node.input.extend(parameters)


def _drop_unread(main: onnx.GraphProto) -> None:
    read = {name for node in main.node for name in node.input} | _fixed(main)
    kept = [tensor for tensor in main.initializer if tensor.name in read]
    del main.initializer[:]
    main.initializer.extend(kept)


def _shorten(main: onnx.GraphProto) -> None:
    """Rename the Q/DQ nodes, what they give, and the constants that only they read."""
    short = _short_names(main)
    for tensor in main.initializer:
        tensor.name = short.get(tensor.name, tensor.name)
    for node in main.node:
        for names in (node.input, node.output):
            names[:] = [short.get(name, name) for name in names]
    made = set(short.values())
    for node in _qdq(main):
        if node.output[0] in made:
            node.name = node.output[0]


def _short_names(main: onnx.GraphProto) -> dict[str, str]:
    given = [node.output[0] for node in _qdq(main)]
    constants = {tensor.name for tensor in main.initializer}
    constants -= {name for node in main.node if not _is_qdq(node) for name in node.input}
    parameters = [name for node in _qdq(main) for name in node.input if name in constants]
    fixed = _fixed(main)
    renamed = [name for name in dict.fromkeys((*given, *parameters)) if name not in fixed]
    others = [node.name for node in main.node if not _is_qdq(node)]
    taken = {name for node in main.node for name in (*node.input, *node.output)}.difference(renamed) | {*others} | fixed
    fresh = (name for number in count() if (name := f"q{number}") not in taken)
    return dict(zip(renamed, fresh, strict=False))


def _drop_stale_shapes(main: onnx.GraphProto) -> None:
    there = {name for node in main.node for name in node.output}
    kept = [value for value in main.value_info if value.name in there]
    del main.value_info[:]
    main.value_info.extend(kept)


def _qdq(main: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    return filter(_is_qdq, main.node)


def _is_qdq(node: onnx.NodeProto) -> bool:
    return node.op_type in {"DequantizeLinear", "QuantizeLinear"}


def _fixed(main: onnx.GraphProto) -> set[str]:
    """Give the names that others know: of the graph's inputs and outputs, and all that stand in subgraphs."""
    return {value.name for value in (*main.input, *main.output)} | set(_inside(main.node))


def _inside(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    for node in nodes:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from (value.name for value in (*body.input, *body.output, *body.initializer))
                yield from (name for inner in body.node for name in (inner.name, *inner.input, *inner.output))
                yield from _inside(body.node)
