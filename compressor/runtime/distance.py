"""How far the outputs of a model are from those of another.

Another measure of the distance is a function here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from compressor.errors import RungError
from compressor.records import Array, Feeds, Outputs, Progress, Work
from compressor.runtime.session import emulated, load, options

IDENTICAL_DB = 200.0
"""SQNR reported for outputs that are equal; float32 rounding alone gives about 140 dB."""
_FIFTH_DB = 20 - 10 * math.log10(5)


@dataclass(frozen=True)
class Distance:
    """The power of a signal and of the noise in another, summed over as many arrays as were added.

    `n`, `differing`: elements that are no floating-point numbers, and those of them that are not the same.
    """

    signal: float = 0.0
    noise: float = 0.0
    n: int = 0
    differing: int = 0

    def plus(self, wanted: Array, found: Array) -> Distance:
        """Add two arrays; what is not finite in `wanted` is left out.

        Of text, which has no power, each element counts 1, and noise are those that differ. Another shape is endless
        noise: what depends on the data for its size cannot be subtracted.
        """
        if wanted.shape != found.shape:
            return replace(self, noise=math.inf)
        n, differing = self.n, self.differing
        if wanted.dtype.kind != "f":
            n, differing = n + wanted.size, differing + int(np.count_nonzero(wanted != found))
        if wanted.dtype.kind not in "fiub":
            return Distance(n, differing, n, differing)
        finite = np.isfinite(wanted)
        if not finite.all():  # seldom, and picking costs more than all the rest
            wanted, found = wanted[finite], found[finite]
        with np.errstate(over="ignore", invalid="ignore"):
            noise = np.subtract(found, wanted, dtype=np.promote_types(wanted.dtype, np.float32))
            return Distance(self.signal + _power(wanted), self.noise + _power(noise), n, differing)

    @property
    def db(self) -> float:
        """SQNR in dB, 10 log10(signal / noise), from -200 to 200; noise that is not finite gives -200."""
        if self.noise == 0:
            return IDENTICAL_DB
        if self.signal == 0 or not math.isfinite(self.noise):
            return -IDENTICAL_DB
        ratio_db = 10 * (math.log10(self.signal) - math.log10(self.noise))
        return min(max(ratio_db, -IDENTICAL_DB), IDENTICAL_DB)

    @property
    def agreement_db(self) -> float:
        """How many elements that are no floating-point numbers are the same, so that a fifth wrong is 20 dB."""
        if not math.isfinite(self.noise):
            return -IDENTICAL_DB
        return 10 * math.log10(self.n / self.differing) + _FIFTH_DB if self.differing else IDENTICAL_DB


def compare(reference: Path, candidate: Path, feeds: Iterable[Feeds], *, exact: bool = False) -> Work[dict[str, float]]:
    """Give the SQNR in dB of each output of `candidate` against `reference`.

    Both run on the kernels of this machine; if `exact`, those of `candidate` compute its Q/DQ pairs in float instead of
    in integers. Equal outputs give `IDENTICAL_DB`.
    SQNR = 10 log10(sum reference² / sum (candidate - reference)²), summed over all feeds; for text, the number of
    elements over the number of those that differ.

    Raises:
        RungError: An output is missing or new, has another shape or type, or is not finite where the reference is.
    """
    found = yield from _feed_by_feed(reference, candidate, feeds, exact=exact)
    return {name: _pooled(each).db for name, each in found.items()}


def worst_db(reference: Path, candidate: Path, feeds: Iterable[Feeds], *, exact: bool = False) -> Work[float]:
    """Give how good the worst output is, in dB.

    Of floating-point numbers, the SQNR of all feeds together or of the middle one, whichever is less: a single odd
    sample with a great signal must not hide what is wrong in all others. Of integers and text, the SQNR or what
    `Distance.agreement_db` gives, whichever is more: a few classes that flip are no great loss.

    Raises:
        RungError: As `compare`, for any output.
    """
    found = yield from _feed_by_feed(reference, candidate, feeds, exact=exact)
    return min(map(_output_db, found.values()), default=IDENTICAL_DB)


def _output_db(each: Sequence[Distance]) -> float:
    whole = _pooled(each)
    if whole.n:
        return max(whole.db, whole.agreement_db)
    return min(whole.db, median(distance.db for distance in each))


def _pooled(each: Sequence[Distance]) -> Distance:
    return Distance(*(sum(column) for column in zip(*map(astuple, each), strict=True)))


def _feed_by_feed(
    reference: Path, candidate: Path, feeds: Iterable[Feeds], *, exact: bool
) -> Work[Mapping[str, Sequence[Distance]]]:
    settings = options(1, spinning=False)
    distances: defaultdict[str, list[Distance]] = defaultdict(list)
    with (
        closing(load(reference, settings)) as one,
        closing(load(candidate, emulated(settings) if exact else settings)) as two,
    ):
        for done, feed in enumerate(feeds):
            yield Progress("compare outputs", done)
            expected, found = one(feed), two(feed)
            _check_names(expected, found)
            for name in expected:
                wanted, value = np.asarray(expected[name]), np.asarray(found[name])
                _check_output(name, wanted, value)
                distances[name].append(Distance().plus(wanted, value))
    return distances


def _power(values: Array) -> float:
    flat = values.ravel()
    return float(np.einsum("i,i", flat, flat, dtype=np.float64))  # casts in blocks, without a copy of twice the size


def _check_names(expected: Outputs, found: Outputs) -> None:
    for name in expected.keys() ^ found.keys():
        raise RungError(f"output {name!r} is {'gone' if name in expected else 'new'}")


def _check_output(name: str, wanted: Array, found: Array) -> None:
    if wanted.shape != found.shape:
        raise RungError(f"output {name!r} has shape {found.shape}, expected {wanted.shape}")
    if wanted.dtype != found.dtype:
        raise RungError(f"output {name!r} has type {found.dtype}, expected {wanted.dtype}")
    if wanted.dtype.kind == "f" and np.any(np.isfinite(wanted) & ~np.isfinite(found)):
        raise RungError(f"output {name!r} is not finite where the original's is")
