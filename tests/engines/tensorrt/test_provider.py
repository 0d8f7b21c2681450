from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from compressor import machine
from compressor.engines.tensorrt import provider
from compressor.engines.tensorrt.record import Provider
from compressor.errors import MachineError

Fixture = pytest.MonkeyPatch
NO = "it is not there"


@pytest.fixture
def here(monkeypatch: Fixture) -> Any:
    """Set which GPU is here, and who is not usable, and why."""

    def _here(capability: tuple[int, int] | None, **unusable: str) -> None:
        monkeypatch.setattr(machine, "gpu_capability", lambda: capability)
        why = {name.replace("_", "-"): text for name, text in unusable.items()}
        monkeypatch.setattr(provider, "unusable", why.get)

    return _here


@pytest.mark.parametrize(
    ("devices", "capability"),
    [
        pytest.param(("current",), (9, 0), id="current"),
        pytest.param(("a10g",), (8, 6), id="named"),
        pytest.param(("a10g", "a10", "current"), (8, 6), id="names of one capability"),
        pytest.param(("h100",), (9, 0), id="one that TensorRT-RTX does not know"),
    ],
)
def test_tensorrt_builds_for_the_gpu_that_is_here(here: Any, devices: tuple[str, ...], capability: Any) -> None:
    here(capability)
    assert provider.chosen(devices) == "tensorrt"


@pytest.mark.parametrize("devices", [("l4",), ("a10g", "l4"), ("current", "t4")])
def test_tensorrt_rtx_builds_for_gpus_that_are_elsewhere(here: Any, devices: tuple[str, ...]) -> None:
    here((8, 6))
    assert provider.chosen(devices) == "tensorrt-rtx"


def test_tensorrt_rtx_takes_the_place_of_tensorrt(here: Any) -> None:
    here((8, 6), tensorrt=NO)
    assert provider.chosen(("current",)) == "tensorrt-rtx"


def test_without_a_gpu_tensorrt_rtx_builds(here: Any) -> None:
    here(None)
    assert provider.chosen(("t4", "a10g", "l4", "a100", "rtx4090")) == "tensorrt-rtx"


def test_a_gpu_that_nobody_builds_for_here_is_named(here: Any) -> None:
    here(None)
    with pytest.raises(MachineError) as caught:
        provider.chosen(("l4", "h100"))
    assert str(caught.value) == (
        "devices: h100 (NVIDIA H100, compute capability 9.0) is none that TensorRT-RTX builds for: build on such a "
        "machine with tensorrt, for which `compress build` writes a kit"
    )


def test_the_gpu_of_this_machine_may_be_one_that_nobody_builds_for(here: Any) -> None:
    here((9, 0), tensorrt=NO)
    with pytest.raises(MachineError) as caught:
        provider.chosen(("current",))
    assert "current (the GPU of this machine, compute capability 9.0) is none" in str(caught.value)


def test_current_needs_a_gpu(here: Any) -> None:
    here(None)
    with pytest.raises(MachineError, match="current is the GPU of this machine, and there is none: name devices"):
        provider.chosen(("current", "l4"))


def test_where_nobody_builds_both_reasons_are_said(here: Any) -> None:
    here((8, 6), tensorrt="tensorrt lacks", tensorrt_rtx="rtx lacks")
    with pytest.raises(MachineError, match="no engine can be built for a10g: rtx lacks; tensorrt lacks"):
        provider.chosen(("a10g",))
    here(None, tensorrt_rtx="rtx lacks")
    with pytest.raises(MachineError, match="for current, l4: rtx lacks; tensorrt builds for the GPU that is there"):
        provider.chosen(("current", "l4"))


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((12, 0), {"t4": (7, 5), "a10g": (8, 6), "current": (12, 0)}), (None, {"t4": (7, 5), "a10g": (8, 6)})],
)
def test_capabilities_are_those_of_names_and_of_what_is_here(here: Any, capability: Any, expected: Any) -> None:
    here(capability)
    assert provider.capabilities(("t4", "a10g", "current")) == expected


def test_the_gpu_that_is_here_is_unknown_unless_asked_for(here: Any) -> None:
    here((8, 9))
    assert provider.capabilities(("t4",)) == {"t4": (7, 5)}


def test_usable_speaks_of_every_provider(here: Any) -> None:
    here(None, tensorrt=NO)
    assert provider.usable() == {"tensorrt": NO, "tensorrt-rtx": None}
    assert set(provider.usable()) == set(get_args(Provider))


def _tensorrt(monkeypatch: Fixture, **names: Any) -> None:
    package = ModuleType("tensorrt")
    vars(package).update(names)
    monkeypatch.setitem(sys.modules, "tensorrt", package)


def test_tensorrt_needs_a_gpu_that_answers(monkeypatch: Fixture) -> None:
    _tensorrt(monkeypatch, Builder=object)
    monkeypatch.setattr(machine, "gpu_capability", lambda: None)
    assert provider.unusable("tensorrt") == (
        "tensorrt builds for the GPU that it runs on, and no NVIDIA GPU answers here"
    )
    monkeypatch.setattr(machine, "gpu_capability", lambda: (8, 6))
    assert provider.unusable("tensorrt") is None


def test_a_folder_called_tensorrt_is_not_the_package(monkeypatch: Fixture) -> None:
    _tensorrt(monkeypatch)
    assert "what is called tensorrt is not the package" in str(provider.unusable("tensorrt"))


@pytest.mark.parametrize(
    ("name", "install"),
    [("tensorrt", "pip install 'compressor[tensorrt]'"), ("tensorrt-rtx", "pip install 'compressor[tensorrt-rtx]'")],
)
def test_what_is_not_installed_is_said_with_how_to_install_it(monkeypatch: Fixture, name: Any, install: str) -> None:
    def lacks(package: str) -> Any:
        raise metadata.PackageNotFoundError(package)

    for package in ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(metadata, "distribution", lacks)
    with pytest.raises(MachineError) as caught:
        provider.module(name)
    assert str(caught.value).startswith(f"{name} cannot be used here (")
    assert install in str(caught.value)


def test_a_plugin_without_a_library_is_said(monkeypatch: Fixture, tmp_path: Any) -> None:
    class Plugin:
        version = "9"
        files = ("x/libcudart.so.13", "x/libtensorrt_rtx.so.1")

        def locate_file(self, file: str) -> Any:
            return tmp_path / file

    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    monkeypatch.setattr(metadata, "distribution", lambda _name: Plugin())
    with pytest.raises(MachineError, match=r"9 holds no libtensorrt_onnxparser_rtx\.so"):
        provider.module("tensorrt-rtx")


def test_nvidias_own_package_of_tensorrt_rtx_is_taken_first(monkeypatch: Fixture) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", package := ModuleType("tensorrt_rtx"))
    assert provider.module("tensorrt-rtx") is package


def test_the_capabilities_of_tensorrt_rtx_are_those_it_has() -> None:
    if why := provider.unusable("tensorrt-rtx"):
        pytest.skip(why)
    names = provider.module("tensorrt-rtx").ComputeCapability.__members__
    known = {f"SM{major}{minor}" for major, minor in provider._RTX_CAPABILITIES}
    assert known == {name for name in names if name.startswith("SM")}


def test_a_folder_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_a_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not provider.is_installed("only_a_folder")
    assert not provider.is_installed("nothing_at_all")
    assert provider.is_installed("numpy")
