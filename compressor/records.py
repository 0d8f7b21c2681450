"""The values that flow through a run, in the order in which they arise.

All are frozen; what is written to report.json is exactly `Report` and what it holds (schema_version 1: fields may be
added, never changed or removed). Add a value where it arises.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Shapes = Mapping[str, tuple[int, ...]]
"""A static shape for each graph input."""
Feeds = Mapping[str, Array]
"""One array for each graph input, leading axis the batch."""
Outputs = Mapping[str, Array]
"""One array for each graph output."""


@dataclass(frozen=True)
class Progress:
    """How far a piece of work is; `total` is None where nobody knows."""

    step: str
    done: int = 0
    total: int | None = None


T = TypeVar("T")
Work = Generator[Progress, None, T]
"""Work that reports its progress by yielding it, and returns T."""


# -- The model ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
    """A graph input or output. A dimension is a number, a symbol, or None; `shape` is None where the file has none."""

    name: str
    dtype: str  # as numpy names it: float32, int64, bool, str
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class Model:
    """An ONNX file on disk and what is true of it. `macs` is None where the shapes do not settle it."""

    path: Path
    sha256: str  # of the graph and its external data
    size_bytes: int  # external data included
    parameters: int
    macs: int | None  # multiply-accumulates of one inference at the measured shapes
    nodes: int
    opset: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Size:
    """The four deterministic budgets of a model."""

    size_bytes: int
    parameters: int
    macs: int | None
    nodes: int


@dataclass(frozen=True)
class Audit:
    """What ONNX Runtime makes of a model once its graph optimisations ran, and what a stage left alone and why."""

    integer_nodes: int = 0  # nodes computed by integer kernels
    float_nodes: int = 0  # Conv, Gemm, MatMul still computed in float
    qdq_left: int = 0  # QuantizeLinear and DequantizeLinear that did not fuse
    excluded: Mapping[str, str] = field(default_factory=dict)  # node name: reason


@dataclass(frozen=True)
class Did:
    """What a stage did, in one sentence; `changed` is False when it did nothing."""

    what: str
    changed: bool = True
    uncalibrated: bool = False  # ranges of activations come from made-up inputs
    excluded: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Applied:
    """One applied stage. `sqnr_db`: per output, signal-to-quantization-noise ratio against the original model."""

    stage: str
    settings: Mapping[str, Any]
    did: str
    seconds: float
    peak_memory_bytes: int
    sqnr_db: Mapping[str, float]
    audit: Audit | None = None
    changed: bool = True
    uncalibrated: bool = False


@dataclass(frozen=True)
class Candidate:
    """A model made by a rung's stages."""

    model: Model
    stages: tuple[Applied, ...] = ()


# -- What is shipped ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class File:
    """A file of an artifact; `path` is relative to the run's folder."""

    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Artifact:
    """What a server loads: files, and the options of the session or build exactly as measured."""

    engine: str
    device: str
    files: tuple[File, ...]  # the first is the one to load
    build_s: float
    options: Mapping[str, str]
    notes: tuple[str, ...] = ()


class Session(Protocol):
    """A loaded artifact that can be run."""

    def __call__(self, feeds: Feeds) -> Outputs:
        """Run one batch."""
        ...

    def close(self) -> None:
        """Free what the session holds."""
        ...


# -- Measurement -------------------------------------------------------------------------------------------------


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
    """What a load saw: raw latencies in nanoseconds, in the order of their calls, and the wall time of it all."""

    latencies_ns: npt.NDArray[np.int64]
    seconds: float
    preempted: float  # share of calls during which the operating system took the CPU away; 0 to 1


@dataclass(frozen=True)
class Latency:
    """Warm latency at one shape under one load. Bounds are one-sided at 95 %; None where the samples are too few."""

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


@dataclass(frozen=True)
class Speedup:
    """Baseline time over candidate time, paired in one process; above 1 is faster. Two-sided 95 % interval."""

    ratio: float
    low: float
    high: float
    baseline_p50_ms: float | None = None  # in these pairs; the baseline's own row was measured at another moment


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


@dataclass(frozen=True)
class Measurement:
    """All that was measured of one candidate."""

    size_bytes: int
    latency: Latency
    throughput_per_s: float
    memory_bytes: int | None  # peak resident memory of a fresh process that loads and runs it
    score: Score | None = None
    speedup: Speedup | None = None
    cost_per_million: float | None = None
    others: tuple[Latency, ...] = ()


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
    unit: str = ""  # ms for times, else none


@dataclass(frozen=True)
class Failure:
    """Why a rung could not be built or measured."""

    stage: str
    reason: str


@dataclass(frozen=True)
class Trial:
    """One rung: how it was built, what was measured, how the gates judged it."""

    rung: str
    stages: tuple[Applied, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    measurement: Measurement | None = None
    failure: Failure | None = None
    model: Size | None = None
    verdicts: tuple[Verdict, ...] = ()


# -- The report --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Original:
    """The model that was given."""

    name: str
    sha256: str
    size_bytes: int
    parameters: int
    macs: int | None
    nodes: int
    opset: int


@dataclass(frozen=True)
class Source:
    """Where samples came from."""

    source: str
    sha256: str
    n: int
    synthetic: bool


@dataclass(frozen=True)
class Data:
    """The samples of a run and how they were prepared. None where there were none."""

    calibration: Source | None
    evaluation: Source | None
    preprocess: Mapping[str, Any] | None
    metric: str | None


@dataclass(frozen=True)
class Environment:
    """What a number depends on besides the model."""

    machine: str
    cpu: str
    isa: tuple[str, ...]
    cpus_usable: int
    threads: int
    spinning: bool
    load: float | None  # one-minute load average when the run began
    versions: Mapping[str, str]
    saturates: bool  # this CPU's integer kernels overflow on U8 x S8


@dataclass(frozen=True)
class Registration:
    """Where the run was recorded. `alias` is set only when it was moved to this version."""

    uri: str
    run_id: str
    model: str
    version: str | None
    alias: str | None


Outcome = Literal["pass", "fail", "inconclusive"]


@dataclass(frozen=True)
class Report:
    """Everything a run found, as it stands in report.json."""

    schema_version: int
    verdict: Outcome
    chosen: str | None  # a rung's name, `baseline`, or None
    warnings: tuple[str, ...]
    model: Original
    data: Data
    baseline: Trial
    trials: tuple[Trial, ...]
    environment: Environment
    recipe: Mapping[str, Any]  # resolved: every choice written out
    registry: Registration | None
    raw: Mapping[str, str]  # raw latencies: name to path relative to the run's folder
    started: datetime
    duration_s: float
