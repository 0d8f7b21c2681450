"""What a load reads while it calls a session: the time, and how often the CPU was taken away.

Tests put a fake clock here; add another reading of the moment as a field of `Clock`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

if sys.platform == "linux":
    import resource


def preemptions() -> int:
    """Give how often the operating system took the CPU from the calling thread so far; 0 where it does not tell.

    Threads of a runtime's own pool are not seen.
    """
    if sys.platform == "linux":
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    return 0


@dataclass(frozen=True)
class Clock:
    """A monotonic time in nanoseconds, and a count of involuntary context switches."""

    now_ns: Callable[[], int] = time.perf_counter_ns
    preemptions: Callable[[], int] = preemptions


SYSTEM = Clock()
"""The clock of this machine."""
