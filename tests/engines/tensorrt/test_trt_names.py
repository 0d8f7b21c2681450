"""Names of NVIDIA's API that are used exist in its bindings, and a driver's methods in the fake and the real one."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from fake_driver import FakeDriver

from compressor.engines import tensorrt
from compressor.engines.tensorrt import provider
from compressor.engines.tensorrt.cuda import Gpu
from compressor.engines.tensorrt.driver import Driver
from compressor.errors import MachineError

PACKAGE = Path(tensorrt.__file__).parent
KINDS = {
    "allocator": "IOutputAllocator",
    "builder": "Builder",
    "cache": "ITimingCache",
    "config": "IBuilderConfig",
    "context": "IExecutionContext",
    "engine": "ICudaEngine",
    "error": "ParserError",
    "logger": "ILogger",
    "network": "INetworkDefinition",
    "parser": "OnnxParser",
    "profile": "IOptimizationProfile",
    "runtime": "Runtime",
    "tensor": "ITensor",
}
"""What the variables and fields that hold the provider's objects are called, and their classes there."""
RTX_ALONE = {"ComputeCapability", "CURRENT", "num_compute_capabilities", "set_compute_capability"}
"""TensorRT builds for the GPU that is there; only TensorRT-RTX is told which ones to build for."""
OURS = {"engines.py": {"engine", "profile"}}
"""Modules in which such names hold values of our own."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Give the modules that are handed the provider's package, which they call `trt`."""
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.arg | ast.Name) and _name(node) == "trt" for node in ast.walk(tree)):
            yield file.name, tree


def used() -> set[tuple[str, str]]:
    """Give the names that are used of the provider: (class, attribute), class "" for the package itself."""
    found = set()
    for module, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                holder = _name(node.value).lstrip("_")
                if holder == "trt":
                    found.add(("", node.attr))
                elif _is_of_package(node.value) and node.value.attr != "__version__":  # type: ignore[attr-defined]
                    found.add((node.value.attr, node.attr))  # type: ignore[attr-defined] # as was just found
                elif holder in KINDS and holder not in OURS.get(module, ()):
                    found.add((KINDS[holder], node.attr))
            if isinstance(node, ast.ClassDef):
                found |= {(base.attr, f.name) for base in node.bases if _is_of_package(base) for f in _methods(node)}
    return found


def _name(node: ast.AST) -> str:
    """Give the last name of `trt`, `self._trt` and the like."""
    return getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None) or ""


def _is_of_package(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and _name(node.value).lstrip("_") == "trt"


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [f for f in node.body if isinstance(f, ast.FunctionDef) and not f.name.startswith("_")]


@cache
def bindings() -> Any:
    try:
        return provider.module("tensorrt-rtx")
    except MachineError as error:
        pytest.skip(str(error))


@cache
def tensorrt_11() -> tuple[bytes, str]:
    """Give the two files of NVIDIA's own bindings, which cannot be loaded without their libraries."""
    try:
        wheel = metadata.distribution("tensorrt-cu13-bindings")
    except metadata.PackageNotFoundError:
        pytest.skip("tensorrt-cu13-bindings is not installed")
    assert wheel.version.startswith("11.")
    folder = Path(str(wheel.locate_file("tensorrt_bindings")))
    return (folder / "tensorrt.so").read_bytes(), (folder / "__init__.py").read_text(encoding="utf-8")


def _is_in(name: str, compiled: bytes, python: str) -> bool:
    """Say whether a name stands in the shared object as a whole string, or is defined in the Python file."""
    return name.encode() + b"\0" in compiled or re.search(rf"^(def )?{name}\b", python, re.MULTILINE) is not None


def missing(trt: Any, names: set[tuple[str, str]]) -> list[str]:
    """Give the names that are not there; what a class is to be given by its heirs stands in its docstring."""
    lacks = []
    for kind, name in sorted(names):
        holder = getattr(trt, kind, None) if kind else trt
        if holder is None or not (hasattr(holder, name) or f"def {name}(" in (holder.__doc__ or "")):
            lacks.append(f"{kind or 'package'}.{name}")
    return lacks


def test_the_names_are_found_at_all() -> None:
    assert {name for name, _ in modules()} >= {"build.py", "cuda.py", "loaded.py"}
    assert used() >= {
        ("", "Runtime"),
        ("", "nptype"),
        ("Builder", "build_serialized_network"),
        ("ICudaEngine", "get_tensor_profile_values"),
        ("IExecutionContext", "execute_async_v3"),
        ("ILogger", "log"),
        ("IOutputAllocator", "notify_shape"),
        ("OnnxParser", "get_error"),
        ("Runtime", "deserialize_cuda_engine"),
        ("TensorIOMode", "INPUT"),
    }


def test_every_name_exists_in_tensorrt_rtx() -> None:
    assert not missing(bindings(), used())


def test_a_name_that_does_not_exist_is_noticed() -> None:
    wrong = {("", "Runtimes"), ("Runtime", "load"), ("IOutputAllocator", "notify_shapes"), ("INothing", "x")}
    assert len(missing(bindings(), wrong)) == len(wrong)


def test_every_name_exists_in_tensorrt_11() -> None:
    names = {name for _, name in used()} - RTX_ALONE
    compiled, python = tensorrt_11()
    assert not {name for name in names if not _is_in(name, compiled, python)}
    assert not _is_in("notify_shapes", compiled, python)


def test_what_only_tensorrt_rtx_has_is_used() -> None:
    assert {name for _, name in used()} >= RTX_ALONE


@pytest.mark.parametrize("kind", [FakeDriver, Gpu])
def test_drivers_have_the_methods_and_parameters_that_are_asked_of_them(kind: type) -> None:
    asked = {name: method for name, method in vars(Driver).items() if inspect.isfunction(method) and name[0] != "_"}
    assert len(asked) > 20
    for name, method in asked.items():
        parameters = inspect.signature(method).parameters.values()
        found = inspect.signature(getattr(kind, name)).parameters.values()
        assert [(p.name, p.kind, p.default) for p in found] == [(p.name, p.kind, p.default) for p in parameters], name


def test_the_real_driver_offers_nothing_that_a_fake_would_lack() -> None:
    assert {name for name in vars(Gpu) if name[0] != "_"} == {name for name in vars(Driver) if name[0] != "_"}
