"""Resize in torch, axis by axis, as ONNX words it: what functions of torch round otherwise is not asked of them.

Another way of placing samples is a line in `_places`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compressor.stages.recover.call import Call

if TYPE_CHECKING:
    from compressor.stages.recover.call import Operator, Tensor

_PLAIN = {"antialias": 0, "exclude_outside": 0, "keep_aspect_ratio_policy": "stretch"}


def _resize(
    call: Call, x: Tensor, _roi: Tensor | None = None, scales: Tensor | None = None, sizes: Tensor | None = None
) -> Tensor:
    for setting, plain in _PLAIN.items():
        call.need(only=call.get(setting, plain) == plain, why=f"{setting} cannot be followed")
    mode = call.get("mode", "nearest")
    call.need(only=mode in {"nearest", "linear"}, why=f"mode {mode} cannot be followed")
    axes = call.get("axes", range(x.ndim))
    for axis, (size, scale) in zip(axes, _wanted(x, axes, scales, sizes), strict=True):
        if (size, scale) != (x.shape[axis], 1.0):
            places = _places(call, x.shape[axis], size, scale)
            x = _nearest(call, x, axis, places) if mode == "nearest" else _between(x, axis, places)
    return x


def _wanted(x: Tensor, axes: Sequence[int], scales: Tensor | None, sizes: Tensor | None) -> Sequence[tuple[int, float]]:
    """Give the size and the scale of each axis."""
    if sizes is not None and sizes.numel():
        return [(size, size / x.shape[axis]) for axis, size in zip(axes, sizes.tolist(), strict=True)]
    factors = [] if scales is None else scales.tolist()
    return [(int(x.shape[axis] * scale), scale) for axis, scale in zip(axes, factors, strict=True)]


def _places(call: Call, size: int, wanted: int, scale: float) -> Tensor:
    """Say where in the input each element of the output lies. Source: Resize in the operator list of ONNX."""
    import torch

    i = torch.arange(wanted, dtype=torch.float32)
    mode = call.get("coordinate_transformation_mode", "half_pixel")
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":
        return i * (size - 1) / (wanted - 1) if wanted > 1 else i
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and wanted > 1):
        return (i + 0.5) / scale - 0.5
    call.need(only=mode == "pytorch_half_pixel", why=f"coordinates of {mode} cannot be followed")
    return i


def _nearest(call: Call, x: Tensor, axis: int, places: Tensor) -> Tensor:
    rounded = {
        "round_prefer_floor": (places - 0.5).ceil(),
        "round_prefer_ceil": (places + 0.5).floor(),
        "floor": places.floor(),
        "ceil": places.ceil(),
    }[call.get("nearest_mode", "round_prefer_floor")]
    return x.index_select(axis, rounded.long().clamp(0, x.shape[axis] - 1))


def _between(x: Tensor, axis: int, places: Tensor) -> Tensor:
    last = x.shape[axis] - 1
    places = places.clamp(0, last)
    below = places.long()
    share = (places - below).reshape(-1, *(1,) * (x.ndim - 1 - axis % x.ndim)).to(x.dtype)
    above = x.index_select(axis, (below + 1).clamp(max=last))
    return x.index_select(axis, below) * (1 - share) + above * share


OPERATORS: dict[str, Operator] = {"Resize": _resize}
