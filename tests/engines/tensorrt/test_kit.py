from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compressor.engines.tensorrt import kit, record

PROFILES = (
    {"x": ((1, 3, 8, 8), (8, 3, 8, 8), (32, 3, 8, 8))},
    {"x": ((1, 3, 8, 8), (1, 3, 8, 8), (1, 3, 8, 8))},
)
PLAN = kit.KitPlan(
    name="net",
    devices=("a10g", "l4"),
    profiles=PROFILES,
    workspace_bytes=1 << 28,
    precision="fp32",
    computes="as the graph's types say",
    optimization_level=2,
    refit=False,
    timing_cache=Path("/somewhere/timing.cache"),
    inputs=(record.Bound(name="x", dtype="float32", shape=(-1, 3, 8, 8)),),
    outputs=(record.Bound(name="y", dtype="float32", shape=(-1, 4, 6, 6)),),
)
GPU = {"name": "NVIDIA A10G", "capability": [8, 6]}
ENGINE = {
    "inputs": {"x": ["FLOAT", [-1, 3, 8, 8]]},
    "outputs": {"y": ["FLOAT", [-1, 4, 6, 6]]},
    "profiles": [{"x": [[1, 3, 8, 8], [8, 3, 8, 8], [32, 3, 8, 8]]}, {"x": [[1, 3, 8, 8]] * 3}],
}
STUB = Path(__file__).parents[2] / "data" / "stub"
"""A package `tensorrt` that is TensorRT-RTX, with what needs a GPU replaced."""
rtx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("tensorrt_rtx_bindings", "onnxruntime_ep_nv_tensorrt_rtx")),
    reason="needs the wheels of the extra tensorrt-rtx, which build without a GPU",
)


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """Write a convolution with an open batch; its weights lie in another file."""
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]> g (float[N,3,8,8] x) => (float[N,4,6,6] y) { y = Conv(x, w) }""")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w"))
    (tmp_path / "given" / "weights").mkdir(parents=True)
    path = tmp_path / "given" / "net.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights/w.bin", size_threshold=0)
    return path


def _run(folder: Path, **told: Any) -> subprocess.CompletedProcess[str]:
    """Run the script of a kit, with the stub told what it is to pretend."""
    told = {"version": "10.9.0.34", "network_flags": 1, "gpu": GPU, "engine": ENGINE, "cuda_error": 0} | told
    return subprocess.run(
        [sys.executable, str(folder / "build_engine.py")],
        env=os.environ | {"PYTHONPATH": str(STUB), "TOLD": json.dumps(told)},
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )


def test_a_kit_is_all_that_the_build_needs(net: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kit"
    written = kit.write(folder, net, PLAN)
    names = [path.relative_to(folder).as_posix() for path in written]
    assert names[:2] == ["model.onnx", "weights/w.bin"]
    assert set(names[2:]) == {"profiles.json", "engine.template.json", "build_engine.py", "trtexec.txt", "README.md"}
    assert sorted(names) == sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert (folder / "model.onnx").read_bytes() == net.read_bytes()
    assert (folder / "weights" / "w.bin").read_bytes() == (net.parent / "weights" / "w.bin").read_bytes()


def test_a_kit_holds_no_path_of_the_machine_that_wrote_it(net: Path, tmp_path: Path) -> None:
    for path in kit.write(tmp_path / "kit", net, PLAN):
        assert str(tmp_path).encode() not in path.read_bytes()
        assert b"/somewhere" not in path.read_bytes()


def test_the_script_needs_tensorrt_only(net: Path, tmp_path: Path) -> None:
    kit.write(tmp_path / "kit", net, PLAN)
    text = (tmp_path / "kit" / "build_engine.py").read_text()
    compile(text, "build_engine.py", "exec")
    modules = {line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert modules <= set(sys.stdlib_module_names)
    assert "compressor" not in text


def test_external_data_that_has_the_graphs_name_keeps_it(net: Path, tmp_path: Path) -> None:
    proto = onnx.load(net)
    other = tmp_path / "other" / "net.onnx"
    other.parent.mkdir()
    onnx.save(proto, other, save_as_external_data=True, location="model.onnx", size_threshold=0)
    written = kit.write(tmp_path / "kit", other, PLAN)
    assert [path.name for path in written[:2]] == ["net.onnx", "model.onnx"]
    assert "--onnx=net.onnx " in (tmp_path / "kit" / "trtexec.txt").read_text()


def _trtexec(folder: Path) -> list[str]:
    return shlex.split((folder / "trtexec.txt").read_text(), comments=True)


def test_trtexec_is_told_all_that_the_script_does(net: Path, tmp_path: Path) -> None:
    kit.write(tmp_path, net, replace(PLAN, refit=True))
    assert _trtexec(tmp_path) == [
        "trtexec",
        "--onnx=model.onnx",
        "--stronglyTyped",
        "--profile=0",
        "--minShapes=x:1x3x8x8",
        "--optShapes=x:8x3x8x8",
        "--maxShapes=x:32x3x8x8",
        "--profile=1",
        "--minShapes=x:1x3x8x8",
        "--optShapes=x:1x3x8x8",
        "--maxShapes=x:1x3x8x8",
        "--memPoolSize=workspace:268435456B",
        "--builderOptimizationLevel=2",
        "--timingCacheFile=timing.cache",
        "--refit",
        "--skipInference",
        "--saveEngine=model.engine",
    ]


def test_what_is_not_asked_for_is_not_in_the_command(net: Path, tmp_path: Path) -> None:
    kit.write(tmp_path, net, replace(PLAN, profiles=(), timing_cache=None, workspace_bytes=None))
    assert {option.partition("=")[0] for option in _trtexec(tmp_path)} == {
        "trtexec",
        "--onnx",
        "--stronglyTyped",
        "--builderOptimizationLevel",
        "--skipInference",
        "--saveEngine",
    }


@pytest.mark.parametrize("name", ["x y", "x:0", 'a"b', "$(touch x)", "a;b", "a\\b", "ä"])
def test_a_strange_name_reaches_trtexec_as_it_is(net: Path, tmp_path: Path, name: str) -> None:
    profiles = ({name: ((1, 2), (3, 4), (5, 6)), "other": ((1,), (1,), (1,))},)
    kit.write(tmp_path, net, replace(PLAN, profiles=profiles))
    assert f"--optShapes={name}:3x4,other:1" in _trtexec(tmp_path)


@pytest.mark.parametrize("name", ["it's", "a,b", "a*"])
def test_a_name_that_trtexec_cannot_be_told_is_said(net: Path, tmp_path: Path, name: str) -> None:
    kit.write(tmp_path, net, replace(PLAN, profiles=({name: ((1,), (1,), (1,))},)))
    assert _trtexec(tmp_path) == []
    text = (tmp_path / "trtexec.txt").read_text()
    assert name in text
    assert "build_engine.py" in text


@rtx
@pytest.mark.parametrize(("version", "network_flags"), [("10.9.0.34", 1), ("11.4.0.106", 0)])
def test_the_script_builds_and_describes_an_engine(net: Path, tmp_path: Path, version: str, network_flags: int) -> None:
    folder = tmp_path / "kit"
    kit.write(folder, net, PLAN)
    done = _run(folder, version=version, network_flags=network_flags)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:3] == ["level 2", "workspace 268435456"]
    (found,) = record.read(folder / record.FILE).engines
    engine = (folder / "model.a10g.engine").read_bytes()
    assert len(engine) > 10_000
    assert (found.file, found.size_bytes) == ("model.a10g.engine", len(engine))
    assert found.sha256 == hashlib.sha256(engine).hexdigest()
    assert (found.provider, found.version) == ("tensorrt", version)
    assert (found.devices, found.capabilities) == (("a10g",), ("8.6",))
    assert (found.precision, found.computes) == ("fp32", "as the graph's types say")
    assert "REFIT" not in found.flags
    assert (found.profiles, found.inputs, found.outputs) == (PROFILES, PLAN.inputs, PLAN.outputs)
    assert found.onnx_sha256 == hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
    assert 0 < found.build_s < 600
    assert (folder / "timing.cache").stat().st_size > 0
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


@rtx
def test_a_second_device_is_added_and_another_build_of_the_first_takes_its_place(net: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kit"
    kit.write(folder, net, replace(PLAN, refit=True, timing_cache=None, workspace_bytes=None))
    done = _run(folder)
    assert "to be refitted\n" in done.stdout
    assert "workspace 268435456\n" not in done.stdout
    assert _run(folder, gpu={"name": "NVIDIA L4", "capability": [8, 9]}).returncode == 0
    assert _run(folder).returncode == 0
    found = record.read(folder / record.FILE).engines
    assert [one.file for one in found] == ["model.l4.engine", "model.a10g.engine"]
    assert all("REFIT" in one.flags for one in found)
    assert not (folder / "timing.cache").exists()


@rtx
def test_an_engine_for_another_gpu_than_planned_is_named_after_it(net: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kit"
    kit.write(folder, net, PLAN)
    done = _run(folder, gpu={"name": "NVIDIA Thor", "capability": [11, 0]})
    assert done.returncode == 0
    assert done.stderr == "warning: the kit is for a10g, l4; this engine is for NVIDIA Thor\n"
    assert record.read(folder / record.FILE).engines[0].devices == ("sm110",)


@rtx
@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (
            ENGINE | {"inputs": {"x": ["HALF", [-1, 3, 8, 8]]}},
            "x: float32 [-1, 3, 8, 8] expected, float16 [-1, 3, 8, 8]",
        ),
        (ENGINE | {"outputs": {"y": ["FLOAT", [-1, 4, 6, 7]]}}, "y: float32 [-1, 4, 6, 6] expected"),
        (ENGINE | {"outputs": {"y": ["FLOAT", [-1, 4]]}}, "y: float32 [-1, 4, 6, 6] expected"),
        (ENGINE | {"outputs": {"z": ["FLOAT", [-1, 4, 6, 6]]}}, "outputs: ['y'] were expected, ['z'] found"),
        (ENGINE | {"profiles": ENGINE["profiles"][:1]}, "profiles: 2 were expected, 1 found"),
        (ENGINE | {"profiles": ENGINE["profiles"][:1] * 2}, "profile 1: x: [[1, 3, 8, 8], [1, 3, 8, 8], [1, 3, 8, 8]]"),
        (None, "the engine cannot be loaded"),
    ],
)
def test_an_engine_that_is_not_what_was_asked_for_is_not_kept(
    net: Path, tmp_path: Path, engine: dict[str, Any] | None, said: str
) -> None:
    folder = tmp_path / "kit"
    kit.write(folder, net, PLAN)
    done = _run(folder, engine=engine)
    assert done.returncode == 1
    assert said in done.stderr
    assert not list(folder.glob("*.engine"))
    assert not (folder / record.FILE).exists()


@rtx
def test_strange_names_of_tensors_do_no_harm(net: Path, tmp_path: Path) -> None:
    name = "x 'a\": b,*"
    proto = onnx.load(net)
    proto.graph.input[0].name = proto.graph.node[0].input[0] = name
    onnx.save(proto, tmp_path / "given" / "strange.onnx")
    bounds = (record.Bound(name=name, dtype="float32", shape=(-1, 3, 8, 8)),)
    profiles = ({name: PROFILES[0]["x"]},)
    folder = tmp_path / "kit"
    kit.write(folder, tmp_path / "given" / "strange.onnx", replace(PLAN, inputs=bounds, profiles=profiles))
    engine = ENGINE | {"inputs": {name: ["FLOAT", [-1, 3, 8, 8]]}, "profiles": [{name: PROFILES[0]["x"]}]}
    done = _run(folder, engine=engine)
    assert (done.returncode, done.stderr) == (0, "")
    assert record.read(folder / record.FILE).engines[0].inputs == bounds


@rtx
def test_a_dimension_that_the_kit_leaves_open_may_be_settled_by_the_engine(net: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kit"
    outputs = (record.Bound(name="y", dtype="float32", shape=(-1, -1, -1, -1)),)
    kit.write(folder, net, replace(PLAN, outputs=outputs))
    assert _run(folder).returncode == 0
    assert record.read(folder / record.FILE).engines[0].outputs == PLAN.outputs


@rtx
def test_what_the_parser_refuses_is_said_with_its_node(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[N,3,8,8] x) => (float[N,4,6,6] y) { y = com.microsoft.Whatever(x) }""")
    proto.graph.node[0].name = "the node"
    (tmp_path / "given").mkdir()
    onnx.save(proto, tmp_path / "given" / "net.onnx")
    folder = tmp_path / "kit"
    kit.write(folder, tmp_path / "given" / "net.onnx", PLAN)
    done = _run(folder)
    assert done.returncode == 1
    assert done.stderr.startswith("model.onnx was not accepted:\n")
    assert "Whatever 'the node'" in done.stderr
    assert "Traceback" not in done.stderr


@rtx
def test_what_the_builder_refuses_is_said_as_it_logged_it(net: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kit"
    kit.write(folder, net, replace(PLAN, profiles=()))
    done = _run(folder)
    assert done.returncode == 1
    assert "no engine was built:\n" in done.stderr
    assert "optimization profile" in done.stderr


@rtx
def test_a_machine_without_a_gpu_is_told(net: Path, tmp_path: Path) -> None:
    kit.write(tmp_path / "kit", net, PLAN)
    done = _run(tmp_path / "kit", cuda_error=100)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("libcuda.so.1: CUDA error 100: no NVIDIA GPU answers")


@rtx
@pytest.mark.parametrize("version", ["8.6.1", "12.0.0"])
def test_another_tensorrt_is_refused(net: Path, tmp_path: Path, version: str) -> None:
    kit.write(tmp_path / "kit", net, PLAN)
    assert f"tensorrt {version}: expected 10 or 11" in _run(tmp_path / "kit", version=version).stderr


def test_a_machine_without_tensorrt_is_told(net: Path, tmp_path: Path) -> None:
    kit.write(tmp_path / "kit", net, PLAN)
    (tmp_path / "stub" / "tensorrt").mkdir(parents=True)
    (tmp_path / "stub" / "tensorrt" / "__init__.py").write_text("raise ImportError('no such library')")
    script = [sys.executable, str(tmp_path / "kit" / "build_engine.py")]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "stub")}
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "pip install tensorrt" in done.stderr, "no such library" in done.stderr) == (1, True, True)


def test_a_file_that_was_changed_on_its_way_is_not_built(net: Path, tmp_path: Path) -> None:
    kit.write(tmp_path / "kit", net, PLAN)
    (tmp_path / "kit" / "weights" / "w.bin").write_bytes(b"\0" * 432)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "kit" / "build_engine.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("weights/w.bin: sha256 ")
