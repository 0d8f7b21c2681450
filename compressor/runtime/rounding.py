"""FP16 as a GPU computes it, on a CPU: float32 arithmetic with every FP16 value rounded to FP16.

ONNX Runtime (1.32) on a CPU without FP16 kernels takes the casts between such nodes away, so that nothing is rounded
and nothing overflows there; casts that a graph states itself it keeps. Products are summed in float32, as tensor cores
do.
Another type to round to is an argument of `_round`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor import graph

if TYPE_CHECKING:
    import onnx_ir as ir


def rounded(path: Path, out: Path) -> bool:
    """Write a model whose FP16 values are float32 values rounded to FP16; tell whether there are any.

    Where inputs or outputs of the model itself are FP16, nothing is written.
    """
    import onnx_ir as ir

    model = graph.inferred(graph.load(path))
    halves = ir.DataType.FLOAT16
    made = [value for node in model.graph.all_nodes() for value in node.outputs if value.dtype == halves]
    if not made or any(value.dtype == halves for value in (*model.graph.inputs, *model.graph.outputs)):
        return False
    for node in model.graph.all_nodes():
        _widen(node)
    for around in (model.graph, *model.graph.subgraphs()):
        for value in around.initializers.values():
            _widen_constant(value)
    for value in made:
        _round(value)
    graph.save(model, out)
    return True


def _widen(node: ir.Node) -> None:
    """Let a node that makes FP16 of its attributes make float32."""
    import onnx_ir as ir

    for name, attribute in list(node.attributes.items()):
        if attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype == ir.DataType.FLOAT16:
            node.attributes[name] = ir.AttrTensor(name, _wide(attribute.value))
        elif name in {"to", "dtype", "output_dtype"} and attribute.value == ir.DataType.FLOAT16:
            node.attributes[name] = ir.AttrInt64(name, ir.DataType.FLOAT)


def _widen_constant(value: ir.Value) -> None:
    import onnx_ir as ir

    if value.const_value is not None and value.const_value.dtype == ir.DataType.FLOAT16:
        value.const_value = _wide(value.const_value)
        value.type = ir.TensorType(ir.DataType.FLOAT)


def _wide(tensor: ir.TensorProtocol) -> ir.Tensor:
    import onnx_ir as ir

    return ir.Tensor(tensor.numpy().astype(np.float32), name=tensor.name)


def _round(value: ir.Value) -> None:
    """Let what reads a value read it rounded."""
    import onnx_ir as ir

    node = value.producer()
    value.type = ir.TensorType(ir.DataType.FLOAT)
    down = ir.node("Cast", [value], {"to": ir.DataType.FLOAT16}, name=f"{value.name}_down")
    back = ir.node("Cast", [down.outputs[0]], {"to": ir.DataType.FLOAT}, name=f"{value.name}_back")
    down.outputs[0].name, back.outputs[0].name = down.name, back.name
    value.replace_all_uses_with(back.outputs[0], replace_graph_outputs=True)
    down.replace_input_with(0, value)
    if node is not None and node.graph is not None:
        node.graph.insert_after(node, (down, back))
