"""Operators that sum over axes, in torch: products, reductions, normalisations.

An operator is a function here, in the table at the foot.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compressor.stages.recover.call import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from compressor.stages.recover.call import Operator, Tensor


def _matmul(_call: Call, a: Tensor, b: Tensor) -> Tensor:
    import torch

    return torch.matmul(a, b)


def _gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    product = (a.T if call.get("transA", 0) else a) @ (b.T if call.get("transB", 0) else b)
    scaled = product * call.get("alpha", 1.0)
    return scaled if c is None else scaled + c * call.get("beta", 1.0)


def _einsum(call: Call, *inputs: Tensor) -> Tensor:
    import torch

    return torch.einsum(call.get("equation"), *inputs)


def _softmax(call: Call, x: Tensor) -> Tensor:
    return x.softmax(call.get("axis", -1))


def _log_softmax(call: Call, x: Tensor) -> Tensor:
    return x.log_softmax(call.get("axis", -1))


def _reduced(reduce: Callable[[Tensor, list[int], bool], Tensor]) -> Operator:
    """Give the operator that reduces over its axes, all of them where it names none."""

    def apply(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
        named = call.get("axes", None) if axes is None else axes.tolist()
        if not named:
            call.need(only=not call.get("noop_with_empty_axes", 0), why="it names no axes, and so reduces nothing")
        wanted = sorted(axis % x.ndim for axis in named or range(x.ndim))
        return reduce(x, wanted, bool(call.get("keepdims", 1))) if wanted else x

    return apply


def _sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:  # noqa: FBT001 - as `_reduced` calls it
    return x.sum(axes, keepdim=keep, dtype=x.dtype)


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:  # noqa: FBT001 - as `_reduced` calls it
    for axis in reversed(axes):
        x = x.prod(axis, keepdim=keep, dtype=x.dtype)
    return x


def _arg(call: Call, x: Tensor) -> Tensor:
    call.need(only=not call.get("select_last_index", 0), why="it selects the last of equals")
    find = x.argmax if call.operator == "ArgMax" else x.argmin
    return find(call.get("axis", 0), keepdim=bool(call.get("keepdims", 1)))


def _cumulated(call: Call, x: Tensor, axis: Tensor) -> Tensor:
    call.need(only=not call.get("exclusive", 0) and not call.get("reverse", 0), why="it is exclusive or reversed")
    return x.cumsum(int(axis), dtype=x.dtype)


def _batch_norm(call: Call, x: Tensor, *statistics: Tensor) -> Tensor:
    from torch.nn import functional

    call.single()
    call.need(only=not call.get("training_mode", 0), why="it is in training mode")
    scale, shift, mean, var = statistics
    return functional.batch_norm(x, mean, var, scale, shift, training=False, eps=call.get("epsilon", 1e-5))


def _layer_norm(call: Call, x: Tensor, scale: Tensor, shift: Tensor | None = None) -> Tensor:
    call.single()
    axes = list(range(call.get("axis", -1) % x.ndim, x.ndim))
    normal = _standard(x, axes, call) * scale
    return normal if shift is None else normal + shift


def _instance_norm(call: Call, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    aside = (-1, *(1,) * (x.ndim - 2))
    return _standard(x, list(range(2, x.ndim)), call) * scale.reshape(aside) + shift.reshape(aside)


def _group_norm(call: Call, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Normalise groups of channels; before opset 21 a group has one scale, since then each channel."""
    groups = call.get("num_groups")
    aside = (-1, *(1,) * (x.ndim - 2))
    if call.opset < 21:  # noqa: PLR2004 - the opset that changed it
        scale, shift = (each.repeat_interleave(x.shape[1] // groups) for each in (scale, shift))
    grouped = x.reshape(x.shape[0], groups, -1)
    return _standard(grouped, [2], call).reshape(x.shape) * scale.reshape(aside) + shift.reshape(aside)


def _standard(x: Tensor, axes: list[int], call: Call) -> Tensor:
    centred = x - x.mean(axes, keepdim=True)
    return centred * (centred.square().mean(axes, keepdim=True) + call.get("epsilon", 1e-5)).rsqrt()


def _local_response(call: Call, x: Tensor) -> Tensor:
    from torch.nn import functional

    size = call.get("size")
    around = (*(0, 0) * (x.ndim - 2), (size - 1) // 2, math.ceil((size - 1) / 2))
    power = functional.pad(x.square(), around).unfold(1, size, 1).sum(-1)
    return x / (call.get("bias", 1.0) + call.get("alpha", 1e-4) / size * power) ** call.get("beta", 0.75)


OPERATORS: dict[str, Operator] = {
    "ArgMax": _arg,
    "ArgMin": _arg,
    "BatchNormalization": _batch_norm,
    "CumSum": _cumulated,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LRN": _local_response,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _log_softmax,
    "MatMul": _matmul,
    "ReduceL1": _reduced(lambda x, axes, keep: _sum(x.abs(), axes, keep)),
    "ReduceL2": _reduced(lambda x, axes, keep: _sum(x.square(), axes, keep).sqrt()),
    "ReduceLogSum": _reduced(lambda x, axes, keep: _sum(x, axes, keep).log()),
    "ReduceLogSumExp": _reduced(lambda x, axes, keep: x.logsumexp(axes, keepdim=keep)),
    "ReduceMax": _reduced(lambda x, axes, keep: x.amax(axes, keepdim=keep)),
    "ReduceMean": _reduced(lambda x, axes, keep: x.mean(axes, keepdim=keep)),
    "ReduceMin": _reduced(lambda x, axes, keep: x.amin(axes, keepdim=keep)),
    "ReduceProd": _reduced(_product),
    "ReduceSum": _reduced(_sum),
    "ReduceSumSquare": _reduced(lambda x, axes, keep: _sum(x.square(), axes, keep)),
    "Softmax": _softmax,
}
