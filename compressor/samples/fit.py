"""How the arrays of a file become the inputs of a model: which serves which, and what must be done to it.

A new rule about names goes into `assign`, one about shapes or types into `fit`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compressor.errors import InputError
from compressor.records import Array, Tensor
from compressor.samples.preprocess import IMAGE_RANK, Preprocess
from compressor.units import write_shape

_LABELS = ("label", "labels")
_CHARACTERS = "U"


@dataclass(frozen=True)
class Column:
    """One array of a file, without its values; axis 0 counts the samples."""

    name: str
    dtype: str  # as numpy writes it
    shape: tuple[int, ...]

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

    @property
    def can_be_nonfinite(self) -> bool:
        """Tell whether the array's type has NaN and infinity."""
        return np.dtype(self.column.dtype).kind == "f"

    def prepare(self, raw: Array) -> Array:
        """Give one sample as the model wants it.

        Raises:
            InputError: Its shape does not come out as the model's.
        """
        ready = raw if self.preprocess is None else self.preprocess.prepare(raw, self.shape)
        if ready.shape != self.shape:
            raise InputError(_mismatch(self.input, ready.shape, self.shape))
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
    label = next((named[name] for name in _LABELS if name in named and name not in {t.name for t in tensors}), None)
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
    labelled = (f"array {label.name!r} used as labels",) if label and label.name not in _LABELS else ()
    return Roles(inputs, label, (*notes, *labelled, *ignored))


def fit(column: Column, tensor: Tensor, shape: tuple[int, ...], preprocess: Preprocess | None) -> Fit:
    """Tell how an array becomes an input of this static shape.

    Raises:
        InputError: Its shape or type cannot serve the input.
    """
    whole = is_whole(column, len(shape))
    prepared = preprocess if is_image(column, whole=whole) else None
    wanted = shape if whole else shape[1:]
    found = sample_shape(column, wanted, prepared)
    if found != wanted:
        raise InputError(_mismatch(column.name, found, wanted))
    _check_type(column, tensor, prepared)
    return Fit(column, tensor.name, tensor.dtype, wanted, () if whole else shape[:1], prepared)


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


def sample_shape(column: Column, dims: Sequence[int | str | None], preprocess: Preprocess | None) -> tuple[int, ...]:
    """Give the shape of one sample once prepared for these dimensions."""
    raw = column.shape[1:]
    return raw if preprocess is None else preprocess.prepare(np.zeros(raw, np.uint8), dims).shape


def cast_note(column: Column, dtype: str) -> tuple[str, ...]:
    """Say that an array's type is not the input's, if so; nothing for text."""
    found = np.dtype(column.dtype)
    same = found == np.dtype(dtype) or found.kind == _CHARACTERS
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
    return n


def _mismatch(name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    return (
        f"array {name!r} has samples of shape {write_shape(found)}, expected {write_shape(wanted)}; "
        "if they are images in another size or layout, describe them under data.preprocess"
    )


def _check_type(column: Column, tensor: Tensor, preprocess: Preprocess | None) -> None:
    found, wanted = np.dtype(column.dtype), _type(tensor)
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


def _type(tensor: Tensor) -> np.dtype[Any]:
    try:
        return np.dtype(tensor.dtype)
    except TypeError as error:
        raise InputError(f"input {tensor.name!r} is {tensor.dtype}, a type that numpy arrays cannot hold") from error
