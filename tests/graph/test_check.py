from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from compressor import graph
from compressor.errors import InputError

CONV = "g (float[1,3,4,4] x) => (float[1,2,2,2] y) { y = Conv(x, W) }"
Make = Callable[..., Path]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
        (b"PK\x03\x04 and then some", "compress export package.module:factory"),
        (b"\x80\x02}q\x00.", "pickle"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"hello, I am a text file\n", "ONNX model"),
    ],
)
def test_a_file_that_is_something_else_is_named_for_what_it_is(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        graph.open_model(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        graph.open_model(tmp_path / "absent.onnx")
    with pytest.raises(InputError, match="a folder"):
        graph.open_model(tmp_path)


def test_a_file_cut_off_is_refused(make: Make) -> None:
    path = make(CONV, {"W": (2, 3, 3, 3)})
    path.write_bytes(path.read_bytes()[:120])
    with pytest.raises(InputError, match="truncated"):
        graph.open_model(path)


def test_a_graph_without_outputs_is_refused(make: Make) -> None:
    path = make(CONV, {"W": (2, 3, 3, 3)})
    proto = onnx.load(path)
    del proto.graph.output[:]
    onnx.save(proto, path)
    with pytest.raises(InputError, match="no outputs"):
        graph.open_model(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_weight_that_is_not_finite_is_refused_with_name_and_count(make: Make, bad: float) -> None:
    weight = np.ones((2, 3, 3, 3), np.float32)
    weight[0, 0, 0, :2] = bad
    with pytest.raises(InputError, match=r"'W' holds .*2.* of 54"):
        graph.open_model(make(CONV, {"W": weight}))


def test_a_nan_in_a_constant_node_is_refused(make: Make) -> None:
    text = "g (float[2] x) => (float[2] y) { c = Constant <value = float[2] {1.0, nan}> () y = Add(x, c) }"
    with pytest.raises(InputError, match="'c' holds 1 NaN"):
        graph.open_model(make(text))


def test_a_mask_of_minus_infinity_is_accepted(make: Make) -> None:
    mask = np.array([0, -np.inf], np.float32)
    assert graph.open_model(make("g (float[2] x) => (float[2] y) { y = Add(x, M) }", {"M": mask})).nodes == 1


def test_missing_external_data_name_the_file_and_where_it_was_looked_for(external: Path) -> None:
    data = external.with_name("weights.bin")
    data.unlink()
    with pytest.raises(InputError, match=r"'weights\.bin' is missing, looked for at .*weights\.bin"):
        graph.open_model(external)


def test_external_data_that_end_too_early_are_refused(external: Path) -> None:
    data = external.with_name("weights.bin")
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(InputError, match="cut off"):
        graph.open_model(external)


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/hostname"])
def test_external_data_outside_the_folder_are_refused(external: Path, location: str) -> None:
    proto = onnx.load(external, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = location
    external.write_bytes(proto.SerializeToString())
    with pytest.raises(InputError, match="outside the model's folder"):
        graph.open_model(external)


def test_external_data_linked_from_outside_the_folder_are_refused(external: Path, tmp_path: Path) -> None:
    data = external.with_name("weights.bin")
    elsewhere = data.rename(tmp_path / "weights.bin")
    data.symlink_to(elsewhere)
    with pytest.raises(InputError, match="outside the model's folder"):
        graph.open_model(external)


def test_external_data_that_are_a_hard_link_are_refused(external: Path, tmp_path: Path) -> None:
    (tmp_path / "second.bin").hardlink_to(external.with_name("weights.bin"))
    with pytest.raises(InputError, match="hard link"):
        graph.open_model(external)


def test_nan_in_external_data_is_found(external: Path) -> None:
    data = external.with_name("weights.bin")
    values = np.frombuffer(data.read_bytes(), np.float32).copy()
    values[5] = np.nan
    data.write_bytes(values.tobytes())
    with pytest.raises(InputError, match="'W' holds 1 NaN"):
        graph.open_model(external)


@pytest.mark.shared
@pytest.mark.parametrize("case", ["42_external_missing/model", "43_truncated", "74_nan_in_weights"])
def test_cases_that_must_be_refused_are(shared: Path, case: str) -> None:
    with pytest.raises(InputError):
        graph.open_model(shared / "cases" / f"{case}.onnx")


def test_a_node_that_reads_what_nothing_gives_is_refused(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) { y = Add (x, x) }""")
    proto.graph.node[0].input[1] = "nowhere"
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(InputError, match="node 'Add' reads 'nowhere', which nothing gives"):
        graph.open_model(tmp_path / "m.onnx")
