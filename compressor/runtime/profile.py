"""What the nodes of two models take, by ONNX Runtime's profiler.

Another view of the same times is a function here.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from compressor.records import Feeds, OperatorTime
from compressor.runtime import names
from compressor.runtime.session import CPU, Loaded

if TYPE_CHECKING:
    import onnx
    import onnxruntime as ort

_FEWEST_RUNS, _MOST_RUNS = 5, 41  # the first is not counted
_SECONDS = 10
_CONTROL = frozenset({"If", "Loop", "Scan"})
"""Their time is that of the nodes inside, which are counted by themselves."""

_TIME = "_kernel_time"
_Called = tuple[str, str]
"""The name of a node of the optimised graph, and its operator."""
_Key = Callable[["onnx.NodeProto | None", str], str]
"""Gives what a node stands under, from the node that it was made of and its operator."""
_Both = Mapping[str, tuple[float, float]]


def operator_times(before: Path, now: Path, feeds: Sequence[Feeds]) -> tuple[OperatorTime, ...]:
    """Give what each operator takes in both models on one thread, the costliest of `now` first.

    The models run in turn, on the same feeds. The profiler's clock ticks in microseconds and cuts off the rest, so that
    a node seems to take half of one less than it does.
    """
    graph = _graph(before)
    counts = Counter(node.op_type for node in names.nodes(graph))
    found = _beside((before, now), feeds, graph, _operator)
    times = (OperatorTime(operator, counts[operator], *both) for operator, both in found.items())
    return tuple(sorted(times, key=lambda one: (-one.now_ms, -one.before_ms)))


def slower(before: Path, now: Path, feeds: Sequence[Feeds]) -> Mapping[str, tuple[float, float]]:
    """Give the milliseconds, before and now, of each named node of `before` that takes longer in `now`."""
    found = _beside((before, now), feeds, _graph(before), lambda node, _: node.name if node else "")
    return {name: both for name, both in found.items() if name and both[1] > both[0] > 0}


def _graph(path: Path) -> onnx.GraphProto:
    import onnx

    return onnx.load(path, load_external_data=False).graph


def _operator(node: onnx.NodeProto | None, kernel: str) -> str:
    return node.op_type if node else names.operator(kernel)


def _beside(paths: tuple[Path, Path], feeds: Sequence[Feeds], graph: onnx.GraphProto, key: _Key) -> _Both:
    """Sum the milliseconds of the nodes of both models by what `key` calls them."""
    known = names.known(graph)
    sums: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for side, taken in zip(sums, _profiled(paths, feeds), strict=True):
        for (called, kernel), ms in taken.items():
            name = key(names.origin(called, kernel, known), kernel)
            side[name] = side.get(name, 0.0) + ms
    before, now = sums
    return {name: (before.get(name, 0.0), now.get(name, 0.0)) for name in before | now}


def _profiled(paths: Sequence[Path], feeds: Sequence[Feeds]) -> list[dict[_Called, float]]:
    """Give the milliseconds that each node of each model takes in one inference."""
    with tempfile.TemporaryDirectory() as folder:
        sessions = [_session(path, Path(folder) / str(side)) for side, path in enumerate(paths)]
        try:
            _run([Loaded(session) for session in sessions], feeds)
        finally:
            files = [session.end_profiling() for session in sessions]
        return [_typical(_runs(json.loads(Path(file).read_text()))) for file in files]


def _session(path: Path, prefix: Path) -> ort.InferenceSession:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_profiling = True
    options.profile_file_prefix = str(prefix)
    return ort.InferenceSession(str(path), options, providers=[CPU])


def _run(sessions: Sequence[Loaded], feeds: Sequence[Feeds]) -> None:
    """Run the models in turn, in an order that changes: what comes first finds the caches of the other."""
    end = time.monotonic() + _SECONDS
    for number in range(_MOST_RUNS):
        for session in sessions if number % 2 else reversed(sessions):
            session(feeds[number % len(feeds)])
        if number >= _FEWEST_RUNS and time.monotonic() > end:
            return


def _runs(events: Iterable[Mapping[str, Any]]) -> list[Counter[_Called]]:
    """Give the milliseconds of each node in each run but the first, which allocates."""
    runs: list[Counter[_Called]] = [Counter()]
    for event in events:
        name = str(event.get("name"))
        if name == "model_run":
            runs.append(Counter())
        elif name.endswith(_TIME) and (kernel := event["args"]["op_name"]) not in _CONTROL:
            runs[-1][name.removesuffix(_TIME), kernel] += event["dur"] / 1000
    return runs[1:-1]


def _typical(runs: Sequence[Counter[_Called]]) -> dict[_Called, float]:
    """Give the mean of the middle half of the runs: as robust as a median, and finer than the clock."""
    quarter = len(runs) // 4
    called = {name for run in runs for name in run}
    return {name: fmean(sorted(run[name] for run in runs)[quarter : len(runs) - quarter]) for name in called}
