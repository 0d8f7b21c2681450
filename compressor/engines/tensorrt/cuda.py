"""The driver for real: device memory, stream and events of pycuda, engine and contexts of NVIDIA's runtime.

The door to pycuda, and the only module that calls the runtime. It carries out what `driver.Driver` says, where a new
question is asked first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from compressor.engines.tensorrt import graphs, provider
from compressor.engines.tensorrt.driver import Loaded, Present
from compressor.engines.tensorrt.loaded import allocator, loaded, logger
from compressor.engines.tensorrt.present import COMPATIBLE
from compressor.engines.tensorrt.record import Record
from compressor.errors import MachineError, RungError
from compressor.records import Array

_LONGEST = 400  # characters of a message
_MESSAGES = 4
"""Errors of the runtime that are kept: the last ones."""


def driver(record: Record) -> Gpu:
    """Give the driver of the first GPU that CUDA shows here, for an engine of this provider.

    Raises:
        MachineError: pycuda or the provider is not installed, or no GPU answers.
    """
    trt = provider.module(record.provider)
    try:
        import pycuda.driver as cuda
    except ImportError as error:
        raise MachineError(
            f"an engine runs through pycuda, which cannot be used here ({error}): pip install pycuda, where a CUDA "
            "toolkit and an NVIDIA driver are installed"
        ) from error
    try:
        cuda.init()
        device = cuda.Device(0)
        return Gpu(cuda, device, trt, version_compatible=COMPATIBLE in record.flags)
    except cuda.Error as error:
        raise MachineError(f"an engine runs on an NVIDIA GPU, and none answers here: {_short(str(error))}") from error


class Gpu:
    """A GPU with the engine on it; a `driver.Driver`, which says of each method what it does."""

    def __init__(self, cuda: Any, device: Any, trt: Any, *, version_compatible: bool) -> None:
        """Take pycuda's driver module, one of its devices, and the provider's package."""
        self._cuda, self._device, self._trt = cuda, device, trt
        self._version_compatible = version_compatible
        self._errors: deque[str] = deque(maxlen=_MESSAGES)
        self._logger = logger(trt, self._errors)
        self._primary = device.retain_primary_context()  # which the runtime uses as well
        with self.active("make a stream", opening=True):
            self._stream, self._begin, self._end = cuda.Stream(), cuda.Event(), cuda.Event()
        self._runtime: Any = None
        self._engine: Any = None
        self._outputs: tuple[str, ...] = ()
        self._contexts: dict[int, Any] = {}
        self._graphs: dict[int, Any] = {}
        self._allocators: dict[tuple[int, str], Any] = {}
        self._memory: dict[int, Any] = {}

    def present(self) -> Present:
        """See `Driver`."""
        major, minor = self._device.compute_capability()
        return Present(self._device.name(), f"{major}.{minor}", self._trt.__version__)

    @contextmanager
    def active(self, doing: str, *, opening: bool = False) -> Iterator[None]:
        """See `Driver`. Popped each time, for pycuda aborts the process where a thread ends with a context pushed."""
        cuda = self._cuda
        try:
            self._primary.push()
            try:
                yield
            finally:
                self._primary.pop()
        except cuda.Error as error:
            if opening and isinstance(error, cuda.MemoryError):
                raise MachineError(f"CUDA could not {doing}: the GPU has too little free memory") from error
            raise RungError(f"CUDA could not {doing}: {_short(str(error))}") from error

    def load(self, engine: bytes) -> Loaded:
        """See `Driver`."""
        trt = self._trt
        try:
            self._runtime = trt.Runtime(self._logger)
        except TypeError as error:  # as the bindings put that there is none, for an old CUDA driver for one
            raise MachineError(f"the runtime does not start here: {self._said()}") from error
        if self._version_compatible:  # such an engine brings its own runtime, whose bytes its record vouches for
            self._runtime.engine_host_code_allowed = True
        self._engine = self._runtime.deserialize_cuda_engine(engine)
        if self._engine is None:
            raise MachineError(f"the runtime does not load the engine here: {self._said()}")
        found = loaded(trt, self._engine)
        self._outputs = tuple(io.name for io in found.ios if not io.is_input)
        return found

    def context(self, profile: int) -> None:
        """See `Driver`."""
        context = self._engine.create_execution_context()
        if context is None:
            said = self._said()
            kind = MachineError if "memory" in said.lower() else RungError
            raise kind(f"the execution context of profile {profile} cannot be made: {said}")
        switched = context.set_optimization_profile_async(profile, self._stream.handle)
        self._check(switched, f"switch to profile {profile}")
        self._stream.synchronize()
        self._contexts[profile] = context

    def set_shape(self, profile: int, name: str, shape: tuple[int, ...]) -> None:
        """See `Driver`."""
        context = self._contexts[profile]
        self._check(context.set_input_shape(name, shape), f"take shape {shape} for input {name!r}")

    def bind(self, profile: int, name: str, address: int) -> None:
        """See `Driver`."""
        context = self._contexts[profile]
        self._check(context.set_tensor_address(name, address), f"take memory for {name!r}")

    def shapes(self, profile: int) -> Mapping[str, tuple[int, ...]]:
        """See `Driver`."""
        context = self._contexts[profile]
        try:
            missing = context.infer_shapes()
        except RuntimeError as error:  # the bindings' own way to say so
            raise RungError(f"the engine cannot infer its output shapes: {_short(str(error))}") from error
        self._check(not missing, f"infer its output shapes, for want of {', '.join(missing)}")
        return {name: tuple(context.get_tensor_shape(name)) for name in self._outputs}

    def most_bytes(self, profile: int, name: str) -> int:
        """See `Driver`."""
        context = self._contexts[profile]
        return int(context.get_max_output_size(name))

    def leave(self, profile: int, name: str) -> None:
        """See `Driver`."""
        context = self._contexts[profile]
        given = self._allocators.setdefault((profile, name), allocator(self._trt, self._replaced))
        self._check(context.set_output_allocator(name, given), f"take an allocator for output {name!r}")

    def written(self, profile: int, name: str) -> tuple[int, tuple[int, ...]]:
        """See `Driver`."""
        given = self._allocators[profile, name]
        self._check(given.shape is not None, f"tell the shape of output {name!r}")
        return given.address, given.shape

    def allocate(self, size: int) -> int:
        """See `Driver`."""
        allocation = self._cuda.mem_alloc(size)
        self._memory[int(allocation)] = allocation
        return int(allocation)

    def pinned(self, size: int) -> Array:
        """See `Driver`."""
        array: Array = self._cuda.pagelocked_empty(size, np.uint8)
        self._memory[array.ctypes.data] = array.base
        return array

    def free(self, address: int) -> None:
        """See `Driver`."""
        self._memory.pop(address).free()

    def upload(self, address: int, host: Array) -> None:
        """See `Driver`."""
        self._cuda.memcpy_htod_async(address, host, self._stream)

    def download(self, host: Array, address: int) -> None:
        """See `Driver`."""
        self._cuda.memcpy_dtoh_async(host, address, self._stream)

    def start(self) -> None:
        """See `Driver`."""
        self._begin.record(self._stream)

    def execute(self, profile: int) -> None:
        """See `Driver`."""
        context = self._contexts[profile]
        self._check(context.execute_async_v3(self._stream.handle), "run")

    def capture(self, profile: int) -> None:
        """See `Driver`."""
        if profile in self._graphs:
            graphs.drop(self._graphs.pop(profile))
        self._graphs[profile] = graphs.captured(self._stream.handle, lambda: self.execute(profile))

    def launch(self, profile: int) -> None:
        """See `Driver`."""
        graphs.launch(self._graphs[profile], self._stream.handle)

    def stop(self) -> None:
        """See `Driver`."""
        self._end.record(self._stream)

    def synchronise(self) -> None:
        """See `Driver`."""
        self._stream.synchronize()

    def elapsed_ms(self) -> float:
        """See `Driver`."""
        return float(self._begin.time_till(self._end))

    def free_bytes(self) -> int:
        """See `Driver`."""
        free, _total = self._cuda.mem_get_info()
        return int(free)

    def close(self) -> None:
        """See `Driver`. In the order in which things need each other, and while the GPU is this thread's."""
        if self._primary is None:
            return
        with self.active("free the engine"):
            for graph in self._graphs.values():
                graphs.drop(graph)
            self._contexts.clear()
            self._engine = self._runtime = None
            self._allocators.clear()
            self._graphs.clear()
            for address in list(self._memory):
                self.free(address)
            del self._stream, self._begin, self._end
        self._primary = None

    def _replaced(self, address: int, size: int) -> int:
        """Give larger memory for some that is outgrown, 0 where there is none."""
        if address:
            self.free(address)
        try:
            return self.allocate(size)
        except self._cuda.MemoryError:  # the runtime is to say so, which called from within `execute`
            return 0

    def _check(self, done: bool, what: str) -> None:  # noqa: FBT001 # as the runtime answers
        if not done:
            raise RungError(f"the engine could not {what}: {self._said()}")

    def _said(self) -> str:
        """Give the runtime's errors, which it tells its logger only."""
        said = _short("; ".join(dict.fromkeys(self._errors)))
        self._errors.clear()
        return said or "the runtime does not say why"


def _short(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]
