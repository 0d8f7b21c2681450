"""What outputs are held against.

What else a metric may look at is a field here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compressor.records import Array

Values = Array | float
"""What a metric gives: a row for each sample, [n, ...], or one number for all."""


@dataclass(frozen=True)
class Truth:
    """Labels, [n, ...], the original model's outputs for the same samples, and what the indices of text stand for.

    `symbols[i]` is the text of index i + 1; index 0 is the blank of CTC, or padding.
    """

    labels: Array | None = None
    reference: Mapping[str, Array] = field(default_factory=dict)
    symbols: tuple[str, ...] = ()
