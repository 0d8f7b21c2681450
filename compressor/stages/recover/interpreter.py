"""A plain ONNX graph run by torch, so that its weights can be trained and written back.

Operators are in `pointwise`, `products`, `windows`, `resize`, `layout` and `recurrent`; a module of further ones is
named in `_OPERATORS`. What cannot be computed exactly as ONNX words it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compressor import graph
from compressor.errors import RungError
from compressor.stages.recover import layout, pointwise, products, recurrent, resize, windows
from compressor.stages.recover.call import Call
from compressor.stages.recover.weights import is_learnt

if TYPE_CHECKING:
    import onnx_ir as ir

    from compressor.stages.recover.call import Operator, Tensor

_OPERATORS: dict[str, Operator] = {
    **pointwise.OPERATORS,
    **products.OPERATORS,
    **windows.OPERATORS,
    **resize.OPERATORS,
    **layout.OPERATORS,
    **recurrent.OPERATORS,
}
_IMAGE_AXES = 4


@dataclass(frozen=True)
class _Step:
    """A node to compute, with the names of its inputs and outputs, empty where one is left out.

    `unread`: those that no later node reads.
    """

    call: Call
    operator: Operator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    unread: tuple[str, ...]


class Network:
    """A graph in torch. `weights` are its learnt initializers by name: leaves that require gradients."""

    def __init__(self, path: Path) -> None:
        """Read a model.

        Raises:
            RungError: It has an operator, a type or a form of an operator that cannot be computed exactly.
        """
        self._model = graph.load(path)
        if self._model.functions:
            raise RungError("the model has functions of its own, which cannot be trained")
        self._steps = _steps(self._model)
        tensors = {name: _tensor(value) for name, value in self._model.graph.initializers.items()}
        trained = {name for name, value in self._model.graph.initializers.items() if is_learnt(value)}
        self.weights: Mapping[str, Tensor] = {name: _weight(tensors[name]) for name in sorted(trained)}
        self._constants = {name: tensor for name, tensor in tensors.items() if name not in trained}
        self._outputs = [str(value.name) for value in self._model.graph.outputs]

    def __call__(self, feeds: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the outputs.

        Raises:
            RungError: A node cannot be computed.
        """
        values: dict[str, Any] = {**self._constants, **self.weights}
        values.update({name: _laid_out(tensor) for name, tensor in feeds.items()})
        for step in self._steps:
            values.update(_computed(step, [values[name] if name else None for name in step.inputs]))
            for name in step.unread:
                values.pop(name, None)
        return {name: values[name] for name in self._outputs}

    def footprint_bytes(self, feeds: Mapping[str, Tensor]) -> int:
        """Give how many bytes all intermediate values of a run have, which training keeps."""
        total, values = 0, {**self._constants, **self.weights, **feeds}
        for step in self._steps:
            made = _computed(step, [values[name] if name else None for name in step.inputs])
            total += sum(value.nbytes for value in made.values())
            values.update(made)
        return total

    def save(self, out: Path) -> None:
        """Write the graph with the weights as they are now, under the names, types and shapes that they had."""
        import onnx_ir as ir

        model = self._model.clone()
        for name, weight in self.weights.items():
            value = model.graph.initializers[name]
            value.const_value = ir.Tensor(weight.detach().numpy().copy(), name=name)
        graph.save(model, out)


def _steps(model: ir.Model) -> list[_Step]:
    """Give the nodes in their order, each with what is read for the last time there."""
    kept = {value.name for value in (*model.graph.outputs, *model.graph.initializers.values())}
    read: set[str | None] = set()
    steps: list[_Step] = []
    for node in reversed(list(model.graph)):
        inputs, outputs = (
            tuple(value.name or "" if value else "" for value in side) for side in (node.inputs, node.outputs)
        )
        names = dict.fromkeys((*inputs, *outputs))
        unread = tuple(name for name in names if name and name not in kept and name not in read)
        read.update(inputs)
        steps.append(_Step(_call(node, model), _operator(node), inputs, outputs, unread))
    return steps[::-1]


def _call(node: ir.Node, model: ir.Model) -> Call:
    opset = node.version or model.opset_imports.get(node.domain, 0)
    asked = [i for i, value in enumerate(node.outputs, 1) if value.name and (value.uses() or value.is_graph_output())]
    settings = {name: attribute.value for name, attribute in node.attributes.items()}
    outputs = len(node.outputs) if node.op_type == "Split" else max(asked, default=1)
    return Call(node.name or "", node.op_type, opset, settings, outputs)


def _operator(node: ir.Node) -> Operator:
    if node.domain not in {"", "ai.onnx"} or node.op_type not in _OPERATORS:
        where = f"{node.domain}." if node.domain not in {"", "ai.onnx"} else ""
        raise RungError(f"node {node.name!r} ({where}{node.op_type}): this operator cannot be trained")
    return _OPERATORS[node.op_type]


def _tensor(value: ir.Value) -> Tensor:
    import torch

    if value.const_value is None:
        raise RungError(f"initializer {value.name!r} has no value")
    try:
        return torch.from_numpy(np.array(value.const_value.numpy()))
    except TypeError as error:
        raise RungError(f"initializer {value.name!r}: torch takes no {value.const_value.dtype}") from error


def _laid_out(tensor: Tensor) -> Tensor:
    """Lay pixels out with their channels together, for which the backward pass of convolutions is twice as fast."""
    import torch

    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == _IMAGE_AXES else tensor


def _weight(tensor: Tensor) -> Tensor:
    """Give a leaf to train; zeros of a matrix or kernel stay, as they say what must not be connected."""
    weight = _laid_out(tensor).requires_grad_()
    if weight.ndim > 1:
        kept = weight.detach() != 0
        weight.register_hook(lambda gradient: gradient * kept)
    return weight


def _computed(step: _Step, inputs: list[Any]) -> dict[str, Tensor]:
    try:
        made = step.operator(step.call, *inputs)
    except RungError:
        raise
    except Exception as error:  # the door to torch: its errors share no class of their own
        raise step.call.refusal(f"torch could not compute it: {' '.join(str(error).split())[:200]}") from error
    results = made if isinstance(made, tuple) else (made,)
    return {name: value for name, value in zip(step.outputs, results, strict=False) if name}
