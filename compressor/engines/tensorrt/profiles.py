"""Optimization profiles: which shapes an engine takes, written by dimension or by input, settled against a model.

Another way to write one is a branch in `_dimension`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from compressor.engines.tensorrt.record import Range
from compressor.errors import InputError
from compressor.records import Shapes, Tensor
from compressor.units import shape, write_shape

BATCH = "batch"
"""Names every leading dimension that is open, whatever the model calls it."""
_LEAST, _OPTIMAL, _MOST = 1, 8, 32
"""Batch sizes where none were asked for. Source: the house plan; a serving batch is seldom larger."""
_DIMS = r"[1-9][0-9]*(x[1-9][0-9]*)*"
_Dimension = int | str | None


def extent(text: str | int | Range) -> Range:
    """Read least, optimal and largest shape such as `1x3/8x3/32x3`, or numbers `1/8/32`; one alone is all three.

    Raises:
        ValueError: It cannot be read, a dimension is below 1, the ranks differ, or the order is another.
    """
    if isinstance(text, tuple):
        return text
    if type(text) is int:
        text = str(text)
    parts = text.split("/") if isinstance(text, str) else []
    if len(parts) not in {1, 3}:
        raise ValueError(f"expected least/optimal/largest such as 1/8/32 or 1x3x8x8/8x3x8x8/32x3x8x8, found {text!r}")
    least, optimal, most = (shape(part) for part in (parts if len(parts) > 1 else parts * 3))
    if not least or not len(least) == len(optimal) == len(most):
        raise ValueError(f"expected three shapes of as many dimensions, found {text!r}")
    for low, middle, high in zip(least, optimal, most, strict=True):
        if not 1 <= low <= middle <= high:
            raise ValueError(f"expected 1 <= least <= optimal <= largest in each dimension, found {text!r}")
    return least, optimal, most


def write(range_: Range) -> str:
    """Write a range as `extent` reads it."""
    return "/".join(map(write_shape, range_))


Extent = Annotated[
    Range,
    BeforeValidator(extent),
    PlainSerializer(write, return_type=str),
    WithJsonSchema(
        {
            "type": ["string", "integer"],
            "pattern": f"^{_DIMS}(/{_DIMS}/{_DIMS})?$",
            "minimum": 1,
            "examples": ["1/8/32", 8],
        }
    ),
]
Profile = dict[str, Extent]


def is_open(tensor: Tensor) -> bool:
    """Tell whether an input leaves a dimension open."""
    return tensor.shape is None or not all(isinstance(dim, int) for dim in tensor.shape)


def settled(profiles: Sequence[Profile], inputs: Sequence[Tensor], shapes: Sequence[Shapes]) -> tuple[Profile, ...]:
    """Give profiles by input, a range for each input that leaves a dimension open; one is derived where none is given.

    Args:
        profiles: By the names of dimensions or of inputs.
        inputs: The graph's inputs.
        shapes: Of each input wherever it is measured, the main point first.

    Raises:
        InputError: A profile names what the model has not, leaves a dimension open, has another size for what is fixed
            or for what is the same elsewhere, or none takes what is measured.
    """
    open_ = [tensor for tensor in inputs if is_open(tensor)]
    if not open_:
        if profiles:
            raise InputError("profiles: every input of the model has a fixed shape; leave the profiles out")
        return ()
    if not profiles:
        return (_derived(open_, shapes),)
    made = tuple(_settled(f"profiles[{i}]", profile, inputs) for i, profile in enumerate(profiles))
    for wanted in shapes:
        _check_taken(made, wanted)
    return made


def hinted(profiles: Sequence[Profile], inputs: Sequence[Tensor]) -> Shapes:
    """Give shapes of inputs of which nothing else is known: what the first profile is built for, at its least batch."""
    found = {}
    for tensor in inputs if profiles else ():
        try:
            least, optimal, _ = _range("profiles[0]", tensor, profiles[0])
        except InputError:  # it does not cover all, which is told where profiles are settled
            continue
        found[tensor.name] = (*least[:1], *optimal[1:])
    return found


def takes(profile: Mapping[str, Range], shapes: Shapes) -> bool:
    """Tell whether an engine takes these shapes under a profile."""
    return all(
        len(least) == len(shapes[name]) and all(a <= b <= c for a, b, c in zip(least, shapes[name], most, strict=True))
        for name, (least, _, most) in profile.items()
    )


def _derived(open_: Sequence[Tensor], shapes: Sequence[Shapes]) -> Profile:
    """Let leading dimensions grow, and the others take the sizes that are measured."""
    main, leading = shapes[0], {tensor.shape[0] for tensor in open_ if tensor.shape} - {None}
    profile: Profile = {}
    for tensor in open_:
        dims: tuple[_Dimension, ...] = tensor.shape or (None,) * len(main[tensor.name])
        sizes = [[each[tensor.name][axis] for each in shapes] for axis in range(len(dims))]
        grows = [not isinstance(dim, int) and (axis == 0 or dim in leading) for axis, dim in enumerate(dims)]
        profile[tensor.name] = (
            tuple(_LEAST if grow else min(found) for grow, found in zip(grows, sizes, strict=True)),
            tuple(max(_OPTIMAL, found[0]) if grow else found[0] for grow, found in zip(grows, sizes, strict=True)),
            tuple(max(_MOST, *found) if grow else max(found) for grow, found in zip(grows, sizes, strict=True)),
        )
    return profile


def _settled(where: str, profile: Profile, inputs: Sequence[Tensor]) -> Profile:
    open_ = [tensor for tensor in inputs if is_open(tensor)]
    _check_names(where, profile, inputs)
    made = {tensor.name: _range(where, tensor, profile) for tensor in open_}
    seen = {name: (sum(range_, ()), where) for name, range_ in profile.items() if name not in made}
    for tensor in open_:
        for dim, sizes in zip(tensor.shape or (), zip(*made[tensor.name], strict=True), strict=False):
            if isinstance(dim, str) and seen.setdefault(dim, (sizes, tensor.name))[0] != sizes:
                first, name = seen[dim]
                raise InputError(
                    f"{where}: the dimension {dim!r} would be {_slashed(first)} in {name!r} and {_slashed(sizes)} in "
                    f"{tensor.name!r}; it stands for one number"
                )
    return made


def _check_names(where: str, profile: Profile, inputs: Sequence[Tensor]) -> None:
    open_ = [tensor for tensor in inputs if is_open(tensor)]
    known = [tensor.name for tensor in open_]
    known += dict.fromkeys(dim for tensor in inputs for dim in tensor.shape or () if isinstance(dim, str))
    known += [BATCH] if any(not isinstance((tensor.shape or (None,))[0], int) for tensor in open_) else []
    for name in profile:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(map(repr, dict.fromkeys(known)))}"
            raise InputError(f"{where}: the model has no open dimension or input {name!r}; {hint}")


def _range(where: str, tensor: Tensor, profile: Profile) -> Range:
    if tensor.name in profile:
        given = profile[tensor.name]
        if tensor.shape is not None:
            _check_fits(where, tensor, given)
        return given
    if tensor.shape is None:
        raise InputError(f"{where}: {tensor.name!r} is of unknown rank: state its shapes, {tensor.name}: 1x8/4x8/16x8")
    triples = list(_dimensions(where, tensor, profile))
    least, optimal, most = (tuple(triple[i] for triple in triples) for i in range(3))
    return least, optimal, most


def _check_fits(where: str, tensor: Tensor, given: Range) -> None:
    stated = tensor.shape or ()
    for shape_ in given:
        fits = len(shape_) == len(stated) and all(
            not isinstance(dim, int) or dim == size for dim, size in zip(stated, shape_, strict=True)
        )
        if not fits:
            raise InputError(
                f"{where}.{tensor.name}: expected shapes that fit {_stated(stated)}, found {write_shape(shape_)}"
            )


def _dimensions(where: str, tensor: Tensor, profile: Profile) -> Iterator[tuple[int, int, int]]:
    for axis, dim in enumerate(tensor.shape or ()):
        name = _dimension(axis, dim, profile)
        if isinstance(dim, int):
            yield dim, dim, dim
        elif name is None:
            told = repr(dim) if dim else f"dimension {axis}"
            raise InputError(
                f"{where}: {told} of input {tensor.name!r} ({_stated(tensor.shape or ())}) is not covered: add "
                f"{dim or tensor.name}: with least/optimal/largest"
            )
        else:
            least, optimal, most = profile[name]
            if len(least) != 1:
                raise InputError(f"{where}.{name}: expected numbers such as 1/8/32, found {write(profile[name])}")
            yield least[0], optimal[0], most[0]


def _dimension(axis: int, dim: _Dimension, profile: Profile) -> str | None:
    """Give the name by which a profile covers a dimension; None where it does not."""
    if isinstance(dim, str) and dim in profile:
        return dim
    return BATCH if axis == 0 and not isinstance(dim, int) and BATCH in profile else None


def _check_taken(made: Sequence[Profile], shapes: Shapes) -> None:
    if not any(takes(profile, shapes) for profile in made):
        wanted = ", ".join(f"{name} {write_shape(shapes[name])}" for name in made[0])
        ranges = "; ".join(f"{name} {write(range_)}" for profile in made for name, range_ in profile.items())
        raise InputError(f"profiles: none takes what is measured, {wanted}; they take {ranges}")


def _slashed(sizes: Sequence[int]) -> str:
    return "/".join(map(str, sizes))


def _stated(dims: Sequence[_Dimension]) -> str:
    return "x".join("?" if dim is None else str(dim) for dim in dims)
