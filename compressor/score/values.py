"""Metrics of outputs that are values: embeddings, regressions.

A new one is a function here and a line in `metrics`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compressor.errors import InputError
from compressor.records import Array, Outputs
from compressor.score.difference import powers, sqnr_db
from compressor.score.truth import Truth


def cosine(outputs: Outputs, truth: Truth) -> Array:
    """Give the cosine to the original's output, the mean over outputs of floating-point numbers: [n]."""
    reference = _floats(truth.reference, "cosine")
    pairs = [zip(outputs[name], value, strict=True) for name, value in reference.items()]
    return np.asarray(np.mean([[_similarity(a, b) for a, b in rows] for rows in pairs], axis=0))


def sqnr(outputs: Outputs, truth: Truth) -> Array:
    """Give each sample's signal-to-quantization-noise ratio in dB, the mean over floating-point outputs: [n].

    A sample counts at most 200 dB, where it is unchanged, and at least -200, where it is no longer finite; the mean is
    of decibels, so that one bad sample is not drowned by loud good ones.
    """
    reference = _floats(truth.reference, "sqnr")
    found = [sqnr_db(*powers(value, outputs[name])[:2]) for name, value in reference.items()]
    return np.asarray(np.mean(found, axis=0))


def mae(outputs: Outputs, truth: Truth) -> Array:
    """Give the mean absolute error of each sample: [n]."""
    values = _numbers(truth, "mae")
    return np.asarray(np.abs(_output(outputs, values, "mae") - values).mean(axis=1))


def paired(outputs: Outputs, truth: Truth) -> Array:
    """Give each sample's output and label: [n, 2]."""
    values = _numbers(truth, "spearman")
    if values.shape[1] != 1:
        raise InputError(f"data.metric: spearman needs one label a sample, found {values.shape[1]}")
    if values.min() == values.max():
        raise InputError(f"data.metric: spearman needs labels that differ, all are {values[0, 0]:g}")
    return np.hstack([_output(outputs, values, "spearman"), values])


def spearman(rows: Array) -> float:
    """Give the correlation of ranks, from `paired`: 0 where one side is constant, NaN where a value is not finite."""
    if not np.isfinite(rows).all():
        return float("nan")
    if (rows.min(axis=0) == rows.max(axis=0)).any():
        return 0.0
    from scipy.stats import spearmanr

    return float(spearmanr(rows[:, 0], rows[:, 1]).statistic)


def _floats(outputs: Outputs, metric: str) -> Mapping[str, Array]:
    found = {name: value for name, value in outputs.items() if value.dtype.kind == "f"}
    if not found:
        raise InputError(f"data.metric: {metric} needs an output of floating-point numbers")
    return found


def _similarity(a: Array, b: Array) -> float:
    """Give the cosine of two arrays: just 1 where they are the same, 0 where one is zero or a value is not finite."""
    x, y = np.ravel(a).astype(np.float64), np.ravel(b).astype(np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return 0.0
    if np.array_equal(x, y):  # rounding would leave a trace
        return 1.0
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(np.clip(x @ y / norms, -1, 1)) if norms else 0.0


def _numbers(truth: Truth, metric: str) -> Array:
    if truth.labels is None or truth.labels.dtype.kind not in "fiub":
        raise InputError(f"data.metric: {metric} needs labels that are numbers")
    return truth.labels.reshape(len(truth.labels), -1)


def _output(outputs: Outputs, values: Array, metric: str) -> Array:
    for output in outputs.values():
        if output.dtype.kind == "f" and output.size == values.size:
            return output.reshape(values.shape).astype(np.float64)
    raise InputError(
        f"data.metric: {metric} needs an output with {values.shape[1]} values a sample, as the labels have"
    )
