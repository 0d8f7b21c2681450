from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from pydantic import ValidationError

from compressor import graph
from compressor.engines import Auto, Onnxruntime
from compressor.errors import RungError

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
