"""The store: what stages made, each in a folder named by a hash of everything that it was made from.

An entry appears whole, by one rename, and every byte is checked whenever it is taken. What an entry tells of itself is
a field of `Entry`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from filelock import FileLock, Timeout
from pydantic import AwareDatetime, BaseModel, Field

from compressor.records import Progress, Work
from compressor.workspace.files import sha256, sync, write_text

HOME = ".workspace"
"""The folder, beside reports, that holds the store and what runs work with."""
_MANIFEST = "entry.json"
_LOCKS = "locks"
_GONE = ".gone-"
_THERE = frozenset({errno.EEXIST, errno.ENOTEMPTY})
_KEY = re.compile("[0-9a-f]{32}")
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


class _Body(BaseModel, frozen=True, extra="forbid"):
    """What a manifest says, as far as it is believed."""

    what: str
    made: AwareDatetime
    files: dict[Annotated[str, Field(pattern=r"^[^/]+$")], str]
    value: dict[str, Any]


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

    def put(self, key: str, made: Path, what: str, value: Mapping[str, Any]) -> bool:
        """Move a folder of what was made into the store.

        Returns:
            Whether it is there now; else another process was faster, and its entry stays.

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
            return False
        sync(self.folder)
        return True

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
        return tuple(sorted(filter(None, map(_read, self._folders())), key=lambda entry: entry.used, reverse=True))

    def unreadable(self) -> tuple[str, ...]:
        """Give the keys of what is damaged, as far as that can be told without checking files."""
        return tuple(folder.name for folder in self._folders() if _read(folder) is None)

    def _folders(self) -> list[Path]:
        there = self.folder.iterdir() if self.folder.is_dir() else ()
        return [path for path in there if is_key(path.name)]

    def drop(self, key: str) -> None:
        """Remove an entry; what a process that was killed meanwhile leaves is no entry any more."""
        gone = self.folder / f"{_GONE}{secrets.token_hex(4)}"
        with suppress(FileNotFoundError):
            (self.folder / key).rename(gone)
        for left in self.folder.glob(f"{_GONE}{'[0-9a-f]' * 8}"):
            _remove(left)

    def drop_unused(self, entry: Entry, before: float | None) -> bool:
        """Remove an entry unless somebody took it since it was read, or since `before`; tell whether it was removed.

        Args:
            entry: What was read.
            before: When the oldest of those that may still need it began, in seconds since the epoch; None: nobody.
        """
        (self.folder / _LOCKS).mkdir(exist_ok=True)
        lock = FileLock(self.folder / _LOCKS / entry.key)
        try:
            lock.acquire(timeout=0)
        except Timeout:  # somebody is at it
            return False
        try:
            now = _read(entry.folder)
            taken = now is not None and now.used != entry.used
            if taken or (before is not None and entry.used.timestamp() >= before):
                return False
            self.drop(entry.key)
        finally:
            lock.release()
        return True

    def tidy(self) -> None:
        """Remove the locks of entries that are gone, unless somebody holds them; to take one twice does no harm."""
        for path in (self.folder / _LOCKS).glob("*"):
            lock = FileLock(path)
            if is_key(path.name) and not self.holds(path.name):
                with suppress(Timeout, OSError):
                    lock.acquire(timeout=0)
                    path.unlink()
            lock.release()


def is_key(name: str) -> bool:
    """Tell whether a name can be that of an entry."""
    return _KEY.fullmatch(name) is not None


def digest(*parts: object) -> str:
    """Give a hash of what `repr` shows of all parts, in 32 hexadecimal digits."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _read(folder: Path) -> Entry | None:
    """Read what an entry says of itself; None where there is none, or it is not what was written."""
    try:
        used = _regular(folder / _MANIFEST).st_mtime
        whole = json.loads((folder / _MANIFEST).read_bytes())
        body = _Body.model_validate(whole["entry"])
        if whole["sha256"] != digest(_dumped(whole["entry"])):
            return None
        return Entry(
            key=folder.name,
            folder=folder,
            what=body.what,
            value=body.value,
            files=body.files,
            size_bytes=sum(_regular(folder / name).st_size for name in (_MANIFEST, *body.files)),
            made=body.made,
            used=datetime.fromtimestamp(used, UTC),
        )
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _regular(path: Path) -> os.stat_result:
    """Describe a file that is neither a link nor a pipe or device, of which a reader may never see the end.

    Raises:
        ValueError: It is one.
    """
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(path)
    return found


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _is_whole(entry: Entry) -> bool:
    try:
        return all(sha256(entry.folder / name) == digest for name, digest in entry.files.items())
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _dumped(body: Mapping[str, Any]) -> str:
    return json.dumps(body, sort_keys=True)
