"""Files that are written whole or not at all, folders that a run makes, names that are safe.

Another way of writing is a function here; `replacing` is what makes them whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from compressor.errors import MachineError
from compressor.records import File

_RESERVE_BYTES = 4 << 20
_LONGEST_NAME = 200
"""Bytes of a name; file systems take 255, and some stand with others in one."""


def run_folder(reports: Path, model: str, started: datetime) -> Path:
    """Create and return a new folder `<reports>/<model>/<time>-<random>`, which no other run has."""
    folder = reports / file_name(model) / f"{started:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    folder.mkdir(parents=True)
    return folder


def check_writable(folder: Path, otherwise: str) -> None:
    """Make sure that a folder can be written, or made; leaves nothing.

    Raises:
        MachineError: It cannot; the message ends with `otherwise`, what to do.
    """
    folder = folder.absolute()  # not resolved, which a loop of links would end
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise MachineError(f"{folder}: cannot be written ({nearest}: {error.strerror}); {otherwise}") from error


def check_temporary() -> None:
    """Make sure that the folder that TMPDIR names, if it names one, can be written: Python passes over one that cannot.

    Raises:
        MachineError: It cannot.
    """
    if folder := os.environ.get("TMPDIR"):
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(1 << 16))
        except OSError as error:
            raise MachineError(
                f"TMPDIR is {folder}, which cannot be written ({error.strerror}); free some space there, or let it "
                "name another folder"
            ) from error


def reserve(folder: Path) -> None:
    """Take a little room, given back with the folder, so that a report can be written where the disk fills up."""
    try:
        with (folder / "reserve").open("wb") as file:
            file.write(bytes(_RESERVE_BYTES))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error  # the system does not say where


def file_name(text: str) -> str:
    """Turn any name into one that is safe as a file name and behind a command; letters of all scripts are kept."""
    short = re.sub(r"[^\w.-]+", "_", text).encode(errors="ignore")[:_LONGEST_NAME].decode(errors="ignore")
    return short.lstrip("._-").rstrip("._") or "model"


def write_text(path: Path, text: str) -> None:
    """Write a file so that under its name there is only ever the whole of it."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def copy(source: Path, target: Path) -> None:
    """Copy a file so that under the target's name there is only ever the whole of it."""
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; what was written there takes its place, or vanishes on an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, reach the disk before anything that is done next."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Give the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file(path: Path, folder: Path) -> File:
    """Describe a file for the report, its path relative to the run's `folder`."""
    return File(path.relative_to(folder).as_posix(), sha256(path), path.stat().st_size)
