"""Pieces of work that go wrong, to stand in for ours in a child."""

from __future__ import annotations

import ctypes
import time

from compressor.errors import PublishError


def crash(*_arguments: object) -> None:
    ctypes.string_at(0)


def hang(*_arguments: object) -> None:
    time.sleep(600)


def eat(*_arguments: object) -> None:
    hoard = []
    while True:
        hoard.append(bytes(20_000_000))
        hoard[-1] = hoard[-1].replace(b"\0", b"x")


def refuse(uri: str, *_arguments: object) -> None:
    raise PublishError(f"registry {uri}: the run was not recorded")


def bug(*_arguments: object) -> None:
    raise ZeroDivisionError
