"""How the arrays of a file become the inputs of a model: which serves which, and what must be done to it.

A new rule about names goes into `assign`, one about shapes or types into `fit`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compressor.errors import InputError
from compressor.records import Array, Tensor
from compressor.samples.mismatch import Dims, fits, mismatch
from compressor.samples.preprocess import IMAGE_RANK, Preprocess
from compressor.units import write_shape

LABELS = ("label", "labels")
_CHARACTERS = "U"
_KINDS = "fiubcU"


@dataclass(frozen=True)
class Column:
    """One array of a file, without its values; axis 0 counts the samples.

    `others`: the shapes that samples have besides the first one's, which stands in `shape`.
    """

    name: str
    dtype: str  # as numpy writes it
    shape: tuple[int, ...]
    others: tuple[tuple[int, ...], ...] = ()

    @property
    def row_bytes(self) -> int:
        """The size of one sample."""
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    def row(self, data: bytes) -> Array:
        """Give one sample from its bytes."""
        return np.frombuffer(data, self.dtype, math.prod(self.shape[1:])).reshape(self.shape[1:])


@dataclass(frozen=True)
class Roles:
    """What each array of a file is for."""

    inputs: Mapping[str, Column]
    label: Column | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Fit:
    """How one sample of one array becomes one input."""

    column: Column
    input: str
    dtype: str
    shape: tuple[int, ...]  # of one sample
    batch: tuple[int, ...]  # the first axis of a feed; none where each sample is a complete feed
    preprocess: Preprocess | None = None
    dims: Dims | None = None  # what the model says of each axis of a sample, where samples differ in shape

    @property
    def can_be_nonfinite(self) -> bool:
        """Tell whether the array's type has NaN and infinity."""
        return np.dtype(self.column.dtype).kind == "f"

    def prepare(self, raw: Array) -> Array:
        """Give one sample as the model wants it.

        Raises:
            InputError: Its shape does not come out as the model's.
        """
        dims = self.shape if self.dims is None else self.dims
        ready = raw if self.preprocess is None else self.preprocess.prepare(raw, dims)
        if not fits(ready.shape, dims):
            raise InputError(mismatch(self.input, ready.shape, dims))
        with np.errstate(over="ignore"):  # an overflow becomes infinite, which `Samples.check` counts
            return ready.astype(self.dtype, copy=False)

    def feed(self, samples: Sequence[Array]) -> Array:
        """Give the input for samples already prepared, as many as a feed holds."""
        return np.stack(samples) if self.batch else np.array(samples[0])


def assign(columns: Sequence[Column], tensors: Sequence[Tensor]) -> Roles:
    """Tell which array serves which input, and which one holds the labels.

    Names decide. A model with one input takes the only array that is no label whatever its name; without an array
    named `label` or `labels`, the only array left over that holds one value a sample gives the labels.

    Raises:
        InputError: An input has no array, or arrays differ in length or are empty.
    """
    named = {column.name: column for column in columns}
    label = next((named[name] for name in LABELS if name in named and name not in {t.name for t in tensors}), None)
    inputs = {t.name: named[t.name] for t in tensors if t.name in named}
    notes: tuple[str, ...] = ()
    others = [column for column in columns if column is not label]
    if not inputs and len(tensors) == 1 and len(others) == 1:
        inputs = {tensors[0].name: others[0]}
        notes = (f"array {others[0].name!r} used for input {tensors[0].name!r}",)
    _check_complete(inputs, tensors, columns)
    left = [column for column in others if column not in inputs.values()]
    n = _common_length([*inputs.values(), *([label] if label else [])])
    values = [column for column in left if column.shape == (n,)]
    if label is None and len(values) == 1:
        label = values[0]
    ignored = tuple(f"ignored array {column.name!r}" for column in left if column is not label)
    labelled = (f"array {label.name!r} used as labels",) if label and label.name not in LABELS else ()
    return Roles(inputs, label, (*notes, *labelled, *ignored))


def fit(column: Column, tensor: Tensor, shape: tuple[int, ...], preprocess: Preprocess | None) -> Fit:
    """Tell how an array becomes an input of this static shape.

    Where its samples differ in shape even when they are prepared, they are held against the model's own dimensions when
    they are read.

    Raises:
        InputError: Its shape or type cannot serve the input.
    """
    whole = is_whole(column, len(shape))
    prepared = preprocess if is_image(column, whole=whole) else None
    wanted = shape if whole else shape[1:]
    dims = _dims(tensor, wanted, whole=whole)
    found = sample_shapes(column, dims if column.others else wanted, prepared)
    if found != {wanted} and len(found) == 1:
        raise InputError(mismatch(column.name, found.pop(), dims, wanted))
    _check_type(column, tensor, prepared)
    fitting = Fit(column, tensor.name, tensor.dtype, wanted, () if whole else shape[:1], prepared)
    return fitting if found == {wanted} else replace(fitting, dims=dims)


def one_by_one(fits: Sequence[Fit], tensors: Sequence[Tensor]) -> tuple[Fit, ...]:
    """Give the same, but if samples of one differ in shape, each is a feed of its own: a batch of 1.

    Raises:
        InputError: The model fixes another batch.
    """
    if all(each.dims is None for each in fits):
        return tuple(fits)
    for each, tensor in zip(fits, tensors, strict=True):
        first = (tensor.shape or (None,))[0]
        if each.batch and isinstance(first, int) and first != 1:
            raise InputError(
                f"samples differ in shape, so each is a feed of its own, but input {tensor.name!r} takes {first} at "
                "once; give samples of one shape, or export the model with a dynamic batch axis"
            )
    return tuple(
        replace(each, batch=each.batch and (1,), dims=_dims(tensor, each.shape, whole=not each.batch))
        for each, tensor in zip(fits, tensors, strict=True)
    )


def check_symbols(sample: Mapping[str, Array], fits: Sequence[Fit]) -> None:
    """Return if a symbol stands for one number in all inputs of a sample.

    Raises:
        InputError: It would be two.
    """
    bound: dict[str, tuple[int, str]] = {}
    for each in fits:
        for symbol, size in zip(each.dims or (), sample[each.input].shape, strict=False):
            first, name = bound.setdefault(symbol, (size, each.input)) if isinstance(symbol, str) else (size, "")
            if first != size:
                raise InputError(
                    f"the dimension {symbol!r} is {first} in {name!r} and {size} in {each.input!r}; it stands for one "
                    "number"
                )


def is_whole(column: Column, rank: int) -> bool:
    """Tell whether an array holds a complete feed for each sample: one axis more than the input.

    Raises:
        InputError: It has neither as many axes as the input nor one more.
    """
    if len(column.shape) not in (rank, rank + 1):
        raise InputError(
            f"array {column.name!r} has shape {write_shape(column.shape)}; expected {rank} axes, the first counting "
            f"the samples, or {rank + 1} with a complete feed for each"
        )
    return len(column.shape) == rank + 1


def is_image(column: Column, *, whole: bool) -> bool:
    """Tell whether an array holds something that preprocessing applies to: three axes for each sample."""
    return not whole and len(column.shape) == IMAGE_RANK + 1


def sample_shapes(column: Column, dims: Dims, preprocess: Preprocess | None) -> set[tuple[int, ...]]:
    """Give the shapes that samples have once prepared for these dimensions."""
    raw = {column.shape[1:], *column.others}
    if preprocess is None:
        return raw
    return {preprocess.prepare(np.zeros(shape, np.uint8), dims).shape for shape in raw}


def numpy_type(tensor: Tensor, where: str = "") -> np.dtype[Any]:
    """Give the numpy type of an input.

    Raises:
        InputError: There is none.
    """
    try:
        found = np.dtype(tensor.dtype)
    except TypeError:
        found = np.dtype("V1")
    if found.kind not in _KINDS:  # bfloat16 has a type where some package brings one, which files do not know
        raise InputError(f"{where}input {tensor.name!r} is {tensor.dtype}, a type that numpy arrays cannot hold")
    return found


def cast_note(column: Column, dtype: str) -> tuple[str, ...]:
    """Say that an array's type is not the input's, if so; nothing for text."""
    found = np.dtype(column.dtype)
    same = found.newbyteorder("=") == np.dtype(dtype) or found.kind == _CHARACTERS
    return () if same else (f"array {column.name!r}: cast {found.name} to {dtype}",)


def _check_complete(inputs: Mapping[str, Column], tensors: Sequence[Tensor], columns: Sequence[Column]) -> None:
    missing = ", ".join(repr(t.name) for t in tensors if t.name not in inputs)
    if missing:
        found = ", ".join(repr(column.name) for column in columns)
        raise InputError(f"no array for input {missing}, found {found}; name each array after its input")


def _common_length(columns: Sequence[Column]) -> int:
    scalar = next((column.name for column in columns if not column.shape), None)
    if scalar is not None:
        raise InputError(f"array {scalar!r} holds a single value; expected a first axis that counts the samples")
    lengths = {column.name: column.shape[0] for column in columns}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise InputError(f"arrays differ in their number of samples: {found}")
    n = columns[0].shape[0]
    if n == 0:
        raise InputError(f"array {columns[0].name!r} holds no samples")
    if not any(column.row_bytes for column in columns):  # one beside others may be a cache at its start
        empty = columns[0]
        raise InputError(f"array {empty.name!r} has shape {write_shape(empty.shape)}: its samples hold nothing")
    return n


def _dims(tensor: Tensor, shape: tuple[int, ...], *, whole: bool) -> Dims:
    """Give what the model says of the axes of a sample of so many."""
    if tensor.shape is None:
        return (None,) * len(shape)
    return tensor.shape if whole else tensor.shape[1:]


def _check_type(column: Column, tensor: Tensor, preprocess: Preprocess | None) -> None:
    found, wanted = np.dtype(column.dtype), numpy_type(tensor)
    if preprocess is not None and wanted.kind == "f":
        return
    if preprocess is not None and (preprocess.mean or preprocess.std):
        raise InputError(f"data.preprocess: mean and std give fractions, but input {tensor.name!r} is {wanted}")
    text = found.kind == wanted.kind == _CHARACTERS
    floats = found.kind == wanted.kind == "f"
    widened = found.kind in "iu" and wanted.kind in "iu" and np.can_cast(found, wanted)
    if not (text or floats or widened or found == wanted):
        hint = "; scale it as in training, or describe how under data.preprocess" if wanted.kind == "f" else ""
        raise InputError(f"array {column.name!r} is {found}, but input {tensor.name!r} is {wanted}{hint}")
