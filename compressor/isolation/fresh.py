"""Fresh interpreters: as children, and as what children are forked from.

What every interpreter of ours is started with is an argument in `started`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Pipe

from compressor.isolation.watch import Child, Setting, Tree


@contextmanager
def child(setting: Setting) -> Iterator[Child]:
    """Give a child that has imported nothing yet; it is killed with all its descendants in the end."""
    ours, theirs = Pipe()
    code = f"from compressor.isolation.child import serve; serve({theirs.fileno()}, {os.getpid()})"
    with theirs:
        process = started(code, theirs.fileno(), setting.variables, setting.output)
    tree = Tree(process.pid)
    try:
        yield Child(process, ours, tree)
    finally:
        tree.kill()
        process.wait()


def started(code: str, descriptor: int, variables: Mapping[str, str], output: int) -> subprocess.Popen[bytes]:
    """Start an interpreter in a session of its own, which inherits one descriptor and what it prints to."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code],  # -P: a module in the working folder must not stand in for one of ours
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(descriptor,),
        env=dict(variables),
        start_new_session=True,
    )
