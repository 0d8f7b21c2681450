"""A model written so that the quantizers of onnxruntime 1.32 and nncf 3.4 get it right, while it computes the same.

Another exact rewriting is a step in `prepare`: it changes a model that nobody else holds and says what it did, if
anything. What no rewriting can mend stays float, in `exclude`.
"""

from __future__ import annotations

import tempfile
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


def prepare(path: Path, out: Path) -> tuple[str, ...]:
    """Write a normalised model in the form that quantizers get right; say what was done, in words.

    Inputs, outputs and metadata stay, and the results up to the rounding of float32, which is coarse for a model that
    counts in float64: whoever builds on it makes sure of that. A model that needs nothing keeps its content.
    """
    model, text = _widened(graph.load(path))
    steps = (_fold, _drop_casts, _fold_norms, _settle_gemms, _own_biases, _own_weights)
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
