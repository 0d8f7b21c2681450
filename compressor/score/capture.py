"""Outputs of a session on all samples, on disk.

What else is to be learnt by running a session goes here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from compressor.errors import InputError, RungError
from compressor.records import Array, Feeds, Outputs, Progress, Session, Work
from compressor.samples import Samples
from compressor.score.ragged import Ragged

_NUMBERS = "fiub"
_ABSENT = "it is not there for every sample"
_LOOKED_AT = 8
"""Shapes of samples that tell whether an output's shape changes with them."""


_DRAWS = 16
"""Runs after which a coin that always fell the same way is none, at odds of 1 to 65,000."""


@dataclass(frozen=True)
class Recorded:
    """Outputs on disk, an .npy file each with one row a sample; `left_out` says why an output is missing.

    `shapes`: of each sample's own output, where samples differ in shape and rows were filled up.
    """

    files: Mapping[str, Path]
    n: int
    left_out: Mapping[str, str]
    shapes: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    @property
    def uneven(self) -> frozenset[str]:
        """The outputs of which samples differ in shape."""
        return frozenset(name for name, shapes in self.shapes.items() if len(set(shapes)) > 1)

    def open(self) -> Outputs:
        """Give the outputs, mapped from their files."""
        return {name: np.load(path, mmap_mode="r", allow_pickle=False) for name, path in self.files.items()}

    def check(self) -> None:
        """Return if there is something to score.

        Raises:
            InputError: All outputs were left out.
        """
        if not self.files:
            found = "; ".join(f"{name!r}: {reason}" for name, reason in self.left_out.items())
            raise InputError(f"no output of the model can be scored ({found}); score at batch 1, or without evaluation")

    def check_like(self, before: Recorded) -> None:
        """Return if every sample's output has the shape that it had before, which rows filled up do not tell.

        Raises:
            RungError: One has another.
        """
        for name, shapes in before.shapes.items():
            if name in self.files and self.shapes.get(name) != shapes:
                raise RungError(f"output {name!r} has not the shape that the original model gives it for every sample")


def outputs(session: Session, samples: Samples, folder: Path) -> Work[Recorded]:
    """Run all samples once and give their outputs, as files in a folder that exists.

    A row is a slice of the output's first axis where that is the batch; at one sample a feed, else the whole output.
    Outputs that hold text are left out, as are those that are not there for every sample, and those that change their
    shape from sample to sample; unless the samples do so, too: then each row is filled up with 0 to the greatest size.
    """
    if samples.vary:
        return (yield from _uneven(session, samples, folder))
    files: dict[str, np.memmap[Any, Any]] = {}
    left_out: dict[str, str] = {}
    done, n = 0, len(samples)
    for feeds in samples:
        rows = {name: _rows(value, samples.per_feed) for name, value in session(feeds).items()}
        if not done:
            left_out = {name: reason for name, value in rows.items() if (reason := _unfit(value, samples.per_feed))}
            files = _created(folder, n, {name: value for name, value in rows.items() if name not in left_out})
        changed = [name for name, file in files.items() if name in rows and rows[name].shape[1:] != file.shape[1:]]
        left_out |= dict.fromkeys(changed, "its shape changes from sample to sample")
        left_out |= dict.fromkeys((files.keys() ^ rows.keys()) - left_out.keys(), _ABSENT)
        kept = min(samples.per_feed, n - done)
        for name in files.keys() - left_out.keys():
            files[name][done : done + kept] = rows[name][:kept]
        done += kept
        yield Progress("score", done, n)
    return _recorded(files, n, left_out)


def rows(outputs: Outputs, per_feed: int) -> Outputs:
    """Give the outputs of one feed as `outputs` would record them: a row a sample, without what it leaves out."""
    found = {name: _rows(value, per_feed) for name, value in outputs.items()}
    return {name: value for name, value in found.items() if _unfit(value, per_feed) is None}


def uneven(session: Session, samples: Samples) -> frozenset[str]:
    """Tell which outputs change their shape with that of the samples, as far as the first few shapes show it."""
    if not samples.vary:
        return frozenset()
    seen: set[tuple[tuple[int, ...], ...]] = set()
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for feeds in samples:
        if (found := tuple(value.shape for value in feeds.values())) in seen:
            continue
        seen.add(found)
        for name, value in session(feeds).items():
            shapes.setdefault(name, set()).add(np.shape(value))
        if len(seen) == _LOOKED_AT:
            break
    return frozenset(name for name, each in shapes.items() if len(each) > 1)


def deterministic(session: Session, feeds: Feeds) -> bool:
    """Tell whether the same feeds give the same outputs whenever they are run.

    Where no output is a floating-point number, random ones are often the same by chance, and are drawn several times.
    """
    first = {name: np.array(value) for name, value in session(feeds).items()}
    times = 1 if any(value.dtype.kind == "f" for value in first.values()) else _DRAWS
    again = (session(feeds) for _ in range(times))
    return all(_same(value, np.asarray(each[name])) for each in again for name, value in first.items())


def _uneven(session: Session, samples: Samples, folder: Path) -> Work[Recorded]:
    """Give the outputs for samples that differ in shape, each of which is a feed."""
    held: dict[str, Ragged] = {}
    left_out: dict[str, str] = {}
    for done, feeds in enumerate(samples):
        for name, value in session(feeds).items():
            if name not in held:
                held[name] = Ragged(folder / f"{len(held)}.npy")
            if (array := np.asarray(value)).dtype.kind not in _NUMBERS:
                left_out[name] = "it holds no numbers"
            elif not held[name].add(array):
                left_out[name] = "it changes its number of axes from sample to sample"
        yield Progress("score", done + 1, len(samples))
    left_out |= {name: _ABSENT for name, each in held.items() if name not in left_out and len(each) != len(samples)}
    shapes = {name: each.even() for name, each in held.items() if name not in left_out}
    paths = {name: folder / f"{order}.npy" for order, name in enumerate(held) if name in shapes}
    return Recorded(paths, len(samples), left_out, shapes)


def _rows(value: Any, per_feed: int) -> Array:
    array = np.asarray(value)
    is_batch = array.ndim > 0 and len(array) == per_feed
    return array if is_batch else array[None]


def _unfit(rows: Array, per_feed: int) -> str | None:
    if rows.dtype.kind not in _NUMBERS:
        return "it holds no numbers"
    return None if len(rows) == per_feed else "its first axis is not the batch"


def _created(folder: Path, n: int, rows: Outputs) -> dict[str, np.memmap[Any, Any]]:
    # numbered, because an output's name may hold any character
    return {
        name: np.lib.format.open_memmap(
            folder / f"{order}.npy", mode="w+", dtype=value.dtype, shape=(n, *value.shape[1:])
        )
        for order, (name, value) in enumerate(rows.items())
    }


def _recorded(files: Mapping[str, np.memmap[Any, Any]], n: int, left_out: Mapping[str, str]) -> Recorded:
    paths = {name: Path(str(file.filename)) for name, file in files.items() if name not in left_out}
    for name in paths:
        files[name].flush()
    return Recorded(paths, n, left_out)


def _same(a: Array, b: Array) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
