"""NVIDIA's builders behind one door: TensorRT where a GPU is, TensorRT-RTX anywhere. The door to their packages.

Another way to find a builder's libraries is a branch in `_rtx`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from compressor import machine
from compressor.engines.tensorrt.record import Provider
from compressor.errors import MachineError
from compressor.fleet import CURRENT, by_name

_LIBRARIES = ("libcudart.so", "libtensorrt_rtx.so", "libtensorrt_onnxparser_rtx.so")
"""In the order in which they need each other."""
_PLUGIN = "onnxruntime-ep-nv-tensorrt-rtx-cu13"
_RTX_CAPABILITIES = ((7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1))
"""Source: `ComputeCapability` of tensorrt-rtx 1.7.1."""
_INSTALL = {
    "tensorrt": "pip install 'compressor[tensorrt]' on a machine with an NVIDIA GPU, from NVIDIA's index",
    "tensorrt-rtx": "pip install 'compressor[tensorrt-rtx]'",
}


def module(provider: Provider) -> Any:
    """Give the package of a provider, an API as of `tensorrt`.

    Raises:
        MachineError: It is not installed, or its libraries do not load.
    """
    try:
        return _tensorrt() if provider == "tensorrt" else _rtx()
    except (ImportError, OSError) as error:
        said = " ".join(str(error).split())[:200]
        raise MachineError(f"{provider} cannot be used here ({said}): {_INSTALL[provider]}") from error


def is_installed(package: str) -> bool:
    """Tell whether a package is there, without loading it; a folder of its name, without code, is none."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def unusable(provider: Provider) -> str | None:
    """Say why a provider cannot build here; None where it can."""
    try:
        module(provider)
    except MachineError as error:
        return str(error)
    if provider == "tensorrt" and machine.gpu_capability() is None:
        return "tensorrt builds for the GPU that it runs on, and no NVIDIA GPU answers here"
    return None


def usable() -> dict[str, str | None]:
    """Say of each provider why it cannot build here, None where it can."""
    return {provider: unusable(provider) for provider in get_args(Provider)}


def chosen(devices: Sequence[str]) -> Provider:
    """Choose who builds for these devices.

    TensorRT builds for the GPU that is here, and no other; TensorRT-RTX for all that it knows.

    Raises:
        MachineError: Nobody can build for one of them here.
    """
    here = machine.gpu_capability()
    named = [device for name in devices if (device := by_name(name)) is not None]
    is_here = here is not None and all(device.capability == here for device in named)
    why = unusable("tensorrt") if is_here else "tensorrt builds for the GPU that is there only"
    if why is None:
        return "tensorrt"
    if missing := unusable("tensorrt-rtx"):
        raise MachineError(f"no engine can be built for {', '.join(devices)}: {missing}; {why}")
    _check_known(devices)
    if CURRENT in devices and here is None:
        raise MachineError(
            f"devices: {CURRENT} is the GPU of this machine, and there is none: name devices, such as a10g or l4"
        )
    return "tensorrt-rtx"


def capabilities(devices: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Give the compute capability of each device; that of the GPU that is here for `current`."""
    here = machine.gpu_capability()
    found = {name: by_name(name) for name in devices}
    known = {name: device.capability for name, device in found.items() if device}
    return known | ({CURRENT: here} if CURRENT in devices and here else {})


def _check_known(devices: Sequence[str]) -> None:
    for name, (major, minor) in capabilities(devices).items():
        if (major, minor) not in _RTX_CAPABILITIES:
            device = by_name(name)
            gpu = device.gpu if device else "the GPU of this machine"
            raise MachineError(
                f"devices: {name} ({gpu}, compute capability {major}.{minor}) is none that TensorRT-RTX "
                "builds for: build on such a machine with tensorrt, for which `compress build` writes a kit"
            )


def _tensorrt() -> Any:
    import tensorrt

    if not hasattr(tensorrt, "Builder"):  # a folder of this name is a package to Python
        raise ImportError("what is called tensorrt is not the package")
    return tensorrt


def _rtx() -> Any:
    """Load TensorRT-RTX: NVIDIA's own package, or its bindings with the libraries of the ONNX Runtime plugin."""
    try:
        import tensorrt_rtx
    except ImportError:
        for library in _libraries():
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        import tensorrt_rtx_bindings as tensorrt_rtx

    return tensorrt_rtx


def _libraries() -> list[Path]:
    try:
        plugin = metadata.distribution(_PLUGIN)
    except metadata.PackageNotFoundError as error:
        raise ImportError(f"neither tensorrt_rtx nor {_PLUGIN} is installed") from error
    files = [Path(str(plugin.locate_file(file))) for file in plugin.files or ()]
    found = [next((file for file in files if file.name.startswith(name)), None) for name in _LIBRARIES]
    if None in found:
        raise ImportError(f"{_PLUGIN} {plugin.version} holds no {_LIBRARIES[found.index(None)]}")
    return [file for file in found if file]
