"""Mean average precision of outputs that are boxes.

Another measure of boxes is a function here and a line in `metrics`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import numpy as np

from compressor.errors import InputError
from compressor.records import Array, Outputs
from compressor.score.truth import Truth

_RANK = 3
_COMBINED = 6  # x1, y1, x2, y2, score, class
_CORNERS = 4
_LABEL = 5  # class, x1, y1, x2, y2
_MOST = 100  # boxes that count in an image, as COCO has it


def matches(outputs: Outputs, truth: Truth) -> Array:
    """Give what COCO's evaluation found in each image, a record for each class of the labels: objects, [n].

    Outputs are boxes [n, k, 4] as x1, y1, x2, y2 with scores [n, k] and classes [n, k], or one output [n, k, 6] of
    x1, y1, x2, y2, score and class. Labels are [n, m, 5]: class, x1, y1, x2, y2. A class below 0 is padding; a box that
    is not finite is none.
    """
    labels, found = _labels(truth), _detections(outputs)
    evaluation = _evaluation(len(labels), np.unique(labels[..., 0][labels[..., 0] >= 0]).tolist())
    with redirect_stdout(StringIO()):  # it prints
        evaluation.cocoGt = _indexed(labels[..., 0], labels[..., 1:], np.ones(labels.shape[:2]))
        evaluation.cocoDt = _indexed(found[..., 5], found[..., :4], found[..., 4])
        evaluation.evaluate()
    # the records of one class come after another
    return np.fromiter(evaluation.evalImgs, object).reshape(-1, len(labels)).T


def mean_precision(rows: Array) -> float:
    """Give mAP@[.5:.95] over images of any size of box, from `matches`; NaN where they hold no box."""
    evaluation = _evaluation(len(rows), list(range(rows.shape[1])))
    evaluation.evalImgs = list(rows.T.flat)
    # `evaluate` would set it, and match all boxes anew for each resample
    evaluation._paramsEval = evaluation.params  # noqa: SLF001
    with redirect_stdout(StringIO()):
        evaluation.accumulate()
    precision = evaluation.eval["precision"]
    held = precision[precision >= 0]  # -1 is a class without a box
    return float(held.mean()) if held.size else float("nan")


def _labels(truth: Truth) -> Array:
    labels = truth.labels
    if labels is None or labels.ndim != _RANK or labels.shape[2] != _LABEL or labels.dtype.kind not in "fiu":
        raise InputError("data.metric: map needs labels of shape [n, boxes, 5]: class, x1, y1, x2, y2; class -1 pads")
    if not (labels[..., 0] >= 0).any():
        raise InputError("data.metric: map needs labels that hold a box, all are padding")
    return labels


def _detections(outputs: Outputs) -> Array:
    """Give [n, k, 6]: x1, y1, x2, y2, score, class."""
    floats = [value for value in outputs.values() if value.dtype.kind == "f"]
    if (
        one := next((value for value in floats if value.ndim == _RANK and value.shape[2] == _COMBINED), None)
    ) is not None:
        return np.asarray(one, np.float64)
    boxes = next((value for value in floats if value.ndim == _RANK and value.shape[2] == _CORNERS), None)
    rows = {} if boxes is None else {name: value for name, value in outputs.items() if value.shape == boxes.shape[:2]}
    classes = next((name for name, value in rows.items() if _says_classes(name, value)), None)
    scores = next((name for name, value in rows.items() if name != classes and value.dtype.kind == "f"), None)
    if boxes is None or classes is None or scores is None:
        raise InputError(
            "data.metric: map needs outputs of boxes [n, k, 4], scores [n, k] and classes [n, k] (whole numbers, or "
            "named class or label), or one [n, k, 6] of x1, y1, x2, y2, score, class"
        )
    return np.concatenate([boxes, rows[scores][..., None], rows[classes][..., None]], axis=2, dtype=np.float64)


def _says_classes(name: str, value: Array) -> bool:
    return value.dtype.kind in "iu" or any(word in name.lower() for word in ("class", "label"))


def _evaluation(images: int, classes: list[int]) -> Any:
    from pycocotools.cocoeval import COCOeval

    evaluation = COCOeval(iouType="bbox")
    evaluation.params.imgIds = list(range(images))
    evaluation.params.catIds = classes
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0.0, float("inf")]], ["all"]
    evaluation.params.maxDets = [_MOST]
    return evaluation


def _indexed(classes: Array, corners: Array, scores: Array) -> Any:
    from pycocotools.coco import COCO

    images = COCO()
    images.dataset = {"annotations": list(_annotations(classes, corners, scores))}
    images.createIndex()
    return images


def _annotations(classes: Array, corners: Array, scores: Array) -> Iterator[dict[str, Any]]:
    kept = (classes >= 0) & np.isfinite(classes) & np.isfinite(corners).all(axis=2) & np.isfinite(scores)
    # 0 would say that nothing was matched
    for number, (image, place) in enumerate(np.argwhere(kept).tolist(), start=1):
        x1, y1, x2, y2 = corners[image, place].tolist()
        width, height = max(0.0, x2 - x1), max(0.0, y2 - y1)
        yield {
            "id": number,
            "image_id": image,
            "category_id": round(float(classes[image, place])),
            "bbox": [x1, y1, width, height],
            "area": width * height,
            "iscrowd": 0,
            "score": float(scores[image, place]),
        }
