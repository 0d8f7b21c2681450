"""What a parent does while a child works: it passes progress on and looks whether the child keeps to its limits.

What else is looked at is a line in `watch`.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import IO, Any, Protocol

from compressor.isolation.limits import Limits
from compressor.records import Progress, Work

_POLL_S = 0.05
_LAST_WORDS_S = 5.0
"""How long a message may be under way once its sender has ended."""
_LOOK_S = 0.25
"""Time between two looks at the memory: each walks the table of processes, beside what is being measured."""
_ROUNDS = 20
"""Looks for processes that were started while others were killed."""
_NOTHING = object()


class Process(Protocol):
    """What a child is to its parent."""

    @property
    def pid(self) -> int:
        """The number of the process."""

    def poll(self) -> int | None:
        """Give the exit code, or the signal as a negative number; None while it runs."""

    def wait(self) -> int:
        """Give the same once it has ended."""


@dataclass(frozen=True)
class Setting:
    """What a child finds: all its variables, and the descriptor that it prints to."""

    variables: Mapping[str, str]
    output: int


@dataclass(frozen=True)
class Child:
    """A child that waits for its call."""

    process: Process
    connection: Connection
    tree: Tree


class Tree:
    """A process and its descendants, among them those that left its session or that it lost by dying."""

    def __init__(self, pid: int) -> None:
        """Begin at a process."""
        import psutil

        self._pid = pid
        self._seen: set[Any] = set()
        try:
            self._first = psutil.Process(pid)
        except psutil.Error:  # it ended at once
            self._first = None

    def memory_bytes(self) -> int:
        """Give the resident memory of all that live."""
        return sum(map(_resident_bytes, self._look()))

    def kill(self) -> None:
        """Kill all of them: the first is stopped meanwhile, so that it starts no more and inherits every orphan."""
        if self._is_ours():
            _signal(self._pid, signal.SIGSTOP)
        for _ in range(_ROUNDS):
            living = [one for one in self._look() if one.pid != self._pid and _lives(one)]
            for one in living:
                _signal(one.pid, signal.SIGKILL)
            if not living:
                break
        if self._is_ours() or not _exists(self._pid):  # a group lives on under the number of its first process
            with suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
        if self._is_ours():
            _signal(self._pid, signal.SIGKILL)

    def _is_ours(self) -> bool:
        """Tell whether the number is still that of the first process, and not of another that began since."""
        return self._first is not None and self._first.is_running()

    def _look(self) -> set[Any]:
        import psutil

        with suppress(psutil.Error):
            if self._first is not None and self._is_ours():
                self._seen |= {self._first, *self._first.children(recursive=True)}
        self._seen = {one for one in self._seen if one.is_running()}
        return self._seen


def watch(child: Child, limits: Limits) -> Work[tuple[Any, int]]:
    """Pass on progress until the result is there, and give the tree's peak memory; None for the result of the dead."""
    messages = _messages(child.connection)
    started = time.monotonic()
    peak, next_look = 0, 0.0
    while True:
        ended = child.process.poll() is not None  # asked before the pipe, so that its last words are not missed
        try:
            # a descendant that lives on may hold the pipe open, and then no end of it is ever seen
            message = messages.get(timeout=_LAST_WORDS_S if ended else _POLL_S)
        except queue.Empty:
            message = None if ended else _NOTHING
        last = message is not _NOTHING and not isinstance(message, Progress)
        if last or time.monotonic() >= next_look:
            peak, next_look = max(peak, child.tree.memory_bytes()), time.monotonic() + _LOOK_S
        if last:
            return message, peak
        limits.check(peak, time.monotonic() - started)
        if isinstance(message, Progress):
            yield message


def crash(process: Process, log: IO[bytes]) -> str:
    """Say how a child ended that sent no result, or that it did not end."""
    log.seek(0)
    last = log.read().decode(errors="replace").strip().splitlines()[-1:]
    said = f"; its last line was: {last[0]}" if last else ""
    return f"the process {_how(process)}{said}"


def _how(process: Process) -> str:
    deadline = time.monotonic() + _LAST_WORDS_S
    while (code := process.poll()) is None:
        if time.monotonic() > deadline:
            return "closed its connection before it had a result"
        time.sleep(_POLL_S)
    return f"crashed (killed by {signal.Signals(-code).name})" if code < 0 else f"crashed (exit code {code})"


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


def _resident_bytes(process: Any) -> int:
    import psutil

    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it ended between being listed and being asked
        return 0


def _lives(process: Any) -> bool:
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _exists(pid: int) -> bool:
    import psutil

    return bool(psutil.pid_exists(pid))


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
