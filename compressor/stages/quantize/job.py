"""What every quantization backend is given, and how its exceptions become ours.

What one more backend needs to know is a field of `Job`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compressor.errors import CompressorError, RungError
from compressor.samples import Samples


@dataclass(frozen=True)
class Job:
    """Quantize `model` into `out` from `samples`, leaving the nodes of `excluded` (name: reason) float."""

    model: Path
    out: Path
    samples: Samples
    reduce_range: bool
    excluded: Mapping[str, str]

    @property
    def feeds(self) -> int:
        """How many feeds the samples make."""
        return -(-len(self.samples) // self.samples.per_feed)


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
        other = "onnxruntime" if vendor == "nncf" else "nncf"
        raise RungError(f"{vendor} refused the model ({said}); try backend {other}, or remove the rung") from error
