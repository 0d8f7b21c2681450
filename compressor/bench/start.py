"""What it takes a fresh process until an artifact answers.

Whoever calls `start` is that process, so little is imported here. What else is taken of a start is a field of `Start`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from statistics import median

from compressor import runtime
from compressor.records import Feeds, OnDevice, Session

_CALLS = 20
"""Calls of which a device's own time is taken."""


@dataclass(frozen=True)
class Start:
    """What a fresh process takes until its first answer, and what a device takes of memory and, later, of time."""

    load_ms: float
    cold_ms: float
    gpu_ms: float | None = None
    gpu_bytes: int | None = None


def start(load: Callable[[], Session], samples: Iterable[Feeds]) -> Start:
    """Load an artifact and answer once; this process does nothing else, so its peak memory is the artifact's."""
    feeds = next(iter(samples))
    runtime.providers()  # importing ONNX Runtime is no part of loading a model
    begin = time.perf_counter()
    session = load()
    loaded = time.perf_counter()
    session(feeds)
    found = Start((loaded - begin) * 1e3, (time.perf_counter() - loaded) * 1e3)
    if not isinstance(session, OnDevice):
        return found
    taken_ms = []
    for _ in range(_CALLS):
        session(feeds)
        taken_ms.append(session.gpu_ms)
    return replace(found, gpu_ms=median(taken_ms), gpu_bytes=session.memory_bytes)
