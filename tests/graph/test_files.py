from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from compressor import graph
from compressor.errors import InputError, MachineError
from compressor.graph import files

MATMUL = "g (float[2,8] x) => (float[2,4] y) { y = MatMul(x, W) }"
Make = Callable[..., Path]
Run = Callable[..., list[np.ndarray]]


def test_saving_twice_gives_the_same_bytes_and_leaves_one_file(make: Make, tmp_path: Path) -> None:
    model = graph.load(make(MATMUL, {"W": (8, 4)}))
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ("a.onnx", "b.onnx", "b.onnx"):
        graph.save(model, folder / name)
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes()
    assert {file.name for file in folder.iterdir()} == {"a.onnx", "b.onnx"}


def test_saving_takes_external_data_along_and_leaves_the_source_alone(external: Path, tmp_path: Path, run: Run) -> None:
    before = {file: file.read_bytes() for file in external.parent.iterdir()}
    graph.save(graph.load(external), tmp_path / "copy.onnx")
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 3, 4, 4)).astype(np.float32)}
    expected = run(external, feeds)
    assert {file: file.read_bytes() for file in external.parent.iterdir()} == before
    for file in before:
        file.unlink()
    np.testing.assert_array_equal(run(tmp_path / "copy.onnx", feeds)[0], expected[0])


@pytest.mark.parametrize("as_proto", [True, False])
def test_a_large_model_is_a_pair_that_does_not_grow(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, as_proto: bool
) -> None:
    monkeypatch.setattr(files, "_PAIR_ABOVE_BYTES", 1000)
    path = make(MATMUL.replace("8", "100"), {"W": (100, 4)})
    out = tmp_path / "out.onnx"
    for _ in range(2):
        graph.save(onnx.load(path) if as_proto else graph.load(path), out)
    assert (tmp_path / "out.onnx.data").stat().st_size == 1600
    original, copy = (onnx.numpy_helper.to_array(onnx.load(p).graph.initializer[0]) for p in (path, out))
    np.testing.assert_array_equal(original, copy)


def test_a_pair_may_be_written_over_itself(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_PAIR_ABOVE_BYTES", 1000)
    out = tmp_path / "out.onnx"
    graph.save(graph.load(make(MATMUL.replace("8", "100"), {"W": (100, 4)})), out)
    before = graph.open_model(out).sha256
    graph.save(graph.load(out), out)
    assert graph.open_model(out).sha256 == before


def test_a_failed_write_is_a_sentence_and_leaves_the_old_file(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.onnx"
    out.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MachineError, match="No space left on device"):
        graph.save(graph.load(make(MATMUL, {"W": (8, 4)})), out)
    assert out.read_bytes() == b"old"
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_a_folder_that_is_not_there_is_a_sentence(make: Make, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="cannot be written"):
        graph.save(graph.load(make(MATMUL, {"W": (8, 4)})), tmp_path / "absent" / "out.onnx")


def test_metadata_are_added_and_none_replaced(make: Make, tmp_path: Path) -> None:
    path = make(MATMUL, {"W": (8, 4)})
    proto = onnx.load(path)
    onnx.helper.set_model_props(proto, {"names": "cat,dog", "rung": "mine"})
    onnx.save(proto, path)
    graph.with_metadata(path, tmp_path / "out.onnx", {"rung": "int8"})
    found = {p.key: p.value for p in onnx.load(tmp_path / "out.onnx").metadata_props}
    assert found == {"names": "cat,dog", "rung": "mine", "compressor.rung": "int8"}


def test_the_sha256_of_one_file_is_its_own(make: Make) -> None:
    path = make(MATMUL, {"W": (8, 4)})
    assert graph.open_model(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_sha256_and_the_size_cover_external_data(external: Path) -> None:
    data = external.with_name("weights.bin")
    before = graph.open_model(external)
    assert before.size_bytes == external.stat().st_size + 2 * 3 * 3 * 3 * 4
    data.write_bytes(bytes(data.stat().st_size))
    assert graph.open_model(external).sha256 != before.sha256


def test_a_path_with_spaces_and_other_scripts_works(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "mødel 模型"
    folder.mkdir()
    graph.save(graph.load(make(MATMUL, {"W": (8, 4)})), folder / "ж 型.onnx")
    assert graph.open_model(folder / "ж 型.onnx").parameters == 32


def with_function(folder: Path, location: str) -> Path:
    """Write a model with a local function whose constant lies in another file."""
    held = onnx.TensorProto(name="k", data_type=onnx.TensorProto.FLOAT, dims=[4])
    held.data_location = onnx.TensorProto.EXTERNAL
    held.external_data.add(key="location", value=location)
    body = [onnx.helper.make_node("Constant", [], ["k"], value=held), onnx.helper.make_node("Add", ["a", "k"], ["b"])]
    function = onnx.helper.make_function("local", "Shift", ["a"], ["b"], body, [onnx.helper.make_opsetid("", 17)])
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xy"]
    main = onnx.helper.make_graph(
        [onnx.helper.make_node("Shift", ["x"], ["y"], domain="local")], "g", *map(list, zip(tensors))
    )
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("local", 1)]
    proto = onnx.helper.make_model(main, opset_imports=imports, functions=[function], ir_version=8)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


def test_external_data_of_a_function_belong_to_the_model(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home := tmp_path / "home").mkdir()
    (elsewhere := tmp_path / "elsewhere").mkdir()
    path = with_function(home, "k.bin")
    np.arange(4, dtype=np.float32).tofile(home / "k.bin")
    np.full(4, 100, np.float32).tofile(elsewhere / "k.bin")
    monkeypatch.chdir(elsewhere)

    assert graph.parts(path) == (path, home / "k.bin")
    graph.normalise(path, tmp_path / "out.onnx")

    (y,) = run(tmp_path / "out.onnx", {"x": np.zeros(4, np.float32)})
    assert y.tolist() == [0, 1, 2, 3], "of the file beside the model, not of one in the working folder"


def test_external_data_of_a_function_stay_in_the_folder_of_the_model(tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir()
    np.arange(4, dtype=np.float32).tofile(tmp_path / "secret.bin")

    with pytest.raises(InputError, match="outside the model's folder"):
        graph.load(with_function(home, "../secret.bin"))


def test_what_an_attribute_leaves_in_another_file_is_written_along(tmp_path: Path, run: Run) -> None:
    (home := tmp_path / "home").mkdir()
    held = onnx.TensorProto(name="k", data_type=onnx.TensorProto.FLOAT, dims=[4])
    held.data_location = onnx.TensorProto.EXTERNAL
    held.external_data.add(key="location", value="k.bin")
    np.arange(4, dtype=np.float32).tofile(home / "k.bin")
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Add(x, k) }'
    )
    proto.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["k"], value=held))
    (home / "model.onnx").write_bytes(proto.SerializeToString())

    graph.save(graph.load(home / "model.onnx"), tmp_path / "out.onnx")

    assert run(tmp_path / "out.onnx", {"x": np.zeros(4, np.float32)})[0].tolist() == [0, 1, 2, 3]
