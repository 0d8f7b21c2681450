"""Building an engine from a typed graph, with NVIDIA's own parser and builder.

A builder setting is a field of `Order` and a line in `_configured`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compressor import workspace
from compressor.engines.tensorrt.record import Bound, Provider, Range
from compressor.errors import RungError
from compressor.records import Progress, Work

_LINES = 3
"""Messages that a refusal repeats."""
_LONGEST = 400  # characters of a message
_SILENT_S = 0.5


@dataclass(frozen=True)
class Order:
    """What to build for whom. `capabilities` are compute capabilities, none for the GPU that is here."""

    provider: Provider
    capabilities: tuple[tuple[int, int], ...]
    profiles: tuple[Mapping[str, Range], ...]
    workspace_bytes: int | None
    timing_cache: Path | None
    refit: bool
    optimization_level: int


@dataclass(frozen=True)
class Engine:
    """What was built. `flags`: the builder's, as set; `said`: its warnings, each once."""

    inputs: tuple[Bound, ...]
    outputs: tuple[Bound, ...]
    flags: tuple[str, ...]
    said: tuple[str, ...]
    seconds: float


def built(trt: Any, order: Order, onnx: Path, out: Path) -> Work[Engine]:
    """Build an engine and write it to `out`, whole or not at all.

    Args:
        trt: The provider's package.
        order: What to build.
        onnx: The typed graph.
        out: Where the engine goes.

    Raises:
        RungError: The parser or the builder refuses the graph; the message names node, operator and reason.
    """
    started, log = time.monotonic(), _log(trt)
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(onnx)):
        raise RungError(f"{order.provider} does not take the graph: {_told(refusals(parser)) or _said(log)}")
    config = _configured(trt, builder, network, order)
    serialized = yield from _with_progress(trt, builder, network, config)
    if serialized is None:
        raise RungError(f"{order.provider} could not build the engine: {_said(log)}")
    with workspace.replacing(out) as temporary:
        temporary.write_bytes(memoryview(serialized))
    _keep_timings(config, order.timing_cache)
    return Engine(
        inputs=_bounds(trt, [network.get_input(i) for i in range(network.num_inputs)]),
        outputs=_bounds(trt, [network.get_output(i) for i in range(network.num_outputs)]),
        flags=tuple(name for name, flag in trt.BuilderFlag.__members__.items() if config.get_flag(flag)),
        said=tuple(dict.fromkeys(text for is_error, text in log.lines if not is_error)),
        seconds=time.monotonic() - started,
    )


def refusals(parser: Any) -> Iterator[tuple[str, str, str]]:
    """Give what a parser found wrong: node, operator and reason of each."""
    for i in range(parser.num_errors):
        error = parser.get_error(i)
        yield error.node_name(), error.node_operator(), " ".join(error.desc().split())


def _told(found: Iterator[tuple[str, str, str]]) -> str:
    lines = dict.fromkeys(f"{reason} (node {node!r}, {operator})" for node, operator, reason in found)
    return "; ".join(list(lines)[:_LINES])[:_LONGEST]


def _said(log: Any) -> str:
    """Give the builder's errors, which it tells its logger only."""
    errors = dict.fromkeys(text for is_error, text in log.lines if is_error)
    return ("; ".join(list(errors)[:_LINES]) or "it said nothing")[:_LONGEST]


def _log(trt: Any) -> Any:
    class Log(trt.ILogger):  # type: ignore[misc] # the package is only known at run time
        """Keeps warnings and errors."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.lines: list[tuple[bool, str]] = []

        def log(self, severity: Any, text: str) -> None:
            if severity <= trt.ILogger.WARNING:
                self.lines.append((severity <= trt.ILogger.ERROR, " ".join(text.split())))

    return Log()


def _configured(trt: Any, builder: Any, network: Any, order: Order) -> Any:
    config = builder.create_builder_config()
    if order.provider == "tensorrt-rtx":
        config.num_compute_capabilities = max(len(order.capabilities), 1)
        for i, capability in enumerate(_capabilities(trt, order.capabilities)):
            config.set_compute_capability(capability, i)
    for ranges in order.profiles:
        config.add_optimization_profile(_profile(builder, network, ranges))
    if order.workspace_bytes is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, order.workspace_bytes)
    if order.refit:
        config.set_flag(trt.BuilderFlag.REFIT)
    config.builder_optimization_level = order.optimization_level
    if order.timing_cache is not None:
        known = order.timing_cache.read_bytes() if order.timing_cache.is_file() else b""
        cache = config.create_timing_cache(known)
        if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
            raise RungError(f"timing_cache: {order.timing_cache} holds no timings of this TensorRT; name another file")
    return config


def _capabilities(trt: Any, wanted: Sequence[tuple[int, int]]) -> list[Any]:
    named = [getattr(trt.ComputeCapability, f"SM{major}{minor}") for major, minor in wanted]
    return named or [trt.ComputeCapability.CURRENT]


def _profile(builder: Any, network: Any, ranges: Mapping[str, Range]) -> Any:
    """Give a profile; an input that holds a shape takes values instead, which no profile of ours states."""
    profile = builder.create_optimization_profile()
    for i in range(network.num_inputs):
        tensor = network.get_input(i)
        if tensor.is_shape_tensor:
            raise RungError(f"input {tensor.name!r} holds a shape, which decides about other sizes: make it a constant")
        if tensor.name in ranges:
            profile.set_shape(tensor.name, *ranges[tensor.name])
    return profile


def _with_progress(trt: Any, builder: Any, network: Any, config: Any) -> Work[Any]:
    """Build in a thread, and pass on how far it is: the builder tells that while it works."""
    told: queue.Queue[Progress | None] = queue.Queue()
    config.progress_monitor = _monitor(trt, told)
    made: list[Any] = []
    failed: list[Exception] = []

    def build() -> None:
        try:
            made.append(builder.build_serialized_network(network, config))
        except Exception as error:  # noqa: BLE001 - raised again where somebody hears it
            failed.append(error)
        finally:
            told.put(None)

    thread = threading.Thread(target=build, daemon=True)
    thread.start()
    while (progress := told.get()) is not None:
        yield progress
    thread.join()
    if failed:
        raise failed[0]
    return made[0] if made else None


def _monitor(trt: Any, told: queue.Queue[Progress | None]) -> Any:
    class Monitor(trt.IProgressMonitor):  # type: ignore[misc] # the package is only known at run time
        """Tells of the outermost phase that has steps."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.phases: dict[str, int] = {}

        def phase_start(self, phase: str, _parent: str | None, steps: int) -> None:
            self.phases[phase] = steps
            told.put(Progress(phase.lower(), 0, steps))

        def step_complete(self, phase: str, step: int) -> bool:
            steps = self.phases.get(phase, step + 1)
            told.put(Progress(phase.lower(), min(step + 1, steps), steps))
            return True

        def phase_finish(self, phase: str) -> None:
            self.phases.pop(phase, None)

    return Monitor()


def _keep_timings(config: Any, file: Path | None) -> None:
    cache = config.get_timing_cache() if file else None
    if file and cache is not None:
        with workspace.replacing(file) as temporary:
            temporary.write_bytes(memoryview(cache.serialize()))


def _bounds(trt: Any, tensors: Sequence[Any]) -> tuple[Bound, ...]:
    return tuple(Bound(name=t.name, dtype=_dtype(trt, t.dtype), shape=tuple(t.shape)) for t in tensors)


def _dtype(trt: Any, dtype: Any) -> str:
    """Name a type as numpy does, those that numpy lacks as the package does."""
    try:
        return str(np.dtype(trt.nptype(dtype)).name)
    except TypeError:
        return str(dtype).rpartition(".")[2].lower()
