"""What the engine's settings decide: who is measured, what for, and what the original is held against."""

from __future__ import annotations

from typing import Any

import pytest

from compressor import machine
from compressor.engines import Onnxruntime, Tensorrt
from compressor.engines.tensorrt import provider
from compressor.errors import InputError, MachineError
from compressor.records import Artifact


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    def here(capability: tuple[int, int] | None) -> None:
        monkeypatch.setattr(machine, "gpu_capability", lambda: capability)
        monkeypatch.setattr(machine, "gpu", lambda: "NVIDIA RTX A5000")
        monkeypatch.setattr(provider, "chosen", lambda _devices: "tensorrt-rtx")

    return here


@pytest.mark.parametrize(
    ("devices", "capability", "expected"),
    [
        (("a10g",), (8, 6), True),
        (("a10g", "rtx3090"), (8, 6), True),
        (("current",), (8, 6), True),
        (("a10g", "l4"), (8, 6), False),  # it would say nothing of the l4
        (("l4",), (8, 6), False),
        (("a10g",), None, False),
        (("current",), None, False),
    ],
)
def test_a_gpu_counts_only_where_every_device_is_like_it(
    gpu: Any, devices: tuple[str, ...], capability: tuple[int, int] | None, *, expected: bool
) -> None:
    gpu(capability)
    engine = Tensorrt(devices=devices)
    assert engine.is_here() is expected
    assert engine.is_timed() is expected
    artifacts = [Artifact("tensorrt-rtx", "a10g", (), 0.0, {"capabilities": "8.6,8.9"})]
    assert engine.fitting(artifacts) == (artifacts[0] if expected else None)


def test_a_gpu_that_stands_for_a_device_is_named(gpu: Any) -> None:
    gpu((8, 6))
    assert Tensorrt(devices=("a10g",)).warnings() == ("measured on NVIDIA RTX A5000, which stands for a10g",)
    assert Tensorrt().warnings() == ()


def test_the_original_is_held_against_fp32_on_the_gpu_and_the_cpu_without(gpu: Any) -> None:
    gpu(None)
    assert Tensorrt(devices=("a10g",)).plain(3) == Onnxruntime(threads=3)
    gpu((8, 6))
    assert Tensorrt(devices=("a10g",), precision="int8").plain(3) == Tensorrt(precision="fp32")
    gpu((7, 5))  # TensorRT-RTX has no FP32 products there
    assert Tensorrt(devices=("t4",)).plain(3) == Tensorrt(precision="fp16")


def test_a_gpu_without_what_runs_engines_is_told_before_any_work(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu((8, 6))
    monkeypatch.setattr(provider, "is_installed", lambda _package: False)
    with pytest.raises(MachineError, match="pycuda"):
        Tensorrt(devices=("a10g",)).check()
    Tensorrt(devices=("l4",)).check()


def test_devices_are_known_by_name_however_it_is_written() -> None:
    assert Tensorrt(devices=("A10G", "l4", "a10g")).devices == ("a10g", "l4")
    with pytest.raises(ValueError, match="found 'a11'"):
        Tensorrt(devices=("a11",))


def test_refit_needs_a_gpu(gpu: Any) -> None:
    gpu(None)
    with pytest.raises(InputError, match="refit"):
        Tensorrt(devices=("l4",), refit=True).check()
    gpu((8, 9))
    Tensorrt(devices=("a10g",), refit=True).check()
