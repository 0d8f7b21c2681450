"""What a command found, as it stands in its JSON.

Add a value where it arises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from compressor.records.measured import Measurement, Served, Speedup, Trial, Verdict


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
    """Where the run was recorded. `alias`, champion or candidate, is set where the version has it now."""

    uri: str
    run_id: str
    model: str
    version: str | None
    alias: str | None
    confirmed: bool = False  # the version stood there before, made by another run
    note: str = ""  # why a version that met every gate is not the champion


Outcome = Literal["pass", "fail", "inconclusive"]


@dataclass(frozen=True)
class Verified:
    """The report whose artifact was measured again. `model` and `version` are set where it is registered."""

    source: str
    identity: str  # when that run started, and the sha256 of its original
    cpu: str
    verdict: Outcome
    rung: str
    model: str | None = None
    version: str | None = None


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
    unfinished: str | None = None  # why the run ended before its climb did
    champion: Served | None = None  # what the recipe's `baseline` named, where there was one
    verifies: Verified | None = None


@dataclass(frozen=True)
class Side:
    """A model as it was measured. `source` is what the caller named; `options` those of the session."""

    source: str
    model: Original
    options: Mapping[str, str]
    measurement: Measurement


@dataclass(frozen=True)
class Benched:
    """What one model takes; `verdict` is None where no gate was asked."""

    schema_version: int
    verdict: Outcome | None
    warnings: tuple[str, ...]
    side: Side
    verdicts: tuple[Verdict, ...]
    environment: Environment
    started: datetime
    duration_s: float


Comparison = Literal["not worse", "worse", "undecided"]


@dataclass(frozen=True)
class Compared:
    """What a second model gains and loses over a first; `after` holds the speed-up, the drop and the errors."""

    schema_version: int
    verdict: Comparison
    warnings: tuple[str, ...]
    before: Side
    after: Side
    verdicts: tuple[Verdict, ...]
    data: Data
    environment: Environment
    started: datetime
    duration_s: float


@dataclass(frozen=True)
class Noise:
    """What a model seems to gain over itself on this machine, and what difference could be told from that.

    `detectable`: the least true slow-down, as a share of the time, that would be called slower nine times in ten.
    """

    speedup: Speedup
    seconds: float
    p50_ms: float
    detectable: float
