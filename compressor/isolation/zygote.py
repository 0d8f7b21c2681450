"""What an interpreter does that children are forked from: it imports, and then forks one whenever it is told to.

It holds no session and starts no thread, as a fork would lose both. What a child finds around it is set in `_become`.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import psutil

from compressor.isolation.child import answer, bind

FORK, SPLIT, BURIED = b"f", b"s", b"buried"
_NAMES_BYTES = 4096


def main(descriptor: int, parent: int, *modules: str) -> None:
    """Be a zygote that talks through an open descriptor."""
    _live(socket.socket(fileno=descriptor), parent, modules)


def _live(control: socket.socket, parent: int, modules: Iterable[str]) -> None:
    """Import the modules, those that are installed, and fork until the parent closes the socket or ends.

    A message comes with descriptors, and the number of the fork goes back. `SPLIT`: the socket of another zygote, with
    more modules, whose names follow there. `FORK`: the connection, the output and the working folder of a child. When
    that has ended, its code goes back, and `BURIED` when the parent has answered and nothing of it is left.
    """
    if not bind(parent, signal.SIGTERM):
        return
    for name in modules:
        with suppress(ModuleNotFoundError):  # the piece of work that needs it says so
            importlib.import_module(name)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    gc.collect()
    gc.freeze()  # a collection would write to pages that are shared
    signal.signal(signal.SIGTERM, _end)
    others: list[int] = []
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 3)
        if not message:
            os._exit(0)  # what vendors do at the end of an interpreter takes time
        pid = _forked(message, descriptors, control)
        control.send(str(pid).encode())
        if message == SPLIT:
            others.append(pid)
        else:
            control.send(str(_code(pid)).encode())
            control.recv(1)
            _bury(others)
            control.send(BURIED)


def _forked(message: bytes, descriptors: list[int], control: socket.socket) -> int:
    """Fork."""
    ours = os.getpid()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        control.close()
        os.setsid()
        if message == SPLIT:
            own = socket.socket(fileno=descriptors[0])
            _live(own, ours, own.recv(_NAMES_BYTES).decode().split())
        elif bind(ours, signal.SIGKILL):
            _become(*descriptors)
        sys.exit()
    for one in descriptors:
        os.close(one)
    return pid


def _code(child: int) -> int:
    """Wait for the end of a child, whose number stays its own until it is buried: its code, or minus its signal."""
    while (ended := os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)) is None:
        continue
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _become(connection: int, output: int, folder: int) -> None:
    """Be the child."""
    os.fchdir(folder)
    for standard in (1, 2):
        os.dup2(output, standard)
    for one in (output, folder):
        os.close(one)
    os.set_inheritable(connection, False)  # noqa: FBT003 - it takes no keyword
    parent = Connection(connection)
    variables, path = parent.recv()
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:] = path
    tempfile.tempdir = None  # another TMPDIR
    importlib.invalidate_caches()
    answer(parent)


def _bury(others: Sequence[int] = ()) -> None:
    """Kill and wait for every child but some, until none is left: whose parent is killed, that becomes one."""
    while left := [one.pid for one in psutil.Process().children() if one.pid not in others]:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _end(*_: Any) -> None:
    """End together with every descendant; Linux may tell of a parent's death once for each of its threads."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _bury()
    os._exit(1)
