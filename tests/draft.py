"""A graph that is being drawn at random: nodes, weights, and the shapes of values as far as they are known.

Add here what blocks of several kinds draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

T = TypeVar("T")
Shape = tuple[int | str, ...]
AXES_AS_INPUT = 18
"""From this opset on reductions take their axes as an input."""


class Value(NamedTuple):
    name: str
    shape: Shape

    @property
    def channels(self) -> int:
        """Give the channels of an image, the width of anything else."""
        return int(self.shape[1 if len(self.shape) == 4 else -1])


class Draft:
    """Collects what blocks add; `block` is the one whose nodes are being added."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset = int(self.rng.integers(17, 22))
        self.batch: int | str = "batch" if self.rng.random() < 0.5 else 2
        self.block = "input"
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.live: list[Value] = []
        self._types: dict[str, onnx.TypeProto] = {}
        self._known: dict[str, onnx.TensorProto] = {}

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.rng.integers(len(options)))]

    def maybe(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def input(self, name: str, shape: Shape, kind: int = TensorProto.FLOAT) -> Value:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        self._types[name] = self.inputs[-1].type
        return Value(name, shape)

    def weight(self, *shape: int, fan_in: int = 1, mean: float = 0.0) -> Value:
        array = self.rng.normal(mean, fan_in**-0.5 if mean == 0 else 0.1, shape).astype(np.float32)
        return self.constant(array)

    def ints(self, *numbers: int) -> Value:
        return self.constant(np.array(numbers, np.int64))

    def constant(self, array: np.ndarray) -> Value:
        """Add an initializer, or now and then a Constant node."""
        name = f"c{len(self._known)}"
        tensor = self._known[name] = numpy_helper.from_array(array, name)
        self._types[name] = helper.make_tensor_type_proto(tensor.data_type, array.shape)
        if self.maybe(0.1):
            self.nodes.append(helper.make_node("Constant", [], [name], f"{self.block}.{name}", value=tensor))
        else:
            self.initializers[name] = tensor
        return Value(name, array.shape)

    def op(self, kind: str, *inputs: Value | None, **attributes: Any) -> Value:
        return self.many(kind, 1, *inputs, **attributes)[0]

    def many(self, kind: str, outputs: int, *inputs: Value | None, **attributes: Any) -> list[Value]:
        """Add a node with several outputs; those whose shape onnx cannot infer get it from `shaped`."""
        stem = f"v{len(self.nodes)}"
        names = [f"{stem}_{i}" for i in range(outputs)]
        read = ["" if value is None else value.name for value in inputs]
        node = helper.make_node(kind, read, names, f"{self.block}.{stem}", **attributes)
        self.nodes.append(node)
        self._types |= onnx.shape_inference.infer_node_outputs(
            onnx.defs.get_schema(kind, self.opset, ""),
            node,
            {name: self._types[name] for name in read if name},
            {name: self._known[name] for name in read if name in self._known},
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=10,
        )
        return [Value(name, _dims(self._types[name], self.batch)) for name in names]

    def shaped(self, value: Value, shape: Shape) -> Value:
        """Say what is the shape of a value; onnx cannot infer it where numbers are computed while it runs."""
        self._types[value.name] = helper.make_tensor_type_proto(
            self._types[value.name].tensor_type.elem_type, list(shape)
        )
        return Value(value.name, shape)

    def reshape(self, x: Value, shape: Shape) -> Value:
        """Reshape by a constant with 0 and -1, or by numbers computed while it runs."""
        if self.maybe(0.3):
            target = self._run_time_target(x, shape)
        else:
            target = self.ints(*(_written(self, i, dim) for i, dim in enumerate(shape)))
        return self.shaped(self.op("Reshape", x, target), shape)

    def _run_time_target(self, x: Value, shape: Shape) -> Value:
        sizes = self.op("Shape", x)
        first = self.op("Gather", sizes, self.ints(0), axis=0)
        rest = list(shape[1:])
        if self.maybe():
            rest[int(self.rng.integers(len(rest)))] = -1
        return self.op("Concat", first, self.ints(*map(int, rest)), axis=0)

    def reduce(self, kind: str, x: Value, axes: Sequence[int], keepdims: int) -> Value:
        if self.opset >= AXES_AS_INPUT or kind == "ReduceSum":
            return self.op(kind, x, self.ints(*axes), keepdims=keepdims)
        return self.op(kind, x, axes=list(axes), keepdims=keepdims)

    def others(self, x: Value, n: int) -> list[Value]:
        """Give up to n live values of the same shape."""
        same = [value for value in self.live if value.shape == x.shape and value != x]
        return [same[i] for i in self.rng.permutation(len(same))[:n]]

    def unary(self, x: Value) -> Value:
        """Apply an elementwise function that is defined and small for any x."""
        kind = self.pick([*_ANY, *(name for name, since in _SINCE.items() if self.opset >= since), *_GUARDED])
        guard, attributes = _GUARDED.get(kind), _ATTRIBUTES.get(kind, {})
        x = x if guard is None else self.op(guard, x)
        if kind in {"Log", "Sqrt", "Reciprocal"}:
            x = self.op("Add", x, self.constant(np.array(1.5, np.float32)))
        if kind == "Clip":
            return self.op(kind, x, *(self.constant(np.array(bound, np.float32)) for bound in (-1.0, 1.5)))
        return self.op(kind, x, **attributes)

    def model(self, outputs: Iterable[Value]) -> onnx.ModelProto:
        declared = [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, v.shape) for v in outputs]
        graph = helper.make_graph(self.nodes, "random", self.inputs, declared, list(self.initializers.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        helper.set_model_props(model, {"classes": "cat,dog"})
        return model


def _dims(kind: onnx.TypeProto, batch: int | str) -> Shape:
    """Read a shape; only the batch can be unknown, which some rules of inference forget the name of."""
    return tuple(dim.dim_param or dim.dim_value or batch for dim in kind.tensor_type.shape.dim)


def _written(draft: Draft, at: int, dim: int | str) -> int:
    """Write a batch that comes first as 0; all others as they are."""
    if at == 0 and (isinstance(dim, str) or draft.maybe()):
        return 0
    return int(dim)


_ANY = ("Abs", "Atan", "Cos", "Elu", "Erf", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Neg", "Relu", "Selu")
_ANY += ("Sigmoid", "Sin", "Softplus", "Softsign", "Tanh", "ThresholdedRelu", "Clip", "Celu", "Asinh", "Dropout")
_SINCE = {"Gelu": 20, "Mish": 18}
_GUARDED = {"Exp": "Tanh", "Log": "Tanh", "Sqrt": "Sigmoid", "Reciprocal": "Sigmoid", "Tan": "Sigmoid", "Cosh": "Tanh"}
_ATTRIBUTES = {"LeakyRelu": {"alpha": 0.2}, "ThresholdedRelu": {"alpha": 0.3}}
