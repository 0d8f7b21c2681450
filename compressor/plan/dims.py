"""Static shapes for a model's inputs, from the recipe, the file, the samples, in this order.

Another way to learn a dimension is a line in `_dimension`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from compressor.errors import InputError
from compressor.records import Shapes, Tensor
from compressor.units import write_shape

Dimension = int | str | None


def settle(inputs: Sequence[Tensor], given: Shapes, observed: Shapes) -> Shapes:
    """Give a static shape for every input.

    A symbol has one value wherever it stands. The first axis defaults to 1.

    Args:
        inputs: The graph's inputs.
        given: Shapes that the recipe states.
        observed: The shape of one sample of some inputs, with or without its first axis.

    Raises:
        InputError: A given shape does not fit, or a dimension stays unknown.
    """
    _check_names(inputs, given)
    _check_positive(given)
    symbols = _symbols(inputs, given, observed)
    shapes = {t.name: _dimensions(t, _known(t, given, observed), symbols) for t in inputs}
    _check_settled(inputs, shapes)
    return {name: tuple(d for d in dims if isinstance(d, int)) for name, dims in shapes.items()}


def at_batch(inputs: Sequence[Tensor], shapes: Shapes, batch: int) -> Shapes:
    """Give settled shapes with another batch: the first axis of every input that leaves it open.

    Raises:
        InputError: All first axes are fixed, at other numbers.
    """
    open_ = [tensor for tensor in inputs if shapes[tensor.name] and not isinstance((tensor.shape or (None,))[0], int)]
    if not open_ and {dims[0] for dims in shapes.values() if dims} != {batch}:
        raise InputError(f"batch {batch}: {_fixed(inputs)}")
    return restated(inputs, shapes, {tensor.name: (batch, *shapes[tensor.name][1:]) for tensor in open_})


def restated(inputs: Sequence[Tensor], shapes: Shapes, given: Shapes) -> Shapes:
    """Give settled shapes with some of them stated anew, and with what a symbol then stands for in the others.

    Raises:
        InputError: A given shape does not fit.
    """
    _check_names(inputs, given)
    bound = {
        symbol: value
        for tensor in inputs
        for symbol, value in zip(tensor.shape or (), given.get(tensor.name, ()), strict=False)
        if isinstance(symbol, str)
    }
    rest = {
        t.name: tuple(
            bound.get(dim, now) if isinstance(dim, str) else now
            for dim, now in zip(t.shape, shapes[t.name], strict=True)
        )
        for t in inputs
        if t.shape is not None
    }
    return settle(inputs, {**shapes, **rest, **given}, {})


def _fixed(inputs: Sequence[Tensor]) -> str:
    tensor = next((tensor for tensor in inputs if tensor.shape), None)
    if tensor is None:
        return "the model has no input with a batch axis"
    return (
        f"input {tensor.name!r} is {_written(tensor.shape or ())}, its first axis fixed; export the model with a "
        "dynamic batch axis (torch.onnx.export takes dynamic_shapes), or leave this batch out"
    )


def _known(tensor: Tensor, given: Shapes, observed: Shapes) -> tuple[Dimension, ...]:
    """Give what recipe and samples say of each dimension."""
    rank = None if tensor.shape is None else len(tensor.shape)
    if tensor.name in given:
        _check_given(tensor, given[tensor.name])
        return given[tensor.name]
    sample = observed.get(tensor.name)
    if sample is None:
        return (None,) * (rank or 0)
    return sample if rank is None or len(sample) == rank else (None, *sample)


def _symbols(inputs: Sequence[Tensor], given: Shapes, observed: Shapes) -> dict[str, int]:
    bound: dict[str, tuple[int, str]] = {}
    for tensor in inputs:
        for symbol, value in zip(tensor.shape or (), _known(tensor, given, observed), strict=False):
            if isinstance(symbol, str) and isinstance(value, int):
                first, name = bound.setdefault(symbol, (value, tensor.name))
                if first != value:
                    raise InputError(
                        f"shapes: the dimension {symbol!r} would be {first} in {name!r} and {value} in "
                        f"{tensor.name!r}; it stands for one number"
                    )
    return {symbol: value for symbol, (value, _) in bound.items()}


def _dimensions(tensor: Tensor, known: Sequence[Dimension], symbols: Mapping[str, int]) -> list[Dimension]:
    stated = tensor.shape if tensor.shape is not None else (None,) * len(known)
    return [_dimension(axis, dim, known[axis], symbols) for axis, dim in enumerate(stated)]


def _dimension(axis: int, stated: Dimension, known: Dimension, symbols: Mapping[str, int]) -> Dimension:
    if isinstance(stated, int):
        return stated
    if isinstance(known, int):
        return known
    if stated in symbols:
        return symbols[stated]  # type: ignore[index] # a symbol that is in the mapping is a text
    return 1 if axis == 0 else stated


def _check_names(inputs: Sequence[Tensor], given: Shapes) -> None:
    names = [tensor.name for tensor in inputs]
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"its inputs are {', '.join(map(repr, names))}"
            raise InputError(f"shapes: the model has no input {name!r}; {hint}")


def _check_positive(given: Shapes) -> None:
    for name, dims in given.items():
        if 0 in dims:
            raise InputError(f"shapes.{name}: expected dimensions of at least 1, found {write_shape(dims)}")


def _check_given(tensor: Tensor, given: tuple[int, ...]) -> None:
    if tensor.shape is None:
        return
    fits = len(given) == len(tensor.shape) and all(
        not isinstance(dim, int) or dim == value for dim, value in zip(tensor.shape, given, strict=True)
    )
    if not fits:
        raise InputError(
            f"shapes.{tensor.name}: expected a shape that fits {_written(tensor.shape)}, found {write_shape(given)}"
        )


def _check_settled(inputs: Sequence[Tensor], shapes: Mapping[str, Sequence[Dimension]]) -> None:
    if empty := next((tensor for tensor in inputs if 0 in shapes[tensor.name]), None):
        raise InputError(
            f"input {empty.name!r} is {_written(empty.shape)}: it holds nothing, so nothing can be measured"
        )
    open_ = [t for t in inputs if t.shape is None and not shapes[t.name]] + [
        t for t in inputs if any(not isinstance(d, int) for d in shapes[t.name])
    ]
    if open_:
        listed = "; ".join(f"{t.name} is {_written(t.shape)}" for t in open_)
        name, example = open_[0].name, _example(shapes[open_[0].name])
        raise InputError(
            f"the model leaves dimensions open that no sample settles: {listed}. State them, for instance "
            f"--shape {name}={example}, or under shapes in the recipe"
        )


def _written(shape: Sequence[Dimension] | None) -> str:
    return "of unknown rank" if shape is None else "x".join("?" if d is None else str(d) for d in shape) or "a scalar"


def _example(dims: Sequence[Dimension]) -> str:
    return "x".join(str(d) if isinstance(d, int) else "224" for d in dims) or "1x3x224x224"
