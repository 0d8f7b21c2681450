"""Real engines of small graphs, built by TensorRT-RTX, which needs no GPU for that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from halves import HALF, kinds, write

from compressor import graph, machine
from compressor.engines.tensorrt import engines, provider, record
from compressor.engines.tensorrt.engines import Wanted
from compressor.errors import MachineError, RungError
from compressor.records import Artifact, Model, Progress
from compressor.samples import synthetic

RNG = np.random.default_rng(2)
PROFILE: Mapping[str, record.Range] = {"x": ((1, 3, 8, 8), (8, 3, 8, 8), (32, 3, 8, 8))}
CONV = {"w": RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)}


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    if why := provider.unusable("tensorrt-rtx"):
        pytest.skip(why)
    monkeypatch.setattr(machine, "gpu_capability", lambda: None)


def wanted(*devices: str, precision: Any = "fp32", profiles: Any = (PROFILE,), **more: Any) -> Wanted:
    return Wanted(devices, precision, profiles, **more)


@pytest.fixture
def conv(tmp_path: Path) -> Model:
    io = {"ins": "float[N,3,8,8] x", "outs": "float[N,4,6,6] y"}
    return graph.open_model(write(tmp_path / "conv.onnx", "c = Conv(x, w) y = Relu(c)", CONV, **io))


@pytest.fixture
def gemm(tmp_path: Path) -> Model:
    weights = {"w": RNG.normal(size=(4, 4)).astype(np.float32)}
    return graph.open_model(write(tmp_path / "gemm.onnx", "y = Gemm(x, w)", weights))


GEMM = {"x": ((1, 4), (8, 4), (32, 4))}


def returned(work: Any, told: list[Progress] | None = None) -> Any:
    while True:
        try:
            progress = next(work)
        except StopIteration as stop:
            return stop.value
        if told is not None:
            told.append(progress)


def made(folder: Path, order: Wanted, model: Model, told: list[Progress] | None = None) -> tuple[Artifact, ...]:
    shapes = {t.name: tuple(d if isinstance(d, int) else 1 for d in t.shape or ()) for t in model.inputs}
    places = (folder / "run" / "engines", folder / "run")
    artifacts: tuple[Artifact, ...] = returned(
        engines.made(order, model, places, synthetic(model.inputs, shapes, 4, 0, {})), told
    )
    return artifacts


def there(folder: Path) -> set[str]:
    return {path.relative_to(folder / "run" / "engines").as_posix() for path in (folder / "run").rglob("*.*")}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_turing_has_an_engine_of_its_own_and_others_share_one(tmp_path: Path, conv: Model) -> None:
    artifacts = made(tmp_path, wanted("a10g", "t4", "l4", "a10"), conv)
    files = ["model.a10g+l4+a10.rtx.engine", "model.t4.rtx.engine"]
    assert there(tmp_path) == {*files, "engine.json", "model.onnx"}
    assert [one.device for one in artifacts] == ["a10g+l4+a10", "t4"]
    assert [one.options["capabilities"] for one in artifacts] == ["8.6,8.9", "7.5"]
    for one, file in zip(artifacts, files, strict=True):
        assert [each.path for each in one.files] == [f"engines/{name}" for name in (file, "engine.json", "model.onnx")]
        assert one.engine == "tensorrt-rtx"
        assert one.is_engine
        for each in one.files:
            path = tmp_path / "run" / each.path
            assert (each.sha256, each.size_bytes) == (sha256(path), path.stat().st_size)


def test_engine_json_says_of_each_file_what_it_is(tmp_path: Path, conv: Model) -> None:
    made(tmp_path, wanted("t4", "a10g", "l4"), conv)
    folder = tmp_path / "run" / "engines"
    told = json.loads((folder / "engine.json").read_text())["engines"]
    assert [one["devices"] for one in told] == [["a10g", "l4"], ["t4"]]
    assert [one["capabilities"] for one in told] == [["8.6", "8.9"], ["7.5"]]
    for one in told:
        file = folder / one["file"]
        assert (one["sha256"], one["size_bytes"]) == (sha256(file), file.stat().st_size)
        assert one["onnx_sha256"] == sha256(folder / "model.onnx")
        assert (one["provider"], one["precision"], one["computes"]) == ("tensorrt-rtx", "fp32", "FP32")
        assert one["version"] == provider.module("tensorrt-rtx").__version__
        assert one["profiles"] == [{"x": [[1, 3, 8, 8], [8, 3, 8, 8], [32, 3, 8, 8]]}]
        assert one["inputs"] == [{"name": "x", "dtype": "float32", "shape": [-1, 3, 8, 8]}]
        assert one["outputs"] == [{"name": "y", "dtype": "float32", "shape": [-1, 4, 6, 6]}]
        assert one["build_s"] > 0
        assert record.of(file).model_dump(mode="json") == one
    assert len({one["sha256"] for one in told}) == 2


def test_progress_names_the_devices_it_is_for(tmp_path: Path, conv: Model) -> None:
    told: list[Progress] = []
    made(tmp_path, wanted("l4", "t4"), conv, told)
    steps = list(dict.fromkeys(progress.step.partition(",")[0] for progress in told))
    assert steps == ["types", "l4", "t4"]
    assert all(progress.total is None or progress.done <= progress.total for progress in told)


def test_a_group_that_fails_takes_the_others_with_it(tmp_path: Path, gemm: Model) -> None:
    with pytest.raises(RungError) as caught:
        made(tmp_path, wanted("a10g", "t4", profiles=(GEMM,)), gemm)
    assert str(caught.value).startswith("for t4: tensorrt-rtx could not build the engine: ")
    assert "'Gemm_y'" in str(caught.value)
    assert "FP32 GEMM is not supported" in str(caught.value)
    assert not (tmp_path / "run" / "engines").exists()


def test_turing_takes_products_in_fp16(tmp_path: Path, gemm: Model) -> None:
    (one,) = made(tmp_path, wanted("t4", precision="fp16", profiles=(GEMM,)), gemm)
    assert one.options["computes"] == "FP16"
    assert kinds(tmp_path / "run" / "engines" / "model.onnx")["Gemm_y"] == HALF
    bound = record.of(tmp_path / "run" / one.files[0].path).inputs
    assert bound == (record.Bound(name="x", dtype="float32", shape=(-1, 4)),)


def test_what_fp16_cannot_hold_is_said(tmp_path: Path) -> None:
    body = "h = Mul(x, k) r = Relu(h) a = Abs(r) s = Sqrt(a) y = Neg(s)"
    model = graph.open_model(write(tmp_path / "m.onnx", body, {"k": 1e6}))
    (one,) = made(tmp_path, wanted("l4", precision="fp16", profiles=(GEMM,)), model)
    assert one.options["computes"] == "FP16, FP32 at 4 nodes"
    assert "FP32, because FP16 cannot hold what samples gave there: Mul_h, Relu_r, Abs_a, ..." in one.notes


def test_an_int8_graph_is_said_to_be_no_proof_of_int8_kernels(tmp_path: Path) -> None:
    body = """q = QuantizeLinear(x, s, o) d = DequantizeLinear(q, s, o)
        e = DequantizeLinear(w, s, o) y = MatMul(d, e)"""
    weights = {"s": 0.03, "o": np.int8(0), "w": RNG.integers(-127, 128, (4, 4)).astype(np.int8)}
    model = graph.open_model(write(tmp_path / "m.onnx", body, weights))
    (one,) = made(tmp_path, wanted("l4", precision="auto", profiles=(GEMM,)), model)
    assert one.options["precision"] == "auto"
    assert one.options["computes"].startswith("INT8 asked for by 2 DequantizeLinear, elsewhere FP32; TensorRT-RTX's")
    assert any(note.endswith("its size is no proof of 8-bit weights") for note in one.notes)


def test_two_inputs_have_two_profiles(tmp_path: Path) -> None:
    io = {"ins": "float[N,S] x, float[N,S] u", "outs": "float[N,S] y"}
    model = graph.open_model(write(tmp_path / "m.onnx", "a = Add(x, u) y = Relu(a)", **io))
    short, long = ((1, 8), (2, 16), (4, 32)), ((1, 64), (1, 64), (1, 64))
    profiles = tuple({"x": each, "u": each} for each in (short, long))
    (one,) = made(tmp_path, wanted("l4", profiles=profiles), model)
    found = record.of(tmp_path / "run" / one.files[0].path)
    assert found.profiles == profiles
    assert [bound.shape for bound in (*found.inputs, *found.outputs)] == [(-1, -1)] * 3
    assert [note for note in one.notes if note.startswith("profile")] == [
        "profile 0: x 1x8/2x16/4x32, u 1x8/2x16/4x32",
        "profile 1: x 1x64/1x64/1x64, u 1x64/1x64/1x64",
    ]


def test_a_model_of_fixed_shapes_needs_no_profile(tmp_path: Path) -> None:
    model = graph.open_model(write(tmp_path / "m.onnx", "y = Relu(x)", ins="float[2,4] x", outs="float[2,4] y"))
    (one,) = made(tmp_path, wanted("rtx4090", profiles=()), model)
    found = record.of(tmp_path / "run" / one.files[0].path)
    assert (found.profiles, found.inputs[0].shape) == ((), (2, 4))
    assert not [note for note in one.notes if note.startswith("profile")]


def test_a_profile_that_leaves_an_input_out_ends_the_rung(tmp_path: Path, conv: Model) -> None:
    with pytest.raises(RungError, match=r"for l4: tensorrt-rtx could not build the engine: .*profile"):
        made(tmp_path, wanted("l4", profiles=()), conv)


def test_an_operator_that_the_parser_refuses_is_named(tmp_path: Path) -> None:
    model = graph.open_model(
        write(tmp_path / "m.onnx", "n = Det(x) y = Neg(n)", ins="float[N,4,4] x", outs="float[N] y")
    )
    profiles = ({"x": ((1, 4, 4), (1, 4, 4), (2, 4, 4))},)
    with pytest.raises(RungError, match=r"for l4: tensorrt-rtx does not take the graph: .*Det"):
        made(tmp_path, wanted("l4", profiles=profiles), model)
    assert not (tmp_path / "run" / "engines").exists()


def test_a_timing_cache_is_not_for_a_builder_that_times_nothing(tmp_path: Path, conv: Model) -> None:
    cache = tmp_path / "timing.cache"
    cache.write_bytes(b"no cache at all")
    (artifact,) = made(tmp_path, wanted("a10g", timing_cache=cache), conv)
    assert cache.read_bytes() == b"no cache at all"
    assert not any("cache" in note for note in artifact.notes)


def test_settings_reach_the_builder(tmp_path: Path, conv: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    trt, seen = provider.module("tensorrt-rtx"), []
    real = trt.Builder

    class Builder:
        def __init__(self, log: Any) -> None:
            self.real = real(log)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

        def build_serialized_network(self, network: Any, config: Any) -> Any:
            limit = config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE)
            names = [config.get_compute_capability(i).name for i in range(config.num_compute_capabilities)]
            seen.append((limit, config.builder_optimization_level, names, config.num_optimization_profiles))
            return self.real.build_serialized_network(network, config)

    monkeypatch.setattr(trt, "Builder", Builder)
    made(tmp_path, wanted("l4", "a10g", workspace_bytes=1 << 24, optimization_level=1), conv)
    assert seen == [(1 << 24, 1, ["SM86", "SM89"], 1)]


def test_a_device_that_nobody_builds_for_here_writes_nothing(tmp_path: Path, conv: Model) -> None:
    with pytest.raises(MachineError, match="h100"):
        made(tmp_path, wanted("h100"), conv)
    assert not (tmp_path / "run" / "engines").exists()


def test_the_model_stays_and_the_engine_is_of_the_typed_graph(tmp_path: Path, conv: Model) -> None:
    before = conv.path.read_bytes()
    made(tmp_path, wanted("l4", precision="fp16"), conv)
    assert conv.path.read_bytes() == before
    assert (tmp_path / "run" / "engines" / "model.onnx").read_bytes() != before


def test_a_kit_holds_the_typed_graph_for_devices_that_nobody_builds_for_here(tmp_path: Path, conv: Model) -> None:
    order = wanted("h100", precision="fp16", workspace_bytes=1 << 28, optimization_level=5)
    samples = synthetic(conv.inputs, {"x": (1, 3, 8, 8)}, 2, 0, {})
    folder = tmp_path / "kit"
    assert returned(engines.kit(order, conv, (folder, "net"), samples)) == folder
    names = {path.name for path in folder.iterdir()}
    assert names >= {"model.onnx", "build_engine.py", "engine.template.json", "profiles.json", "trtexec.txt"}
    assert kinds(folder / "model.onnx")["Conv_c"] == HALF
    template = json.loads((folder / "engine.template.json").read_text())
    assert template["build"]["devices"] == ["h100"]
    assert (template["build"]["workspace_bytes"], template["build"]["optimization_level"]) == (1 << 28, 5)
    assert template["engines"][0]["inputs"] == [{"name": "x", "dtype": "float32", "shape": [-1, 3, 8, 8]}]
    assert (template["engines"][0]["precision"], template["engines"][0]["computes"]) == ("fp16", "FP16")
    assert template["engines"][0]["onnx_sha256"] == sha256(folder / "model.onnx")
    assert json.loads((folder / "profiles.json").read_text()) == [{"x": [list(each) for each in PROFILE["x"]]}]
