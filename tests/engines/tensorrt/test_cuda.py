"""The real driver, with stand-ins for pycuda and for NVIDIA's runtime that copy from address to address."""

from __future__ import annotations

import builtins
import ctypes
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from finished import finish

from compressor.engines.tensorrt import build, cuda, graphs, provider
from compressor.engines.tensorrt.build import Order
from compressor.engines.tensorrt.driver import Io
from compressor.engines.tensorrt.execution import Execution, open_engine
from compressor.engines.tensorrt.loaded import loaded, logger
from compressor.engines.tensorrt.record import Bound, Record
from compressor.errors import MachineError, RungError
from compressor.fleet import CURRENT

BYTES = b"an engine"
RECORD = Record(
    file="model.engine",
    sha256=hashlib.sha256(BYTES).hexdigest(),
    size_bytes=len(BYTES),
    provider="tensorrt",
    version="11.4.0",
    devices=("a10g",),
    capabilities=("8.6",),
    precision="fp32",
    computes="fp32",
    profiles=(),
    inputs=(Bound(name="x", dtype="float32", shape=(-1, 2)),),
    outputs=(Bound(name="y", dtype="float32", shape=(-1, 2)),),
    onnx_sha256="0" * 64,
    flags=("VERSION_COMPATIBLE",),
    build_s=1.0,
)


class Error(Exception):
    """As `pycuda.driver.Error`."""


class OutOfMemoryError(Error, builtins.MemoryError):
    """As `pycuda.driver.MemoryError`."""


class Allocation:
    """Memory with an address, as a number and as what numpy takes for an array's base."""

    def __init__(self, stub: Pycuda, size: int) -> None:
        self.stub, self.array = stub, np.zeros(size, np.uint8)
        stub.held.append(self)

    def __int__(self) -> int:
        return int(self.array.ctypes.data)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return dict(self.array.__array_interface__)

    def free(self) -> None:
        assert self.stub.pushed
        self.stub.held.remove(self)


class Pycuda(ModuleType):
    """Stands in for `pycuda.driver`; everything but asking for the device needs its context pushed."""

    def __init__(self) -> None:
        super().__init__("pycuda.driver")
        self.Error, self.MemoryError = Error, OutOfMemoryError
        self.pushed, self.held, self.clock, self.room = 0, [], 0.0, 1 << 16

    def init(self) -> None:
        """Find a GPU."""

    def Device(self, number: int) -> Any:  # noqa: N802
        assert number == 0
        return SimpleNamespace(
            name=lambda: "NVIDIA A10G",
            compute_capability=lambda: (8, 6),
            retain_primary_context=lambda: SimpleNamespace(push=lambda: self.step(1), pop=lambda: self.step(-1)),
        )

    def step(self, by: int) -> None:
        self.pushed += by

    def Stream(self) -> Any:  # noqa: N802
        assert self.pushed
        return SimpleNamespace(handle=77, synchronize=lambda: None)

    def Event(self) -> Any:  # noqa: N802
        event = SimpleNamespace(at=0.0)

        def record(stream: Any) -> None:
            assert stream.handle == 77
            self.clock += 2.0
            event.at = self.clock

        event.record, event.time_till = record, lambda end: end.at - event.at
        return event

    def mem_alloc(self, size: int) -> Allocation:
        assert self.pushed
        if size > self.room:
            raise OutOfMemoryError("cuMemAlloc failed: out of memory")
        return Allocation(self, size)

    def pagelocked_empty(self, shape: int, dtype: Any) -> Any:
        assert self.pushed
        array = np.asarray(Allocation(self, shape))
        assert array.dtype == dtype
        return array

    def memcpy_htod_async(self, dest: int, src: Any, stream: Any) -> None:
        assert stream.handle == 77
        ctypes.memmove(dest, src.ctypes.data, src.nbytes)

    def memcpy_dtoh_async(self, dest: Any, src: int, stream: Any) -> None:
        assert stream.handle == 77
        ctypes.memmove(dest.ctypes.data, src, dest.nbytes)

    def mem_get_info(self) -> tuple[int, int]:
        return 1000 - len(self.held), 1000


class Trt:
    """Stands in for the provider's package: an engine that gives its input, or with `loose` the rows above zero."""

    __version__ = "11.4.0"
    TensorIOMode = SimpleNamespace(INPUT="in", OUTPUT="out")
    TensorLocation = SimpleNamespace(HOST="host", DEVICE="device")

    class ILogger:
        ERROR, WARNING = 1, 2

    class IOutputAllocator:
        pass

    def __init__(self, *, loose: bool = False) -> None:
        self.loose, self.said, self.dtype = loose, "", np.float32
        self.refuses: set[str] = set()
        self.runtimes: list[Any] = []

    def nptype(self, kind: Any) -> Any:
        if kind is None:
            raise TypeError
        return kind

    def Runtime(self, log: Any) -> Any:  # noqa: N802
        self.told = log
        self.runtimes.append(SimpleNamespace(deserialize_cuda_engine=self._engine))
        return self.runtimes[-1]

    def _answers(self, what: str) -> bool:
        if what in self.refuses:
            self.told.log(Trt.ILogger.WARNING, "only a warning")
            self.told.log(Trt.ILogger.ERROR, f"[{what}]\n failed")
        return what not in self.refuses

    def _engine(self, data: bytes) -> Any:
        assert data == BYTES
        shape = SimpleNamespace(least=(1, 2), best=(2, 2), most=(4, 2))
        engine = SimpleNamespace(
            num_io_tensors=2,
            num_optimization_profiles=1,
            get_tensor_name=lambda i: "xy"[i],
            get_tensor_mode=lambda name: "in" if name == "x" else "out",
            get_tensor_dtype=lambda _: self.dtype,
            get_tensor_shape=lambda _: (-1, 2),
            get_tensor_location=lambda _: "device",
            get_tensor_profile_shape=lambda *_: [shape.least, shape.best, shape.most],
            create_execution_context=lambda: Context(self) if self._answers("create") else None,
        )
        return engine if self._answers("deserialize") else None


class Context:
    """One execution context."""

    def __init__(self, trt: Trt) -> None:
        self.trt, self.address, self.shape, self.allocator = trt, {}, (), None

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        return (profile, stream) == (0, 77)

    def set_input_shape(self, name: str, shape: Sequence[int]) -> bool:
        self.shape = tuple(shape)
        return self.trt._answers(f"shape of {name}")

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.address[name] = address
        return True

    def infer_shapes(self) -> list[str]:
        if "infer" in self.trt.refuses:
            raise RuntimeError("shapes disagree")
        return [] if self.trt._answers("missing") else ["x"]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (-1, 2) if self.trt.loose and name == "y" else self.shape

    def get_max_output_size(self, name: str) -> int:
        assert name == "y"
        return 32

    def set_output_allocator(self, name: str, allocator: Any) -> bool:
        self.allocator = allocator
        return name == "y"

    def execute_async_v3(self, stream: int) -> bool:
        assert stream == 77
        x = np.frombuffer(ctypes.string_at(self.address["x"], 8 * self.shape[0]), np.float32).reshape(self.shape)
        y = x[x[:, 0] > 0] if self.trt.loose else x
        if self.allocator:
            self.address["y"] = self.allocator.reallocate_output_async("y", 0, y.nbytes, 512, stream)
            self.allocator.notify_shape("y", y.shape)
        if self.address["y"]:
            ctypes.memmove(self.address["y"], y.tobytes(), y.nbytes)
        return self.trt._answers("execute") and bool(self.address["y"])


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Pycuda:
    stub, package = Pycuda(), ModuleType("pycuda")
    package.driver = stub  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.driver", stub)
    return stub


def opened(monkeypatch: pytest.MonkeyPatch, folder: Path, trt: Trt, *, cuda_graph: bool = False) -> Execution:
    (folder / "model.engine").write_bytes(BYTES)
    monkeypatch.setattr(provider, "module", lambda name: {"tensorrt": trt}[name])
    return open_engine(folder / "model.engine", RECORD, cuda.driver(RECORD), cuda_graph=cuda_graph)


def rows(*first: float) -> Any:
    return np.array([[value, 1] for value in first], np.float32)


def test_an_engine_runs_and_closing_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stub: Pycuda
) -> None:
    trt = Trt()
    session = opened(monkeypatch, tmp_path, trt)
    assert trt.runtimes[0].engine_host_code_allowed
    assert session.memory_bytes == 4  # of the stand-in: two buffers for each of x and y
    for x in (rows(1, 2, 3), rows(4), rows(5, 6, 7, 8)):
        np.testing.assert_array_equal(session({"x": x})["y"], x)
    assert session.gpu_ms == 2.0
    session.close()
    session.close()
    assert not stub.held
    assert not stub.pushed


def test_the_runtime_may_take_the_memory_of_an_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stub: Pycuda
) -> None:
    session = opened(monkeypatch, tmp_path, Trt(loose=True))
    for values in ((1, -1), (-1,), (1, 2, 3, 4), (3, -3, 3)):
        x = rows(*values)
        np.testing.assert_array_equal(session({"x": x})["y"], x[x[:, 0] > 0])
    assert len(stub.held) == 4  # a pair for each of x and y: what y has outgrown is given back
    stub.room = 0
    session.close()
    assert not stub.held


def test_memory_that_an_output_cannot_get_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stub: Pycuda
) -> None:
    session = opened(monkeypatch, tmp_path, Trt(loose=True))
    stub.room = 0
    with pytest.raises(RungError, match="could not run"):
        session({"x": rows(1)})
    stub.room = 100
    np.testing.assert_array_equal(session({"x": rows(1)})["y"], rows(1))


@pytest.mark.usefixtures("stub")
@pytest.mark.parametrize(
    ("refuses", "kind", "says"),
    [
        ("deserialize", MachineError, r"does not load the engine here: \[deserialize\] failed$"),
        ("create", RungError, r"context of profile 0 cannot be made: \[create\] failed$"),
        ("shape of x", RungError, r"could not take shape \(4, 2\) for input 'x': \[shape of x\] failed$"),
        ("infer", RungError, "cannot infer its output shapes: shapes disagree"),
        ("missing", RungError, "for want of x"),
    ],
)
def test_what_the_runtime_refuses_on_opening_is_told_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refuses: str, kind: type[Exception], says: str
) -> None:
    trt = Trt()
    trt.refuses.add(refuses)
    with pytest.raises(kind, match=says):
        opened(monkeypatch, tmp_path, trt)


def test_what_it_refuses_in_a_call_fails_the_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stub: Pycuda
) -> None:
    trt = Trt()
    session = opened(monkeypatch, tmp_path, trt)
    trt.refuses.add("execute")
    with pytest.raises(RungError, match=r"could not run: \[execute\] failed$"):
        session({"x": rows(1)})
    trt.refuses.clear()
    monkeypatch.setattr(stub, "memcpy_htod_async", _raising(Error("cuMemcpyHtoDAsync failed: unspecified")))
    with pytest.raises(RungError, match="CUDA could not run the engine: cuMemcpyHtoDAsync failed"):
        session({"x": rows(1)})
    monkeypatch.setattr(stub, "memcpy_htod_async", _raising(OutOfMemoryError("out of memory")))
    with pytest.raises(RungError, match="CUDA could not run the engine: out of memory"):
        session({"x": rows(1)})
    assert not stub.pushed


def test_too_little_memory_is_the_machines_fault_on_opening(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stub: Pycuda
) -> None:
    stub.room = 0
    with pytest.raises(MachineError, match=r"could not load model\.engine: the GPU has too little free memory"):
        opened(monkeypatch, tmp_path, Trt())
    assert not stub.held


@pytest.mark.usefixtures("stub")
def test_a_type_that_numpy_lacks_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trt = Trt()
    trt.dtype = None  # type: ignore[assignment]
    with pytest.raises(RungError, match="'x' is of type None, which numpy lacks"):
        opened(monkeypatch, tmp_path, trt)


def test_without_a_gpu_or_without_pycuda_it_is_the_machines_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stub: Pycuda
) -> None:
    monkeypatch.setattr(stub, "init", _raising(Error("cuInit failed: no CUDA-capable device is detected")))
    with pytest.raises(MachineError, match="none answers here: cuInit failed"):
        opened(monkeypatch, tmp_path, Trt())
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    monkeypatch.setitem(sys.modules, "pycuda", None)
    with pytest.raises(MachineError, match="pip install pycuda"):
        opened(monkeypatch, tmp_path, Trt())


class Libcuda:
    """Stands in for the CUDA driver's library; `codes` are its answers, by function."""

    def __init__(self, **codes: int) -> None:
        self.codes, self.calls = codes, list[str]()

    def __getattr__(self, name: str) -> Any:
        def call(*_given: Any) -> int:
            self.calls.append(name)
            return self.codes.get(name, 0)

        return call


@pytest.mark.usefixtures("stub")
def test_graphs_are_recorded_launched_and_freed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = Libcuda()
    monkeypatch.setattr(graphs, "_library", lambda: library)
    session = opened(monkeypatch, tmp_path, Trt(), cuda_graph=True)
    for batch in (2, 2, 2, 3, 3):
        session({"x": rows(*range(batch))})
    session.close()
    recorded = [
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuGraphDestroy",
        "cuGraphLaunch",
    ]
    assert library.calls == [*recorded, "cuGraphLaunch", "cuGraphExecDestroy", *recorded, "cuGraphExecDestroy"]


@pytest.mark.parametrize("function", ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"])
def test_a_graph_that_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    monkeypatch.setattr(graphs, "_library", lambda: Libcuda(**{function: 901}))
    with pytest.raises(RungError, match=r"CUDA error 901.*leave cuda_graph off"):
        graphs.captured(77, lambda: None)


def test_recording_ends_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Libcuda()
    monkeypatch.setattr(graphs, "_library", lambda: library)
    with pytest.raises(RungError, match="no"):
        graphs.captured(77, _raising(RungError("no")))
    assert library.calls == ["cuStreamBeginCapture_v2", "cuStreamEndCapture"]


def test_values_of_a_host_input_are_asked_for_by_profile_number_first() -> None:
    engine = SimpleNamespace(
        num_io_tensors=2,
        num_optimization_profiles=2,
        get_tensor_name=lambda i: ("n", "s")[i],
        get_tensor_mode=lambda _: "in",
        get_tensor_dtype=lambda _: np.int64,
        get_tensor_shape=lambda name: {"n": (2,), "s": ()}[name],
        get_tensor_location=lambda name: "host" if name == "n" else "device",
        get_tensor_profile_values=lambda number, name: {("n", 0): [[1, 1], [2, 2], [3, 3]], ("n", 1): [[4, 4]] * 3}[
            name, number
        ],
    )
    found = loaded(Trt(), engine)
    assert found.ios == (
        Io("n", "int64", (2,), is_input=True, host=True),
        Io("s", "int64", (), is_input=True, host=False),
    )
    assert [ranges["n"] for ranges in found.profiles] == [((1, 1), (2, 2), (3, 3)), ((4, 4),) * 3]
    assert [ranges["s"] for ranges in found.profiles] == [((), (), ())] * 2


def test_errors_of_the_real_runtime_reach_the_logger() -> None:
    try:
        trt = provider.module("tensorrt-rtx")
    except MachineError as error:
        pytest.skip(str(error))
    errors: Any = []
    assert trt.Runtime(logger(trt, errors)).deserialize_cuda_engine(b"no engine") is None
    assert errors


def _raising(error: Exception) -> Any:
    def call(*_given: Any) -> None:
        raise error

    return call


def _gpu() -> str:
    """Give the compute capability of the GPU that is here, or skip."""
    try:
        import pycuda.driver as real
    except ImportError as error:
        pytest.skip(f"pycuda cannot be used here: {error}")
    try:
        real.init()
        major, minor = real.Device(0).compute_capability()
    except real.Error as error:
        pytest.skip(f"no GPU answers: {error}")
    return f"{major}.{minor}"


@pytest.mark.gpu
@pytest.mark.parametrize("cuda_graph", [False, True])
def test_an_engine_built_here_gives_what_numpy_gives(tmp_path: Path, *, cuda_graph: bool) -> None:
    capability, by = _gpu(), provider.chosen((CURRENT,))
    model, engine = tmp_path / "model.onnx", tmp_path / "model.engine"
    weights = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    graph = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[batch,4] x) => (float[batch,3] y) { p = MatMul (x, w)  y = Relu (p) }""")
    graph.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(graph, model)
    trt, profiles = provider.module(by), ({"x": ((1, 4), (1, 4), (1, 4))}, {"x": ((2, 4), (8, 4), (16, 4))})
    order = Order(by, (), profiles, None, None, refit=False, optimization_level=3)
    built = finish(build.built(trt, order, model, engine))
    changed = {"provider": by, "version": trt.__version__, "capabilities": (capability,), "profiles": profiles}
    changed |= {"inputs": built.inputs, "outputs": built.outputs, "flags": built.flags}
    record = RECORD.model_copy(update=changed | {"sha256": hashlib.sha256(engine.read_bytes()).hexdigest()})
    session = open_engine(engine, record, cuda.driver(record), cuda_graph=cuda_graph)
    for batch in (1, 1, 16, 16, 2, 1, 1):
        x = np.random.default_rng(batch).normal(size=(batch, 4)).astype(np.float32)
        # products are rounded to the 10 bits of TF32 where the GPU has that
        np.testing.assert_allclose(session({"x": x})["y"], np.maximum(x @ weights, 0), atol=0.02)
        assert session.gpu_ms > 0
    assert session.memory_bytes > 0
    session.close()
