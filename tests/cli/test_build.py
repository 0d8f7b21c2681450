"""`compress build`: engines of the demo model for real devices, the kit, and each way in which it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from compressor import machine

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "digits.onnx"
SAMPLES = ROOT / "calibration_data" / "digits_calibration.npz"
NEWER = "tensorrt:a10g,l4,a100,rtx4090"

pytestmark = [
    pytest.mark.skipif(find_spec("tensorrt_rtx_bindings") is None, reason="TensorRT-RTX is not installed"),
    pytest.mark.skipif(machine.gpu() is not None, reason="another builder is chosen where a GPU is"),
]


def build(folder: Path, *words: str, model: Path = DEMO) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "compressor", "build", str(model), "--output", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    ("target", "precision", "engine", "computes"),
    [
        (NEWER, "fp32", "model.a10g+l4+a100+rtx4090.rtx.engine", "FP32"),
        (NEWER, "fp16", "model.a10g+l4+a100+rtx4090.rtx.engine", "FP16"),
        (NEWER, "int8", "model.a10g+l4+a100+rtx4090.rtx.engine", "INT8 asked for by"),
        ("tensorrt:t4", "fp16", "model.t4.rtx.engine", "FP16"),
    ],
)
def test_the_demo_is_built_for_devices_that_are_not_here(
    tmp_path: Path, target: str, precision: str, engine: str, computes: str
) -> None:
    ended = build(tmp_path, "--target", target, "--precision", precision, "--calibration", str(SAMPLES), "--json")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    (artifact,) = told["artifacts"]
    built = tmp_path / "digits"
    assert (built / engine).stat().st_size == artifact["files"][0]["size_bytes"] > 10_000
    (one,) = json.loads((built / "engine.json").read_text())["engines"]
    assert (one["file"], one["devices"]) == (engine, target.partition(":")[2].split(","))
    assert one["computes"].startswith(computes)
    assert one["profiles"] == [{"input": [[1, 1, 32, 32], [8, 1, 32, 32], [32, 1, 32, 32]]}]
    assert {path.name for path in (built / "kit").iterdir()} >= {"model.onnx", "build_engine.py", "trtexec.txt"}
    assert "derived: input 1x1x32x32/8x1x32x32/32x1x32x32" in ended.stderr


def test_a_device_that_nobody_here_builds_for_gets_a_kit_and_exit_5(tmp_path: Path) -> None:
    ended = build(tmp_path, "--target", "tensorrt:h100", "--profile", "batch=1/4/16")
    assert ended.returncode == 5
    assert "compute capability 9.0" in ended.stderr
    kit = tmp_path / "digits" / "kit"
    assert str(kit) in ended.stderr
    assert json.loads((kit / "profiles.json").read_text()) == [
        {"input": [[1, 1, 32, 32], [4, 1, 32, 32], [16, 1, 32, 32]]}
    ]
    assert not list((tmp_path / "digits").glob("*.engine"))


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "give --target tensorrt:a10g"),
        (("--target", "tensorrt:a11"), 2, "found 'a11'"),
        (("--target", "tensorrt"), 2, "give --target tensorrt:a10g"),
        (("--target", "tensorrt:current"), 5, "name devices, such as a10g or l4"),
        (("--target", "tensorrt:l4", "--profile", "batch=8/1/32"), 2, "least <= optimal <= largest"),
        (("--target", "tensorrt:l4", "--profile", "input=1x1x31x32"), 2, "expected shapes that fit"),
        (("--target", "tensorrt:l4", "--profile", "batch"), 2, "expected NAME=LEAST/OPTIMAL/LARGEST"),
        (("--target", "tensorrt:l4", "--precision", "fp8"), 2, "expected auto, int8, fp16 or fp32"),
        (("--target", "tensorrt:t4", "--precision", "fp32"), 3, "FP32 GEMM is not supported"),
        (("--precision", "fp16"), 2, "give --target tensorrt:a10g too"),
    ],
)
def test_what_cannot_be_built_ends_with_a_sentence(
    tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    ended = build(tmp_path, *words)
    assert ended.returncode == code, ended.stderr
    assert message in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_a_build_never_takes_the_place_of_the_model(tmp_path: Path) -> None:
    model = tmp_path / "model" / "model.onnx"
    model.parent.mkdir()
    model.write_bytes(DEMO.read_bytes())
    ended = build(tmp_path, "--target", "tensorrt:l4", model=model)
    assert ended.returncode == 2
    assert "choose another --output" in ended.stderr
    assert model.read_bytes() == DEMO.read_bytes()
    assert [path.name for path in model.parent.iterdir()] == ["model.onnx"]


def test_a_second_build_leaves_nothing_of_the_first_and_a_refused_one_leaves_it_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    assert build(tmp_path, "--target", "tensorrt:l4,t4").returncode == 0
    assert {path.name for path in folder.glob("*.engine")} == {"model.l4.rtx.engine", "model.t4.rtx.engine"}
    assert build(tmp_path, "--target", "tensorrt:l4").returncode == 0
    assert {path.name for path in folder.glob("*.engine")} == {"model.l4.rtx.engine"}
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert build(tmp_path, "--target", "tensorrt:t4", "--precision", "fp32").returncode == 3
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["digits"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("timing_cache: no/such/folder/t.cache", "engine.tensorrt.timing_cache: expected a file in a folder"),
        ("refit: true", "engine.tensorrt.refit: TensorRT-RTX builds such engines only where a GPU is"),
        ("workspace: 99999999999GiB", "engine.tensorrt.workspace"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(tmp_path: Path, settings: str, message: str) -> None:
    asked = tmp_path / "r.yaml"
    asked.write_text(f"engine: {{tensorrt: {{devices: [l4], {settings}}}}}\n")
    ended = build(tmp_path, "--recipe", str(asked))
    assert ended.returncode == 2, ended.stderr
    assert message in " ".join(ended.stderr.split())


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "precision", "profile"),
    [
        ("efficientnet_lite0", "fp16", "batch=1/8/32"),
        ("resnet56_cifar10", "int8", "batch=1/8/32"),
        ("mlperf_tiny_kws_dscnn_bn", "int8", "batch=1/8/32"),
    ],
)
def test_real_models_are_built(shared: Path, tmp_path: Path, name: str, precision: str, profile: str) -> None:
    model = shared / "models" / f"{name}.onnx"
    ended = build(tmp_path, "--target", NEWER, "--precision", precision, "--profile", profile, model=model)
    assert ended.returncode == 0, ended.stderr
    assert list((tmp_path / name).glob("model.*.rtx.engine"))


@pytest.mark.shared
def test_a_model_that_the_builder_itself_fails_on_is_refused_with_its_reason(shared: Path, tmp_path: Path) -> None:
    model = shared / "models" / "silero_vad_16k_op15.onnx"
    profile = ("--profile", "batch=1/1/1,sequence=512")
    ended = build(tmp_path, "--target", "tensorrt:a10g", "--precision", "fp32", *profile, model=model)
    assert ended.returncode == 3, ended.stderr
    assert "graphScope" in ended.stderr
    assert (tmp_path / "silero_vad_16k_op15" / "kit" / "model.onnx").is_file()
