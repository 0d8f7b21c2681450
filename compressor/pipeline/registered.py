"""What is registered: shown, and served by another's word.

What else a command asks of a registry, without measuring, is a function here.
"""

from __future__ import annotations

from pathlib import Path

from compressor import isolation, registry
from compressor.errors import InputError
from compressor.isolation import Limits
from compressor.records import Work
from compressor.registry import Past, Promoted


def history(name: str, uri: str | None) -> Work[tuple[Past, ...]]:
    """Give the versions of a model, the latest first, in a child.

    Raises:
        InputError: No such model is registered.
        MachineError: The registry does not answer.
    """
    return (yield from isolation.call(registry.history, _place(uri), name, limits=Limits())).value


def promote(name: str, version: str, uri: str | None, *, force: bool) -> Work[Promoted]:
    """Make a version the champion, in a child.

    Raises:
        InputError: There is no such version, or it did not meet every gate and nobody insists.
        MachineError: The registry does not answer.
    """
    arguments = (_place(uri), name, version, force)
    return (yield from isolation.call(registry.promote, *arguments, limits=Limits())).value


def _place(uri: str | None) -> str:
    place = registry.locate(uri, Path("reports"))
    if place is None:
        raise InputError("there is no registry to look in; give --registry URI")
    return place
