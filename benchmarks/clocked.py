"""A piece of work that notes the CPU time it takes, for `isolation.py`; a child has to be able to import it."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def clocked(noted: Path, work: Callable[..., Any], *args: object) -> Any:
    """Do the work, and add a line with its CPU seconds, those of its own children included, to a file."""
    began_s = cpu_s()
    value = work(*args)
    if isinstance(value, Iterator):
        value = yield from value
    with noted.open("a") as file:
        file.write(f"{cpu_s() - began_s}\n")
    return value


def cpu_s() -> float:
    """Give the CPU seconds of this process and of those that it has waited for."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)
