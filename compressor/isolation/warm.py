"""Warm children: forks of interpreters that have imported what many pieces of work need.

What a parent says to such an interpreter, a zygote, is a method of `_Zygote`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Pipe, wait
from types import TracebackType
from typing import Self, TypeVar

from compressor.isolation import fresh
from compressor.isolation.watch import Child, Setting, Tree
from compressor.isolation.zygote import BURIED, FORK, SPLIT

T = TypeVar("T")
_IMPORT_S = 120.0
"""How long a zygote may take until it answers; past it a child starts without one."""
_END_S = 5.0
_MESSAGE_BYTES = 32


class Nursery:
    """Children that begin with modules imported, each forked from a zygote that is free; the first call starts one.

    It is empty after `close`, at the latest when it is collected or the interpreter ends, and may be used again.
    """

    def __init__(self, *modules: str, within: Nursery | None = None) -> None:
        """Take the names of modules, of which those that are not installed are left out.

        `within`: whose zygotes have imported what comes before these.
        """
        self._modules, self._within = modules, within
        self._free: list[_Zygote] = []
        self._all: list[_Zygote] = []
        self._more: dict[tuple[str, ...], Nursery] = {}
        self._barren = sys.platform != "linux"  # elsewhere what vendors load need not survive a fork
        self._end = weakref.finalize(self, _close, self._all)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def having(self, *modules: str) -> Nursery:
        """Give the nursery of children that begin with further modules imported; it is closed with this one."""
        if modules and modules not in self._more:
            self._more[modules] = Nursery(*modules, within=self)
        return self._more[modules] if modules else self

    def close(self) -> None:
        """End every zygote, and the children that still work."""
        for nursery in self._more.values():
            nursery.close()
        self._free.clear()
        _close(self._all)

    @contextmanager
    def child(self, setting: Setting) -> Iterator[Child]:
        """Give a child; it is killed with all its descendants in the end. A fresh one where none can be forked."""
        forked = self._asked(setting, lambda zygote: zygote.fork(setting))
        if forked is None:  # the work in a fresh one tells why, if there is a reason
            with fresh.child(setting) as child:
                yield child
            return
        zygote, child = forked
        try:
            yield child
        finally:
            child.tree.kill()
            if zygote.bury():
                self._free.append(zygote)
            else:
                self._drop(zygote)

    def split(self, setting: Setting, modules: Iterable[str]) -> _Zygote | None:
        """Give a fork of a zygote that imports more; None where there is none."""
        asked = self._asked(setting, lambda zygote: zygote.split(modules))
        if asked is None:
            return None
        whole, part = asked
        self._free.append(whole)
        return part

    def _asked(self, setting: Setting, ask: Callable[[_Zygote], T]) -> tuple[_Zygote, T] | None:
        """Ask a free zygote, or a new one if all that are free have died; None if that does not answer either."""
        while not self._barren:
            new = not self._free
            zygote = self._started(setting) if new else self._free.pop()
            try:
                return zygote, ask(zygote)
            except OSError:
                self._drop(zygote)
                self._barren = new
            except BaseException:
                self._drop(zygote)
                raise
        return None

    def _started(self, setting: Setting) -> _Zygote:
        variables = {**setting.variables, "TMPDIR": tempfile.gettempdir()}  # a child's own folder goes with it
        part = self._within.split(setting, self._modules) if self._within else None
        zygote = part or _Zygote.interpreter(self._modules, variables)
        self._all.append(zygote)
        return zygote

    def _drop(self, zygote: _Zygote) -> None:
        zygote.end()
        if zygote in self._all:
            self._all.remove(zygote)


class _Zygote:
    """An interpreter that forks one child after another."""

    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._control, self._process = control, process
        self._child: _Forked | None = None

    @classmethod
    def interpreter(cls, modules: Iterable[str], variables: Mapping[str, str]) -> _Zygote:
        """Start one."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            arguments = (theirs.fileno(), os.getpid(), *modules)
            code = f"from compressor.isolation.zygote import main; main(*{arguments!r})"
            process = fresh.started(code, theirs.fileno(), variables, subprocess.DEVNULL)
        return cls(ours, process)

    def split(self, modules: Iterable[str]) -> _Zygote:
        """Give a fork of it that imports more.

        Raises:
            OSError: The interpreter has ended, or does not answer.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._told(SPLIT, theirs.fileno())
            ours.send(" ".join(modules).encode())
        except BaseException:
            ours.close()
            raise
        return _Zygote(ours)

    def fork(self, setting: Setting) -> Child:
        """Give a child.

        Raises:
            OSError: The interpreter has ended, or does not answer.
        """
        ours, theirs = Pipe()
        try:
            with theirs, _working_folder() as folder:
                self._child = _Forked(self._told(FORK, theirs.fileno(), setting.output, folder), self._control)
            # without '': a module in the working folder must not stand in for one of ours
            ours.send((dict(setting.variables), [*filter(None, sys.path)]))
        except BaseException:
            ours.close()
            raise
        return Child(self._child, ours, Tree(self._child.pid))

    def bury(self) -> bool:
        """Have what is left of the killed child cleared away; tell whether another can be forked."""
        try:
            if self._child:
                self._child.wait()
            self._control.send(b"b")
            return _said(self._control) == BURIED
        except OSError:
            return False

    def end(self) -> None:
        """End the interpreter, and with it all that it has forked; a fork of another ends when it hears no more."""
        self._control.close()
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _told(self, what: bytes, *descriptors: int) -> int:
        """Say what to fork, and give its number."""
        self._control.settimeout(_IMPORT_S)
        socket.send_fds(self._control, [what], descriptors)
        pid = int(_said(self._control))
        self._control.settimeout(_END_S)
        return pid


class _Forked:
    """A child as its zygote tells of it."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self._control = control
        self._code: int | None = None

    def poll(self) -> int | None:
        """Give the exit code, or the signal as a negative number; None while it runs."""
        return self.wait() if self._code is not None or wait([self._control], 0) else None

    def wait(self) -> int:
        """Give the same once it has ended; it was killed if its zygote was."""
        if self._code is None:
            try:
                self._code = int(_said(self._control))
            except OSError:
                self._code = -signal.SIGKILL
        return self._code


def _said(control: socket.socket) -> bytes:
    message = control.recv(_MESSAGE_BYTES)
    if not message:
        raise ConnectionResetError
    return message


@contextmanager
def _working_folder() -> Iterator[int]:
    """Give a descriptor of the working folder, which need not have a name any more."""
    folder = os.open(".", os.O_PATH)
    try:
        yield folder
    finally:
        os.close(folder)


def _close(zygotes: list[_Zygote]) -> None:
    while zygotes:
        zygotes.pop().end()
