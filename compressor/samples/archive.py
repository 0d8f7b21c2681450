"""Files that hold samples: a zip that may be damaged, a folder, and the hash of either.

A new kind of container gets its own module; what is shared between containers goes here.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from compressor.errors import InputError


@contextmanager
def unzipped(path: Path) -> Iterator[zipfile.ZipFile]:
    """Give the open zip file.

    Raises:
        InputError: It is no zip file, or is found damaged while it is read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    # RuntimeError and NotImplementedError: encrypted, or compressed by a method that zipfile does not know
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise InputError(f"{path}: expected a whole zip file, found a damaged one ({error}); write it again") from error


@contextmanager
def members(path: Path) -> Iterator[tuple[tuple[str, ...], Callable[[str], bytes]]]:
    """Give the names of the files in a zip or folder, sorted, and a function that reads one."""
    if path.is_dir():
        names = (each.relative_to(path).as_posix() for each in path.rglob("*") if each.is_file())
        yield tuple(sorted(names)), lambda name: (path / name).read_bytes()
        return
    with unzipped(path) as archive:
        names = (info.filename for info in archive.infolist() if not info.is_dir())
        yield tuple(sorted(names)), archive.read


def sha256(path: Path) -> str:
    """Give the hash of a file, or of a folder's names and bytes."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    whole = hashlib.sha256()
    with members(path) as (names, read):
        for name in names:
            whole.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(read(name)).digest())
    return whole.hexdigest()
