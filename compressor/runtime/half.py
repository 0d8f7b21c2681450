"""FP16 as types of a graph: which values would overflow, seen by running it, and the conversion around those.

Another reason to keep a node is a part of what the caller passes as `keep`.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor import graph
from compressor.errors import RungError
from compressor.records import Feeds
from compressor.runtime.session import load, options

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


def largest(path: Path, feeds: Iterable[Feeds]) -> Mapping[str, float]:
    """Give the largest magnitude of each float32 value of the main graph over samples, constants included.

    The graph is in normal form: a value whose type it does not state is left out. Only one number of each value leaves
    the session. One that is not finite counts as infinite.
    """
    model = graph.load(path)
    found = {name: _magnitude(value.const_value.numpy()) for name, value in _constants(model).items()}
    if not (asked := _asked(model)):
        return found
    with tempfile.TemporaryDirectory() as folder:
        graph.save(model, tapped := Path(folder) / "model.onnx")
        with closing(load(tapped, options(1, spinning=False))) as session:
            for feed in feeds:
                given = session(feed)
                for output, name in asked.items():
                    most = np.maximum(given[output], 0)  # of no numbers at all, ReduceMax gives minus infinity
                    found[name] = max(found.get(name, 0.0), _magnitude(most))
    return found


def halved(path: Path, out: Path, keep: Collection[str]) -> None:
    """Write the model with float32 made float16, inputs and outputs as they are, and some nodes kept by their names.

    The model is in normal form. Nodes with graphs inside are kept too: nobody saw how large the values in there are,
    and the converter (onnxruntime 1.32) puts casts for what it keeps in there outside.

    Raises:
        RungError: The converter does not take the graph, or ONNX Runtime does not take what it makes.
    """
    import onnx
    from onnxruntime.transformers import float16

    before = onnx.load(path)
    kept = [*keep, *(node.name for node in before.graph.node if any(a.HasField("g") for a in node.attribute))]
    try:
        made = float16.convert_float_to_float16(_undeclared(path), keep_io_types=True, node_block_list=kept)
    except Exception as error:
        said = " ".join(str(error).split()) or "no message"
        raise RungError(f"the graph cannot be made FP16 ({type(error).__name__}: {said[:200]})") from error
    graph.save(graph.inherit(before, made), out)
    model = graph.load(out)
    _feed(model)
    model.graph.sort()  # casts of inputs come last
    _join(model, {node.name for node in before.graph.node})
    graph.save(model, out)
    load(out, options(1, spinning=False)).close()


def _undeclared(path: Path) -> onnx.ModelProto:
    """Give the model without what it says of the types of its constants: the converter takes these for activations."""
    import onnx

    model = onnx.load(path)
    constant = {tensor.name for tensor in model.graph.initializer}
    declared = [value for value in model.graph.value_info if value.name not in constant]
    del model.graph.value_info[:]
    model.graph.value_info.extend(declared)
    return model


def _feed(model: ir.Model) -> None:
    """Let graphs inside nodes read float32 of the graph around them; the converter casts a node's own inputs only."""
    import onnx_ir as ir

    casts: dict[ir.Value, ir.Node] = {}
    for node in [node for node in model.graph.all_nodes() if node.graph is not model.graph]:
        for i, value in enumerate(node.inputs):
            if value is not None and value.dtype == ir.DataType.FLOAT16:
                if value not in casts:
                    casts[value] = ir.node("Cast", [value], {"to": ir.DataType.FLOAT}, name=f"{value.name}_for_graphs")
                    model.graph.append(casts[value])
                    casts[value].outputs[0].name = f"{value.name}_for_graphs"
                node.replace_input_with(i, casts[value].outputs[0])


def _join(model: ir.Model, original: Collection[str]) -> None:
    """Let kept nodes read each other's values as they are.

    The converter (onnxruntime 1.32) makes FP16 of every value between two nodes, also where both are kept, which loses
    digits and parts a layer from its Q/DQ pair.
    """
    import onnx_ir as ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    for back in [node for node in model.graph if _casts_to(node, ir.DataType.FLOAT)]:
        down = back.inputs[0].producer()
        if down is None or not _casts_to(down, ir.DataType.FLOAT16) or {back.name, down.name} & set(original):
            continue
        if back.outputs[0].is_graph_output():  # which keeps its name
            back.replace_input_with(0, down.inputs[0])
        else:
            back.outputs[0].replace_all_uses_with(down.inputs[0])
    RemoveUnusedNodesPass()(model)


def _casts_to(node: ir.Node, dtype: ir.DataType) -> bool:
    return bool(node.op_type == "Cast" and node.attributes.get_int("to") == dtype)


def _constants(model: ir.Model) -> Mapping[str, ir.Value]:
    import onnx_ir as ir

    held = {name: value for name, value in model.graph.initializers.items() if value.const_value is not None}
    return {name: value for name, value in held.items() if value.const_value.dtype == ir.DataType.FLOAT}


def _asked(model: ir.Model) -> Mapping[str, str]:
    """Put outputs in the place of the model's own, one for each float32 value; give the names of both."""
    import onnx_ir as ir

    main, asked = model.graph, dict[str, str]()
    values = [*main.inputs, *(output for node in main for output in node.outputs)]
    main.outputs.clear()
    for value in values:
        if value.name and value.dtype == ir.DataType.FLOAT and isinstance(value.type, ir.TensorType):
            magnitude = ir.node("Abs", [value])
            most = ir.node("ReduceMax", [magnitude.outputs[0]], {"keepdims": 0})
            main.extend((magnitude, most))
            most.outputs[0].name = f"compressor.largest{len(asked)}"
            main.outputs.append(most.outputs[0])
            asked[most.outputs[0].name] = str(value.name)
    return asked


def _magnitude(array: np.ndarray) -> float:
    most = float(np.abs(array).max(initial=0))
    return most if math.isfinite(most) else math.inf
