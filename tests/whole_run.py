"""A command line that is run in this process, and artifacts that are judged by nothing but numpy and ONNX Runtime.

The pieces of work are called here instead of in children of their own: their imports take nine tenths of the time, and
whether a child crashes or grows too large is tested elsewhere. So is the page of a report, which is not drawn here.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from compressor import cli, formats, isolation

Feeds = Mapping[str, np.ndarray]
EMULATED, PLAIN, KERNELS = "integers emulated in float", "no optimisation", "the kernels of this machine"
QUANTIZED = frozenset({np.dtype(np.int8), np.dtype(np.uint8)})


@dataclass(frozen=True)
class Ended:
    """How a command ended, what it said, and the report that it left, if any."""

    code: int
    out: str
    err: str
    folder: Path | None = None
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def trials(self) -> Mapping[str, Mapping[str, Any]]:
        """Give every rung's record by its name, the baseline's too."""
        return {trial["rung"]: trial for trial in [self.report["baseline"], *self.report["trials"]]}

    def artifacts(self, *, baseline: bool = False) -> Mapping[str, Path]:
        """Give the model file of every rung that was built."""
        assert self.folder
        built = {name: trial["artifacts"][0]["files"][0] for name, trial in self.trials.items() if trial["artifacts"]}
        return {name: self.folder / file["path"] for name, file in built.items() if baseline or name != "baseline"}

    def graph(self, rung: str) -> onnx.GraphProto:
        """Give the graph of a rung's artifact."""
        return onnx.load(self.artifacts()[rung]).graph


def compress(*words: object) -> Ended:
    """Run a command line; the report of a run is looked for below `--output`."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    path = list(sys.path)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["compress", *map(str, words)])
        patch.setattr(isolation, "call", call_here)
        patch.setattr(formats, "draw", lambda _report, _folder: ())  # takes longer than such a run, and runs V8
        patch.setenv("MLFLOW_TRACKING_URI", "none")
        with pytest.raises(SystemExit) as stopped:
            cli.main()
    sys.path[:] = path
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    found = newest(Path(words[words.index("--output") + 1]), "*/*/report.json") if "--output" in words else None
    report = json.loads(found.read_text(encoding="utf-8")) if found else {}
    return Ended(int(stopped.value.code or 0), *said, found.parent if found else None, report)


def newest(folder: Path, pattern: str) -> Path | None:
    """Give the file that was written last: names of folders that were made within one second are in no order."""
    return max(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns, default=None)


def call_here(work: Callable[..., Any], *args: object, **_: object) -> Any:
    """Do a piece of work in this process, as `isolation.call` does it in a child."""
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of vendors, which a child keeps to itself
        try:
            value = work(*args)
            value = (yield from value) if isinstance(value, Iterator) else value
        except Exception as error:
            ours = isolation.ours(error)
            if ours in {None, error}:
                raise
            raise ours from error
    return isolation.Returned(value, time.monotonic() - started, 1)


def sqnr_db(original: Path, artifact: Path, feeds: Iterable[Feeds]) -> Mapping[tuple[str, str], float]:
    """Give, by output and by how the artifact is run, the signal in dB over the noise in it.

    Of outputs that are no floating-point numbers, infinity where all are the same, else minus infinity.
    """
    reference = opened(original, EMULATED)
    names = [value.name for value in reference.get_outputs()]
    wanted = [reference.run(None, dict(feed)) for feed in feeds]
    found = {}
    for way in (EMULATED, PLAIN, KERNELS):
        session = opened(artifact, way)
        assert [value.name for value in session.get_outputs()] == names
        runs = [session.run(None, dict(feed)) for feed in feeds]
        for index, name in enumerate(names):
            found[name, way] = _db([run[index] for run in wanted], [run[index] for run in runs])
    return found


def _db(wanted: list[np.ndarray], found: list[np.ndarray]) -> float:
    sides = [[np.asarray(value) for value in side] for side in (wanted, found)]
    assert [(v.shape, v.dtype) for v in sides[0]] == [(v.shape, v.dtype) for v in sides[1]]
    one, two = (np.concatenate([value.reshape(-1) for value in side]) for side in sides)
    if one.dtype.kind != "f":
        return math.inf if np.array_equal(one, two) else -math.inf
    one, two = one.astype(np.float64), two.astype(np.float64)
    finite = np.isfinite(one)
    assert np.array_equal(one[~finite], two[~finite], equal_nan=True)
    signal, noise = np.square(one[finite]).sum(), np.square(two[finite] - one[finite]).sum()
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal and math.isfinite(noise) else -math.inf


def opened(model: Path, way: str = KERNELS) -> Any:
    """Open a session on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if way == PLAIN:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if way == EMULATED:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def samples(model: Path, described: Mapping[str, Any], n: int, seed: int) -> Mapping[str, np.ndarray]:
    """Draw n samples of every input that must be fed: [n, ...], without a first axis that is open or 1."""
    drawn = {}
    rng = np.random.default_rng(seed)
    proto = onnx.load(model, load_external_data=False).graph
    constants = {tensor.name for tensor in proto.initializer}
    for value in proto.input:
        if value.name not in constants:
            drawn[value.name] = _drawn(rng, value.type.tensor_type, described.get(value.name, {}), n)
    return drawn


def _drawn(rng: np.random.Generator, tensor: Any, described: Any, n: int) -> np.ndarray:
    if callable(described):
        return np.asarray(described(rng, n))
    dims = described.get("shape") or [dim.dim_value or (8 if axis else 1) for axis, dim in enumerate(tensor.shape.dim)]
    whole = bool(dims) and dims[0] != 1 and "shape" not in described  # a fixed batch: complete feeds
    shape = (n, *(dims if whole else dims[1:]))
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if "values" in described:
        return np.repeat(np.array(described["values"], dtype), n, axis=0)
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if "int_range" in described:
        return rng.integers(*described["int_range"], shape).astype(dtype)
    values = rng.uniform(*described["uniform"], shape) if "uniform" in described else rng.standard_normal(shape)
    return values.astype(dtype)


def feeds(model: Path, drawn: Mapping[str, np.ndarray]) -> list[Feeds]:
    """Give what a session takes for each sample: with a first axis of 1 again where the input has one."""
    ranks = {value.name: len(value.shape) for value in opened(model).get_inputs()}
    n = len(next(iter(drawn.values())))
    return [
        {name: rows[i : i + 1] if rows.ndim == ranks[name] else np.array(rows[i]) for name, rows in drawn.items()}
        for i in range(n)
    ]


def float_kernels(
    graph: onnx.GraphProto, operators: Iterable[str] = ("Conv", "ConvTranspose", "Gemm", "MatMul")
) -> int:
    """Count the nodes with weights whose weights are still floating-point numbers."""
    weights = {t.name for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) > 1}
    return sum(node.op_type in operators and node.input[1] in weights for node in graph.node)


def shapes(graph: onnx.GraphProto) -> Mapping[str, tuple[int, ...]]:
    """Give the shape of every initializer by name."""
    return {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
