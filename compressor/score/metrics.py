"""The measures of quality, by name.

A new one is a function in `classes`, `values`, `text`, `boxes` or a module of its own, and a line in `METRICS` at the
foot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from compressor.errors import InputError, MachineError
from compressor.records import Array, Outputs
from compressor.runtime import IDENTICAL_DB
from compressor.samples import called, imported
from compressor.score import boxes, classes, text, values
from compressor.score.truth import Truth, Values


def mean(rows: Array) -> float:
    """Give the mean of what each sample is worth."""
    return float(rows.mean())


@dataclass(frozen=True)
class Metric:
    """A measure of quality: `of` gives a row for each sample, `over` one number from the rows of some samples.

    `binary`: each row is 0 or 1. `reference`: it compares with the original model's outputs, which are themselves worth
    `perfect`. `package`: what must be installed with the extra `metrics`. `even`: a row must have one shape in all
    samples; what fills it up would count as classes or values.
    """

    of: Callable[[Outputs, Truth], Values]
    over: Callable[[Array], float] = mean
    binary: bool = False
    reference: bool = False
    perfect: float = 1.0
    lower_is_better: bool = False
    package: str | None = None
    even: bool = False


def metric(name: str) -> Metric:
    """Give a metric by its name here, or a function by `package.module:function`.

    Such a function takes the outputs, each [n, ...], and the labels, [n, ...] or None, and gives a value for each
    sample, [n], or one for all; higher is better.

    Raises:
        InputError: There is no such metric, module or function.
        MachineError: The package behind it is not installed.
    """
    if name in METRICS:
        return _installed(name, METRICS[name])
    module, _, function = name.partition(":")
    if not (module and function):
        expected = f"one of {', '.join(METRICS)} or package.module:function"
        raise InputError(f"data.metric: expected {expected}, found {name!r}")
    return Metric(_guarded(imported(name, "data.metric"), name))


def _installed(name: str, found: Metric) -> Metric:
    if found.package and find_spec(found.package) is None:
        raise MachineError(
            f"data.metric: {name} needs the package {found.package}, which is not installed; "
            "pip install 'compressor[metrics]'"
        )
    return found


def _guarded(function: Callable[..., Any], name: str) -> Callable[[Outputs, Truth], Values]:
    def call(outputs: Outputs, truth: Truth) -> Values:
        def numbers() -> Array:
            return np.asarray(function(outputs, truth.labels), np.float64)

        value = called(numbers, (), f"data.metric: {name}")
        n = len(next(iter(outputs.values())))
        if value.shape not in {(), (n,)}:
            raise InputError(f"data.metric: {name} gave shape {value.shape}, expected one number or {n} of them")
        return value if value.ndim else float(value)

    return call


# cer and wer read text from indices, of which 0 is the blank of CTC (or padding) and i the symbol in line i of the
# alphabet
METRICS: Mapping[str, Metric] = {
    "top1": Metric(classes.top(1), binary=True, even=True),
    "top5": Metric(classes.top(5), binary=True, even=True),
    "f1": Metric(classes.decided, classes.f1, even=True),
    "auc": Metric(classes.ranked, classes.auc, even=True),
    "agreement": Metric(classes.agreement, binary=True, reference=True, even=True),
    "cosine": Metric(values.cosine, reference=True),
    "sqnr": Metric(values.sqnr, reference=True, perfect=IDENTICAL_DB),
    "mae": Metric(values.mae, lower_is_better=True, even=True),
    "spearman": Metric(values.paired, values.spearman, even=True),
    "cer": Metric(text.characters, text.rate, lower_is_better=True, package="jiwer"),
    "wer": Metric(text.words, text.rate, lower_is_better=True, package="jiwer"),
    "map": Metric(boxes.matches, boxes.mean_precision, package="pycocotools"),
}
