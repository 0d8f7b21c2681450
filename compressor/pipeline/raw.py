"""The raw latencies beside a report, which answer for limits that nobody had in mind when they were taken.

What else they can tell is a function here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from compressor import workspace
from compressor.bench import stats
from compressor.gates import Gate, targets
from compressor.records import Array, Bound, Latency, Report, Target, Trial

_NS_PER_MS = 1e6


def against(report: Report, folder: Path, gates: Sequence[Gate]) -> Report:
    """Give a report whose percentiles are held against the limits of these gates too, each or the next one above it.

    The limits of a percentile hold whatever it is compared with; what must be looked at anew is whether the samples
    above another limit come in bursts. `folder` is that of the run; without its raw latencies nothing is added.
    """

    def held(trial: Trial) -> Trial:
        measured = trial.measurement
        if measured is None:
            return trial
        latency, *others = (
            replace(one, bounds=(*one.bounds, *_bounds(one, trial.rung, folder, targets(gates, one.at))))
            for one in (measured.latency, *measured.others)
        )
        return replace(trial, measurement=replace(measured, latency=latency, others=tuple(others)))

    return replace(report, baseline=held(report.baseline), trials=tuple(map(held, report.trials)))


def _bounds(latency: Latency, rung: str, folder: Path, wanted: Sequence[Target]) -> Iterator[Bound]:
    for target in wanted:
        near = _nearest(latency, target)
        if near is None or near.limit_ms in {None, target.limit_ms}:
            continue
        if (latencies_ms := _latencies_ms(latency, rung, folder)) is not None:
            yield replace(stats.against(near, latencies_ms, target.limit_ms), violations=None, needed=None)


def _nearest(latency: Latency, target: Target) -> Bound | None:
    """Give the bound whose upper limit holds for a percentile too: its own, or that of a higher one."""
    higher = (b for b in latency.bounds if b.percentile >= target.percentile and b.confidence >= target.confidence)
    return min(higher, key=lambda bound: (bound.percentile, bound.confidence), default=None)


def _latencies_ms(latency: Latency, rung: str, folder: Path) -> Array | None:
    """Read what a rung took at a point, [n] in call order; None where that does not lie there any more.

    The file holds a row for each session, the baseline's first: [1 or 2, n].
    """
    name = f"{rung}-{latency.at}" if latency.at else rung
    try:
        raw = np.load(folder / "raw" / f"{workspace.file_name(name)}.npy", allow_pickle=False)
    except (OSError, ValueError):  # moved, or no array
        return None
    fits = raw.ndim == 2 and raw.shape[1] == latency.n and len(raw) > 0 and raw.dtype.kind == "i"  # noqa: PLR2004
    return raw[-1] / _NS_PER_MS if fits else None
