"""What a child does: it receives a call, sends progress and what came of it, and waits for its end.

What the operating system is asked to do with a child when it starts is a line of `bind`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from compressor.errors import CompressorError, RungError, refused
from compressor.records import Progress

_SPEAK_S = 0.05
"""Least time between two messages of progress."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
"""Source: linux/prctl.h."""


@dataclass(frozen=True)
class Raised:
    """What the work raised: the error, where it is one of ours, and its traceback."""

    error: CompressorError | None
    text: str


def serve(descriptor: int, parent: int) -> None:
    """Be a fresh child, which talks through an open descriptor."""
    if bind(parent, signal.SIGKILL):
        answer(Connection(descriptor))


def bind(parent: int, last: signal.Signals) -> bool:
    """Tie this process to its parent, and to itself what its descendants leave behind; tell whether the parent lives.

    Linux sends it `last` when the parent dies, and makes it the parent of its descendants' orphans, so that none of
    them, not even one with a session of its own, is lost from sight while it lives.
    """
    if sys.platform == "linux":
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_PDEATHSIG, last)
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
    return os.getppid() == parent


def answer(connection: Connection) -> None:
    """Do the work that is asked for, send what comes of it, and wait: the parent looks at the tree, then kills it."""
    try:
        work, args = connection.recv()
        value = work(*args)
        if isinstance(value, Iterator):
            value = _drain(value, connection)
        message: Any = (value, peak_memory_bytes())
    except Exception as error:  # noqa: BLE001 - the boundary of the process: everything crosses it as a message
        message = Raised(ours(error), traceback.format_exc())
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):  # nobody reads it, or the work closed it
            stream.flush()
    _send(connection, message)
    with suppress(EOFError, OSError):
        connection.recv()


def ours(error: Exception) -> CompressorError | None:
    """Translate what the operating system raises; None for a bug."""
    if isinstance(error, CompressorError):
        return error
    if isinstance(error, MemoryError):
        return RungError("ran out of memory: give it more, or fewer calibration samples")
    return refused(error) if isinstance(error, OSError) else None


def peak_memory_bytes() -> int:
    """Peak resident memory of this process; not ru_maxrss, which on Linux starts from the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _drain(work: Iterator[Progress], connection: Connection) -> Any:
    """Run the work to its end and send its progress, but no more often than anybody can see."""
    spoke, step = 0.0, None
    while True:
        try:
            progress = next(work)
        except StopIteration as stop:
            return stop.value
        if progress.step != step or time.monotonic() - spoke > _SPEAK_S:
            connection.send(progress)
            spoke, step = time.monotonic(), progress.step


def _send(connection: Connection, message: Any) -> None:
    try:
        connection.send(message)
    except Exception as error:  # noqa: BLE001 - a result or an error that cannot be pickled
        connection.send(Raised(None, f"{traceback.format_exc()}\n{error}"))
