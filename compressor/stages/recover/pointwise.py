"""Operators that compute each element by itself, in torch.

An operator is a function here, or a name of torch, in the table at the foot.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from compressor.stages.recover.call import Call

if TYPE_CHECKING:
    import torch

    from compressor.stages.recover.call import Operator, Tensor

_SELU = 1.67326319241821289062, 1.05070102214813232422
"""Source: defaults of Selu in the operator list of ONNX."""


def _named(name: str) -> Operator:
    """Give the function of torch that means the same."""

    def apply(_call: Call, *inputs: Tensor) -> Tensor:
        import torch

        return getattr(torch, name)(*inputs)

    return apply


def _folded(name: str) -> Operator:
    """Give a function of torch of two tensors as one of many."""

    def apply(_call: Call, *inputs: Tensor) -> Tensor:
        import torch

        return reduce(getattr(torch, name), inputs)

    return apply


def _mean(call: Call, *inputs: Tensor) -> Tensor:
    total: Tensor = _folded("add")(call, *inputs)
    return total / len(inputs)


def _div(_call: Call, x: Tensor, y: Tensor) -> Tensor:
    import torch

    return torch.div(x, y, rounding_mode=None if x.is_floating_point() else "trunc")


def _mod(call: Call, x: Tensor, y: Tensor) -> Tensor:
    import torch

    return torch.fmod(x, y) if call.get("fmod", 0) else torch.remainder(x, y)


def _pow(_call: Call, x: Tensor, exponent: Tensor) -> Tensor:
    import torch

    return torch.pow(x, exponent).to(x.dtype)


def _clip(_call: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    import torch

    return x if low is None and high is None else torch.clamp(x, low, high)


def _leaky_relu(call: Call, x: Tensor) -> Tensor:
    from torch.nn import functional

    return functional.leaky_relu(x, call.get("alpha", 0.01))


def _prelu(_call: Call, x: Tensor, slope: Tensor) -> Tensor:
    import torch

    return torch.where(x < 0, slope * x, x)


def _elu(call: Call, x: Tensor) -> Tensor:
    from torch.nn import functional

    return functional.elu(x, call.get("alpha", 1.0))


def _celu(call: Call, x: Tensor) -> Tensor:
    from torch.nn import functional

    return functional.celu(x, call.get("alpha", 1.0))


def _selu(call: Call, x: Tensor) -> Tensor:
    from torch.nn import functional

    alpha, gamma = _SELU
    return call.get("gamma", gamma) * functional.elu(x, call.get("alpha", alpha))


def _thresholded_relu(call: Call, x: Tensor) -> Tensor:
    import torch

    return torch.where(x > call.get("alpha", 1.0), x, torch.zeros_like(x))


def _hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    return (call.get("alpha", 0.2) * x + call.get("beta", 0.5)).clamp(0, 1)


def _hard_swish(_call: Call, x: Tensor) -> Tensor:
    return x * (x / 6 + 0.5).clamp(0, 1)


def _gelu(call: Call, x: Tensor) -> Tensor:
    from torch.nn import functional

    return functional.gelu(x, approximate=call.get("approximate", "none"))


def _functional(name: str) -> Operator:
    """Give the function of torch.nn.functional that means the same."""

    def apply(_call: Call, x: Tensor) -> Tensor:
        from torch.nn import functional

        return getattr(functional, name)(x)

    return apply


def _cast(call: Call, x: Tensor) -> Tensor:
    wanted: torch.dtype = call.dtype(call.get("to"))
    return x.to(wanted)


def _cast_like(_call: Call, x: Tensor, like: Tensor) -> Tensor:
    return x.to(like.dtype)


_ALIKE = (
    *("Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor"),
    *("IsNaN", "Log", "Mul", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Sqrt", "Sub"),
    *("Tan", "Tanh", "Where"),
)
"""Called the same in torch, but for capitals."""

OPERATORS: dict[str, Operator] = {
    **{name: _named(name.lower()) for name in _ALIKE},
    "And": _named("logical_and"),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Celu": _celu,
    "Clip": _clip,
    "Div": _div,
    "Elu": _elu,
    "Equal": _named("eq"),
    "Gelu": _gelu,
    "Greater": _named("gt"),
    "GreaterOrEqual": _named("ge"),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "LeakyRelu": _leaky_relu,
    "Less": _named("lt"),
    "LessOrEqual": _named("le"),
    "Max": _folded("maximum"),
    "Mean": _mean,
    "Min": _folded("minimum"),
    "Mish": _functional("mish"),
    "Mod": _mod,
    "Not": _named("logical_not"),
    "Or": _named("logical_or"),
    "PRelu": _prelu,
    "Pow": _pow,
    "Selu": _selu,
    "Softplus": _functional("softplus"),
    "Softsign": _functional("softsign"),
    "Sum": _folded("add"),
    "ThresholdedRelu": _thresholded_relu,
    "Xor": _named("logical_xor"),
}
