"""The inputs of a model: read from files or made up, prepared, divided, checked.

`dataset` holds `Samples`, `doubts` says what is odd about them; a new kind of file gets a module of its own, which
`source` opens.
"""

from __future__ import annotations

from compressor.samples.dataset import Samples, Seen, observed_shapes, read, synthetic
from compressor.samples.doubts import doubts
from compressor.samples.find import Found, find, roles
from compressor.samples.functions import called, imported, is_name
from compressor.samples.preprocess import Preprocess

__all__ = [
    "Found",
    "Preprocess",
    "Samples",
    "Seen",
    "called",
    "doubts",
    "find",
    "imported",
    "is_name",
    "observed_shapes",
    "read",
    "roles",
    "synthetic",
]
