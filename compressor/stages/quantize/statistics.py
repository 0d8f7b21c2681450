"""What the activations of a float model hold over the samples, gathered in one streamed pass that candidates share.

Another statistic is a field of `Seen`, an output of a `taps.Tap`, and a line each in `_Tally`, `_write` and `_read`.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compressor import runtime
from compressor.records import Array, Feeds, Outputs, Progress, Work
from compressor.samples import Samples
from compressor.stages.quantize.job import Ranges
from compressor.stages.quantize.taps import PICKS, Tap, tapped
from compressor.stages.supply import Supply

_FORM = "1"
"""Part of the name of what is kept: raise it where what is gathered changes."""
_CALIBRATION_VALUES, _HELD_OUT_VALUES = 32_768, 16_384
"""Picked of each tensor in all: a percentile of 99.9 rests on 32 of them, and 100 tensors take 20 MB."""
_HELD_OUT = 16
"""Held-out samples that are run: more would make the pass dearer than onnxruntime's own, for the same values in all."""


@dataclass(frozen=True)
class Seen:
    """What was seen of one tensor.

    `low`, `high`: over all values of all samples; infinite where one was not finite. Those held out serve to choose
    between ranges, not to keep what is known of the extremes from them. `unclean`: in how many calibration feeds a
    value was not finite. `values`, `held_out`: picked at random, float32.
    """

    low: float
    high: float
    unclean: int
    values: Array
    held_out: Array


@dataclass(frozen=True)
class Statistics:
    """What was seen of each float activation that was ever without being empty.

    `means`: by the name of what a layer with constant weights reads, and the layer's channel axis there (1 or -1), the
    mean of each channel over the calibration samples, float64[channels].
    """

    tensors: Mapping[str, Seen]
    means: Mapping[tuple[str, int], Array]

    @property
    def extremes(self) -> Ranges:
        """The least and greatest value of each tensor."""
        return {name: (seen.low, seen.high) for name, seen in self.tensors.items()}

    @property
    def zero(self) -> tuple[str, ...]:
        """The tensors that were always zero."""
        return tuple(name for name, seen in self.tensors.items() if seen.low == seen.high == 0)

    @property
    def constant(self) -> tuple[str, ...]:
        """The tensors that always held one and the same value, other than zero."""
        return tuple(name for name, seen in self.tensors.items() if seen.low == seen.high != 0)


def gather(model: Path, supply: Supply) -> Work[Statistics]:
    """Give what the activations of a float model hold, as kept from an earlier pass over the same samples if there.

    Everything is drawn from fixed seeds; peak memory does not grow with the number of samples.
    """

    def learn(out: Path) -> Work[None]:
        _write((yield from _gathered(model, supply)), out)

    return _read((yield from supply.learnt("statistics", model, _FORM, learn)))


def _gathered(model: Path, supply: Supply) -> Work[Statistics]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tapped.onnx"
        taps = tapped(model, path)
        if not taps:  # there is nothing to run
            return Statistics({}, {})
        session = runtime.load(path, runtime.options(1, spinning=False))
        seen = yield from _watched(session, taps, supply.calibration, _CALIBRATION_VALUES)
        held_out = yield from _watched(session, taps, supply.held_out.take(_HELD_OUT, seed=0), _HELD_OUT_VALUES)
        session.close()
    return seen.statistics(taps, held_out)


def _watched(session: runtime.Loaded, taps: Sequence[Tap], samples: Samples, n_values: int) -> Work[_Tally]:
    """Run all samples; of each the same number of values is picked, so that they make `n_values` in all."""
    tally = _Tally(len(taps))
    picks = np.random.default_rng(0)
    per_feed = max(1, n_values // len(samples)) * samples.per_feed
    feeds = math.ceil(len(samples) / samples.per_feed)
    for done, (feed, weight) in enumerate(_weighted(samples)):
        yield Progress("calibrate", min(done, feeds), feeds)
        tally.add(taps, session({**feed, PICKS: picks.random(per_feed)}), weight)
    return tally


def _weighted(samples: Samples) -> Iterator[tuple[Feeds, int]]:
    """Give the feeds, each with how often it counts in a mean of samples.

    The last was filled up with its last sample; a feed of that sample alone takes the surplus away.
    """
    run = 0
    for feed in samples:
        yield feed, samples.per_feed
        run += samples.per_feed
    if run > len(samples):
        yield {name: np.repeat(array[-1:], len(array), axis=0) for name, array in feed.items()}, len(samples) - run


class _Tally:
    """Adds up what the taps give."""

    def __init__(self, n: int) -> None:
        self.low = np.full(n, np.inf)
        self.high = np.full(n, -np.inf)
        self.unclean = np.zeros(n, np.int64)
        self.values: list[list[Array]] = [[] for _ in range(n)]
        self._sums: dict[tuple[str, int], Array] = {}
        self._weights: dict[tuple[str, int], int] = {}

    def add(self, taps: Sequence[Tap], outputs: Outputs, weight: int) -> None:
        """Count the outputs of one feed; with a negative weight only in the means."""
        for place, tap in enumerate(taps):
            if outputs[tap.picked].size:
                self._add_means(tap, outputs, weight)
                if weight > 0:
                    self._add_values(place, tap, outputs)

    def statistics(self, taps: Sequence[Tap], held_out: _Tally) -> Statistics:
        low, high = np.minimum(self.low, held_out.low), np.maximum(self.high, held_out.high)
        tensors = {
            tap.tensor: Seen(
                float(low[place]),
                float(high[place]),
                int(self.unclean[place]),
                _joined(self.values[place]),
                _joined(held_out.values[place]),
            )
            for place, tap in enumerate(taps)
            if self.values[place]
        }
        return Statistics(tensors, {key: total / self._weights[key] for key, total in self._sums.items()})

    def _add_means(self, tap: Tap, outputs: Outputs, weight: int) -> None:
        for axis, name in tap.means.items():
            if axis is not None:
                key = (tap.tensor, axis)
                self._sums[key] = self._sums.get(key, 0) + outputs[name].astype(np.float64) * weight
                self._weights[key] = self._weights.get(key, 0) + weight

    def _add_values(self, place: int, tap: Tap, outputs: Outputs) -> None:
        # ReduceMin and ReduceMax of onnxruntime 1.32 pass over a NaN, or over what stands beside it; a mean does not
        told = [outputs[tap.low], outputs[tap.high], *(outputs[name] for name in tap.means.values())]
        # which can overflow, though, where its values do not
        clean = np.isfinite(told[:2]).all() and not any(np.isnan(each).any() for each in told[2:])
        self.low[place] = min(self.low[place], told[0]) if clean else -np.inf
        self.high[place] = max(self.high[place], told[1]) if clean else np.inf
        self.unclean[place] += not clean
        self.values[place].append(outputs[tap.picked])


def _joined(pieces: Sequence[Array]) -> Array:
    return np.concatenate(pieces) if pieces else np.empty(0, np.float32)


def _write(statistics: Statistics, path: Path) -> None:
    seen = statistics.tensors.values()
    arrays = {
        "names": np.array([*statistics.tensors], np.str_),
        "bounds": np.array([(each.low, each.high) for each in seen], np.float64).reshape(-1, 2),
        "unclean": np.array([each.unclean for each in seen], np.int64),
        **_packed("values", [each.values for each in seen]),
        **_packed("held_out", [each.held_out for each in seen]),
        "mean_names": np.array([name for name, _ in statistics.means], np.str_),
        "mean_axes": np.array([axis for _, axis in statistics.means], np.int64),
        **_packed("means", [*statistics.means.values()]),
    }
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _read(path: Path) -> Statistics:
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    values, held_out, means = (_unpacked(key, arrays) for key in ("values", "held_out", "means"))
    rows = zip(arrays["bounds"].tolist(), arrays["unclean"].tolist(), values, held_out, strict=True)
    seen = [Seen(low, high, unclean, *picked) for (low, high), unclean, *picked in rows]
    keys = zip(arrays["mean_names"].tolist(), arrays["mean_axes"].tolist(), strict=True)
    return Statistics(dict(zip(arrays["names"].tolist(), seen, strict=True)), dict(zip(keys, means, strict=True)))


def _packed(key: str, pieces: Sequence[Array]) -> dict[str, Array]:
    """Give arrays as one, with their lengths: names of tensors are no names of files."""
    return {key: _joined(pieces), f"{key}_n": np.array([len(piece) for piece in pieces], np.int64)}


def _unpacked(key: str, arrays: Mapping[str, Array]) -> list[Array]:
    lengths = arrays[f"{key}_n"]
    return np.split(arrays[key], np.cumsum(lengths)[:-1]) if len(lengths) else []
