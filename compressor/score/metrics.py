"""Measures of quality: from outputs and labels, or from outputs and the original model's outputs.

A new metric is a function here and a line in `METRICS` at the foot.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compressor.errors import InputError
from compressor.records import Array, Outputs

Values = Array | float
"""What a metric gives: a value for each sample, [n], or one for all."""


@dataclass(frozen=True)
class Metric:
    """A measure of quality, from the outputs and the labels or, for `reference`, the original model's outputs."""

    of: Callable[[Outputs, Any], Values]
    reference: bool = False
    lower_is_better: bool = False


def metric(name: str) -> Metric:
    """Give a metric by its name here, or a function by `package.module:function`.

    Such a function takes the outputs, each [n, ...], and the labels, [n] or None, and gives a value for each sample,
    [n], or one for all; higher is better.

    Raises:
        InputError: There is no such metric, module or function.
    """
    if name in METRICS:
        return METRICS[name]
    module, _, function = name.partition(":")
    if not (module and function):
        expected = f"one of {', '.join(METRICS)} or package.module:function"
        raise InputError(f"data.metric: expected {expected}, found {name!r}")
    try:
        found = getattr(importlib.import_module(module), function)
    except (Exception, SystemExit) as error:  # the user's own module, which may raise anything
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"data.metric: cannot import {name!r} ({said}); it is looked for beside the recipe, in the working folder "
            "and on PYTHONPATH"
        ) from error
    if not callable(found):
        raise InputError(f"data.metric: expected a function, {name!r} is of type {type(found).__name__}")
    return Metric(_guarded(found, name))


def are_classes(labels: Array) -> bool:
    """Tell whether labels can be indices of classes: whole numbers from 0, one a sample."""
    return labels.ndim == 1 and labels.dtype.kind in "iu" and labels.min() >= 0


def classifier(outputs: Outputs, classes: int) -> str | None:
    """Give the first output that scores at least so many classes, [n, classes]; None if there is none."""
    rank = 2
    matching = (
        name for name, value in outputs.items() if _is_float(value) and value.ndim == rank and value.shape[1] >= classes
    )
    return next(matching, None)


def index_of_class(outputs: Outputs, labels: Array) -> str | None:
    """Give the first output that is the index of a class itself, [n] or [n, 1]; None if one scores the classes."""
    if not are_classes(labels) or classifier(outputs, int(labels.max()) + 1) is not None:
        return None
    return next(
        (name for name, value in outputs.items() if value.dtype.kind in "iu" and value.size == len(value)), None
    )


def _is_float(value: Array) -> bool:
    return value.dtype.kind == "f"


def _guarded(function: Callable[..., Any], name: str) -> Callable[[Outputs, Any], Values]:
    def call(outputs: Outputs, labels: Array | None) -> Values:
        try:
            value = np.asarray(function(outputs, labels), np.float64)
        except (Exception, SystemExit) as error:  # the door to the user's own code, which may raise anything
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(f"data.metric: {name} failed with {said}") from error
        n = len(next(iter(outputs.values())))
        if value.shape not in {(), (n,)}:
            raise InputError(f"data.metric: {name} gave shape {value.shape}, expected one number or {n} of them")
        return value if value.ndim else float(value)

    return call


def _top(count: int) -> Callable[[Outputs, Any], Array]:
    def right(outputs: Outputs, labels: Array | None) -> Array:
        if count == 1 and labels is not None and (name := index_of_class(outputs, labels)) is not None:
            return np.asarray(np.asarray(outputs[name]).reshape(len(labels)) == labels, np.float64)
        scores, classes = _scored(outputs, labels, count)
        own = np.take_along_axis(scores, classes[:, None], axis=1)
        # equal scores rank by class, as argmax has it
        earlier = np.arange(scores.shape[1]) < classes[:, None]
        ahead = (scores > own) | ((scores == own) & earlier)
        return np.asarray((ahead.sum(axis=1) < count) & _sound(scores), np.float64)

    return right


def _scored(outputs: Outputs, labels: Array | None, count: int) -> tuple[Array, Array]:
    if labels is None or not are_classes(labels):
        raise InputError("data.metric: top1 and top5 need labels that are classes: whole numbers from 0, one a sample")
    name = classifier(outputs, max(count, int(labels.max()) + 1))
    if name is None:
        raise InputError(f"data.metric: no output scores the classes 0 to {labels.max()}; expected shape [n, classes]")
    return np.asarray(outputs[name]), labels.astype(np.intp)


def _sound(scores: Array) -> npt.NDArray[np.bool_]:
    """Tell which rows have a meaningful largest value; minus infinity is a masked class."""
    return np.asarray((scores < np.inf).all(axis=1))


def _agreement(outputs: Outputs, reference: Outputs) -> Array:
    name = classifier(reference, 2)
    if name is None:
        return _equal(outputs, reference)
    now, then = np.asarray(outputs[name]), np.asarray(reference[name])
    same = now.argmax(axis=1) == then.argmax(axis=1)
    return np.asarray(same & _sound(now) & _sound(then), np.float64)


def _equal(outputs: Outputs, reference: Outputs) -> Array:
    """Tell for each sample whether every whole number of every output is the same."""
    names = [name for name, value in reference.items() if not _is_float(value)]
    if not names:
        raise InputError(
            "data.metric: agreement needs an output that scores classes, [n, classes], or that holds whole numbers; "
            "use cosine"
        )
    same = [(outputs[name] == reference[name]).reshape(len(reference[name]), -1).all(axis=1) for name in names]
    return np.asarray(np.all(same, axis=0), np.float64)


def _cosine(outputs: Outputs, reference: Outputs) -> Array:
    names = [name for name, value in reference.items() if _is_float(value)]
    if not names:
        raise InputError("data.metric: cosine needs an output of floating-point numbers")
    pairs = [zip(outputs[name], reference[name], strict=True) for name in names]
    return np.asarray(np.mean([[_similarity(a, b) for a, b in rows] for rows in pairs], axis=0))


def _similarity(a: Array, b: Array) -> float:
    """Give the cosine of two arrays: 1 where both are zero, 0 where one is or a value is not finite."""
    x, y = np.ravel(a).astype(np.float64), np.ravel(b).astype(np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return 0.0
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(np.clip(x @ y / norms, -1, 1)) if norms else float(np.array_equal(x, y))


def _mae(outputs: Outputs, labels: Array | None) -> Array:
    if labels is None or labels.dtype.kind not in "fiub":
        raise InputError("data.metric: mae needs labels that are numbers")
    values = labels.reshape(len(labels), -1)
    for output in outputs.values():
        if _is_float(output) and output.size == values.size:
            return np.asarray(np.abs(output.reshape(values.shape).astype(np.float64) - values).mean(axis=1))
    raise InputError(f"data.metric: mae needs an output with {values.shape[1]} values a sample, as the labels have")


METRICS: Mapping[str, Metric] = {
    "top1": Metric(_top(1)),
    "top5": Metric(_top(5)),
    "agreement": Metric(_agreement, reference=True),
    "cosine": Metric(_cosine, reference=True),
    "mae": Metric(_mae, lower_is_better=True),
}
