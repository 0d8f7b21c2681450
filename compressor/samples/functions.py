"""Samples that a function of the caller's gives, `package.module:function`, called anew for each pass.

What else such a function may give is a branch of `_divided`.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from compressor.errors import InputError
from compressor.records import Array, Tensor
from compressor.samples.fit import LABELS, Column, Roles, assign

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_LONGEST = 255
"""Of a name: what is longer may not even be asked for as a file."""
_MOST = 200_000
"""Samples that a function may give; one that never ends would keep a run from ever starting."""
_EXPECTED = "expected a dict of an array of one sample for each input, or such a dict and a label"
_LABEL = "label"
"""What the label is called beside a sample in a tuple."""


@dataclass(frozen=True)
class Function:
    """A function and what it gave when it was looked at; `marks` are hashes of its samples and their labels."""

    name: str
    columns: tuple[Column, ...]
    label: Column | None
    marks: tuple[bytes, ...]

    @property
    def n(self) -> int:
        """How many samples it gives."""
        return len(self.marks)

    @property
    def sha256(self) -> str:
        """The hash of all that it gave."""
        return hashlib.sha256(b"".join(self.marks)).hexdigest()

    def rows(self, indices: Sequence[int]) -> Iterator[Mapping[str, Array]]:
        """Give one sample after another, from a new call."""
        for sample in self._samples(indices):
            yield {column.name: sample[column.name] for column in self.columns}

    def blobs(self, indices: Sequence[int]) -> Iterator[bytes]:
        """Give the bytes of one sample after another."""
        for row in self.rows(indices):
            yield b"".join(array.tobytes() for array in row.values())

    def labels(self, indices: Sequence[int]) -> Array | None:
        """Give the labels of these samples, None where there are none."""
        if self.label is None:
            return None
        return np.stack([sample[self.label.name] for sample in self._samples(indices)])

    def where(self, index: int) -> str:
        """Name a sample for people."""
        return f"{self.name}, sample {index}"

    def _samples(self, indices: Sequence[int]) -> Iterator[Mapping[str, Array]]:
        """Give samples, which must be those that were looked at."""
        wanted = iter(indices)
        next_ = next(wanted, None)
        for index, sample in enumerate(_given(self.name)):
            if next_ is None:
                return
            if index == next_:
                if index >= self.n or _mark(sample) != self.marks[index]:
                    raise InputError(self._unlike(index))
                yield sample
                next_ = next(wanted, None)
        if next_ is not None:
            raise InputError(self._unlike(next_))

    def _unlike(self, index: int) -> str:
        return (
            f"{self.where(index)} is not what the function gave before: it is called for each pass and must always "
            "give the same; seed its random numbers"
        )


def is_name(path: Path) -> bool:
    """Tell whether a path is rather the name of a function."""
    text = str(path)
    return len(text) < _LONGEST and bool(_NAME.fullmatch(text)) and not path.exists()


def imported(name: str, where: str) -> Callable[..., Any]:
    """Give a function by `package.module:function`.

    Args:
        name: Its name.
        where: The key that holds the name, for messages.

    Raises:
        InputError: There is no such module or function.
    """
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (Exception, SystemExit) as error:  # the user's own module, which may raise anything
        raise InputError(
            f"{where}: cannot import {name!r} ({_said(error)}); it is looked for beside the recipe, in the working "
            "folder and on PYTHONPATH"
        ) from error
    if not callable(found):
        raise InputError(f"{where}: expected a function, {name!r} is of type {type(found).__name__}")
    return found  # type: ignore[no-any-return] # it is callable


def called(function: Callable[..., Any], arguments: Sequence[object], where: str) -> Any:
    """Give what a function of the caller's gives.

    Raises:
        InputError: It failed.
    """
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:  # the user's own code, which may raise anything
        raise InputError(f"{where} failed with {_said(error)}") from error


def function(name: str, tensors: Sequence[Tensor]) -> tuple[Function, Roles]:
    """Give the samples of a function for these inputs, all of which are looked at, and what each array is for.

    Raises:
        InputError: It cannot be imported, fails, gives no samples or never ends, or they are not alike.
    """
    first: dict[str, Array] = {}
    shapes: dict[str, set[tuple[int, ...]]] = {}
    marks: list[bytes] = []
    for sample in islice(_given(name), _MOST + 1):
        first = first or dict(sample)
        _check_alike(f"{name}, sample {len(marks)}", sample, first)
        marks.append(_mark(sample))
        for key, array in sample.items():
            shapes.setdefault(key, set()).add(array.shape)
    if not marks:
        raise InputError(f"{name}: gives no samples; {_EXPECTED}, for each sample")
    if len(marks) > _MOST:
        raise InputError(f"{name}: gives more than {_MOST} samples; let it end")
    columns = [
        Column(key, array.dtype.str, (len(marks), *array.shape), tuple(sorted(shapes[key] - {array.shape})))
        for key, array in first.items()
    ]
    roles = assign(columns, tensors)
    if roles.label and roles.label.others:
        raise InputError(f"{name}: labels differ in shape from sample to sample")
    used = tuple(dict.fromkeys(roles.inputs.values()))
    return Function(name, used, roles.label, tuple(marks)), roles


def _given(name: str) -> Iterator[Mapping[str, Array]]:
    """Call the function, and give its samples with their labels."""
    given = called(imported(name, "data"), (), name)
    walk = called(iter, (given,), name)
    index = 0
    while (sample := called(next, (walk, _END), f"{name}, sample {index}")) is not _END:
        yield _divided(sample, f"{name}, sample {index}")
        index += 1


_END = object()


def _divided(sample: Any, where: str) -> Mapping[str, Array]:
    """Give the arrays of a sample by name, the label among them."""
    match sample:
        case [arrays, label]:
            beside = {_LABEL: label}
        case arrays:
            beside = {}
    if not isinstance(arrays, Mapping) or not arrays:
        raise InputError(f"{where}: {_EXPECTED}, found {type(sample).__name__}")
    if beside and any(name in arrays for name in LABELS):
        raise InputError(f"{where}: has a label in the dict and another beside it; give one")
    # copied, as a function may fill the same array again
    return {str(name): _array(value, f"{where}: array {name!r}") for name, value in {**arrays, **beside}.items()}


def _array(value: Any, where: str) -> Array:
    array: Array = called(np.array, (value,), where)
    if array.dtype.kind not in "fiubU":
        raise InputError(f"{where} is {array.dtype}; give numbers or text")
    return array


def _check_alike(where: str, sample: Mapping[str, Array], first: Mapping[str, Array]) -> None:
    if sample.keys() != first.keys():
        raise InputError(f"{where}: has {', '.join(sample)}, expected {', '.join(first)} as the first has")
    for name, array in sample.items():
        model = first[name]
        text = {array.dtype.kind, model.dtype.kind} == {"U"}
        if array.ndim != model.ndim or (array.dtype != model.dtype and not text):
            raise InputError(
                f"{where}: array {name!r} is {array.dtype} with {array.ndim} axes, expected {model.dtype} with "
                f"{model.ndim} as in the first"
            )


def _mark(sample: Mapping[str, Array]) -> bytes:
    whole = hashlib.sha256()
    for name, array in sample.items():
        whole.update(repr((name, array.dtype.str, array.shape)).encode())
        whole.update(array.tobytes())
    return whole.digest()


def _said(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
