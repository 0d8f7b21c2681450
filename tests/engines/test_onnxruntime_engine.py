from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from pydantic import ValidationError

from compressor import graph, runtime
from compressor.engines import Auto, Onnxruntime
from compressor.errors import MachineError, RungError

X = np.float32([[1, -2]])


@pytest.fixture
def external(tmp_path: Path) -> Path:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[1,2] x) => (float[1,2] y) { y = MatMul(x, W) }'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32([[1, 2], [3, 4]]), "W"))
    (tmp_path / "given").mkdir()
    path = tmp_path / "given" / "my net.v2.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_auto_takes_every_usable_cpu_and_a_recipe_may_take_fewer() -> None:
    assert Auto().resolve(6) == Onnxruntime(threads=6, spinning=False)
    assert Onnxruntime().resolve(6).threads == 6
    assert Onnxruntime(threads=2).resolve(6).threads == 2


def test_a_recipes_provider_stays_and_is_the_cpus_where_none_is_named() -> None:
    assert Onnxruntime(provider="cuda").resolve(6) == Onnxruntime(threads=6, provider="cuda")
    assert Auto().resolve(6).provider == "cpu"
    with pytest.raises(ValidationError, match="'cpu', 'cuda', 'tensorrt' or 'tensorrt-rtx'"):
        Onnxruntime.model_validate({"provider": "gpu"})


def test_no_thread_is_refused() -> None:
    with pytest.raises(ValidationError):
        Onnxruntime(threads=0)


def test_an_artifact_is_all_files_with_the_options_measured_and_gives_the_models_outputs(
    external: Path, tmp_path: Path
) -> None:
    engine = Onnxruntime(threads=2)
    run = tmp_path / "run"
    artifact = engine.build(graph.open_model(external), run / "artifacts" / "int8", run)
    assert [file.path for file in artifact.files] == ["artifacts/int8/model.onnx", "artifacts/int8/weights.bin"]
    assert [file.size_bytes for file in artifact.files] == [external.stat().st_size, 16]
    assert artifact.options["intra_op_num_threads"] == "2"
    assert artifact.options["session.intra_op.allow_spinning"] == "0"
    np.testing.assert_array_equal(engine.open(artifact, run)({"x": X})["y"], [[-5, -6]])


def test_an_artifact_stands_alone(external: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    artifact = Onnxruntime(threads=1).build(graph.open_model(external), run / "int8", run)
    for file in external.parent.iterdir():
        file.unlink()
    run.rename(tmp_path / "moved")
    np.testing.assert_array_equal(Onnxruntime().open(artifact, tmp_path / "moved")({"x": X})["y"], [[-5, -6]])


def test_a_damaged_artifact_is_refused_with_its_name(external: Path, tmp_path: Path) -> None:
    artifact = Onnxruntime(threads=1).build(graph.open_model(external), tmp_path / "int8", tmp_path)
    (tmp_path / "int8" / "weights.bin").write_bytes(b"")
    with pytest.raises(RungError, match=r"could not load model\.onnx"):
        Onnxruntime().open(artifact, tmp_path)


def test_external_data_that_has_the_artifacts_name_keeps_it(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]> g (float[1,64] x) => (float[1,64] y) { y = MatMul (x, w) }""")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(64, dtype=np.float32), "w"))
    onnx.save(proto, given / "net.onnx", save_as_external_data=True, location="model.onnx", size_threshold=0)
    model = graph.open_model(given / "net.onnx", {"x": (1, 64)})
    artifact = Onnxruntime(threads=1).build(model, tmp_path / "run" / "a", tmp_path / "run")
    assert [file.path for file in artifact.files] == ["a/net.onnx", "a/model.onnx"]
    x = np.arange(64, dtype=np.float32)[None]
    np.testing.assert_array_equal(Onnxruntime(threads=1).open(artifact, tmp_path / "run")({"x": x})["y"], x)


def test_the_cpu_is_always_there_and_a_missing_provider_is_told_before_any_work(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    Onnxruntime().check()
    cuda = Onnxruntime(threads=1, provider="cuda")
    for early_or_late in (cuda.check, lambda: cuda.build(graph.open_model(external), tmp_path / "a", tmp_path)):
        with pytest.raises(MachineError, match=r"^CUDAExecutionProvider is not available here; found CPU"):
            early_or_late()


class Opened:
    """A session on a GPU that takes most nodes of a model."""

    def __init__(self, placed: dict[str, Counter[str]]) -> None:
        self.found, self.closed = placed, False

    def placed(self) -> dict[str, Counter[str]]:
        return self.found

    def close(self) -> None:
        self.closed = True


def test_an_artifact_for_a_gpu_says_so_and_which_nodes_others_run(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Opened(
        {
            "CPUExecutionProvider": Counter(Gather=1, Shape=2),
            "TensorrtExecutionProvider": Counter(Conv=20, Relu=16),
            "CUDAExecutionProvider": Counter(NonZero=1),
        }
    )

    def load(path: Path, options: Mapping[str, str]) -> Opened:
        assert path.is_file()
        assert options["providers"] == "TensorrtExecutionProvider,CUDAExecutionProvider,CPUExecutionProvider"
        return session

    monkeypatch.setattr(runtime, "load", load)
    engine = Onnxruntime(threads=2, provider="tensorrt")
    artifact = engine.build(graph.open_model(external), tmp_path / "int8", tmp_path)
    assert (artifact.engine, artifact.device, artifact.options) == ("onnxruntime", "cuda", engine.options())
    reason = "because TensorrtExecutionProvider does not take them"
    assert artifact.notes == (
        f"1 of 40 nodes run on CUDAExecutionProvider, {reason}: 1 NonZero",
        f"3 of 40 nodes run on CPUExecutionProvider, {reason}: 2 Shape, 1 Gather",
    )
    assert session.closed


def test_an_artifact_whose_provider_takes_every_node_has_no_note(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Opened({"CUDAExecutionProvider": Counter(MatMul=1)})
    monkeypatch.setattr(runtime, "load", lambda *_: session)
    model = graph.open_model(external)
    assert Onnxruntime(threads=1, provider="cuda").build(model, tmp_path / "a", tmp_path).notes == ()
    session.found = {}  # and of the CPU's nothing is asked
    artifact = Onnxruntime(threads=1).build(model, tmp_path / "b", tmp_path)
    assert (artifact.device, artifact.notes) == ("cpu", ())
