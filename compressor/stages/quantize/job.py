"""What every quantization backend is given, and how its exceptions become ours.

What one more backend needs to know is a field of `Job`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from compressor.errors import CompressorError, RungError

Ranges = Mapping[str, tuple[float, float]]
"""Least and greatest value of each float activation that 8 bits are to cover."""


@dataclass(frozen=True)
class Job:
    """Quantize `model`, a prepared one, into `out`, leaving the nodes of `excluded` (name: reason) float.

    `activations`: unsigned or signed 8 bits; `symmetric`: zero points of 0 and no quantized bias, the form TensorRT
    reads. `operators`: every kind that can be quantized, or only the `core`: those with weights and what stands between
    them in a network. `ranges` is empty where a scheme needs none.
    """

    model: Path
    out: Path
    excluded: Mapping[str, str]
    ranges: Ranges = field(default_factory=dict)
    activations: Literal["u8", "s8"] = "u8"
    symmetric: bool = False
    reduce_range: bool = False
    operators: Literal["all", "core"] = "all"


@contextmanager
def translated(vendor: str) -> Iterator[None]:
    """Turn whatever a quantizer raises into one of ours; they raise everything from KeyError to AssertionError."""
    try:
        yield
    except (CompressorError, OSError, MemoryError):
        raise
    except Exception as error:
        first = next((line for line in str(error).splitlines() if line.strip()), "no message")
        said = f"{type(error).__name__}: {first[:300]}"
        raise RungError(f"{vendor} refused the model ({said})") from error
