"""What an opened engine asks of the GPU and of NVIDIA's runtime; `cuda` does it for real.

What else it must ask is a method of `Driver`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from compressor.engines.tensorrt.record import Range
from compressor.records import Array


@dataclass(frozen=True)
class Present:
    """What is in this machine. `capability`: the GPU's compute capability, such as 8.6; `version`: of the provider."""

    gpu: str
    capability: str
    version: str


@dataclass(frozen=True)
class Io:
    """An input or output of a loaded engine. `dtype` as numpy names it; a dimension that is not settled is -1.

    `host`: it holds a shape or other numbers that decide about sizes, and is read or written in host memory.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_input: bool
    host: bool = False


@dataclass(frozen=True)
class Loaded:
    """A loaded engine. `profiles`: of each, what its inputs may be: the shape, or of a host tensor the values."""

    ios: tuple[Io, ...]
    profiles: tuple[Mapping[str, Range], ...]


class Driver(Protocol):
    """One GPU, one stream and one engine on it. All but `present`, `active` and `close` are called while `active`.

    Copies, `execute`, `start` and `stop` are put on the stream in this order and return at once. An execution context
    is known by the number of its profile, memory by its address in bytes.
    """

    def present(self) -> Present:
        """Say what is in this machine."""
        ...

    def active(self, doing: str, *, opening: bool = False) -> AbstractContextManager[None]:
        """Make the GPU this thread's, and what CUDA refuses meanwhile an error that says it could not do `doing`.

        Raises:
            MachineError: On opening, the GPU has too little memory.
            RungError: CUDA failed otherwise.
        """
        ...

    def load(self, engine: bytes) -> Loaded:
        """Load an engine.

        Raises:
            MachineError: The runtime does not take it.
            RungError: An input or output has a type that numpy lacks.
        """
        ...

    def context(self, profile: int) -> None:
        """Make the execution context of a profile.

        Raises:
            MachineError: The GPU has too little memory.
            RungError: It cannot be made for another reason.
        """
        ...

    def set_shape(self, profile: int, name: str, shape: tuple[int, ...]) -> None:
        """Settle the shape of an input; RungError where the runtime refuses it."""
        ...

    def bind(self, profile: int, name: str, address: int) -> None:
        """Say where an input or output lies; RungError where the runtime refuses it."""
        ...

    def shapes(self, profile: int) -> Mapping[str, tuple[int, ...]]:
        """Infer the shapes of the outputs, -1 where data decides them; RungError where that cannot be done."""
        ...

    def most_bytes(self, profile: int, name: str) -> int:
        """Give the most that an output can need under its profile; not above 0 where nobody knows."""
        ...

    def leave(self, profile: int, name: str) -> None:
        """Leave memory and shape of an output to the runtime."""
        ...

    def written(self, profile: int, name: str) -> tuple[int, tuple[int, ...]]:
        """Give address and shape of an output that was left to the runtime, known once `execute` has returned."""
        ...

    def allocate(self, size: int) -> int:
        """Take memory of the GPU."""
        ...

    def pinned(self, size: int) -> Array:
        """Take host memory that can be copied while the CPU goes on, as bytes."""
        ...

    def free(self, address: int) -> None:
        """Give back memory that `allocate` or `pinned` took."""
        ...

    def upload(self, address: int, host: Array) -> None:
        """Copy pinned bytes to the GPU."""
        ...

    def download(self, host: Array, address: int) -> None:
        """Copy from the GPU to pinned bytes."""
        ...

    def start(self) -> None:
        """Mark where the GPU's time begins."""
        ...

    def execute(self, profile: int) -> None:
        """Run the engine; RungError where the runtime refuses."""
        ...

    def capture(self, profile: int) -> None:
        """Record a run as the profile's CUDA graph, without running it; RungError where that fails."""
        ...

    def launch(self, profile: int) -> None:
        """Run the profile's CUDA graph."""
        ...

    def stop(self) -> None:
        """Mark where the GPU's time ends."""
        ...

    def synchronise(self) -> None:
        """Wait until all that is on the stream is done."""
        ...

    def elapsed_ms(self) -> float:
        """Give the time between the marks."""
        ...

    def free_bytes(self) -> int:
        """Give how much memory of the GPU nobody uses."""
        ...

    def close(self) -> None:
        """Free all there is: memory, contexts, engine and stream. Once closed, it does nothing."""
        ...
