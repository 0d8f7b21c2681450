"""An engine that is open: checked against its record, its profile chosen, its buffers filled, run and read.

What happens in a call is a step of `Execution.__call__`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from compressor.engines.tensorrt.choice import Limited, choose
from compressor.engines.tensorrt.driver import Driver, Io, Loaded
from compressor.engines.tensorrt.present import check_gpu, check_loaded, check_version, read
from compressor.engines.tensorrt.record import Record
from compressor.errors import RungError
from compressor.records import Array, Feeds, Outputs, Shapes
from compressor.units import write_shape


@dataclass(frozen=True)
class _Buffer:
    """`host`: pinned bytes. `address`: where the engine reads or writes; 0 where the runtime decides that."""

    host: Array
    address: int


@dataclass
class _Lane:
    """A profile with its execution context. `shapes`: of the outputs, at the input shapes `settled`.

    `loose`: outputs whose shapes the data decides. `ran`: an inference did, at these shapes; `captured`: as a graph.
    """

    profile: int
    buffers: dict[str, _Buffer] = field(default_factory=dict)
    settled: Limited | None = None
    shapes: Shapes = field(default_factory=dict)
    loose: frozenset[str] = frozenset()
    ran: bool = False
    captured: bool = False


def open_engine(path: Path, record: Record, driver: Driver, *, cuda_graph: bool = False) -> Execution:
    """Load an engine file; the driver is the execution's from then on, and closed where that fails.

    Raises:
        InputError: The file is not the one that its record describes.
        MachineError: The GPU or the provider's version is another than it was built for, or memory is short.
        RungError: The runtime refuses it.
    """
    with ExitStack() as undo:
        undo.callback(driver.close)
        present = driver.present()
        check_gpu(path, record, present)
        check_version(path, record, present)
        engine = read(path, record)
        with driver.active(f"load {path.name}", opening=True):
            free_bytes = driver.free_bytes()
            loaded = driver.load(engine)
            check_loaded(path, record, loaded)
            execution = Execution(driver, loaded, cuda_graph=cuda_graph, free_bytes=free_bytes)
        undo.pop_all()
    return execution


class Execution:
    """An open engine; a `records.Session`. `gpu_ms`: what the GPU took in the last call, copies not counted.

    With `cuda_graph` the second call at the same shapes is recorded, and launched as one from then on; engines with
    outputs whose shapes depend on data cannot be recorded and run as without. Arrays may be of any memory layout. Any
    thread may call, one at a time.
    """

    def __init__(self, driver: Driver, loaded: Loaded, *, cuda_graph: bool, free_bytes: int) -> None:
        """Make the contexts and buffers of all profiles; `free_bytes` is what the GPU had before the engine came."""
        self.gpu_ms = math.nan
        self._driver, self._profiles = driver, loaded.profiles
        self._inputs = {io.name: io for io in loaded.ios if io.is_input}
        self._outputs = {io.name: io for io in loaded.ios if not io.is_input}
        self._cuda_graph, self._free_bytes = cuda_graph, free_bytes
        self._lanes = [self._lane(number) for number in range(len(loaded.profiles))]
        self._latest = self._lanes[0]

    def __call__(self, feeds: Feeds) -> Outputs:
        """Run one batch.

        Raises:
            RungError: The inputs are not the engine's, no profile takes their shapes, or the run failed.
        """
        self._check_open()
        inputs = self._limited(feeds)
        lane = self._latest
        if lane.settled != inputs:
            self._latest = lane = self._lanes[choose(self._profiles, inputs)]
        with self._driver.active("run the engine"):
            self._fill(lane, feeds)
            if lane.settled != inputs:
                self._settle(lane, inputs)
            self._run(lane)
            arrays = {name: self._fetched(lane, io) for name, io in self._outputs.items()}
            self._driver.synchronise()
            self.gpu_ms = self._driver.elapsed_ms()
        return {name: array.copy() for name, array in arrays.items()}  # the next call writes there again

    @property
    def memory_bytes(self) -> int:
        """What the GPU has less of since before the engine came, whoever took it; the CUDA context was there before."""
        self._check_open()
        with self._driver.active("ask for free memory"):
            return self._free_bytes - self._driver.free_bytes()

    def close(self) -> None:
        """Free all there is on the GPU; a later call fails."""
        self._lanes = []
        self._driver.close()

    def _check_open(self) -> None:
        if not self._lanes:
            raise RungError("the engine is closed; open it again")

    def _limited(self, feeds: Feeds) -> Limited:
        if feeds.keys() != self._inputs.keys():
            raise RungError(f"inputs: expected {', '.join(self._inputs)}; found {', '.join(feeds) or 'none'}")
        for name, io in self._inputs.items():
            if feeds[name].dtype != io.dtype:
                raise RungError(f"input {name!r}: expected {io.dtype}, found {feeds[name].dtype}; convert it first")
            if io.host and feeds[name].shape != io.shape:
                expected, found = write_shape(io.shape), write_shape(feeds[name].shape)
                raise RungError(f"input {name!r}: expected numbers of shape {expected}, found {found}")
        return {
            name: tuple(feeds[name].ravel().tolist()) if io.host else feeds[name].shape
            for name, io in self._inputs.items()
        }

    def _lane(self, profile: int) -> _Lane:
        """Take the memory that the largest inputs need; that of host inputs' outputs depends on their values."""
        self._driver.context(profile)
        lane = _Lane(profile)
        largest = {name: self._profiles[profile][name][2] for name in self._inputs}
        for name, io in self._inputs.items():
            self._reserve(lane, io, io.shape if io.host else largest[name])
        if not any(io.host for io in self._inputs.values()):
            self._settle(lane, largest)
        return lane

    def _reserve(self, lane: _Lane, io: Io, shape: Sequence[int], *, least: int = 1) -> _Buffer:
        """Give a buffer that takes an array of this shape and `least` bytes, the one that is there if it does."""
        size = max(_bytes(io, shape), least)
        old = lane.buffers.get(io.name)
        if old and old.host.nbytes >= size:
            return old
        host = self._driver.pinned(size)
        in_device = not io.host and io.name not in lane.loose
        address = host.ctypes.data if io.host else self._driver.allocate(size) if in_device else 0
        if address:
            self._driver.bind(lane.profile, io.name, address)
        for gone in {old.host.ctypes.data, old.address} - {0} if old else ():
            self._driver.free(gone)
        lane.buffers[io.name] = _Buffer(host, address)
        return lane.buffers[io.name]

    def _fill(self, lane: _Lane, feeds: Feeds) -> None:
        """Begin to copy each input as soon as it is pinned, so that the next one is pinned meanwhile."""
        for name, io in self._inputs.items():
            buffer = lane.buffers[name]
            host = buffer.host[: feeds[name].nbytes]
            np.copyto(host.view(io.dtype).reshape(feeds[name].shape), feeds[name])
            if not io.host:
                self._driver.upload(buffer.address, host)

    def _settle(self, lane: _Lane, inputs: Limited) -> None:
        lane.settled, lane.ran, lane.captured = None, False, False
        for name, io in self._inputs.items():
            if io.host:  # named again, since the runtime may have kept the numbers it found there
                self._driver.bind(lane.profile, name, lane.buffers[name].address)
            else:
                self._driver.set_shape(lane.profile, name, inputs[name])
        lane.shapes = self._driver.shapes(lane.profile)
        lane.loose |= {name for name in self._outputs if -1 in lane.shapes[name]}
        for name, io in self._outputs.items():
            if name in lane.loose:
                self._driver.leave(lane.profile, name)
            else:
                self._reserve(lane, io, lane.shapes[name], least=self._driver.most_bytes(lane.profile, name))
        lane.settled = inputs

    def _run(self, lane: _Lane) -> None:
        if self._cuda_graph and lane.ran and not lane.loose and not lane.captured:
            self._driver.capture(lane.profile)
            lane.captured = True
        self._driver.start()
        (self._driver.launch if lane.captured else self._driver.execute)(lane.profile)
        self._driver.stop()
        lane.ran = True

    def _fetched(self, lane: _Lane, io: Io) -> Array:
        """Begin to copy an output; gives the array that it will be."""
        if io.name in lane.loose:
            address, shape = self._driver.written(lane.profile, io.name)
            buffer = self._reserve(lane, io, shape)
        else:
            buffer = lane.buffers[io.name]
            address, shape = buffer.address, lane.shapes[io.name]
        host = buffer.host[: _bytes(io, shape)]
        if not io.host:
            self._driver.download(host, address)
        return host.view(io.dtype).reshape(shape)


def _bytes(io: Io, shape: Sequence[int]) -> int:
    return math.prod(shape) * np.dtype(io.dtype).itemsize
