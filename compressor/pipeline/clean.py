"""What runs keep for later runs: shown, and removed by age and size.

What else may be asked to go is a field of `Wanted`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from compressor.errors import InputError
from compressor.pipeline.making import home, store
from compressor.scratch import sweep
from compressor.workspace import Entry

_RUNS = ("run", "learnt")
"""What the folders are called that runs work in."""


@dataclass(frozen=True)
class Wanted:
    """What is to go: all that was not used for so long, and the longest unused until so many bytes are left."""

    older_than_s: float | None = None
    keep_bytes: int | None = None


@dataclass(frozen=True)
class Kept:
    """What stays and what went, those used last first; `in_use`: how many went not because a run may be using them."""

    folder: Path
    stays: tuple[Entry, ...]
    gone: tuple[Entry, ...] = ()
    in_use: int = 0


def clean(reports: Path, wanted: Wanted | None) -> Kept:
    """Remove what is wanted of what runs keep beside these reports, nothing where that is None, and say what is there.

    Folders of runs that were killed go in any case. Nothing goes that a run which is going on has taken or made.

    Raises:
        InputError: There is no such folder.
    """
    place = home(reports)
    if not reports.is_dir():
        raise InputError(f"{reports}: expected a folder of reports; give --output DIR")
    kept, begun = store(place), _begun(place)
    entries = kept.entries()
    if wanted is None:
        return Kept(place, entries)
    doomed = list(_doomed(entries, wanted))
    free = [one for one in doomed if kept.drop_unused(one, before=min(_begun(place), default=None))]
    for key in () if begun else kept.unreadable():
        kept.drop(key)
    kept.tidy()
    return Kept(place, tuple(e for e in entries if e not in free), tuple(free), len(doomed) - len(free))


def _begun(place: Path) -> list[float]:
    """Give when the oldest runs that are going on began, in seconds since the epoch; the folders of others go."""
    return [began for name in _RUNS if (began := sweep(place, name)) is not None]


def _doomed(entries: tuple[Entry, ...], wanted: Wanted) -> Iterator[Entry]:
    """Give what is too old, and what does not fit beside what was used since."""
    now, total = datetime.now(UTC), 0
    for entry in entries:
        old = wanted.older_than_s is not None and now - entry.used > timedelta(seconds=wanted.older_than_s)
        if old or (wanted.keep_bytes is not None and total + entry.size_bytes > wanted.keep_bytes):
            yield entry
        else:
            total += entry.size_bytes
