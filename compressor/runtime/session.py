"""Sessions of ONNX Runtime: their options and providers, opening them, and its exceptions as ours.

A session option is a line in `options`, a provider a line in `PROVIDERS`; what else a session can be asked is a method
of `Loaded`.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from compressor.errors import CompressorError, InputError, MachineError, RungError
from compressor.records import Feeds, Outputs
from compressor.runtime import custom_ops, tables, unknown

if TYPE_CHECKING:
    import onnxruntime as ort

Provider = Literal["cpu", "cuda", "tensorrt", "tensorrt-rtx"]

CPU = "CPUExecutionProvider"
_CUDA = "CUDAExecutionProvider"
_RTX = "NvTensorRTRTXExecutionProvider"
PROVIDERS: Mapping[Provider, str] = {
    "cpu": CPU,
    "cuda": f"{_CUDA},{CPU}",
    "tensorrt": f"TensorrtExecutionProvider,{_CUDA},{CPU}",
    "tensorrt-rtx": f"{_RTX},{CPU}",
}
"""ONNX Runtime's names for what a recipe calls a provider, and behind it those that run the nodes it does not take."""

_PLUGIN = "onnxruntime_ep_nv_tensorrt_rtx"
_GPU = "pip uninstall onnxruntime, then pip install 'onnxruntime-gpu[cuda,cudnn]'"
_LINKER = re.compile(r"with error: (.+)")
_MISSED = re.compile(r"(Failed to create [^\x1b\n]+)")  # the log is coloured
_ELSE = "install what it needs, or set another engine.onnxruntime.provider"
_INSTALL = {
    _CUDA: f"; {_GPU}",
    "TensorrtExecutionProvider": f"; {_GPU}, and NVIDIA's TensorRT with its libraries in LD_LIBRARY_PATH",
}


class Loaded:
    """A model in an ONNX Runtime session; a `records.Session`."""

    def __init__(self, session: ort.InferenceSession) -> None:
        """Take an open session."""
        self._session = session
        self._outputs = [output.name for output in session.get_outputs()]
        self._are_tensors = all(output.type.startswith("tensor(") for output in session.get_outputs())

    def __call__(self, feeds: Feeds) -> Outputs:
        """Run one batch; outputs that are no tensors come as `tables.outputs` gives them.

        Raises:
            RungError: ONNX Runtime failed, or an output is of a type that nothing here compares.
        """
        run = self._session.run
        try:  # and no context manager: of a model of microseconds it would be a tenth
            values = run(None, dict(feeds))
        except Exception as error:
            raise _refused("run it", error) from error
        if self._are_tensors:
            return dict(zip(self._outputs, values, strict=True))
        return tables.outputs(zip(self._outputs, values, strict=True))

    def placed(self) -> dict[str, Counter[str]]:
        """Count the nodes of each operator that each provider runs, in the graph as ONNX Runtime optimised it.

        Only of a session that records it, as one of another provider than the CPU's does. What a provider does not
        take goes to the next, which is no error: CUDA's leaves arithmetic on shapes to the CPU on purpose. So
        `session.disable_cpu_ep_fallback`, which refuses a model for one such node, is not set.
        """
        found: dict[str, Counter[str]] = {}
        for part in self._session.get_provider_graph_assignment_info():
            found.setdefault(part.ep_name, Counter()).update(node.op_type for node in part.get_nodes())
        return found

    def close(self) -> None:
        """Free the session; a later call fails."""
        del self._session


def options(threads: int, *, spinning: bool, provider: Provider = "cpu") -> dict[str, str]:
    """Give the session options that stand in an artifact, with which it is measured and served."""
    return {
        "intra_op_num_threads": str(threads),
        "inter_op_num_threads": "1",
        "session.intra_op.allow_spinning": str(int(spinning)),
        "providers": PROVIDERS[provider],
    }


def emulated(settings: Mapping[str, str]) -> dict[str, str]:
    """Give the same options with integer arithmetic replaced by its exact float emulation."""
    return {**settings, "session.disable_quant_qdq": "1"}


def load(path: Path, settings: Mapping[str, str]) -> Loaded:
    """Open a model with the options of an artifact.

    Raises:
        MachineError: A provider that the options name is not available here, or ONNX Runtime left it out.
        RungError: ONNX Runtime refuses the model, or the first provider that the options name runs none of its nodes.
    """
    with _translated(f"load {path.name}"):
        loaded = Loaded(_opened(str(path), settings))
    first = _wanted(settings)[0]
    if first != CPU and first not in (placed := loaded.placed()):
        nodes = sum(operators.total() for operators in placed.values())
        raise RungError(
            f"{first} runs none of the {nodes} nodes of {path.name}; set another engine.onnxruntime.provider"
        )
    return loaded


def check(provider: Provider) -> None:
    """Make sure that this machine can run a model on a provider, by opening one of a single node.

    Raises:
        MachineError: It cannot: the provider, one of its libraries or its device is not here.
    """
    if provider == "cpu":
        return
    settings = options(1, spinning=False, provider=provider)
    try:
        with _translated("open a session"):
            _opened(_probe(), settings)
    except RungError as error:
        name = _wanted(settings)[0]
        raise MachineError(f"{name} cannot be used here: {_logged(settings) or error}; {_ELSE}") from error


def providers() -> list[str]:
    """Give the execution providers of this installation."""
    import onnxruntime as ort

    return list(ort.get_available_providers())


def check_runs(path: Path, feeds: Feeds) -> Outputs:
    """Run the caller's model once, as given.

    Raises:
        InputError: ONNX Runtime does not take it, or these inputs.
    """
    try:
        return load(path, options(1, spinning=False))(feeds)
    except RungError as error:
        if sentence := unknown.explained(path, str(error.__cause__)):
            raise InputError(f"{path}: {sentence}") from error
        raise InputError(f"{path}: {error}; the model must run in ONNX Runtime before it can be compressed") from error


def _opened(model: str | bytes, settings: Mapping[str, str]) -> ort.InferenceSession:
    """Open a session on all providers that the options name, or none at all."""
    session = _session(model, settings)
    if missing := [name for name in _wanted(settings) if name not in session.get_providers()]:
        reason, instead = _logged(settings) or "it logs no reason", session.get_providers()[0]
        raise MachineError(f"{missing[0]} is left out by ONNX Runtime, which takes {instead}: {reason}; {_ELSE}")
    return session


def _session(model: str | bytes, settings: Mapping[str, str]) -> ort.InferenceSession:
    """Open a session; of providers whose libraries do not load it has none."""
    import onnxruntime as ort

    wanted, made = _wanted(settings), _session_options(settings)
    if wanted[0] != CPU:
        made.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if wanted[0] == _RTX:
        made.add_provider_for_devices(_rtx_devices()[:1], {})  # it takes one device only
        return ort.InferenceSession(model, made, enable_fallback=0)
    if missing := [name for name in wanted if name not in ort.get_available_providers()]:
        found = ", ".join(ort.get_available_providers())
        raise MachineError(f"{missing[0]} is not available here; found {found}{_INSTALL.get(missing[0], '')}")
    if _CUDA in wanted:
        with redirect_stdout(io.StringIO()):  # it prints what it does not find
            ort.preload_dlls()  # or CUDA's libraries that pip installed are not found
    # else a provider that fails, now or in a later run, is replaced by the CPU's with a line on stdout
    return ort.InferenceSession(model, made, providers=wanted, enable_fallback=0)


def _wanted(settings: Mapping[str, str]) -> list[str]:
    return settings.get("providers", CPU).split(",")


def _rtx_devices() -> Sequence[Any]:
    """Give the devices that TensorRT-RTX's plugin runs on, at least one."""
    import onnxruntime as ort

    try:
        plugin = importlib.import_module(_PLUGIN)
        ort.register_execution_provider_library(_RTX, plugin.get_library_path())
    except ImportError as error:
        found = ", ".join(ort.get_available_providers())
        raise MachineError(
            f"{_RTX} is not available here; found {found}; pip install 'compressor[tensorrt-rtx]'"
        ) from error
    except Exception as error:  # ONNX Runtime's exceptions share no class
        if "already registered" not in str(error):
            raise MachineError(
                f"{_RTX} cannot be loaded: {_cause(str(error)) or error}; it needs an NVIDIA GPU and its driver"
            ) from error
    devices = [device for device in ort.get_ep_devices() if device.ep_name == _RTX]
    if not devices:
        found = ", ".join(device.device.type.name for device in ort.get_ep_devices())
        raise MachineError(
            f"{_RTX}: no device of this machine can run it; expected an NVIDIA GPU of compute capability 8.6, 8.9 or "
            f"12.0 and later with its driver, found {found}"
        )
    return devices


def _logged(settings: Mapping[str, str]) -> str:
    """Give why a provider is left out, else nothing: a session is opened once more, as that is only logged."""
    text = ""
    with tempfile.TemporaryFile() as log, suppress(Exception):
        stderr = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            _session(_probe(), settings)
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            log.seek(0)
            text = log.read().decode(errors="replace")
    return _cause(text)


def _cause(message: str) -> str:
    """Give what ONNX Runtime quotes of the dynamic linker, else which provider it misses what for; empty if neither."""
    found = _LINKER.search(message) or _MISSED.search(message)
    return found[1].strip()[:400] if found else ""


def _probe() -> bytes:
    import onnx

    text = '<ir_version: 8, opset_import: ["" : 17]> probe (float[1,4] x) => (float[1,4] y) { y = Relu (x) }'
    model: bytes = onnx.parser.parse_model(text).SerializeToString()
    return model


def _session_options(settings: Mapping[str, str]) -> Any:
    import onnxruntime as ort

    result = ort.SessionOptions()
    result.log_severity_level = 3
    custom_ops.register(result)
    for name, value in settings.items():
        if name == "optimized_model_filepath":
            result.optimized_model_filepath = value
        elif name.startswith("session."):
            result.add_session_config_entry(name, value)
        elif name not in {"providers", custom_ops.CUSTOM_OPS}:  # which is of the server's, not of this process
            setattr(result, name, int(value))
    return result


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except CompressorError:
        raise
    except Exception as error:
        raise _refused(doing, error) from error


def _refused(doing: str, error: Exception) -> RungError:
    """Give ONNX Runtime's exceptions, which share no class of their own, as one of ours."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return RungError(f"ONNX Runtime could not {doing}: {reason[:400]}")
