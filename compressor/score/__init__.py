"""Quality: outputs on the evaluation samples, metrics on them, the drop with its interval.

A new metric goes into `metrics`, a new kind of interval into `intervals`.
"""

from __future__ import annotations

from compressor.score.capture import Recorded, deterministic, outputs, rows, uneven
from compressor.score.comparison import Wanted, broken, choose, contrast, mute, near_chance, score
from compressor.score.difference import errors
from compressor.score.metrics import METRICS, Metric, metric

__all__ = [
    "METRICS",
    "Metric",
    "Recorded",
    "Wanted",
    "broken",
    "choose",
    "contrast",
    "deterministic",
    "errors",
    "metric",
    "mute",
    "near_chance",
    "outputs",
    "rows",
    "score",
    "uneven",
]
