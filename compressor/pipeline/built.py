"""An artifact together with what opens it.

What every piece of work on an artifact needs to know is a field of `Built`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compressor.engines import Onnxruntime
from compressor.records import Artifact, Session


@dataclass(frozen=True)
class Built:
    """An artifact with the engine that opens it."""

    engine: Onnxruntime
    artifact: Artifact

    def open(self, run: Path) -> Session:
        """Load it exactly as it is to be served."""
        return self.engine.open(self.artifact, run)
