"""CUDA graphs: a run recorded once, and launched as a whole. By the CUDA driver itself: pycuda 2026.1 knows no graphs.

Another call of the driver is a function here, which gives its CUDA error to `_passed`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from compressor.errors import RungError

_THREAD_LOCAL = 1
"""`CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads may go on meanwhile. Source: cuda.h."""


def captured(stream: int, enqueue: Callable[[], None]) -> Any:
    """Record what `enqueue` puts on a stream, which does not run it; gives a graph to launch.

    Raises:
        RungError: CUDA refuses.
    """
    library, handle, graph, launchable = _library(), ctypes.c_void_p(stream), ctypes.c_void_p(), ctypes.c_void_p()
    _passed("cuStreamBeginCapture", library.cuStreamBeginCapture_v2(handle, _THREAD_LOCAL))
    try:
        enqueue()
    finally:  # also after an error, or the stream would go on recording
        ended = library.cuStreamEndCapture(handle, ctypes.byref(graph))
    _passed("cuStreamEndCapture", ended)
    made = library.cuGraphInstantiateWithFlags(ctypes.byref(launchable), graph, ctypes.c_ulonglong(0))
    library.cuGraphDestroy(graph)
    _passed("cuGraphInstantiate", made)
    return launchable


def launch(graph: Any, stream: int) -> None:
    """Put a graph on a stream; RungError where CUDA refuses."""
    _passed("cuGraphLaunch", _library().cuGraphLaunch(graph, ctypes.c_void_p(stream)))


def drop(graph: Any) -> None:
    """Free a graph."""
    _library().cuGraphExecDestroy(graph)


def _library() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _passed(function: str, code: int) -> None:
    if code:
        raise RungError(f"{function}: CUDA error {code}: the engine cannot run as a CUDA graph; leave cuda_graph off")
