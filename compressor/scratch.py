"""Folders that go away with the process that uses them, however it ends.

A lock beside each folder tells whether its process still lives: the system gives it up when the process ends.
"""

from __future__ import annotations

import math
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

_LOCK = ".lock"


@contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """Give an empty folder in `parent`, which vanishes with all that it holds; those of dead processes go first.

    Args:
        parent: Where it is made; made itself if it is not there.
        name: What its name begins with; only folders of that name are looked at.
    """
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent, name)
    folder, lock = _locked(parent, name)
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        _remove(folder, lock)


def sweep(parent: Path, name: str) -> float | None:
    """Remove the folders of a name whose processes ended without removing them.

    Returns:
        When the oldest of those that are in use was made, in seconds since the epoch; None where none is in use.
    """
    oldest = None
    for path in parent.glob(f"{name}-{'[0-9a-f]' * 8}{_LOCK}"):
        lock = _lock(folder := path.with_suffix(""))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            with suppress(OSError):  # it ended meanwhile
                oldest = min(oldest or math.inf, path.stat().st_ctime)
        except OSError:  # it ended meanwhile, or belongs to somebody else
            continue
        else:
            _remove(folder, lock)
    return oldest


def _locked(parent: Path, name: str) -> tuple[Path, FileLock]:
    """Give a new name and its lock, held before the folder is there: a folder whose lock is free has no process."""
    while True:
        folder = parent / f"{name}-{secrets.token_hex(4)}"
        lock = _lock(folder)
        with suppress(Timeout):  # somebody who sweeps has seen it already, and removes it
            lock.acquire(timeout=0)
            if Path(lock.lock_file).exists():
                return folder, lock
            lock.release()


def _lock(folder: Path) -> FileLock:
    return FileLock(folder.with_name(f"{folder.name}{_LOCK}"))


def _remove(folder: Path, lock: FileLock) -> None:
    """Remove a folder while its lock is held, then the lock."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        Path(lock.lock_file).unlink()
    lock.release()
