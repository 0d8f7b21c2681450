"""Files that hold samples: a zip that may be damaged, a folder, a single file, and the hash of either.

A new kind of container gets its own module; what is shared between containers goes here.
"""

from __future__ import annotations

import errno
import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO

from compressor.errors import InputError
from compressor.units import human_bytes

MOST_BYTES = 2**31
"""Of one sample or one member of a zip that is read whole: a bomb of 10 MB must not fill the memory."""

_BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class Members:
    """The files in a container, by name, sorted, with their sizes in bytes; `stream` opens one. None is unpacked."""

    where: str
    sizes: Mapping[str, int]
    stream: Callable[[str], IO[bytes]]

    def names(self, *suffixes: str) -> tuple[str, ...]:
        """Give the names with one of these suffixes, in lower case, without hidden files."""
        return tuple(n for n in self.sizes if PurePosixPath(n).suffix.lower() in suffixes and not _is_hidden(n))

    def read(self, name: str) -> bytes:
        """Give all of one file.

        Raises:
            InputError: It is too large to be one sample.
        """
        check_size(self.sizes[name], f"{self.where}/{name}")
        with self.stream(name) as stream:
            return stream.read(self.sizes[name])


def check_size(size_bytes: int, where: str) -> None:
    """Return if so many bytes may be read at once.

    Raises:
        InputError: They are more than a sample can have.
    """
    if size_bytes > MOST_BYTES:
        found, most = human_bytes(size_bytes), human_bytes(MOST_BYTES)
        raise InputError(f"{where}: one sample would take {found}, expected at most {most}; is it damaged?")


@contextmanager
def unzipped(path: Path | IO[bytes], where: str) -> Iterator[zipfile.ZipFile]:
    """Give the open zip file.

    Raises:
        InputError: It is no zip file, or is found damaged while it is read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    # RuntimeError and NotImplementedError: encrypted, or compressed by a method that zipfile does not know; a
    # ValueError or an OSError without a file: a directory of places before the file's start, or names that are no text
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError, LZMAError) as error:
        if isinstance(error, OSError) and error.errno not in {None, errno.EINVAL}:
            raise
        raise InputError(
            f"{where}: expected a whole zip file, found a damaged one ({error}); write it again"
        ) from error


@contextmanager
def members(path: Path) -> Iterator[Members]:
    """Give what a folder or a zip holds, or a single .npy file as the only member of its folder."""
    if path.is_dir() or path.suffix.lower() == ".npy":
        paths = path.rglob("*") if path.is_dir() else (path,)
        folder = path if path.is_dir() else path.parent
        files = {p.relative_to(folder).as_posix(): p.stat().st_size for p in sorted(paths) if p.is_file()}
        yield Members(str(path), dict(sorted(files.items())), lambda name: (folder / name).open("rb"))
        return
    with unzipped(path, str(path)) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}
        yield Members(str(path), dict(sorted(sizes.items())), archive.open)


def sha256(path: Path) -> str:
    """Give the hash of a file, or of a folder's names and bytes."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    whole = hashlib.sha256()
    with members(path) as held:
        for name in held.sizes:
            whole.update(hashlib.sha256(name.encode()).digest() + _digest(held, name))
    return whole.hexdigest()


def _digest(held: Members, name: str) -> bytes:
    found = hashlib.sha256()
    with held.stream(name) as stream:
        while block := stream.read(_BLOCK_BYTES):
            found.update(block)
    return found.digest()


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts)
