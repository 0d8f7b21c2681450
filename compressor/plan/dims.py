"""Static shapes for a model's inputs, from the recipe, the file, the samples, in this order.

Another way to learn a dimension is a line in `_dimension`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence

from compressor.errors import InputError
from compressor.records import Shapes, Tensor
from compressor.samples import Seen
from compressor.units import write_shape

Dimension = int | str | tuple[int, int] | None
_MOST = 2**31
"""Numbers of one input."""


def settle(inputs: Sequence[Tensor], given: Shapes, observed: Seen) -> Shapes:
    """Give a static shape for every input.

    A symbol has one value wherever it stands. The first axis defaults to 1, and its symbol, where that can only be the
    batch, does so elsewhere too.

    Args:
        inputs: The graph's inputs.
        given: Shapes that the recipe states.
        observed: The shape of one sample of some inputs, with or without its first axis; what differs from sample to
            sample settles nothing.

    Raises:
        InputError: A given shape does not fit, or a dimension stays unknown.
    """
    _check_names(inputs, given)
    _check_batch(given)
    symbols = {**_batch(inputs), **_symbols(inputs, given, observed)}
    shapes = {t.name: _dimensions(t, _known(t, given, observed), symbols) for t in inputs}
    _check_settled(inputs, shapes, observed)
    settled = {name: tuple(d for d in dims if isinstance(d, int)) for name, dims in shapes.items()}
    _check_small(settled)
    return settled


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


def _batch(inputs: Sequence[Tensor]) -> dict[str, int]:
    """Give 1 for the symbol of the batch: that of every open first axis, and never a second time in the same input."""
    firsts = {t.shape[0] for t in inputs if t.shape and not isinstance(t.shape[0], int)}
    symbol = firsts.pop() if len(firsts) == 1 else None
    if symbol is None or any(symbol in t.shape[1:] for t in inputs if t.shape and t.shape[0] == symbol):
        return {}
    return {symbol: 1}


def _fixed(inputs: Sequence[Tensor]) -> str:
    tensor = next((tensor for tensor in inputs if tensor.shape), None)
    if tensor is None:
        return "the model has no input with a batch axis"
    return (
        f"input {tensor.name!r} is {_written(tensor.shape or ())}, its first axis fixed; export the model with a "
        "dynamic batch axis (torch.onnx.export takes dynamic_shapes), or leave this batch out"
    )


def _known(tensor: Tensor, given: Shapes, observed: Seen) -> tuple[Dimension, ...]:
    """Give what recipe and samples say of each dimension."""
    rank = None if tensor.shape is None else len(tensor.shape)
    if tensor.name in given:
        _check_given(tensor, given[tensor.name])
        return given[tensor.name]
    sample = observed.get(tensor.name)
    if sample is None:
        return (None,) * (rank or 0)
    return sample if rank is None or len(sample) == rank else (None, *sample)


def _symbols(inputs: Sequence[Tensor], given: Shapes, observed: Seen) -> dict[str, int]:
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


def _check_batch(given: Shapes) -> None:
    for name, dims in given.items():
        if dims and not dims[0]:
            raise InputError(f"shapes.{name}: expected a first axis of at least 1, found {write_shape(dims)}")


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


def _check_settled(inputs: Sequence[Tensor], shapes: Mapping[str, Sequence[Dimension]], observed: Seen) -> None:
    if inputs and all(0 in shapes[tensor.name] for tensor in inputs):  # one that is empty may be a cache at its start
        empty = inputs[0]
        raise InputError(
            f"input {empty.name!r} is {_written(empty.shape)}: it holds nothing, so nothing can be measured; export "
            "the model with a batch of 1 or more, or a dynamic one"
        )
    open_ = [t for t in inputs if t.shape is None and not shapes[t.name]] + [
        t for t in inputs if any(not isinstance(d, int) for d in shapes[t.name])
    ]
    if open_:
        listed = "; ".join(f"{t.name} is {_written(t.shape)}{_ranging(observed.get(t.name, ()))}" for t in open_)
        first = open_[0]
        example = _example(shapes[first.name], _known(first, {}, observed))
        raise InputError(
            f"the model leaves dimensions open that no sample settles: {listed}. State them, for instance "
            f"--shape {first.name}={example}, or under shapes in the recipe"
        )


def _check_small(shapes: Shapes) -> None:
    for name, dims in shapes.items():
        if math.prod(dims) > _MOST:
            raise InputError(
                f"input {name!r} would be {write_shape(dims)}, more than {_MOST:,} numbers; give smaller dimensions, "
                "or export the model with dynamic ones"
            )


def _written(shape: Sequence[Dimension] | None) -> str:
    return "of unknown rank" if shape is None else "x".join("?" if d is None else str(d) for d in shape) or "a scalar"


def _ranging(sample: Sequence[int | tuple[int, int]]) -> str:
    """Say between which shapes samples lie, if they differ."""
    if not any(isinstance(size, tuple) for size in sample):
        return ""
    least, most = (
        write_shape(tuple(size[end] if isinstance(size, tuple) else size for size in sample)) for end in (0, 1)
    )
    return f", its samples are from {least} to {most}"


def _example(dims: Sequence[Dimension], known: Sequence[Dimension]) -> str:
    """Write a shape with what is settled, the greatest that was seen, or a usual size."""
    most = [size[1] if isinstance(size, tuple) else 224 for size in known]
    sizes = (dim if isinstance(dim, int) else size for dim, size in zip(dims, most, strict=True))
    return "x".join(map(str, sizes)) or "1x3x224x224"
