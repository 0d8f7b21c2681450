"""Rewriting a model into the one form that all stages expect, without changing what it computes beyond rounding.

Each step takes a model that nobody else holds, gives the model and says what it did, or nothing. Add a step to the
sequence in `normalise`.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from itertools import count as numbers
from pathlib import Path
from typing import TYPE_CHECKING

from compressor import records, units
from compressor.errors import InputError
from compressor.graph import check, count, files, fold, shapes

if TYPE_CHECKING:
    import onnx_ir as ir

_OPSET = 17  # has every operator the quantizers write
_IR_VERSION = 8  # the one that came with opset 17
_OLDEST_OPSET = 13  # the first with per-channel QuantizeLinear
_TRAINING = "in training mode, in which outputs depend on the batch or on chance; export the model in evaluation mode"


def normalise(path: Path, out: Path) -> records.Did:
    """Write the model in normal form; the input stays byte-identical, the same input gives the same bytes.

    Normal form: no local functions, weights are initializers and no inputs, nodes sorted and uniquely named, opset 17
    or above, BatchNormalization folded into convolutions, shapes inferred. Names, order and symbols of the inputs and
    outputs and all metadata stay.

    Raises:
        InputError: The model is not readable, has a cycle, or an operator cannot be brought to opset 13.
        MachineError: The disk is full or the folder may not be written.
    """
    model = files.load(path)
    sort, raise_opset = partial(_sort, path), partial(_raise_opset, path)
    said = []
    for step in (_inline, _free_inputs, sort, raise_opset, _lift, _name, _drop, _fold, _shape):
        model, text = step(model)
        said += [text] if text else []
    files.save(model, out)
    training = filter(count.is_training, model.graph.all_nodes())
    excluded = {node.name: f"{node.op_type} is {_TRAINING}" for node in training}
    what = "; ".join(said) or "nothing to do"
    return records.Did(f"{what[0].upper()}{what[1:]}.", changed=bool(said), excluded=excluded)


def _inline(model: ir.Model) -> tuple[ir.Model, str]:
    functions = len(model.functions)
    return shapes.inlined(model), f"inlined {_many(functions, 'local function')}" if functions else ""


def _free_inputs(model: ir.Model) -> tuple[ir.Model, str]:
    from onnx_ir.passes.common import RemoveInitializersFromInputsPass

    before = len(model.graph.inputs)
    freed = RemoveInitializersFromInputsPass()(model).model
    weights = before - len(freed.graph.inputs)
    return freed, f"took {_many(weights, 'weight')} out of the inputs" if weights else ""


def _sort(path: Path, model: ir.Model) -> tuple[ir.Model, str]:
    before = list(model.graph.all_nodes())
    check.refuse_cyclic(path, model)
    return model, "sorted the nodes" if list(model.graph.all_nodes()) != before else ""


def _raise_opset(path: Path, model: ir.Model) -> tuple[ir.Model, str]:
    opset = model.opset_imports.get("", _OPSET)
    model.ir_version = max(model.ir_version, _IR_VERSION)
    if opset >= _OPSET:
        return model, ""
    converted = _converted(model)
    if isinstance(converted, str) and opset < _OLDEST_OPSET:
        raise InputError(
            f"{path}: opset {opset} cannot be raised to {_OPSET}: {converted}; export it at {_OPSET} or above"
        )
    if isinstance(converted, str):
        return model, f"kept opset {opset}, as it cannot be raised to {_OPSET}: {converted}"
    return converted, f"raised opset {opset} to {_OPSET}"


def _converted(model: ir.Model) -> ir.Model | str:
    """Give the model at opset 17, or why the converter refused."""
    import onnx
    from onnx import version_converter

    try:
        new = shapes.through(model, lambda proto: version_converter.convert_version(proto, _OPSET))
    except (version_converter.ConvertError, RuntimeError, onnx.shape_inference.InferenceError) as error:
        return str(error).strip().splitlines()[0].rpartition("failed: ")[2]  # without the C++ file and line
    new.ir_version = model.ir_version
    return new


def _lift(model: ir.Model) -> tuple[ir.Model, str]:
    from onnx_ir.passes.common import LiftConstantsToInitializersPass

    before = _constant_nodes(model)
    everything = all(map(count.is_numeric_constant, before))  # onnx_ir's pass fails on text
    lifted = LiftConstantsToInitializersPass(lift_all_constants=everything, size_limit=0)(model).model
    made = len(before) - len(_constant_nodes(lifted))
    return lifted, f"made initializers of {_many(made, 'Constant node')}" if made else ""


def _constant_nodes(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph.all_nodes() if node.op_type == "Constant"]


def _name(model: ir.Model) -> tuple[ir.Model, str]:
    taken: set[str] = set()
    unnamed = []
    for node in model.graph.all_nodes():
        if not node.name or node.name in taken:
            unnamed.append(node)
        taken.add(node.name or "")
    for node in unnamed:
        # Its output's name, unlike its position, stays the same when the graph around it changes.
        wanted = node.name or f"{node.op_type}_{next((v.name for v in node.outputs if v.name), '')}"
        node.name = next(n for n in chain([wanted], (f"{wanted}_{i}" for i in numbers(1))) if n not in taken)
        taken.add(node.name)
    return model, f"named {_many(len(unnamed), 'node')}" if unnamed else ""


def _drop(model: ir.Model) -> tuple[ir.Model, str]:
    unread = [
        (graph, value)
        for graph in model.graphs()
        for value in graph.initializers.values()
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input()
    ]
    for graph, value in unread:
        del graph.initializers[value.name]
    size_bytes = sum(value.const_value.nbytes for _, value in unread)
    text = f"dropped {_many(len(unread), 'unused tensor')} ({units.human_bytes(size_bytes)})"
    return model, text if unread else ""


def _fold(model: ir.Model) -> tuple[ir.Model, str]:
    folded = fold.batch_norms(model.graph)
    tidied, _ = _drop(model)
    return tidied, f"folded {_many(folded, 'BatchNormalization')} into the convolution before it" if folded else ""


def _shape(model: ir.Model) -> tuple[ir.Model, str]:
    import onnx_ir as ir

    for value in (value for graph in model.graphs() for value in (*graph.inputs, *graph.outputs)):
        if value.shape is not None:
            value.shape = ir.Shape([shapes.dimension(dim) for dim in value.shape])
    stated = [value.shape for value in model.graph.outputs]
    for value in model.graph.outputs:
        value.shape = None
    new = shapes.inferred(model)
    filled = corrected = 0
    for shape, value in zip(stated, new.graph.outputs, strict=True):
        filled += shape is None and value.shape is not None
        corrected += (wrong := _contradicts(shape, value.shape))
        value.shape = value.shape if wrong else shape or value.shape
    done = {"inferred": filled, "corrected": corrected}
    return new, "; ".join(f"{what} the shape of {_many(number, 'output')}" for what, number in done.items() if number)


def _contradicts(stated: ir.Shape | None, found: ir.Shape | None) -> bool:
    """Tell whether a file states another shape than its graph gives, which ONNX Runtime only warns of."""
    if stated is None or found is None:
        return False
    pairs = zip(stated, found, strict=False)
    return len(stated) != len(found) or any(one != two for one, two in pairs if {type(one), type(two)} == {int})


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
