"""A model, what the stages did to it, and what is shipped of it.

Add a value where it arises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from compressor.records.flow import Feeds, Outputs


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
class OperatorTime:
    """What the nodes of one operator take in one inference, before and now; what fused counts for where it went."""

    operator: str  # as the original graph calls it; what has no node there stands under its own name
    nodes: int  # in the original graph
    before_ms: float
    now_ms: float


@dataclass(frozen=True)
class Audit:
    """What ONNX Runtime makes of a model once its graph optimisations ran, and what a stage left alone and why."""

    integer_nodes: int = 0  # nodes computed by integer kernels
    float_nodes: int = 0  # Conv, Gemm, MatMul still computed in float
    qdq_left: int = 0  # QuantizeLinear and DequantizeLinear that did not fuse
    excluded: Mapping[str, str] = field(default_factory=dict)  # node name: reason
    integer: Mapping[str, int] = field(default_factory=dict)  # operator of the integer kernels: how many
    blocked: Mapping[str, str] = field(default_factory=dict)  # tensor whose Q/DQ stayed: why it did
    operators: tuple[OperatorTime, ...] = ()  # costliest now first; one thread, profiled
    slower: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # node: ms before and now, worst first
    errors: Mapping[str, float] = field(default_factory=dict)  # node: SQNR in dB of it alone in INT8; in graph order


@dataclass(frozen=True)
class Channels:
    """Channels of a layer, with all that go with them."""

    name: str  # the node that makes them
    channels: int
    kept: int | None = None  # after pruning; None where nothing was pruned
    together: int = 1  # how many of them can only go together, as those of a head of attention
    layers: tuple[str, ...] = ()  # nodes that make channels which go with these, the first included
    macs: float | None = None  # share of the model's multiply-accumulates that depends on them, 0 to 1
    stay: tuple[str, ...] = ()  # why none can be removed


@dataclass(frozen=True)
class Repaired:
    """What solving layers again gained: how far the outputs are off, as a share of their variance, on held-out samples.

    Of outputs that are no floating-point numbers, the share that differs; the mean of all outputs.
    """

    layers: int
    before: float
    after: float
    held_out: bool = True  # else too few samples to hold any out: it is told by those that the layers were fitted to


@dataclass(frozen=True)
class Pruned:
    """What pruning took away: counts before and after, and what became of each group of channels.

    MACs are None where the shapes do not settle them. `asked` and `gone` are shares of what `of` names, 0 to 1; None in
    reports from before they were recorded.
    """

    macs: tuple[int | None, int | None]
    parameters: tuple[int, int]
    size_bytes: tuple[int, int]
    nodes: tuple[int, int]
    channels: tuple[int, int]
    groups: tuple[Channels, ...]
    repaired: Repaired | None = None  # None where that was not asked for, or could not be judged
    of: str = "macs"  # or parameters, channels (that can be removed), latency (of nodes, as measured)
    asked: float | None = None
    gone: float | None = None


@dataclass(frozen=True)
class Did:
    """What a stage did, in one sentence; `changed` is False when it did nothing."""

    what: str
    changed: bool = True
    uncalibrated: bool = False  # ranges of activations come from made-up inputs
    excluded: Mapping[str, str] = field(default_factory=dict)
    settled: Mapping[str, Any] = field(default_factory=dict)  # settings of the stage that were left open: their values
    notes: tuple[str, ...] = ()  # what is odd about the model or the samples
    pruned: Pruned | None = None


@dataclass(frozen=True)
class Tried:
    """A way of applying a stage that was made and looked at beside others.

    `sqnr_db`: of the worst output on held-out samples, on this machine's kernels; `exact_db`: with exact arithmetic,
    where that differs. None of the numbers is there where it was not looked at.
    """

    settings: Mapping[str, Any]
    taken: bool
    why: str
    size_bytes: int | None = None
    sqnr_db: float | None = None
    exact_db: float | None = None
    ratio: float | None = None  # time of the model before the stage over its own, paired; above 1 is faster
    low: float | None = None
    high: float | None = None


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
    tried: tuple[Tried, ...] = ()
    notes: tuple[str, ...] = ()
    pruned: Pruned | None = None
    reused: datetime | None = None  # when an earlier run made it: `seconds` and `peak_memory_bytes` are of that one


@dataclass(frozen=True)
class Candidate:
    """A model made by a rung's stages."""

    model: Model
    stages: tuple[Applied, ...] = ()


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

    @property
    def is_engine(self) -> bool:
        """Whether it was compiled for devices, which the name of `device` lists with + between them."""
        return self.engine != "onnxruntime"


class Session(Protocol):
    """A loaded artifact that can be run."""

    def __call__(self, feeds: Feeds) -> Outputs:
        """Run one batch."""
        ...

    def close(self) -> None:
        """Free what the session holds."""
        ...


@runtime_checkable
class OnDevice(Protocol):
    """What a session on a device of its own knows besides: of the last call, and of what it holds there."""

    gpu_ms: float
    """What the device took in the last call, copies not counted."""

    @property
    def memory_bytes(self) -> int:
        """Memory of the device that the session takes."""
        ...
