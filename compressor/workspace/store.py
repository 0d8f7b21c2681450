"""The store: what stages made, each in a folder named by a hash of everything that it was made from.

An entry appears whole, by one rename, and every byte is checked whenever it is taken. What an entry tells of itself is
a field of `Entry`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from compressor.records import Progress, Work
from compressor.workspace.files import sha256, sync, write_text

HOME = ".workspace"
"""The folder, beside reports, that holds the store and what runs work with."""
_MANIFEST = "entry.json"
_LOCKS = "locks"
_GONE = ".gone-"
_THERE = frozenset({errno.EEXIST, errno.ENOTEMPTY})
_WAIT_S = 0.2


@dataclass(frozen=True)
class Entry:
    """What was made, when, and when it was last taken; `value` is what was kept with its files."""

    key: str
    folder: Path
    what: str
    value: Mapping[str, Any]
    files: Mapping[str, str]  # name in the folder: sha256
    size_bytes: int
    made: datetime
    used: datetime


@dataclass(frozen=True)
class Store:
    """Entries in a folder. `scope`: a hash of what all keys depend on, such as versions and the machine."""

    folder: Path
    scope: str = ""

    def key(self, *parts: object) -> str:
        """Give the name of what is made from these parts, which `repr` must tell apart."""
        return digest(self.scope, *parts)

    def holds(self, key: str) -> bool:
        """Tell whether there is an entry, damaged or not."""
        return (self.folder / key).exists()

    def take(self, key: str) -> Entry | None:
        """Give an entry, every byte of it what was put there; a damaged one is removed, as if it had never been made.

        Nobody may change its files.
        """
        entry = _read(self.folder / key)
        if entry is None or not _is_whole(entry):
            self.drop(key)
            return None
        with suppress(OSError):  # a store that can only be read serves as well
            os.utime(entry.folder / _MANIFEST)
        return entry

    def put(self, key: str, made: Path, what: str, value: Mapping[str, Any]) -> Path:
        """Move a folder of what was made into the store; where another process was faster, its entry stays.

        Returns:
            The entry's folder.

        Raises:
            OSError: The disk is full, or the store may not be written.
        """
        files = {name: sha256(made / name) for name in _names(made)}
        body = {"what": what, "made": datetime.now(UTC).isoformat(), "files": files, "value": value}
        write_text(made / _MANIFEST, json.dumps({"sha256": digest(_dumped(body)), "entry": body}))
        for path in (*(made / name for name in files), made):
            sync(path)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            made.rename(self.folder / key)
        except OSError as error:
            if error.errno not in _THERE:
                raise
        sync(self.folder)
        return self.folder / key

    def alone(self, key: str, longest_s: float) -> Work[FileLock]:
        """Wait until no other process makes this entry, so long at the most; give the lock, which is not held then.

        A process gives its locks up when it ends, however that happens.
        """
        (self.folder / _LOCKS).mkdir(parents=True, exist_ok=True)
        lock, deadline = FileLock(self.folder / _LOCKS / key), time.monotonic() + longest_s
        while time.monotonic() < deadline:
            try:
                lock.acquire(timeout=0)
            except Timeout:
                yield Progress("wait for another run")
                time.sleep(_WAIT_S)
            else:
                break
        return lock

    def entries(self) -> tuple[Entry, ...]:
        """Give all entries that can be read, without checking their files; the one that was taken last comes first."""
        folders = self.folder.iterdir() if self.folder.is_dir() else ()
        return tuple(sorted(filter(None, map(_read, folders)), key=lambda entry: entry.used, reverse=True))

    def drop(self, key: str) -> None:
        """Remove an entry; what a process that was killed meanwhile leaves is no entry any more."""
        gone = self.folder / f"{_GONE}{secrets.token_hex(4)}"
        with suppress(FileNotFoundError):
            (self.folder / key).rename(gone)
        for left in self.folder.glob(f"{_GONE}*"):
            shutil.rmtree(left, ignore_errors=True)

    def tidy(self) -> None:
        """Remove the locks of entries that are gone, unless somebody holds them; to take one twice does no harm."""
        for path in (self.folder / _LOCKS).glob("*"):
            lock = FileLock(path)
            if not self.holds(path.name):
                with suppress(Timeout, OSError):
                    lock.acquire(timeout=0)
                    path.unlink()
            lock.release()


def digest(*parts: object) -> str:
    """Give a hash of what `repr` shows of all parts, in 32 hexadecimal digits."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _read(folder: Path) -> Entry | None:
    """Read what an entry says of itself; None where there is none, or it is not what was written."""
    manifest = folder / _MANIFEST
    try:
        whole = json.loads(manifest.read_bytes())
        body, used = whole["entry"], manifest.stat().st_mtime
        if whole["sha256"] != digest(_dumped(body)):
            return None
        return Entry(
            key=folder.name,
            folder=folder,
            what=body["what"],
            value=body["value"],
            files=body["files"],
            size_bytes=sum((folder / name).stat().st_size for name in (_MANIFEST, *body["files"])),
            made=datetime.fromisoformat(body["made"]),
            used=datetime.fromtimestamp(used, UTC),
        )
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _is_whole(entry: Entry) -> bool:
    try:
        return all(sha256(entry.folder / name) == digest for name, digest in entry.files.items())
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _dumped(body: Mapping[str, Any]) -> str:
    return json.dumps(body, sort_keys=True)
