"""Large weights, which quantizers would hold several times over: they are shown what their scales depend on.

The scale of a channel follows from its least and greatest weight, so a weight of two rows that hold them gives the same
scales as the whole, in a hundredth of the time; the codes of the whole are computed when the file is written, one
weight after another. Another kind of layer whose weights may be shown so is an entry of `_AXES`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compressor import graph
from compressor.graph import count

if TYPE_CHECKING:
    import onnx_ir as ir

    from compressor.records import Array

LEAST_BYTES = 1 << 22
"""Smaller weights are given to a quantizer as they are."""
_AXES: Mapping[tuple[str, int], int] = {("Gather", 0): 1, ("Gemm", 1): 1, ("MatMul", 1): 1}
"""By operator and place of a weight, the axis of its channels, if it has any and is not transposed."""
_AT_ONCE = 1 << 22
_TWO = 2


@dataclass(frozen=True)
class Shown:
    """A model as a quantizer sees it, and the weights of `original` that are not whole there, by name."""

    path: Path
    original: ir.Model
    weights: Mapping[str, ir.TensorProtocol]


def shown(path: Path, out: Path) -> Shown:
    """Give a model for a quantizer, written to `out` where it has large weights."""
    import onnx_ir as ir

    original, model = graph.load(path), graph.load(path)
    large = dict(_large(model))
    weights = {name: original.graph.initializers[name].const_value for name in large}
    for name, axis in large.items():
        extremes = _extremes(weights[name], axis)
        value = model.graph.initializers[name]
        value.const_value, value.shape = ir.tensor(extremes, name=name), ir.Shape(extremes.shape)
    if large:
        graph.save(model, out)
    return Shown(out if large else path, original, weights)


def restore(model: ir.Model, seen: Shown) -> None:
    """Put the whole weights, or their codes, into what a quantizer made, which the caller owns."""
    for value in list(model.graph.initializers.values()):
        name, transposed, coded = _parsed(str(value.name), seen.weights)
        if name and not value.uses():
            del model.graph.initializers[str(value.name)]
        elif name:
            whole = seen.weights[name]
            parameters = _parameters(model, str(value.name)) if coded else None
            value.const_value = _lazy(value, whole, parameters, transposed=transposed)
            value.shape = value.const_value.shape


def release(tensor: ir.TensorProtocol) -> None:
    """Close the file of an external tensor: what was read of it would count as memory in use."""
    import onnx_ir as ir

    if isinstance(tensor, ir.ExternalTensor):
        tensor.release()


def _large(model: ir.Model) -> Iterator[tuple[str, int]]:
    """Give the weights that may be shown so, with the axis of their channels."""
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        axes = {_axis(use.node, use.idx) if use.node.graph is model.graph else None for use in value.uses()}
        rank = len(tensor.shape)
        fits = rank == _TWO and min(tensor.shape) > _TWO and tensor.dtype.name == "FLOAT"
        if tensor.nbytes >= LEAST_BYTES and fits and len(axes) == 1 and not value.is_graph_output():
            (axis,) = axes
            if axis is not None and not value.is_graph_input():
                yield name, axis


def _axis(node: ir.Node, place: int) -> int | None:
    axis = _AXES.get((node.op_type, place)) if node.domain in count.STANDARD_DOMAINS else None
    return 0 if node.op_type == "Gemm" and axis is not None and node.attributes.get_int("transB", 0) else axis


def _extremes(tensor: ir.TensorProtocol, axis: int) -> Array:
    found = [pick(tensor.numpy(), axis=1 - axis) for pick in (np.min, np.max)]
    release(tensor)
    return np.stack(found, axis=1 - axis)


def _parsed(name: str, weights: Mapping[str, object]) -> tuple[str, bool, bool]:
    """Read which weight a quantizer's tensor was made of, whether it is transposed, and whether it holds codes."""
    plain = name.removesuffix("_quantized")
    if plain in weights:
        return plain, False, plain != name
    source = re.sub(r"_Transposed(_\d+)?$", "", plain)
    return (source, True, plain != name) if source in weights and source != plain else ("", False, False)


def _parameters(model: ir.Model, name: str) -> tuple[Array, Array]:
    """Give scales and zero points of a tensor of codes, as the quantizer names them."""
    plain = name.removesuffix("_quantized")
    scale, zero = (
        model.graph.initializers[f"{plain}_{which}"].const_value.numpy() for which in ("scale", "zero_point")
    )
    return scale, zero


def _lazy(
    value: ir.Value, whole: ir.TensorProtocol, parameters: tuple[Array, Array] | None, *, transposed: bool
) -> ir.TensorProtocol:
    import onnx_ir as ir

    if parameters is None and not transposed:
        return whole
    stands_for = value.const_value
    dims = tuple(whole.shape.numpy())[:: -1 if transposed else 1]
    axis = next(axis for axis in (0, 1) if stands_for.shape[axis] == dims[axis])
    made = partial(_tensor, whole, parameters, axis, transposed)
    return ir.LazyTensor(made, dtype=stands_for.dtype, shape=ir.Shape(dims), name=value.name)


def _tensor(
    whole: ir.TensorProtocol,
    parameters: tuple[Array, Array] | None,
    axis: int,
    transposed: bool,  # noqa: FBT001 - of a partial
) -> ir.TensorProtocol:
    import onnx_ir as ir

    array = whole.numpy().T if transposed else whole.numpy()
    found = np.ascontiguousarray(array) if parameters is None else _codes(array, *parameters, axis)
    del array
    release(whole)
    return ir.tensor(found)


def _codes(array: Array, scale: Array, zero_point: Array, axis: int) -> Array:
    """Quantize as onnxruntime 1.32 does, a part of the channels after another."""
    channels, kind = array.shape[axis], np.iinfo(zero_point.dtype)
    scale, zero_point = (np.broadcast_to(each, channels) for each in (scale, zero_point))
    result = np.empty(array.shape, zero_point.dtype)
    for part in np.array_split(np.arange(channels), array.size // _AT_ONCE + 1):
        place = (slice(None),) * axis + (slice(part[0], part[-1] + 1),)
        along = (None,) * axis + (slice(part[0], part[-1] + 1),) + (None,) * (1 - axis)
        codes = (array[place] / scale[along]).round() + zero_point[along]
        result[place] = np.clip(codes, kind.min, kind.max, out=codes)
    return result
