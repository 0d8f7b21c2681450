"""Whether a shape fits what a model says of its dimensions, and what to say where it does not.

Another guess at what went wrong is a branch of `mismatch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from compressor.units import write_shape

Dims = tuple[int | str | None, ...]
"""What a model says of the axes of a sample."""
_LAYOUTS: Mapping[tuple[int, ...], str] = {(2, 0, 1): "nhwc", (1, 2, 0): "nchw"}
"""What the layout of images is called whose axes must come in this order."""
_MOST_AXES = 5
"""Of a sample whose axes are tried in all orders."""


def fits(shape: Sequence[int], dims: Dims) -> bool:
    """Tell whether a shape has the dimensions that are fixed."""
    return len(shape) == len(dims) and all(
        not isinstance(dim, int) or dim == size for size, dim in zip(shape, dims, strict=True)
    )


def mismatch(name: str, found: tuple[int, ...], dims: Dims, wanted: tuple[int, ...] = ()) -> str:
    """Say that samples have another shape than the model's, or than the static one that is asked for."""
    expected = write_shape(wanted) if wanted else "x".join("?" if dim is None else str(dim) for dim in dims)
    said = f"array {name!r} has samples of shape {write_shape(found)}, expected {expected}; "
    order = None if fits(found, dims) else _transposed(found, dims)
    if order is None:
        return f"{said}if they are images in another size or layout, describe them under data.preprocess"
    layout = _LAYOUTS.get(order)
    described = f"say data.preprocess: {{layout: {layout}}} in the recipe, or " if layout else ""
    axes = ", ".join(str(axis + 1) for axis in order)
    return f"{said}they look transposed: {described}save numpy.transpose(array, (0, {axes}))"


def _transposed(found: tuple[int, ...], dims: Dims) -> tuple[int, ...] | None:
    """Give the order of axes that makes one shape fit another, that of images first; None if there is none."""
    if len(found) != len(dims) or len(found) > _MOST_AXES:
        return None
    orders = (*_LAYOUTS, *permutations(range(len(found))))
    fitting = (order for order in orders if len(order) == len(found) and fits([found[i] for i in order], dims))
    return next(fitting, None)
