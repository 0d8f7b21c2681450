"""A model written so that the quantizers of onnxruntime 1.32 and nncf 3.4 get it right, while it computes the same.

Another exact rewriting is a step in `prepare`: it changes a model that nobody else holds and says what it did, if
anything. What no rewriting can mend stays float, in `exclude`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import count as numbers
from pathlib import Path
from typing import TYPE_CHECKING

from compressor import graph, runtime
from compressor.errors import RungError
from compressor.graph import count, fold, shapes
from compressor.stages.quantize import constants, gemm, widen

if TYPE_CHECKING:
    import onnx_ir as ir

_BIAS = 2
_BIASED = frozenset({"Conv", "ConvTranspose", "Gemm"})
_WEIGHT_AXES = {"Conv": 0, "ConvTranspose": 1, "MatMul": 1}
_MOVING = frozenset(
    {"AveragePool", "Flatten", "Gather", "GatherElements", "MaxPool", "Pad", "Reshape", "Resize", "Slice", "Split"}
    | {"Squeeze", "TopK", "Transpose", "Unsqueeze"}
)
"""Operators whose result the quantizer gives the scales of what they read."""
_APPENDED = (
    *("_quantized", "_scale", "_zero_point"),
    *("_QuantizeLinear_Input", "_QuantizeLinear_Output", "_DequantizeLinear_Output"),
    *("_Q8", "_scales", "_zero_points", "_pre_reshape"),
    *("_output_quantized", "_cast_output", "_scale_mul", "_scales_mul"),
)
"""What onnxruntime 1.32 appends to the name of a tensor for those that it adds, whoever has such a name already."""


def prepare(path: Path, out: Path) -> tuple[str, ...]:
    """Write a normalised model in the form that quantizers get right; say what was done, in words.

    Inputs, outputs and metadata stay, and the results up to the rounding of float32, which is coarse for a model that
    counts in float64: whoever builds on it makes sure of that. A model that needs nothing keeps its content.
    """
    model, text = _widened(graph.load(path))
    steps = (_fold, _drop_casts, _fold_norms, _settle_gemms, _own_biases, _own_weights, _free_names)
    said = tuple(filter(None, (text, *(step(model) for step in steps))))
    graph.save(shapes.inferred(model) if said else model, out)
    return said


def _widened(model: ir.Model) -> tuple[ir.Model, str]:
    kinds = widen.others(model)
    if not kinds:
        return model, ""
    reason = widen.refusal(model, kinds)
    if not reason:
        wide = model.clone()
        widen.widen(wide, kinds)
        reason = _refused(wide)
    if reason:
        return model, f"left floats other than float32 as they are: {reason}"
    words = " and ".join(sorted(kinds)).lower().replace("double", "float64")
    return wide, f"made every {words} inside float32; inputs and outputs keep their types"


def _refused(model: ir.Model) -> str:
    """Say why the runtime does not take the model: some operators of other domains exist in float16 only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wide.onnx"
        graph.save(model, path)
        try:
            runtime.load(path, runtime.options(1, spinning=False)).close()
        except RungError as error:
            return str(error)
    return ""


def _fold(model: ir.Model) -> str:
    gone = constants.fold(model)
    return f"computed {_many(gone, 'node')} that read only constants" if gone else ""


def _drop_casts(model: ir.Model) -> str:
    """Take out each Cast to the type that its input has; nncf 3.4 fails on one that gives an output."""
    casts = [node for node in model.graph.all_nodes() if _is_idle(node)]
    for node in casts:
        if node.outputs[0].is_graph_output():
            _turn_into_identity(node)
        else:
            node.outputs[0].replace_all_uses_with(node.inputs[0])
            node.graph.remove(node, safe=True)
    return f"dropped {_many(len(casts), 'Cast')} that changed no type" if casts else ""


def _turn_into_identity(node: ir.Node) -> None:
    node.op_type = "Identity"
    node.attributes.clear()
    node.resize_inputs(1)


def _is_idle(node: ir.Node) -> bool:
    if node.op_type not in {"Cast", "CastLike"}:
        return False
    kind = node.inputs[0].dtype
    if node.op_type == "CastLike":
        return kind is not None and kind == node.inputs[1].dtype
    return kind is not None and kind == node.attributes.get_int("to", 0)


def _fold_norms(model: ir.Model) -> str:
    """Fold what normalising could not, as weights were no float32 or computed."""
    folded = fold.batch_norms(model.graph)
    constants.drop_unread(model.graph)
    return f"folded {_many(folded, 'BatchNormalization')} into the convolution before it" if folded else ""


def _settle_gemms(model: ir.Model) -> str:
    scaled, straightened = gemm.scale(model), gemm.straighten(model)
    constants.drop_unread(model.graph)
    texts = [f"multiplied {_many(scaled, 'factor')} of Gemm into its constants"] if scaled else []
    texts += [f"gave {_many(straightened, 'Gemm')} a bias of one row, or an Add"] if straightened else []
    return "; ".join(texts)


def _own_biases(model: ir.Model) -> str:
    """Give every node a bias of its own: one integer bias cannot serve two scales of inputs."""
    copied = 0
    biased = [node for node in _nodes(model, *_BIASED) if len(node.inputs) > _BIAS]
    for node in [node for node in biased if constants.is_constant(node.inputs[_BIAS])]:
        bias = node.inputs[_BIAS]
        if len(bias.uses()) > 1 or bias.is_graph_output():
            constants.replace(model, [node], _BIAS, bias.const_value.numpy())
            copied += 1
    return f"copied {_many(copied, 'bias')} that others read too" if copied else ""


def _own_weights(model: ir.Model) -> str:
    """Keep one copy of a weight for each axis along which it is read, and one for those that only move its elements.

    Scales lie along one axis; onnxruntime 1.32 writes them for another one, or behind a Gather, and the file fails.
    """
    copied = 0
    for weight in [value for value in model.graph.initializers.values() if constants.is_constant(value)]:
        readers = [use.node for use in weight.uses() if use.idx == 1 and _axis(use.node) is not None]
        axes = sorted({axis for node in readers if (axis := _axis(node)) is not None})
        moved = any(use.node.op_type in _MOVING for use in weight.uses())
        for axis in axes if moved else axes[1:]:
            constants.replace(model, [node for node in readers if _axis(node) == axis], 1, weight.const_value.numpy())
            copied += 1
    return f"copied {_many(copied, 'weight')} that others read along another axis" if copied else ""


def _free_names(model: ir.Model) -> str:
    """Rename what has a name that the quantizer would give to something else: its file fails, or computes with both."""
    ends = {value.name: value for value in (*model.graph.inputs, *model.graph.outputs)}
    inner = {value.name: value for value in _inner(model)}
    taken = {*inner, *ends, *(value.name for node in model.graph.all_nodes() for value in node.outputs)}
    clashing = {name for name in inner if not taken.isdisjoint(_bases(name))}
    clashing |= {base for name in ends for base in _bases(name) if base in taken}
    for name in sorted(clashing):
        free = next(new for new in (f"{name}.{i}" for i in numbers(1)) if new not in taken)
        if name in inner:
            inner[name].name = free
        elif name in ends:
            _set_apart(model.graph, ends[name], free)
    return f"renamed {_many(len(clashing), 'tensor')} whose names the quantizer gives" if clashing else ""


def _set_apart(main: ir.Graph, end: ir.Value, name: str) -> None:
    """Let the nodes work with a tensor of another name than an input or output keeps."""
    import onnx_ir as ir

    if end.is_graph_input():
        uses = list(end.uses())
        copy = ir.node("Identity", [end])
        for use in uses:
            use.node.replace_input_with(use.idx, copy.outputs[0])
        main.insert_before(main[0], copy)
        inside, outside = copy.outputs[0], end
    else:
        place, kept = main.outputs.index(end), str(end.name)
        end.name = name
        copy = ir.node("Identity", [end])
        main.append(copy)
        main.outputs[place] = copy.outputs[0]
        inside, outside = end, copy.outputs[0]
        outside.name = kept
    inside.name, copy.name = name, f"Identity_{name}"
    inside.type = outside.type = end.type
    inside.shape = outside.shape = end.shape


def _bases(name: str) -> Iterator[str]:
    """Give the names for whose tensors the quantizer would make one with this name, such as `b_quantized_scale`."""
    for end in filter(name.endswith, _APPENDED):
        yield (base := name.removesuffix(end))
        yield from _bases(base)


def _inner(model: ir.Model) -> Iterator[ir.Value]:
    """Give the named values of the main graph that are neither inputs nor outputs of it."""
    for value in (*model.graph.initializers.values(), *(value for node in model.graph for value in node.outputs)):
        if value.name and not value.is_graph_input() and not value.is_graph_output():
            yield value


def _axis(node: ir.Node) -> int | None:
    """Give the axis of the output channels in the weight of a node of the main graph that has one."""
    if node.op_type == "Gemm":
        return 0 if node.attributes.get_int("transB", 0) else 1
    return _WEIGHT_AXES.get(node.op_type) if node.domain in count.STANDARD_DOMAINS else None


def _nodes(model: ir.Model, *kinds: str) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type in kinds and node.domain in count.STANDARD_DOMAINS]


def _many(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
