"""How mlflow serves what is registered: an ONNX model on the CPU by its own flavour, else by a script in its folder.

A new kind of artifact is a function beside `save_script`; an engine's packages are a row of `PACKAGES`, those of one of
ONNX Runtime's providers a row of `PROVIDER_PACKAGES`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from compressor import workspace
from compressor.records import Artifact, File

PACKAGES = {
    "tensorrt": ("tensorrt", "pycuda"),
    "tensorrt-rtx": ("tensorrt-rtx-cu13-bindings", "onnxruntime-ep-nv-tensorrt-rtx-cu13", "pycuda"),
}
"""By engine that is served by the script, what it needs besides what every such engine does; the builder first."""
_GPU = ("onnxruntime-gpu[cuda,cudnn]",)
PROVIDER_PACKAGES = {
    "CUDAExecutionProvider": _GPU,
    "TensorrtExecutionProvider": _GPU,  # and NVIDIA's TensorRT, whose libraries pip does not put where it looks
    "NvTensorRTRTXExecutionProvider": ("onnxruntime", "onnxruntime-ep-nv-tensorrt-rtx-cu13"),
}
"""By the first execution provider of a model of ONNX Runtime, what it needs; onnxruntime where it is not listed."""
LOADER_FILE = "load.py"
"""The script that lies beside each artifact of a run and loads it as it was measured."""
REPORTS = "extra_files"
"""The folder in a version in which its reports lie; mlflow's own name for it."""
_CPU = "CPUExecutionProvider"
_MODEL_FILE = "model.onnx"  # where mlflow's onnx flavor looks
_SCRIPT_FILE = "gpu_model.py"
_SCRIPT = '''\
"""Serve what lies beside this file as it was measured; a machine that cannot is refused.

Text, not a pickle: mlflow runs it as it stands here.
"""

from pathlib import Path

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel

FOLDER = Path(__file__).parent


class Served(PythonModel):
    """Inputs are a dictionary of arrays by name, or what mlflow makes one of by the signature."""

    def load_context(self, context):
{opening}
    def predict(self, context, model_input: np.ndarray, params=None):  # mlflow 3.17 warns of hints that say more
        """Give a dictionary of arrays by output."""
        if not isinstance(model_input, dict):
            raise TypeError(f"expected a dictionary of arrays by input, found {{type(model_input).__name__}}")
        return dict(self.session({{name: np.asarray(array) for name, array in model_input.items()}}))


set_model(Served())
'''

_OPEN_ENGINE = '''\
        """Open the engine of this GPU; `compressor` compares GPU, version and bytes with engine.json."""
        from compressor.engines.tensorrt import open_folder

        self.session = open_folder(FOLDER)
'''
_OPEN_MODEL = '''\
        """Open the model as it was measured; load.py raises an error where the CPU would take the GPU's place."""
        from runpy import run_path

        session = run_path(str(FOLDER / "load.py"))["session"]
        names = [output.name for output in session.get_outputs()]
        self.session = lambda feeds: zip(names, session.run(None, feeds))
'''


@dataclass(frozen=True)
class Described:
    """What mlflow is told of any model. `reports`: files to be kept beside it."""

    signature: Any
    requirements: list[str]
    reports: tuple[Path, ...]


def is_scripted(artifact: Artifact) -> bool:
    """Whether mlflow's own flavour would not load it, or without its operators, or let the CPU take a GPU's place."""
    return artifact.is_engine or _providers(artifact) != [_CPU] or "custom_ops" in artifact.options


def placed(artifacts: tuple[Artifact, ...]) -> dict[str, File]:
    """Give each file its place in the model's folder; external data stays where the graph looks for it.

    Artifacts that are served together lie in one folder, and may share files.
    """
    first, *others = (file for artifact in artifacts for file in artifact.files)
    root = PurePosixPath(first.path).parent
    name = PurePosixPath(first.path).name if is_scripted(artifacts[0]) else _MODEL_FILE
    return {name: first} | {str(PurePosixPath(file.path).relative_to(root)): file for file in others if file != first}


def graph_file(artifact: Artifact) -> File:
    """Give the file with the ONNX graph, which lies beside an engine."""
    return next(file for file in artifact.files if file.path.endswith(".onnx"))


def requirements(artifact: Artifact, versions: Mapping[str, str]) -> list[str]:
    """Give what pip is to install where the model is served, as it was here."""
    known = dict(versions)
    needed: tuple[str, ...] = ("onnx", "onnxruntime")
    if artifact.is_engine:
        builder, *others = PACKAGES[artifact.engine]
        known[builder] = artifact.options["version"]  # no other version may load what it built
        needed = ("compressor", "numpy", builder, *others)
    elif is_scripted(artifact):
        needed = ("numpy", *PROVIDER_PACKAGES.get(_providers(artifact)[0], ("onnxruntime",)))
    found = {name: known.get(name.partition("[")[0]) for name in ("mlflow", *needed)}
    return [f"{name}=={version}" if version else name for name, version in found.items()]


def save_onnx(target: Path, model: Any, artifact: Artifact, described: Described) -> None:
    """Make a folder of mlflow's for an ONNX model, without its bytes."""
    from mlflow import onnx

    onnx.save_model(
        b"",  # an empty model, overwritten later: protobuf would not write the measured bytes again
        str(target),
        mlflow_model=model,
        signature=described.signature,
        pip_requirements=described.requirements,
        onnx_execution_providers=artifact.options["providers"].split(",") if "providers" in artifact.options else None,
        onnx_session_options=_session_options(artifact.options),
        save_as_external_data=False,
        extra_files=[str(path) for path in described.reports],
    )


def save_script(target: Path, model: Any, artifact: Artifact, described: Described) -> None:
    """Make a folder of mlflow's for engines or a model on a GPU, code and no pickle, without their files."""
    from mlflow import pyfunc

    script = target.with_name(_SCRIPT_FILE)
    workspace.write_text(script, _SCRIPT.format(opening=_OPEN_ENGINE if artifact.is_engine else _OPEN_MODEL))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # mlflow 3.17 wants an example, to run which needs the GPU
        pyfunc.save_model(
            str(target),
            python_model=str(script),
            mlflow_model=model,
            signature=described.signature,
            pip_requirements=described.requirements,
        )
    flavour = model.flavors[pyfunc.FLAVOR_NAME]
    flavour["model_code_path"] = _SCRIPT_FILE  # mlflow 3.17 writes where it lay here
    flavour.pop("cloudpickle_version", None)  # written whether or not there is a pickle
    for path in described.reports:
        workspace.copy(path, target / REPORTS / path.name)


def _providers(artifact: Artifact) -> list[str]:
    return artifact.options.get("providers", _CPU).split(",")


def _session_options(options: Mapping[str, str]) -> dict[str, Any]:
    extra = {name: value for name, value in options.items() if name.startswith("session.")}
    numbers = {name: int(value) for name, value in options.items() if name not in (*extra, "providers")}
    return {**numbers, "extra_session_config": extra}
