"""What is asked of a measurement, and what it gives.

Add what else can be asked as a field of `Experiment`, what else is found as one of `Measured`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compressor.bench.load import Load
from compressor.records import Array, Latency, Speedup, Target

MOST_SAMPLES = 100_000
"""A measurement ends by its budget long before, except for models of microseconds."""


@dataclass(frozen=True)
class Experiment:
    """What is measured, and when it is enough. `budget_s` counts opening and warming up too.

    `at` names the point of a measurement. `ratios` are speed-ups that someone wants decided, `rates` samples a second
    of a closed loop. `fill`: without targets, go on until the budget ends and look but once. `max_samples`: calls of a
    session, or of a window in an open loop, at which it is enough in any case.
    """

    load: Load
    targets: tuple[Target, ...]
    budget_s: float
    seed: int
    shape: Mapping[str, str]
    at: str = ""
    ratios: tuple[float, ...] = ()
    fill: bool = False
    max_samples: int = MOST_SAMPLES
    rates: tuple[float, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether it goes on until something is decided."""
        return bool(self.targets or ((self.ratios or self.rates) and not self.fill))


@dataclass(frozen=True)
class Measured:
    """What was found; `timings` holds the raw latencies in int64 ns, one array for each session driven by the load.

    `beside`: the latency of the baseline in the same pairs, where the load's calls are pairs.
    """

    latency: Latency
    speedup: Speedup | None
    timings: tuple[Array, ...]
    beside: Latency | None = None
