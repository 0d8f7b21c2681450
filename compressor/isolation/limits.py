"""What a piece of work, and a whole run, may take.

A new limit is a field of `Limits`.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from compressor.errors import CutOffError
from compressor.units import Bytes, Seconds, human_bytes, write_seconds

_LONGEST_S = 10_000_000


class Limits(BaseModel, frozen=True, extra="forbid"):
    """What one piece of work may take, and all of them. `memory` is resident memory of a child and its descendants."""

    seconds: int = Field(default=600, ge=1, le=_LONGEST_S)
    memory: Bytes = Field(default=8 * 2**30, gt=0)
    measure: Seconds = Field(default=60.0, gt=0)
    """How long one measurement may go on taking samples."""
    build: int | None = Field(default=None, ge=1, le=_LONGEST_S)
    """Seconds that the build of an engine may take; unset: `seconds`."""
    run: Seconds | None = Field(default=None, gt=0)
    """How long the whole run may take; unset: as long as it takes."""

    def check(self, memory_bytes: int, seconds: float) -> None:
        """Make sure that a piece of work is within its limits.

        Raises:
            CutOffError: It is not.
        """
        if memory_bytes > self.memory:
            raise CutOffError(
                f"stopped at {human_bytes(memory_bytes)} of memory; limits.memory is {human_bytes(self.memory)}: "
                f"raise it, or give fewer calibration samples"
            )
        if seconds > self.seconds:
            raise CutOffError(f"stopped after {write_seconds(self.seconds)}: raise limits.seconds to give it longer")
