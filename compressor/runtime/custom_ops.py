"""Libraries of custom operators: which ones this process may load, and what a session does to have them.

They hold native code. Only what the recipe or its caller names is ever loaded, never what lies beside a model: the
names stand in the environment of the process, which whoever starts it sets. How else operators get into a session is
a function here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from compressor.errors import InputError

CUSTOM_OPS = "custom_ops"
"""The option of an artifact that lists the libraries beside it, by name, with `SEPARATOR` between them."""
SEPARATOR = "/"
"""No name holds it."""
_VARIABLE = "COMPRESSOR_CUSTOM_OPS"


def environment(paths: Iterable[Path]) -> Mapping[str, str]:
    """Give what stands in the environment of a process that is to load these libraries and no others."""
    return {_VARIABLE: json.dumps(list(map(str, paths)))}


def named(environment: Mapping[str, str]) -> bool:
    """Tell whether any library stands in an environment."""
    return bool(json.loads(environment.get(_VARIABLE) or "[]"))


def libraries() -> tuple[Path, ...]:
    """Give the libraries of this process.

    Raises:
        InputError: Its environment does not list paths.
    """
    text = os.environ.get(_VARIABLE) or "[]"
    try:
        return tuple(map(Path, json.loads(text)))
    except (TypeError, ValueError) as error:
        raise InputError(f"{_VARIABLE}: expected a list of paths in JSON, found {text!r}; unset it") from error


def check() -> None:
    """Make sure that the libraries of this process can be loaded, by loading them.

    Raises:
        InputError: One cannot.
    """
    import onnxruntime as ort

    register(ort.SessionOptions())


def register(options: Any) -> None:
    """Let a session of these options know the operators of this process's libraries.

    Raises:
        InputError: One is no library of operators, or lacks what it needs.
    """
    for path in libraries():
        try:
            options.register_custom_ops_library(str(path))
        except Exception as error:  # ONNX Runtime's exceptions share no class
            reason = str(error).strip().rpartition("with error: ")[2]
            raise InputError(
                f"custom_ops: {path}: ONNX Runtime cannot load it ({reason[:300]}); expected a shared library that "
                "exports RegisterCustomOps, built for this machine"
            ) from error
