"""A driver whose GPU is numpy: what is put on its stream happens when it is waited for, as on a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from compressor.engines.tensorrt.driver import Io, Loaded, Present
from compressor.errors import MachineError, RungError
from compressor.records import Array

Shape = tuple[int, ...]
TOTAL_BYTES = 1 << 20
ENGINE_BYTES = 1000
GPU_MS = 1.5


@dataclass(frozen=True)
class Net:
    """An engine: `infer` gives output shapes of input shapes (values, of host inputs), `compute` the outputs.

    `most`: bytes of outputs; -1, nobody knows, for those that it does not name.
    """

    loaded: Loaded
    infer: Callable[[Mapping[str, Shape]], Mapping[str, Shape]]
    compute: Callable[[Mapping[str, Array]], Mapping[str, Array]]
    most: Mapping[str, int] = field(default_factory=dict)

    def io(self, name: str) -> Io:
        return next(io for io in self.loaded.ios if io.name == name)


@dataclass
class Context:
    shapes: dict[str, Shape] = field(default_factory=dict)
    addresses: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, Shape] = field(default_factory=dict)
    left: dict[str, tuple[int, Shape] | None] = field(default_factory=dict)


class FakeDriver:
    """Keeps in `calls` what was asked, with names of inputs and outputs for addresses; `on_stream` holds a part."""

    def __init__(self, net: Net, present: Present, fails: Mapping[str, Exception] | None = None) -> None:
        self.net, self.here, self.fails = net, present, dict(fails or {})
        self.calls: list[tuple[str, ...]] = []
        self.memory: dict[int, Array] = {}
        self.contexts: dict[int, Context] = {}
        self.graphs: dict[int, Callable[[], None]] = {}
        self.stream: list[Callable[[], None]] = []
        self.depth = self.closed = self.loaded_bytes = 0
        self.next_address = 4096

    def present(self) -> Present:
        return self.here

    @contextmanager
    def active(self, doing: str, *, opening: bool = False) -> Iterator[None]:
        self.depth += 1
        try:
            yield
        except MemoryError as error:
            kind = MachineError if opening else RungError
            raise kind(f"CUDA could not {doing}: out of memory") from error
        finally:
            self.depth -= 1

    def load(self, engine: bytes) -> Loaded:
        self._note("load", str(len(engine)))
        self.loaded_bytes = ENGINE_BYTES
        return self.net.loaded

    def context(self, profile: int) -> None:
        self._note("context", str(profile))
        self.contexts[profile] = Context()

    def set_shape(self, profile: int, name: str, shape: Shape) -> None:
        self._note("set_shape", name, "x".join(map(str, shape)))
        least, _, most = self.net.loaded.profiles[profile][name]
        assert not self.net.io(name).host
        assert all(low <= size <= high for low, size, high in zip(least, shape, most, strict=True))
        self.contexts[profile].shapes[name] = shape

    def bind(self, profile: int, name: str, address: int) -> None:
        self._note("bind", name)
        assert address in self.memory
        context, io = self.contexts[profile], self.net.io(name)
        context.addresses[name] = address
        if io.host and io.is_input:  # a runtime may read them now
            context.numbers[name] = tuple(self._read(name, address).ravel().tolist())

    def shapes(self, profile: int) -> Mapping[str, Shape]:
        self._note("shapes")
        context = self.contexts[profile]
        return self.net.infer({**context.shapes, **context.numbers})

    def most_bytes(self, profile: int, name: str) -> int:
        self._note("most_bytes", name)
        assert profile in self.contexts
        return self.net.most.get(name, -1)

    def leave(self, profile: int, name: str) -> None:
        self._note("leave", name)
        self.contexts[profile].left.setdefault(name, None)

    def written(self, profile: int, name: str) -> tuple[int, Shape]:
        self._note("written", name)
        found = self.contexts[profile].left[name]
        assert found is not None
        return found

    def allocate(self, size: int) -> int:
        self._note("allocate", str(size))
        if size > self.free_bytes():
            raise MemoryError
        self.next_address += 1 << 24
        self.memory[self.next_address] = np.full(size, 0xEE, np.uint8)
        return self.next_address

    def pinned(self, size: int) -> Array:
        self._note("pinned", str(size))
        array = np.full(size, 0xDD, np.uint8)
        self.memory[array.ctypes.data] = array
        return array

    def free(self, address: int) -> None:
        self._note("free")
        self.memory.pop(address)[:] = 0xBB

    def upload(self, address: int, host: Array) -> None:
        self._note("upload", self._bound(address))
        device = self.memory[address]
        assert host.ctypes.data in self.memory
        self.stream.append(lambda: np.copyto(device[: host.nbytes], host))

    def download(self, host: Array, address: int) -> None:
        self._note("download", self._bound(address))
        device = self.memory[address]
        assert host.ctypes.data in self.memory
        self.stream.append(lambda: np.copyto(host, device[: host.nbytes]))

    def start(self) -> None:
        self._note("start")

    def execute(self, profile: int) -> None:
        self._note("execute", str(profile))
        self.stream.append(self._run(profile))
        if self.contexts[profile].left:  # sizes that data decides are known when a real one returns
            self._drain()

    def capture(self, profile: int) -> None:
        self._note("capture", str(profile))
        assert not self.contexts[profile].left
        self.graphs[profile] = self._run(profile)

    def launch(self, profile: int) -> None:
        self._note("launch", str(profile))
        self.stream.append(self.graphs[profile])

    def stop(self) -> None:
        self._note("stop")

    def synchronise(self) -> None:
        self._note("synchronise")
        self._drain()

    def elapsed_ms(self) -> float:
        self._note("elapsed_ms")
        assert not self.stream
        return GPU_MS

    def free_bytes(self) -> int:
        assert self.depth
        return TOTAL_BYTES - self.loaded_bytes - sum(self.device_bytes())

    def close(self) -> None:
        self.closed += 1
        self.memory.clear()
        self.contexts.clear()
        self.graphs.clear()
        self.loaded_bytes = 0

    def device_bytes(self) -> list[int]:
        """Give the sizes of the allocations on the GPU."""
        return sorted(held.nbytes for address, held in self.memory.items() if address != held.ctypes.data)

    def names(self, *wanted: str) -> list[tuple[str, ...]]:
        """Give the calls of these methods, in their order."""
        return [call for call in self.calls if call[0] in wanted]

    def _note(self, *call: str) -> None:
        assert self.depth, f"{call} while the GPU is not this thread's"
        self.calls.append(call)
        if call[0] in self.fails:
            raise self.fails[call[0]]

    def _bound(self, address: int) -> str:
        left = {held[0]: name for c in self.contexts.values() for name, held in c.left.items() if held}
        bound = {at: name for c in self.contexts.values() for name, at in c.addresses.items()}
        return (left | bound)[address]

    def _read(self, name: str, address: int, shape: Shape | None = None) -> Array:
        io = self.net.io(name)
        shape = io.shape if shape is None else shape
        size = int(np.prod(shape, dtype=int)) * np.dtype(io.dtype).itemsize
        return self.memory[address][:size].view(io.dtype).reshape(shape)

    def _run(self, profile: int) -> Callable[[], None]:
        """Give a run with the shapes and addresses of now, as a graph keeps them."""
        context = self.contexts[profile]
        shapes, addresses = dict(context.shapes), dict(context.addresses)

        def run() -> None:
            inputs = [io.name for io in self.net.loaded.ios if io.is_input]
            feeds = {name: self._read(name, addresses[name], shapes.get(name)).copy() for name in inputs}
            for name, array in self.net.compute(feeds).items():
                assert array.dtype == self.net.io(name).dtype
                if name in context.left:
                    context.left[name] = (self._grown(context.left[name], array.nbytes), array.shape)
                    address = context.left[name][0]
                else:
                    address = addresses[name]
                self.memory[address][: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)

        return run

    def _grown(self, held: tuple[int, Shape] | None, size: int) -> int:
        if held and self.memory[held[0]].nbytes >= size:
            return held[0]
        if held:
            self.memory.pop(held[0])
        return self.allocate(max(size, 1))

    def _drain(self) -> None:
        for work in self.stream:
            work()
        self.stream.clear()
