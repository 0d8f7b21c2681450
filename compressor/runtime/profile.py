"""What the nodes of two models take, by ONNX Runtime's profiler.

Another view of the same times is a function here.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from compressor.records import Feeds, OperatorTime
from compressor.runtime import custom_ops, names
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
"""The name of a node of the optimised graph, and its operator; or operator and name of the one that it was made of."""
_Both = Mapping[_Called, tuple[float, float]]


@dataclass(frozen=True)
class Times:
    """What two models take on one thread: each operator, the costliest now first, and the nodes that became slower.

    `slower`: by the name of a node of the model before, its milliseconds before and now, the greatest loss first.
    """

    operators: tuple[OperatorTime, ...]
    slower: Mapping[str, tuple[float, float]]


def times(before: Path, now: Path, feeds: Sequence[Feeds]) -> Times:
    """Time the nodes of two models, which run in turn on the same feeds, by the profiler.

    Its clock ticks in microseconds and cuts off the rest, so that a node seems to take half of one less than it does.
    """
    graph = _graph(before)
    counts = Counter(node.op_type for node in names.nodes(graph))
    found = _beside((before, now), feeds, graph)
    operators = [OperatorTime(name, counts[name], *both) for name, both in _summed(found, 0).items()]
    nodes = ((name, both) for name, both in _summed(found, 1).items() if name and both[1] > both[0] > 0)
    return Times(
        tuple(sorted(operators, key=lambda one: (-one.now_ms, -one.before_ms))),
        dict(sorted(nodes, key=lambda item: item[1][0] - item[1][1])),
    )


def node_ms(path: Path, feeds: Sequence[Feeds]) -> Mapping[str, float]:
    """Give the milliseconds of each node of a model on one thread, by name; under `` what ONNX Runtime does between."""
    known = names.known(_graph(path))
    (taken,) = _profiled((path,), feeds)
    sums: dict[str, float] = {}
    for (called, kernel), ms in taken.items():
        node = names.origin(called, kernel, known)
        name = node.name if node else ""
        sums[name] = sums.get(name, 0.0) + ms
    return sums


def _graph(path: Path) -> onnx.GraphProto:
    import onnx

    return onnx.load(path, load_external_data=False).graph


def _beside(paths: tuple[Path, Path], feeds: Sequence[Feeds], graph: onnx.GraphProto) -> _Both:
    """Sum the milliseconds of the nodes of both models by operator and name of the node that each was made of."""
    known = names.known(graph)
    sums: tuple[dict[_Called, float], dict[_Called, float]] = ({}, {})
    for side, taken in zip(sums, _profiled(paths, feeds), strict=True):
        for (called, kernel), ms in taken.items():
            node = names.origin(called, kernel, known)
            key = (node.op_type, node.name) if node else (names.operator(kernel), "")
            side[key] = side.get(key, 0.0) + ms
    before, now = sums
    return {key: (before.get(key, 0.0), now.get(key, 0.0)) for key in before | now}


def _summed(both: _Both, place: int) -> dict[str, tuple[float, float]]:
    """Sum further, by operator (0) or by name (1)."""
    sums: dict[str, tuple[float, float]] = {}
    for key, (before, now) in both.items():
        so_far = sums.get(key[place], (0.0, 0.0))
        sums[key[place]] = so_far[0] + before, so_far[1] + now
    return sums


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
    custom_ops.register(options)
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
