"""The short script that loads an artifact exactly as it was measured, to stand beside it.

Another engine's loader is added here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from compressor.records import Artifact

_CONFIG_PREFIX = "session."  # such entries are ONNX Runtime's session configuration, all others its attributes
_PROVIDERS = "providers"

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
{options}session = ort.InferenceSession(Path(__file__).with_name({name!r}), options, providers={providers!r})

if __name__ == "__main__":
    for tensor in session.get_inputs():
        print(tensor.name, tensor.type, tensor.shape)
'''


def snippet(artifact: Artifact) -> str:
    """Give a Python script, to be kept in the folder of the artifact's first file.

    It needs onnxruntime only, for an engine this package. All engines of a folder have the same script.
    """
    if artifact.is_engine:
        return _TENSORRT
    return _ORT.format(
        name=PurePosixPath(artifact.files[0].path).name,
        options="".join(f"{line}\n" for line in _settings(artifact.options)),
        providers=artifact.options.get(_PROVIDERS, "CPUExecutionProvider").split(","),
    )


def _settings(options: Mapping[str, str]) -> list[str]:
    return [
        f"options.add_session_config_entry({key!r}, {value!r})"
        if key.startswith(_CONFIG_PREFIX)
        else f"options.{key} = {int(value)}"
        for key, value in options.items()
        if key != _PROVIDERS
    ]
