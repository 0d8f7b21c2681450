"""Operators that move elements or ask for sizes, in torch.

An operator is a function here, in the table at the foot.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from compressor.stages.recover.call import Call

if TYPE_CHECKING:
    from compressor.stages.recover.call import Operator, Tensor

_LISTS = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}


def _reshape(call: Call, x: Tensor, shape: Tensor) -> Tensor:
    sizes = shape.tolist()
    if not call.get("allowzero", 0):
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return x.reshape(sizes)


def _flatten(call: Call, x: Tensor) -> Tensor:
    axis = call.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _squeeze(_call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    return x.squeeze() if axes is None else x.squeeze(tuple(axes.tolist()))


def _unsqueeze(_call: Call, x: Tensor, axes: Tensor) -> Tensor:
    given = axes.flatten().tolist()
    for axis in sorted(axis % (x.ndim + len(given)) for axis in given):
        x = x.unsqueeze(axis)
    return x


def _transpose(call: Call, x: Tensor) -> Tensor:
    return x.permute(call.get("perm", tuple(reversed(range(x.ndim)))))


def _expand(_call: Call, x: Tensor, shape: Tensor) -> Tensor:
    import torch

    return x.expand(torch.broadcast_shapes(x.shape, shape.tolist()))


def _tile(_call: Call, x: Tensor, repeats: Tensor) -> Tensor:
    return x.tile(repeats.tolist())


def _concat(call: Call, *inputs: Tensor) -> Tensor:
    import torch

    return torch.cat(inputs, call.get("axis"))


def _split(call: Call, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    axis, n = call.get("axis", 0), call.get("num_outputs", call.outputs)
    call.need(only=sizes is not None or n == call.outputs, why="one of its last outputs is left out")
    parts: tuple[Tensor, ...] = x.split(-(-x.shape[axis] // n) if sizes is None else sizes.tolist(), axis)
    return parts


def _slice(
    _call: Call, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
) -> Tensor:
    import torch

    n = len(starts)
    wanted = zip(
        *(starts.tolist(), ends.tolist()),
        *(range(n) if axes is None else axes.tolist(), [1] * n if steps is None else steps.tolist()),
        strict=True,
    )
    for start, end, axis, step in wanted:
        found = range(*slice(start, end, step).indices(x.shape[axis]))
        if step == 1:
            x = x.narrow(axis, min(found.start, x.shape[axis]), len(found))
        else:  # torch takes no negative steps
            x = x.index_select(axis, torch.tensor(found, dtype=torch.int64))
    return x


def _pad(call: Call, x: Tensor, pads: Tensor, value: Tensor | None = None, axes: Tensor | None = None) -> Tensor:
    from torch.nn import functional

    around = [(0, 0)] * x.ndim
    amounts = pads.tolist()
    named = range(x.ndim) if axes is None else axes.tolist()
    for axis, before, after in zip(named, amounts[: len(named)], amounts[len(named) :], strict=True):
        around[axis] = (before, after)
    mode = call.get("mode", "constant")
    if mode == "constant":
        flat = [amount for pair in reversed(around) for amount in pair]
        return functional.pad(x, flat, value=0 if value is None else value.item())
    call.need(only=mode in {"edge", "reflect"}, why=f"mode {mode} cannot be followed")
    for axis, (before, after) in enumerate(around):
        x = x.index_select(axis, _beyond(call, x.shape[axis], before, after)) if before or after else x
    return x


def _beyond(call: Call, size: int, before: int, after: int) -> Tensor:
    """Say which elements stand where an axis goes on beyond its ends."""
    import torch

    places = torch.arange(-before, size + after)
    if call.get("mode") == "edge":
        return places.clamp(0, size - 1)
    call.need(only=max(before, after) < size, why="it reflects more than there is")
    places = places.abs()
    return torch.where(places < size, places, 2 * (size - 1) - places)


def _gather(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    axis = call.get("axis", 0) % x.ndim
    flat = _from_start(indices, x.shape[axis]).flatten()
    return x.index_select(axis, flat).reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def _gather_elements(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    axis = call.get("axis", 0)
    return x.gather(axis, _from_start(indices, x.shape[axis]))


def _gather_nd(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    call.need(only=not call.get("batch_dims", 0), why="it gathers by batch")
    return x[tuple(indices.unbind(-1))]


def _from_start(indices: Tensor, size: int) -> Tensor:
    import torch

    return torch.where(indices < 0, indices + size, indices).long()


def _shape(call: Call, x: Tensor) -> Tensor:
    import torch

    return torch.tensor(x.shape[call.get("start", 0) : call.get("end", None)], dtype=torch.int64)


def _size(_call: Call, x: Tensor) -> Tensor:
    import torch

    return torch.tensor(x.numel())


def _constant(call: Call) -> Tensor:
    import torch

    (kind, value), *_ = call.settings.items()
    if kind == "value":
        return _tensor(value)
    call.need(only=kind in _LISTS, why=f"{kind} cannot be followed")
    return torch.tensor(value, dtype=getattr(torch, _LISTS[kind]))


def _constant_of_shape(call: Call, shape: Tensor) -> Tensor:
    import torch

    value = call.get("value", None)
    return (torch.zeros(1) if value is None else _tensor(value)).expand(shape.tolist())


def _tensor(value: Any) -> Tensor:
    import numpy as np
    import torch

    return torch.from_numpy(np.array(value.numpy()))


def _range(_call: Call, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    import torch

    return torch.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


def _dropout(call: Call, x: Tensor, _ratio: Tensor | None = None, training: Tensor | None = None) -> Tensor:
    call.single()
    call.need(only=training is None or not training.item(), why="it is in training mode")
    return x


def _depth_to_space(call: Call, x: Tensor) -> Tensor:
    b, (n, c, h, w) = call.get("blocksize"), x.shape
    if call.get("mode", "DCR") == "DCR":
        spread = x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        spread = x.reshape(n, c // b**2, b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return spread.reshape(n, c // b**2, h * b, w * b)


def _space_to_depth(call: Call, x: Tensor) -> Tensor:
    b, (n, c, h, w) = call.get("blocksize"), x.shape
    return x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4).reshape(n, c * b**2, h // b, w // b)


def _triangle(call: Call, x: Tensor, diagonal: Tensor | None = None) -> Tensor:
    k = 0 if diagonal is None else int(diagonal)
    return x.triu(k) if call.get("upper", 1) else x.tril(k)


OPERATORS: dict[str, Operator] = {
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Dropout": _dropout,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Identity": lambda _call, x: x,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _triangle,
    "Unsqueeze": _unsqueeze,
}
