"""A build kit: a folder that finishes the build on a machine with NVIDIA's own TensorRT.

`build_engine` is the script that runs there; what it must know is a field of `KitPlan`, written in `_template`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compressor import graph, workspace
from compressor.engines.tensorrt import record
from compressor.fleet import DEVICES
from compressor.units import write_shape

_MODEL = "model.onnx"
_SCRIPT = "build_engine.py"
_UNSPEAKABLE = frozenset("',*")
"""What `trtexec` takes for quotes, separators and wildcards. Source: `splitNameAndValue` in its sampleOptions.cpp."""
_README = """\
# {name}: build the engine where its GPU is

For {devices}. In this folder, on a machine with that GPU and the package `tensorrt` (10 or 11):

    python {script}

It writes `model.DEVICE.engine` and `engine.json`, which a server needs beside it, and checks the engine. Precision as \
asked: {precision}; {computes}.

`trtexec.txt` is the same build as a command line for a shell; it writes no `engine.json`. `--stronglyTyped` is for \
TensorRT 10; leave it out where `trtexec` no longer knows it.
"""


@dataclass(frozen=True)
class KitPlan:
    """What is to be built. `name`: of the model; `devices`: as in `fleet`, or `current`; `timing_cache`: a file's name.

    The other fields are those of `Record` and of the recipe's engine; `profiles` is empty for a model of fixed shapes,
    `workspace_bytes` None for all that the GPU has.
    """

    name: str
    devices: tuple[str, ...]
    profiles: tuple[Mapping[str, record.Range], ...]
    workspace_bytes: int | None
    precision: str
    computes: str
    optimization_level: int
    refit: bool
    timing_cache: Path | None
    inputs: tuple[record.Bound, ...]
    outputs: tuple[record.Bound, ...]


def write(folder: Path, onnx: Path, plan: KitPlan) -> tuple[Path, ...]:
    """Write the kit of a typed graph into `folder`; gives its files, the graph and its external data first.

    Raises:
        InputError: The graph cannot be read.
    """
    model = _copy(onnx, folder)
    texts = {
        "profiles.json": _json(plan.profiles),
        "engine.template.json": _json(_template(plan, model, folder)),
        _SCRIPT: Path(__file__).with_name(_SCRIPT).read_text(encoding="utf-8"),
        "trtexec.txt": _trtexec(plan, model[0].name),
        "README.md": _README.format(
            name=plan.name,
            devices=", ".join(plan.devices),
            script=_SCRIPT,
            precision=plan.precision,
            computes=plan.computes,
        ),
    }
    for name, text in texts.items():
        workspace.write_text(folder / name, text)
    return (*model, *(folder / name for name in texts))


def _copy(onnx: Path, folder: Path) -> tuple[Path, ...]:
    """Copy a graph and its external data, which its tensors know by their names."""
    main, *external = graph.parts(onnx)
    name = main.name if main.with_name(_MODEL) in external else _MODEL
    targets = {main: folder / name} | {data: folder / data.relative_to(main.parent) for data in external}
    for source, target in targets.items():
        workspace.copy(source, target)
    return tuple(targets.values())


def _template(plan: KitPlan, model: tuple[Path, ...], folder: Path) -> Mapping[str, Any]:
    """Give `engine.json` without what only the build knows, and under `build` what the script is to do."""
    known = {
        "provider": "tensorrt",
        "precision": plan.precision,
        "computes": plan.computes,
        "inputs": [bound.model_dump(mode="json") for bound in plan.inputs],
        "outputs": [bound.model_dump(mode="json") for bound in plan.outputs],
        "onnx_sha256": workspace.sha256(model[0]),
    }
    gpus = [
        {"name": device.name, "gpu": device.gpu, "capability": "{}.{}".format(*device.capability)} for device in DEVICES
    ]
    build = {
        "model": model[0].name,
        "files": {path.relative_to(folder).as_posix(): workspace.sha256(path) for path in model},
        "devices": plan.devices,
        "gpus": gpus,
        "workspace_bytes": plan.workspace_bytes,
        "optimization_level": plan.optimization_level,
        "refit": plan.refit,
        "timing_cache": plan.timing_cache.name if plan.timing_cache else None,
    }
    return {"schema_version": 1, "engines": [known], "build": build}


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def _trtexec(plan: KitPlan, model: str) -> str:
    """Give the command line, quoted for a shell; or why there is none."""
    names = [name for profile in plan.profiles for name in profile if _UNSPEAKABLE & set(name)]
    if names:
        return f"# trtexec cannot take shapes for an input called {names[0]!r}: use {_SCRIPT}\n"
    options = [f"--onnx={model}", "--stronglyTyped"]
    for number, profile in enumerate(plan.profiles):
        options.append(f"--profile={number}")
        options += [f"--{kind}Shapes={_shapes(profile, index)}" for index, kind in enumerate(("min", "opt", "max"))]
    options += [f"--memPoolSize=workspace:{plan.workspace_bytes}B"] if plan.workspace_bytes else []
    options += [f"--builderOptimizationLevel={plan.optimization_level}"]
    options += [f"--timingCacheFile={plan.timing_cache.name}"] if plan.timing_cache else []
    options += ["--refit"] if plan.refit else []
    options += ["--skipInference", "--saveEngine=model.engine"]
    return f"{shlex.join(('trtexec', *options))}\n"


def _shapes(profile: Mapping[str, record.Range], index: int) -> str:
    return ",".join(f"{name}:{write_shape(shapes[index])}" for name, shapes in profile.items())
