"""Metrics of outputs that tell classes apart.

A new one is a function here and a line in `metrics`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from compressor.errors import InputError
from compressor.records import Array, Outputs
from compressor.score.truth import Truth

_NONE = -1  # the class of a row that names none
_ROUNDING = 1e-2  # by which a quantised probability may exceed 1


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


def top(count: int) -> Callable[[Outputs, Truth], Array]:
    """Give the metric that is 1 where the label is among so many best classes, else 0: [n]."""

    def right(outputs: Outputs, truth: Truth) -> Array:
        labels = _classes(truth, "top1 and top5 need")
        if count == 1 and (name := index_of_class(outputs, labels)) is not None:
            return np.asarray(np.asarray(outputs[name]).reshape(len(labels)) == labels, np.float64)
        scores, classes = _scored(outputs, labels, count), labels.astype(np.intp)
        own = np.take_along_axis(scores, classes[:, None], axis=1)
        # equal scores rank by class, as argmax has it
        earlier = np.arange(scores.shape[1]) < classes[:, None]
        ahead = (scores > own) | ((scores == own) & earlier)
        return np.asarray((ahead.sum(axis=1) < count) & _sound(scores), np.float64)

    return right


def agreement(outputs: Outputs, truth: Truth) -> Array:
    """Give 1 where the best class, or without scores of classes every whole number, is the original's, else 0: [n]."""
    name = classifier(truth.reference, 2)
    if name is None:
        return _equal(outputs, truth.reference)
    now, then = np.asarray(outputs[name]), np.asarray(truth.reference[name])
    same = now.argmax(axis=1) == then.argmax(axis=1)
    return np.asarray(same & _sound(now) & _sound(then), np.float64)


def decided(outputs: Outputs, truth: Truth) -> Array:
    """Give the class of each sample and the one that the outputs name, -1 where they are not finite: [n, 2]."""
    labels = _classes(truth, "f1 needs")
    if (name := index_of_class(outputs, labels)) is not None:
        return np.stack([labels, np.asarray(outputs[name]).reshape(len(labels))], axis=1).astype(np.int64)
    scores = _scored(outputs, labels, 1)
    return np.stack([labels, np.where(_sound(scores), scores.argmax(axis=1), _NONE)], axis=1).astype(np.int64)


def f1(rows: Array) -> float:
    """Give the mean F1 of the classes that stand in the labels (macro), from `decided`."""
    labels, found = rows.T
    classes, position, held = np.unique(labels, return_inverse=True, return_counts=True)
    right = np.bincount(position, found == labels)
    ordered = np.sort(found)
    named = np.searchsorted(ordered, classes, "right") - np.searchsorted(ordered, classes, "left")
    return float(np.mean(2 * right / (held + named)))


def ranked(outputs: Outputs, truth: Truth) -> Array:
    """Give the class of each sample and the scores that rank the samples: of class 1 alone, or of each: [n, 1 + k].

    With two classes it is the output [n] or [n, 1], or the second less the first of [n, 2]. With more it is the
    probability of each class; outputs beyond 0 to 1 go through softmax first.
    """
    labels = _classes(truth, "auc needs")
    if labels.min() == labels.max():
        raise InputError(f"data.metric: auc needs labels of at least two classes, all are {labels[0]}")
    single = next((value for value in outputs.values() if _is_float(value) and value.size == len(labels)), None)
    if labels.max() == 1 and single is not None:
        scores = np.asarray(single, np.float64).reshape(-1, 1)
    else:
        scores = _scored(outputs, labels, 2).astype(np.float64)
        scores = _lead(scores) if scores.shape[1] == 2 else _probabilities(scores)  # noqa: PLR2004
    return np.column_stack([labels, scores])


def auc(rows: Array) -> float:
    """Give the area under the ROC curve, from `ranked`; of more than two classes the mean of each against the rest.

    Classes without a sample are left out; NaN where a score is, and where all samples are of one class.

    Source: the area is the share of pairs in order, Mann-Whitney's U; ranks give it for all classes at once.
    """
    from scipy.stats import rankdata

    labels, scores = rows[:, 0], rows[:, 1:]
    if not (scores < np.inf).all() or labels.min() == labels.max():
        return float("nan")
    present = np.ones(1) if scores.shape[1] == 1 else np.unique(labels)
    own = labels[:, None] == present
    scores = scores if scores.shape[1] == 1 else scores[:, present.astype(np.intp)]
    n = own.sum(axis=0)
    above = (rankdata(scores, axis=0) * own).sum(axis=0) - n * (n + 1) / 2
    return float(np.mean(above / (n * (len(labels) - n))))


def _is_float(value: Array) -> bool:
    return value.dtype.kind == "f"


def _classes(truth: Truth, needs: str) -> Array:
    if truth.labels is None or not are_classes(truth.labels):
        raise InputError(f"data.metric: {needs} labels that are classes: whole numbers from 0, one a sample")
    return truth.labels


def _scored(outputs: Outputs, labels: Array, count: int) -> Array:
    name = classifier(outputs, max(count, int(labels.max()) + 1))
    if name is None:
        raise InputError(f"data.metric: no output scores the classes 0 to {labels.max()}; expected shape [n, classes]")
    return np.asarray(outputs[name])


def _sound(scores: Array) -> npt.NDArray[np.bool_]:
    """Tell which rows have a meaningful largest value; minus infinity is a masked class."""
    return np.asarray((scores < np.inf).all(axis=1))


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


def _lead(scores: Array) -> Array:
    with np.errstate(invalid="ignore"):  # infinity less infinity is NaN, which `auc` sees
        return scores[:, 1:] - scores[:, :1]


def _probabilities(scores: Array) -> Array:
    if scores.min() >= 0 and scores.max() <= 1 + _ROUNDING:
        return scores
    with np.errstate(invalid="ignore"):  # infinity less infinity is NaN, which `auc` sees
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))
