"""A model whose outputs tell about its activations: what leaves the session are scalars and short vectors.

Another reduction of an activation is an output added in `tapped`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from compressor import graph

if TYPE_CHECKING:
    import onnx_ir as ir

PICKS = "compressor.picks"
"""An input of fractions in [0, 1), float64: which values are picked of each activation, as parts of its length."""
WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_AXES_ARE_INPUT_SINCE = 18  # of ReduceMean; ReduceMin and ReduceMax are only used without axes


@dataclass(frozen=True)
class Tap:
    """The float activation `tensor`, with the outputs that tell about it.

    `low`, `high`: least and greatest value. `picked`: some of the values, none of an empty activation. `means`: by the
    channel axis (1 or -1) of the layers with constant weights that read it, the mean of each channel; the one mean of
    all values, under None, where there is no such layer.
    """

    tensor: str
    low: str
    high: str
    picked: str
    means: dict[int | None, str]


def tapped(path: Path, out: Path) -> tuple[Tap, ...]:
    """Write the model with the outputs of taps instead of its own, one tap for each float32 activation."""
    import onnx_ir as ir

    model = graph.load(path)
    tensors = [*_activations(model.graph)]
    model.graph.outputs.clear()
    picks = ir.Value(name=PICKS, type=ir.TensorType(ir.DataType.DOUBLE), shape=ir.Shape(["picks"]))
    model.graph.inputs.append(picks)
    added = _Added(model.graph, picks, model.opset_imports[""])
    taps = tuple(added.tap(tensor, f"compressor.{number}") for number, tensor in enumerate(tensors))
    graph.save(model, out)
    return taps


def channel_axis(node: ir.Node) -> int | None:
    """Give the channel axis of what a layer with constant weights reads: 1 or -1; None for any other node."""
    if node.op_type not in WEIGHTED or node.inputs[0] is None or _weight_shape(node) is None:
        return None
    if node.op_type == "Gemm" and node.attributes.get_int("transA", 0):
        return None
    return 1 if node.op_type.startswith("Conv") else -1


class _Added:
    """Adds reducing nodes to a graph."""

    def __init__(self, main: ir.Graph, picks: ir.Value, opset: int) -> None:
        self._graph = main
        self._picks = picks
        self._opset = opset

    def tap(self, tensor: ir.Value, prefix: str) -> Tap:
        low, high = (self._node(kind, [tensor], keepdims=0) for kind in ("ReduceMin", "ReduceMax"))
        means: dict[int | None, ir.Value] = {axis: self._mean(tensor, node) for axis, node in _read_along(tensor)}
        means = means or {None: self._node("ReduceMean", [tensor], keepdims=0)}
        names = {axis: self._output(mean, f"{prefix}.mean{axis}") for axis, mean in means.items()}
        picked = self._output(self._picked(tensor), f"{prefix}.picked")
        low_name, high_name = self._output(low, f"{prefix}.low"), self._output(high, f"{prefix}.high")
        return Tap(str(tensor.name), low_name, high_name, picked, names)

    def _mean(self, tensor: ir.Value, node: ir.Node) -> ir.Value:
        """Give the mean per channel as the layer `node` counts channels."""
        shape = _weight_shape(node) or ()
        axes = [axis for axis in range(len(shape)) if axis != 1]
        if channel_axis(node) == -1:
            channels = shape[-1] if node.attributes.get_int("transB", 0) else shape[-2]
            tensor, axes = self._node("Reshape", [tensor, self._integers([-1, channels])]), [0]
        if self._opset < _AXES_ARE_INPUT_SINCE:
            return self._node("ReduceMean", [tensor], axes=axes, keepdims=0)
        return self._node("ReduceMean", [tensor, self._integers(axes)], keepdims=0)

    def _picked(self, tensor: ir.Value) -> ir.Value:
        """Give the values at the picked parts of the length; none of an empty tensor, at most its length of a short."""
        flat = self._node("Reshape", [tensor, self._integers([-1])])
        length = self._node("Shape", [flat])
        parts = self._node("Slice", [self._picks, self._integers([0]), length])
        places = self._node("Mul", [parts, self._node("Cast", [length], to=11)])
        return self._node("Gather", [flat, self._node("Cast", [places], to=7)])

    def _integers(self, numbers: Sequence[int]) -> ir.Value:
        import onnx_ir as ir

        name = f"compressor.integers{len(self._graph.initializers)}"
        value = ir.val(name, const_value=ir.tensor(numbers, dtype=ir.DataType.INT64, name=name))
        self._graph.register_initializer(value)
        return value

    def _node(self, kind: str, inputs: Sequence[ir.Value], **attributes: int | Sequence[int]) -> ir.Value:
        import onnx_ir as ir

        node = ir.node(kind, inputs, attributes)
        self._graph.append(node)
        return node.outputs[0]

    def _output(self, value: ir.Value, name: str) -> str:
        value.name = name
        self._graph.outputs.append(value)
        return name


def _activations(main: ir.Graph) -> Iterator[ir.Value]:
    """Give the float32 values of the main graph, inputs and what nodes give; not those of subgraphs."""
    import onnx_ir as ir

    for value in (*main.inputs, *(output for node in main for output in node.outputs)):
        if value.name and value.dtype == ir.DataType.FLOAT and isinstance(value.type, ir.TensorType):
            yield value


def _read_along(tensor: ir.Value) -> Iterable[tuple[int, ir.Node]]:
    """Give each channel axis with one of the layers with constant weights that read the tensor as their data."""
    axes = {axis: use.node for use in tensor.uses() if use.idx == 0 and (axis := channel_axis(use.node)) is not None}
    return sorted(axes.items(), key=itemgetter(0))


def _weight_shape(node: ir.Node) -> tuple[int, ...] | None:
    """Give the shape of a layer's weights, at least 2 axes; None where they are not constant, or there are none."""
    weights = node.inputs[1]
    if weights is None or weights.const_value is None or len(weights.const_value.shape) < 2:  # noqa: PLR2004
        return None
    if not weights.const_value.size:
        return None
    return tuple(int(dim) for dim in weights.const_value.shape)
