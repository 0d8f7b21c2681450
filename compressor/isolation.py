"""One piece of work in a child process of its own, with limits: native code may crash, hang or eat memory there.

The child is a fresh interpreter that imports only what the work needs, so the parent never loads a vendor package.
A new limit is a field of `Limits` and a line in `_watch`.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, Any, Generic, TypeVar, overload

from pydantic import BaseModel, Field

from compressor.errors import CompressorError, RungError, refused
from compressor.records import Progress, Work
from compressor.units import Bytes, Seconds, human_bytes, write_seconds

T = TypeVar("T")
_PRIVATE = {"DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "ORT_DISABLE_TELEMETRY": "1"}
"""Set before anything is imported: onnxruntime 1.32 collects as soon as it is, whatever it is told afterwards."""
_POLL_S = 0.05
_LAST_WORDS_S = 5.0
"""How long a message may be under way once its sender has ended."""
_LOOK_S = 0.25
"""Time between two looks at the memory: each walks the table of processes, beside what is being measured."""
_SPEAK_S = 0.05
"""Least time between two messages of progress."""


class Limits(BaseModel, frozen=True, extra="forbid"):
    """What one piece of work may take. `memory` is resident memory of the child and all its descendants."""

    seconds: int = Field(default=600, ge=1, le=10_000_000)
    memory: Bytes = Field(default=8 * 2**30, gt=0)
    measure: Seconds = Field(default=60.0, gt=0)
    """How long one measurement may go on taking samples."""


@dataclass(frozen=True)
class Returned(Generic[T]):
    """What the work returned, its wall time, and the peak resident memory of its process tree."""

    value: T
    seconds: float
    peak_memory_bytes: int


class WorkError(Exception):
    """A bug in a piece of work; the message holds the child's traceback."""


@dataclass(frozen=True)
class _Raised:
    error: CompressorError | None
    text: str


_NO_MORE: Mapping[str, str] = {}


@overload
def call(
    work: Callable[..., Work[T]],
    *args: object,
    limits: Limits,
    verbose: bool = False,
    environment: Mapping[str, str] = _NO_MORE,
) -> Work[Returned[T]]: ...
@overload
def call(
    work: Callable[..., T],
    *args: object,
    limits: Limits,
    verbose: bool = False,
    environment: Mapping[str, str] = _NO_MORE,
) -> Work[Returned[T]]: ...
def call(
    work: Callable[..., Any],
    *args: object,
    limits: Limits,
    verbose: bool = False,
    environment: Mapping[str, str] = _NO_MORE,
) -> Work[Returned[Any]]:
    """Run `work(*args)` in a child and pass on the progress it yields.

    Args:
        work: A module-level function, plain or a generator of `Progress` that returns its result.
        *args: Its arguments, all picklable.
        limits: Past any of them the child and its descendants are killed.
        verbose: Let what the child prints through to stderr; else it is kept only for the message of a crash.
        environment: Variables for the child beside its parent's.

    Raises:
        CompressorError: As the work raised it.
        RungError: The child crashed or went past a limit.
        MachineError: The disk is full or a permission is missing.
        WorkError: The work raised anything else.
    """
    started = time.monotonic()
    with _child(environment, verbose=verbose) as (process, connection, log):
        with suppress(BrokenPipeError, ConnectionResetError):  # it died at once: `_watch` sees that
            connection.send((work, args))
        message, peak = yield from _watch(process, connection, limits)
        if message is None:
            raise RungError(_crash(process.wait(), log))
    if isinstance(message, _Raised):
        raise message.error or WorkError(message.text)
    value, own_peak = message
    return Returned(value, time.monotonic() - started, max(peak, own_peak))


def serve(descriptor: int, parent: int) -> None:
    """Be the child: receive the call, send its progress and its result."""
    _die_with_parent()
    if os.getppid() != parent:  # it died before that could be asked for
        return
    connection = Connection(descriptor)
    try:
        work, args = connection.recv()
        value = work(*args)
        if isinstance(value, Iterator):
            value = _drain(value, connection)
        connection.send((value, _peak_memory_bytes()))
    except Exception as error:  # noqa: BLE001 - the boundary of the process: everything crosses it as a message
        connection.send(_Raised(_ours(error), traceback.format_exc()))


@contextmanager
def _child(
    environment: Mapping[str, str], *, verbose: bool
) -> Iterator[tuple[subprocess.Popen[bytes], Connection, IO[bytes]]]:
    ours, theirs = Pipe()
    # its own folder for temporary files goes when it does: a child that is killed cleans nothing up
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        output = sys.__stderr__ if verbose else log
        process = subprocess.Popen(
            # -P: a module in the working folder must not stand in for one of ours
            [
                sys.executable,
                "-P",
                "-c",
                f"from compressor.isolation import serve; serve({theirs.fileno()}, {os.getpid()})",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(),),
            env={
                **os.environ,
                **environment,
                **_PRIVATE,
                "TMPDIR": scratch,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            start_new_session=True,
        )
        theirs.close()
        try:
            yield process, ours, log
        finally:
            _kill(process)


def _watch(process: subprocess.Popen[bytes], connection: Connection, limits: Limits) -> Work[tuple[Any, int]]:
    """Pass on progress until the result is there; None for the result of a child that died."""
    messages = _messages(connection)
    deadline = time.monotonic() + limits.seconds
    peak, next_look = 0, 0.0
    while True:
        ended = process.poll() is not None  # asked before the pipe, so that its last words are not missed
        try:
            # a descendant that lives on may hold the pipe open, and then no end of it is ever seen
            message = messages.get(timeout=_LAST_WORDS_S if ended else _POLL_S)
        except queue.Empty:
            message = None if ended else _NOTHING
        if isinstance(message, Progress):
            yield message
        elif message is not _NOTHING:
            return message, peak
        if time.monotonic() >= next_look:
            peak, next_look = max(peak, _tree_memory_bytes(process.pid)), time.monotonic() + _LOOK_S
        _check(peak, deadline, limits)


_NOTHING = object()


def _messages(connection: Connection) -> queue.SimpleQueue[Any]:
    """Receive in a thread of its own: a child that hangs in the middle of a message must not hang its parent.

    The thread ends, and closes the connection, when nobody holds the other end any more.
    """
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def receive() -> None:
        with connection, suppress(EOFError, OSError):
            while True:
                received.put(connection.recv())
        received.put(None)

    threading.Thread(target=receive, daemon=True).start()
    return received


def _check(peak: int, deadline: float, limits: Limits) -> None:
    if peak > limits.memory:
        raise RungError(
            f"stopped at {human_bytes(peak)} of memory; limits.memory is {human_bytes(limits.memory)}: "
            f"raise it, or give fewer calibration samples"
        )
    if time.monotonic() > deadline:
        raise RungError(f"stopped after {write_seconds(limits.seconds)}: raise limits.seconds to give it longer")


def _tree_memory_bytes(pid: int) -> int:
    import psutil

    try:
        root = psutil.Process(pid)
        return sum(_resident_bytes(p) for p in (root, *root.children(recursive=True)))
    except psutil.NoSuchProcess:
        return 0


def _resident_bytes(process: Any) -> int:
    import psutil

    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it ended between being listed and being asked
        return 0


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole session of the child; descendants that outlived it too."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _crash(code: int, log: IO[bytes]) -> str:
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    log.seek(0)
    last = log.read().decode(errors="replace").strip().splitlines()[-1:]
    said = f"; its last line was: {last[0]}" if last else ""
    return f"the process crashed ({how}){said}"


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


def _ours(error: Exception) -> CompressorError | None:
    """Translate what the operating system raises; None for a bug."""
    if isinstance(error, CompressorError):
        return error
    if isinstance(error, MemoryError):
        return RungError("ran out of memory: give it more, or fewer calibration samples")
    return refused(error) if isinstance(error, OSError) else None


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies, however that happens."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _peak_memory_bytes() -> int:
    """Peak resident memory of this process; not ru_maxrss, which on Linux starts from the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
