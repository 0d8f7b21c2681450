"""What a machine can tell apart: a model measured against itself.

Add what else describes a machine's noise as a field of `records.Noise`.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from compressor.bench import looks, ratio
from compressor.bench.clock import SYSTEM, Clock
from compressor.bench.load import Closed
from compressor.bench.measure import Experiment, measure
from compressor.bench.rounds import Opener
from compressor.errors import InputError
from compressor.records import Feeds, Noise, Work


def noise(
    openers: Sequence[Opener], feeds: Sequence[Feeds], seconds: float, seed: int, clock: Clock = SYSTEM
) -> Work[Noise]:
    """Compare two sessions of the same model for so many seconds.

    The interval is that of a single look at 95 %, and at its end. `detectable` is what `compare` would see at the last
    of its looks if it made as many calls: that look spends only what those before it left of the permitted error.

    Raises:
        InputError: The time is too short for three rounds.
    """
    begin_ns = clock.now_ns()
    experiment = Experiment(Closed(), (), seconds, seed, {}, fill=True)
    measured = yield from measure(openers, feeds, experiment, clock)
    if measured.speedup is None:
        raise InputError(f"{seconds:g} s are too short to compare this model with itself: give more, or a faster model")
    share = looks.last_share(measured.latency.n, looks.fewest(()))
    return Noise(
        speedup=measured.speedup,
        seconds=(clock.now_ns() - begin_ns) / 1e9,
        p50_ms=median(measured.timings[-1].tolist()) / 1e6,
        detectable=ratio.detectable(measured.speedup, share),
    )
