"""How far outputs are from the original model's, streamed: no output is ever loaded whole.

A new measure of distance is a function of the powers here.
"""

from __future__ import annotations

import numpy as np

from compressor.errors import RungError
from compressor.records import Array, OutputError, Outputs
from compressor.runtime import IDENTICAL_DB

_ELEMENTS = 1 << 20  # in memory at once, but for a sample that is larger


def errors(before: Outputs, now: Outputs) -> dict[str, OutputError]:
    """Give the error of each output of floating-point numbers; `sqnr_db` is over all samples, within ±200.

    A sample that was all zero has the error 0 where it still is, else 1. NaN where NaN was, and infinity where the same
    infinity was, is no difference; where only one side is finite, the difference and the sample's error are infinite.

    Raises:
        RungError: An output is missing now, or has another shape.
    """
    alike(before, now)
    return {name: _error(value, now[name]) for name, value in before.items() if value.dtype.kind == "f"}


def alike(before: Outputs, now: Outputs) -> Outputs:
    """Give the outputs that there were before, so that both sides are compared on the same ones.

    Raises:
        RungError: One is missing now, or has another shape.
    """
    for name, value in before.items():
        if name not in now or now[name].shape != value.shape:
            raise RungError(f"output {name!r} has not the shape that the original model gives it for every sample")
    return {name: now[name] for name in before}


def powers(before: Array, now: Array) -> tuple[Array, Array, Array]:
    """Give for each sample the power of the original, that of the difference, and its largest element: [n] each."""
    n = len(before)
    step = max(1, _ELEMENTS * n // max(1, before.size))
    parts = [_powers(before[start : start + step], now[start : start + step]) for start in range(0, n, step)]
    signal, noise, largest = (np.concatenate(each) for each in zip(*parts, strict=True))
    return signal, noise, largest


def sqnr_db(signal: Array, noise: Array) -> Array:
    """Give signal over noise in dB, within ±200: 200 where there is no noise, -200 where there is only noise."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = 10 * np.log10(signal / noise)
    clipped = np.clip(ratio, -IDENTICAL_DB, IDENTICAL_DB)
    return np.where(noise == 0, IDENTICAL_DB, np.where(np.isfinite(noise), clipped, -IDENTICAL_DB))


def _error(before: Array, now: Array) -> OutputError:
    signal, noise, largest = powers(before, now)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.sqrt(noise / signal)
    relative = np.where(noise == 0, 0.0, np.where((signal == 0) & np.isfinite(noise), 1.0, relative))
    return OutputError(
        n=len(relative),
        sqnr_db=float(sqnr_db(signal.sum(), noise.sum())),
        mean=float(relative.mean()),
        p95=float(np.quantile(relative, 0.95, method="higher")),  # no interpolation between infinities
        max_abs=float(largest.max()),
    )


def _powers(before: Array, now: Array) -> tuple[Array, Array, Array]:
    wanted, found = (np.asarray(part, np.float64).reshape(len(part), -1) for part in (before, now))
    same = (wanted == found) | (np.isnan(wanted) & np.isnan(found))
    with np.errstate(invalid="ignore", over="ignore"):  # infinity less infinity
        gap = np.where(same, 0.0, np.abs(found - wanted))
        gap = np.where(np.isnan(gap), np.inf, gap)
        wanted = np.where(np.isfinite(wanted), wanted, 0.0)
        return np.square(wanted).sum(axis=1), np.square(gap).sum(axis=1), gap.max(axis=1, initial=0.0)
