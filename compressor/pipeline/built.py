"""An artifact together with what opens it.

What every piece of work on an artifact needs to know is a field of `Built`, and of what a rung came to, of `Assembly`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compressor.engines import Settled
from compressor.records import Artifact, Session


@dataclass(frozen=True)
class Built:
    """An artifact with the engine that opens it."""

    engine: Settled
    artifact: Artifact

    def open(self, run: Path) -> Session:
        """Load it exactly as it is to be served."""
        return self.engine.open(self.artifact, run)


@dataclass(frozen=True)
class Assembly:
    """All artifacts of a rung, and what runs here: one of them, or what stands for them, of which `proxy` says what.

    `size_bytes`: of what a server loads, the largest where each device has its own.
    """

    artifacts: tuple[Artifact, ...]
    runs: Built
    size_bytes: int
    proxy: str | None = None
