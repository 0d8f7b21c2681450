"""What a loaded engine says of itself, and what the runtime calls back: a logger and an allocator of outputs.

Takes the provider's package, and imports none. What else an engine tells is read in `loaded`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from compressor.engines.tensorrt.driver import Io, Loaded
from compressor.engines.tensorrt.record import Range
from compressor.errors import RungError


def loaded(trt: Any, engine: Any) -> Loaded:
    """Read inputs, outputs and profiles of an engine.

    Raises:
        RungError: An input or output has a type that numpy lacks.
    """
    ios = [_io(trt, engine, engine.get_tensor_name(i)) for i in range(engine.num_io_tensors)]
    profiles = [
        {io.name: _range(engine, io, number) for io in ios if io.is_input}
        for number in range(engine.num_optimization_profiles)
    ]
    return Loaded(tuple(ios), tuple(profiles))


def logger(trt: Any, errors: deque[str]) -> Any:
    """Give a logger that adds what goes wrong to `errors`."""

    class Logger(trt.ILogger):  # type: ignore[misc] # the package is only known at run time
        """Keeps errors."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, text: str) -> None:
            if severity <= trt.ILogger.ERROR:
                errors.append(text)

    return Logger()


def allocator(trt: Any, replaced: Callable[[int, int], int]) -> Any:
    """Give an allocator for one output; `replaced` gives memory of a size for an address, 0 where there is none."""

    class Allocator(trt.IOutputAllocator):  # type: ignore[misc] # the package is only known at run time
        """Memory of an output that grows as data asks for it, and the shape it has got."""

        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.address, self.size = 0, 0
            self.shape: tuple[int, ...] | None = None

        def reallocate_output(self, _name: str, _memory: int, size: int, _alignment: int) -> int | None:
            if size > self.size or not self.address:
                self.address = replaced(self.address, max(size, 1))
                self.size = size if self.address else 0
            return self.address or None

        def reallocate_output_async(
            self, name: str, memory: int, size: int, alignment: int, _stream: int
        ) -> int | None:
            return self.reallocate_output(name, memory, size, alignment)

        def notify_shape(self, _name: str, shape: Any) -> None:
            self.shape = tuple(shape)

    return Allocator()


def _io(trt: Any, engine: Any, name: str) -> Io:
    kind = engine.get_tensor_dtype(name)
    try:
        dtype = np.dtype(trt.nptype(kind)).name
    except TypeError as error:
        raise RungError(f"{name!r} is of type {kind}, which numpy lacks: build it with another type there") from error
    return Io(
        name=name,
        dtype=dtype,
        shape=tuple(engine.get_tensor_shape(name)),
        is_input=engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT,
        host=engine.get_tensor_location(name) == trt.TensorLocation.HOST,
    )


def _range(engine: Any, io: Io, profile: int) -> Range:
    """Give what an input may be under a profile."""
    if io.host:  # number before name, whatever the parameters are called in the bindings' documentation
        found = engine.get_tensor_profile_values(profile, io.name)
    elif -1 in io.shape:
        found = engine.get_tensor_profile_shape(io.name, profile)
    else:
        found = [io.shape] * 3
    least, best, most = (tuple(dimensions) for dimensions in found)
    return least, best, most
