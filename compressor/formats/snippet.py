"""The short script that loads an artifact exactly as it was measured, to stand beside it.

Another engine's loader is added here, what a provider of ONNX Runtime needs in `_provided`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from compressor.records import Artifact

_CONFIG_PREFIX = "session."  # such entries are ONNX Runtime's session configuration, all others its attributes
_PROVIDERS = "providers"
_CUSTOM_OPS = "custom_ops"  # names of libraries beside the model, with / between them
_CPU, _CUDA, _RTX = "CPUExecutionProvider", "CUDAExecutionProvider", "NvTensorRTRTXExecutionProvider"

_TENSORRT = '''\
"""Load the engine beside this file that was built for this machine's GPU: `session({input: array})`.

`compressor` compares the GPU, the version of TensorRT and the file with engine.json, and copies arrays there and back.
"""

import json
from pathlib import Path

from compressor.engines.tensorrt import open_folder

folder = Path(__file__).parent
session = open_folder(folder)

if __name__ == "__main__":
    for tensor in json.loads((folder / "engine.json").read_text(encoding="utf-8"))["engines"][0]["inputs"]:
        print(tensor["name"], tensor["dtype"], tensor["shape"])
'''

_ORT = '''\
"""Load the model beside this file with ONNX Runtime as it was measured: `session.run(None, {{input: array}})`."""

import os
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime reads it when it is imported

import onnxruntime as ort

options = ort.SessionOptions()
{options}{before}session = ort.InferenceSession(Path(__file__).with_name({name!r}), options, {keywords})
{check}
if __name__ == "__main__":
    for tensor in session.get_inputs():
        print(tensor.name, tensor.type, tensor.shape)
'''

_PRELOAD = "ort.preload_dlls()  # or CUDA's libraries that pip installed are not found\n"

_PLUGIN = """\
import onnxruntime_ep_nv_tensorrt_rtx as plugin

if not any(device.ep_name == wanted[0] for device in ort.get_ep_devices()):  # else another model registered it
    ort.register_execution_provider_library(wanted[0], plugin.get_library_path())
devices = [device for device in ort.get_ep_devices() if device.ep_name == wanted[0]]
if not devices:
    raise RuntimeError(f"{wanted[0]}: no device of this machine can run it; expected an NVIDIA GPU that it supports")
options.add_provider_for_devices(devices[:1], {})  # it takes one device only
"""

_RECORD = """\
options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
# else a provider that fails, now or in a later run, is replaced by the CPU's
"""

_CHECK = """\
if missing := [name for name in wanted if name not in session.get_providers()]:
    taken = session.get_providers()[0]
    raise RuntimeError(f"{missing[0]} is left out by ONNX Runtime, which takes {taken}: install what it needs")
if wanted[0] not in [part.ep_name for part in session.get_provider_graph_assignment_info()]:
    raise RuntimeError(f"{wanted[0]} runs no node of the model; it ran some where it was measured")
"""


def snippet(artifact: Artifact) -> str:
    """Give a Python script, to be kept in the folder of the artifact's first file.

    It needs onnxruntime only, and the plugin of a provider that is one; for an engine this package. All engines of a
    folder have the same script. Of another provider than the CPU's it fails where the CPU would take the place of that.
    """
    if artifact.is_engine:
        return _TENSORRT
    before, keywords, check = _provided(artifact.options.get(_PROVIDERS, _CPU).split(","))
    return _ORT.format(
        name=PurePosixPath(artifact.files[0].path).name,
        options="".join(f"{line}\n" for line in _settings(artifact.options)),
        before=before,
        keywords=keywords,
        check=check,
    )


def _provided(wanted: Sequence[str]) -> tuple[str, str, str]:
    """Give what stands before the session of these providers, its last arguments, and what stands behind it."""
    if wanted == [_CPU]:
        return "", f"providers={wanted!r}", ""
    named = f"wanted = {wanted!r}\n"
    if wanted[0] == _RTX:
        return f"{named}{_PLUGIN}{_RECORD}", "enable_fallback=0", _CHECK
    preload = _PRELOAD if _CUDA in wanted else ""
    return f"{named}{preload}{_RECORD}", "providers=wanted, enable_fallback=0", _CHECK


def _settings(options: Mapping[str, str]) -> list[str]:
    libraries = filter(None, options.get(_CUSTOM_OPS, "").split("/"))
    return [f"options.register_custom_ops_library(str(Path(__file__).with_name({name!r})))" for name in libraries] + [
        f"options.add_session_config_entry({key!r}, {value!r})"
        if key.startswith(_CONFIG_PREFIX)
        else f"options.{key} = {int(value)}"
        for key, value in options.items()
        if key not in {_PROVIDERS, _CUSTOM_OPS}
    ]
