"""What was measured and how it was judged.

Add a value where it arises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from compressor.records.model import Applied, Artifact, Size

MINIMUM_EFFECT = 1.02
"""Ratios of time closer to 1 are no difference."""
_ROUNDING = 1e-6
Relation = Literal["faster", "slower", "same", "undecided"]
"""What a speed-up proves, given the least difference that counts."""


@dataclass(frozen=True)
class Target:
    """A percentile that a gate wants decided: is it at or below `limit_ms`, at this confidence?"""

    percentile: float  # 0 to 100
    confidence: float  # 0 to 1
    limit_ms: float


@dataclass(frozen=True)
class Bound:
    """A percentile with the confidence limits that its samples support; None where they are too few.

    `high_ms` is the upper one-sided limit at `confidence`, `low_ms` the lower one-sided limit. `needed`: samples that
    would decide if the share of violations stayed as it is; None when decided or when no number would.
    `dispersion`: index of dispersion of the violations over blocks, about 1 when they come independently.
    """

    percentile: float
    confidence: float
    value_ms: float
    low_ms: float | None
    high_ms: float | None
    limit_ms: float | None = None
    violations: int | None = None
    dispersion: float | None = None
    steady: bool | None = None  # the block-wise check for bursts holds too
    needed: int | None = None


@dataclass(frozen=True)
class Timing:
    """What a load saw: raw latencies in nanoseconds, in the order of their calls, and in how many seconds they came.

    `seconds` is the wall time, or for one worker without a schedule the time in its own calls.

    `stalled`: share of that time in which some task of the machine waited for a CPU, None where nobody counts.
    `offered_per_s`: requests that were due a second, in an open loop. `overloaded`: requests came faster than they were
    answered, for which a window may be cut short.
    """

    latencies_ns: npt.NDArray[np.int64]
    seconds: float
    preempted: float  # share of calls during which the operating system took the CPU away; 0 to 1
    stalled: float | None = None
    offered_per_s: float | None = None
    overloaded: bool = False


@dataclass(frozen=True)
class Latency:
    """Warm latency at one shape under one load. Bounds are one-sided at 95 %; None where the samples are too few.

    `at` tells the points of one measurement apart: empty for the one that the recipe's `shapes` and `load` state.
    Throughput counts the samples of a batch; its limits are a two-sided 95 % interval. For `stalled`, `offered_per_s`
    and `overloaded` see `Timing`. `rounds`: calls in each round; all sessions are opened anew for a round.
    `quantiles_ms` are the n samples' own, ascending: the least, those that 1, 2, … 99 % reach, then 99.1 to 99.9,
    99.91 to 99.99, 99.991 to 99.999 % as far as one in so many is left above, and the greatest (`quantile_levels`);
    empty in reports from before they were recorded.
    """

    p50_ms: float
    p50_low_ms: float | None
    p50_high_ms: float | None
    p90_ms: float
    p90_low_ms: float | None
    p90_high_ms: float | None
    p95_ms: float
    p95_low_ms: float | None
    p95_high_ms: float | None
    p99_ms: float
    p99_low_ms: float | None
    p99_high_ms: float | None
    mean_ms: float
    n: int
    cold_ms: float | None  # first call of a fresh process
    load_ms: float | None  # session creation in a fresh process
    shape: Mapping[str, str]
    load: str
    preempted: float
    bounds: tuple[Bound, ...] = ()  # one for each percentile and confidence that a gate asks
    at: str = ""
    throughput_per_s: float | None = None
    throughput_low_per_s: float | None = None
    throughput_high_per_s: float | None = None
    stalled: float | None = None
    offered_per_s: float | None = None
    overloaded: bool = False
    rounds: tuple[int, ...] = ()
    growing: bool = False  # in an open loop: requests waited longer and longer, so that no end of it was seen
    quantiles_ms: tuple[float, ...] = ()


def quantile_levels(n: int) -> tuple[float, ...]:
    """Give, in per cent, the levels that a distribution of n samples is kept at: least, each whole one, tail, most.

    A level has a sample above it at least; the last is the largest sample.
    """
    tail = (100 - rest / 10**digits for digits in (1, 2, 3) for rest in range(9, 0, -1))
    fine = (level for level in (*range(100), *tail) if n * (100 - level) >= 100 - _ROUNDING)
    return *(round(level, 3) for level in fine), 100.0


@dataclass(frozen=True)
class Speedup:
    """Baseline time over candidate time, paired in one process; above 1 is faster. Two-sided 95 % interval.

    `lowest` and `highest` are the extremes of the rounds, for each of which both sessions were opened anew. `preempted`
    and `stalled` say how busy the machine was during the pairs.
    """

    ratio: float
    low: float
    high: float
    baseline_p50_ms: float | None = None  # in these pairs; the baseline's own row was measured at another moment
    rounds: int = 0
    lowest: float | None = None
    highest: float | None = None
    preempted: float = 0.0
    stalled: float | None = None


@dataclass(frozen=True)
class ClassScore:
    """The class whose score dropped most; `drop` with a 95 % interval that covers all classes at once."""

    label: int
    n: int
    before: float
    value: float
    drop: float
    drop_low: float
    drop_high: float


@dataclass(frozen=True)
class OutputError:
    """How far an output is from the original model's on the same samples.

    A sample's error is relative: the Euclidean norm of the difference over that of the original's output.
    """

    n: int
    sqnr_db: float
    mean: float
    p95: float
    max_abs: float  # the largest difference of one element


@dataclass(frozen=True)
class Score:
    """Quality on the evaluation samples. `drop` is baseline minus candidate on the same samples, 95 % interval.

    `emulated` is the value with exact integer arithmetic, where this CPU's kernels can saturate.
    `reference` is True when the score is agreement with the original model rather than with labels. `relative` is
    True for an error, of which lower is better: its drop is the growth as a share of the baseline's.
    """

    metric: str
    value: float
    n: int
    low: float | None
    high: float | None
    drop: float | None = None
    drop_low: float | None = None
    drop_high: float | None = None
    emulated: float | None = None
    reference: bool = False
    relative: bool = False
    worst: ClassScore | None = None


@dataclass(frozen=True)
class Measurement:
    """All that was measured of one candidate."""

    size_bytes: int
    latency: Latency
    throughput_per_s: float
    memory_bytes: int | None  # peak resident memory of a fresh process that loads and runs it; or of its device
    score: Score | None = None
    speedup: Speedup | None = None
    cost_per_million: float | None = None
    others: tuple[Latency, ...] = ()
    errors: Mapping[str, OutputError] = field(default_factory=dict)  # by output
    startup: Bound | None = None  # load plus first call, over fresh processes; its percentile is the median
    gpu_ms: float | None = None  # what a device of its own takes, copies not counted; median of calls one by one
    proxy: str | None = None  # what ran in the place of the artifact, whose device is not here


@dataclass(frozen=True)
class Verdict:
    """A gate's judgement: met, not met, or None where the evidence decides neither."""

    gate: str
    met: bool | None
    observed: float | None
    limit: float | None
    low: float | None
    high: float | None
    reason: str
    at: str = ""  # the point that was judged, as in `Latency.at`
    unit: str = ""  # of observed, limit, low and high: ms, B, /s, x, or none for shares and counts


@dataclass(frozen=True)
class Failure:
    """Why a rung could not be built or measured."""

    stage: str
    reason: str


@dataclass(frozen=True)
class Served:
    """The registered version that is served now, the champion: what a rung must not be worse than."""

    source: str  # by its number
    name: str
    version: str
    model: Size
    artifact: Artifact
    original_sha256: str | None = None  # of the model that it was made of
    asked: str = ""  # as it was asked for, perhaps by an alias


@dataclass(frozen=True)
class Beside:
    """A rung and the champion, measured in turn in the same pairs. None where that could not be had.

    `now.speedup` is the champion's time over the rung's. `score.drop` is the champion's score less the rung's on the
    same samples. `same`: both are the same bytes with the same options, so that nothing was measured.
    """

    champion: Measurement | None = None
    now: Measurement | None = None
    champion_score: Score | None = None
    score: Score | None = None
    same: bool = False
    unscored: str = ""  # why there is no score
    failure: str = ""  # why the two could not be measured together


@dataclass(frozen=True)
class Trial:
    """One rung: how it was built, what was measured, how the gates judged it.

    `score` and `errors` are those of a rung that was built for a device that is not here: scored, and not measured.
    `beside` is that of a rung that meets every other gate, where the recipe names a champion.
    """

    rung: str
    stages: tuple[Applied, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    measurement: Measurement | None = None
    failure: Failure | None = None
    model: Size | None = None
    verdicts: tuple[Verdict, ...] = ()
    score: Score | None = None
    errors: Mapping[str, OutputError] = field(default_factory=dict)
    beside: Beside | None = None

    @property
    def quality(self) -> Score | None:
        """The score, measured or not."""
        return self.measurement.score if self.measurement else self.score

    @property
    def size_bytes(self) -> int | None:
        """Bytes of what a server loads; None where there is nothing."""
        if self.measurement:
            return self.measurement.size_bytes
        return self.model.size_bytes if self.model and self.is_built else None

    @property
    def is_built(self) -> bool:
        """Whether there is something to serve."""
        return self.failure is None and (self.measurement is not None or bool(self.artifacts))
