"""Operators that look at windows of space, in torch: convolutions, pools, resizing.

An operator is a function here, in the table at the foot. Padding is done beforehand wherever that of torch is another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compressor.stages.recover.call import Call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compressor.stages.recover.call import Operator, Tensor


@dataclass(frozen=True)
class _Windows:
    """Windows along one axis: how far they reach, how far apart they begin, and what is added before and after."""

    reach: int
    stride: int
    before: int
    after: int


def _conv(call: Call, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    import torch

    axes = _windows(call, x.shape[2:], w.shape[2:])
    padding = [each.before for each in axes]
    if any(each.before != each.after for each in axes):
        x, padding = _padded(x, [(each.before, each.after) for each in axes], 0.0), [0] * len(axes)
    strides, dilations = [each.stride for each in axes], _each(call, "dilations", len(axes))
    return torch.convolution(x, w, bias, strides, padding, dilations, False, [0] * len(axes), call.get("group", 1))  # noqa: FBT003 - torch takes it by place


def _conv_transpose(call: Call, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute all that the windows reach, cut off the padding, add what is asked for at the end."""
    import torch

    n = x.ndim - 2
    strides, dilations, zeros = _each(call, "strides", n), _each(call, "dilations", n), [0] * n
    whole = torch.convolution(x, w, None, strides, zeros, dilations, True, zeros, call.get("group", 1))  # noqa: FBT003 - torch takes it by place
    more = list(call.get("output_padding", zeros))
    cut = _cut(call, x.shape[2:], [size + add for size, add in zip(whole.shape[2:], more, strict=True)])
    around = [(-before, add - after) for (before, after), add in zip(cut, more, strict=True)]
    made = _padded(whole, around, 0.0)
    return made if bias is None else made + bias.reshape(-1, *(1,) * n)


def _cut(call: Call, sizes: Sequence[int], whole: Sequence[int]) -> list[tuple[int, int]]:
    """Say how much to cut off before and after. Source: ConvTranspose in the operator list of ONNX."""
    auto, n = call.get("auto_pad", "NOTSET"), len(sizes)
    wanted = call.get("output_shape", None)
    if wanted is None and auto.startswith("SAME"):
        wanted = [size * stride for size, stride in zip(sizes, _each(call, "strides", n), strict=True)]
    if wanted is None:
        pads = [0] * 2 * n if auto == "VALID" else call.get("pads", [0] * 2 * n)
        return list(zip(pads[:n], pads[n:], strict=True))
    surplus = [found - size for found, size in zip(whole, wanted[-n:], strict=True)]
    call.need(only=min(surplus) >= 0, why="its output is larger than its windows reach")
    halves = [(total // 2, total - total // 2) for total in surplus]
    return halves if auto == "SAME_UPPER" else [(after, before) for before, after in halves]


def _max_pool(call: Call, x: Tensor) -> Tensor:
    from torch.nn import functional

    call.single()
    kernel = call.get("kernel_shape")
    axes, dilations = _windows(call, x.shape[2:], kernel), _each(call, "dilations", len(kernel))
    padded = _padded(x, [(each.before, each.after) for each in _fitted(call, x, axes)], -math.inf)
    pool = getattr(functional, f"max_pool{len(kernel)}d")
    return pool(padded, kernel, [each.stride for each in axes], dilation=dilations)


def _average_pool(call: Call, x: Tensor) -> Tensor:
    """Average over what of each window counts: the share of it that is 1 in a picture of what does."""
    import torch
    from torch.nn import functional

    kernel = call.get("kernel_shape")
    call.need(only=set(_each(call, "dilations", len(kernel))) == {1}, why="its windows have gaps")
    axes = _windows(call, x.shape[2:], kernel)
    around = [(each.before, each.after) for each in _fitted(call, x, axes)]
    pool, strides = getattr(functional, f"avg_pool{len(kernel)}d"), [each.stride for each in axes]
    made = pool(_padded(x, around, 0.0), kernel, strides)
    if not any(map(any, around)):
        return made
    counts = torch.ones_like(x[:1, :1])
    if call.get("count_include_pad", 0):
        declared = [(each.before, each.after) for each in axes]
        counts = _padded(counts, declared, 1.0)
        around = [(0, after - own) for (_, after), (_, own) in zip(around, declared, strict=True)]
    return made / pool(_padded(counts, around, 0.0), kernel, strides)


def _global_average(_call: Call, x: Tensor) -> Tensor:
    return x.mean(list(range(2, x.ndim)), keepdim=True)


def _global_max(_call: Call, x: Tensor) -> Tensor:
    return x.amax(list(range(2, x.ndim)), keepdim=True)


def _windows(call: Call, sizes: Sequence[int], kernel: Sequence[int]) -> list[_Windows]:
    """Lay out the windows of each axis of space. Source: `auto_pad` of Conv in the operator list of ONNX."""
    n, auto = len(sizes), call.get("auto_pad", "NOTSET")
    pads = call.get("pads", [0] * 2 * n) if auto == "NOTSET" else [0] * 2 * n
    result = []
    for i, dilation in enumerate(_each(call, "dilations", n)):
        reach, stride = (kernel[i] - 1) * dilation + 1, _each(call, "strides", n)[i]
        before, after = pads[i], pads[n + i]
        if auto.startswith("SAME"):
            total = max((math.ceil(sizes[i] / stride) - 1) * stride + reach - sizes[i], 0)
            before = total // 2 if auto == "SAME_UPPER" else total - total // 2
            after = total - before
        result.append(_Windows(reach, stride, before, after))
    return result


def _fitted(call: Call, x: Tensor, axes: Sequence[_Windows]) -> list[_Windows]:
    """Pad more at the end where the last window of a pool, which may reach beyond it, counts.

    A window that begins beyond the input and what is before it does not.
    """
    if not call.get("ceil_mode", 0):
        return list(axes)
    result = []
    for size, each in zip(x.shape[2:], axes, strict=True):
        last = math.ceil((each.before + size + each.after - each.reach) / each.stride)
        if last * each.stride >= size + each.before:
            last -= 1
        missing = last * each.stride + each.reach - (each.before + size + each.after)
        result.append(_Windows(each.reach, each.stride, each.before, each.after + max(missing, 0)))
    return result


def _each(call: Call, setting: str, n: int) -> Sequence[int]:
    given: Sequence[int] = call.get(setting, (1,) * n)
    return given


def _padded(x: Tensor, around: Sequence[tuple[int, int]], value: float) -> Tensor:
    """Add so much before and after each axis of space; less than nothing cuts off."""
    from torch.nn import functional

    flat = [amount for pair in reversed(around) for amount in pair]
    return functional.pad(x, flat, value=value) if any(flat) else x


OPERATORS: dict[str, Operator] = {
    "AveragePool": _average_pool,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "GlobalAveragePool": _global_average,
    "GlobalMaxPool": _global_max,
    "MaxPool": _max_pool,
}
