"""One piece of work in a child process of its own, with limits: native code may crash, hang or eat memory there.

A child is a fresh interpreter (`fresh`) or a fork of one that has imported already (`warm`, `zygote`), so the parent
never loads a vendor package. `child` is what it does, `watch` what its parent does meanwhile. A new limit is a field of
`Limits` and a line in `watch`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Generic, TypeVar, overload

from compressor.errors import CutOffError
from compressor.isolation import fresh
from compressor.isolation.child import Raised, ours, peak_memory_bytes
from compressor.isolation.limits import Limits
from compressor.isolation.warm import Nursery
from compressor.isolation.watch import Child, Setting, crash, watch
from compressor.records import Work
from compressor.scratch import scratch

__all__ = ["Limits", "Nursery", "Returned", "WorkError", "call", "ours", "peak_memory_bytes"]

T = TypeVar("T")
_PRIVATE = {"DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "ORT_DISABLE_TELEMETRY": "1"}
"""Set before anything is imported: onnxruntime 1.32 collects as soon as it is, whatever it is told afterwards."""
_NO_MORE: Mapping[str, str] = {}


@dataclass(frozen=True)
class Returned(Generic[T]):
    """What the work returned, its wall time, and the peak resident memory of its process tree."""

    value: T
    seconds: float
    peak_memory_bytes: int


class WorkError(Exception):
    """A bug in a piece of work; the message holds the child's traceback."""


@overload
def call(
    work: Callable[..., Work[T]],
    *args: object,
    limits: Limits,
    verbose: bool = False,
    environment: Mapping[str, str] = _NO_MORE,
    nursery: Nursery | None = None,
) -> Work[Returned[T]]: ...
@overload
def call(
    work: Callable[..., T],
    *args: object,
    limits: Limits,
    verbose: bool = False,
    environment: Mapping[str, str] = _NO_MORE,
    nursery: Nursery | None = None,
) -> Work[Returned[T]]: ...
def call(
    work: Callable[..., Any],
    *args: object,
    limits: Limits,
    verbose: bool = False,
    environment: Mapping[str, str] = _NO_MORE,
    nursery: Nursery | None = None,
) -> Work[Returned[Any]]:
    """Run `work(*args)` in a child and pass on the progress it yields.

    Args:
        work: A module-level function, plain or a generator of `Progress` that returns its result.
        *args: Its arguments, all picklable.
        limits: Past any of them the child and its descendants are killed.
        verbose: Let what the child prints through to stderr; else it is kept only for the message of a crash.
        environment: Variables for the child beside its parent's.
        nursery: Where the child comes from; without one it is a fresh interpreter.

    Raises:
        CompressorError: As the work raised it.
        CutOffError: The child crashed or went past a limit.
        MachineError: The disk is full or a permission is missing.
        WorkError: The work raised anything else.
    """
    started = time.monotonic()
    with _child(nursery, environment, verbose=verbose) as (child, log):
        with suppress(BrokenPipeError, ConnectionResetError):  # it died at once: `watch` sees that
            child.connection.send((work, args))
        message, peak = yield from watch(child, limits)
        if message is None:
            raise CutOffError(crash(child.process, log))
    if isinstance(message, Raised):
        raise message.error or WorkError(message.text)
    value, own_peak = message
    return Returned(value, time.monotonic() - started, max(peak, own_peak))


@contextmanager
def _child(
    nursery: Nursery | None, environment: Mapping[str, str], *, verbose: bool
) -> Iterator[tuple[Child, IO[bytes]]]:
    """Give a child, and the file of what it prints unless that is let through."""
    # its own folder for temporary files goes when it does: a child that is killed cleans nothing up
    with tempfile.TemporaryFile() as log, scratch(Path(tempfile.gettempdir()), "compressor-child") as temporary:
        path = os.pathsep.join(filter(None, sys.path))
        variables = {**os.environ, **environment, **_PRIVATE, "TMPDIR": str(temporary), "PYTHONPATH": path}
        output = sys.__stderr__ if verbose and sys.__stderr__ else log
        setting = Setting(variables, output.fileno())
        with (nursery.child if nursery else fresh.child)(setting) as child:
            yield child, log
