from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compressor import runtime
from compressor.errors import RungError
from compressor.runtime import tables

OPTIONS = runtime.options(1, spinning=False)


def test_maps_with_the_same_keys_are_a_table_sorted_by_key() -> None:
    ((name, table),) = tables.arrays("p", [{"b": 0.25, "a": 0.75}, {"a": 1.0, "b": 0.0}])

    assert name == "p"
    assert table.tolist() == [[0.75, 0.25], [1.0, 0.0]]


def test_elements_of_a_sequence_are_outputs_of_their_own() -> None:
    found = dict(tables.arrays("q", [np.zeros((1, 2)), np.ones(3)]))

    assert {name: array.shape for name, array in found.items()} == {"q[0]": (1, 2), "q[1]": (3,)}


def test_an_optional_output_that_is_not_there_is_none() -> None:
    assert dict(tables.arrays("o", None)) == {}


def test_maps_that_differ_in_their_keys_are_refused_by_the_name_of_the_output() -> None:
    with pytest.raises(RungError, match=r"output 'p': its maps differ in their keys"):
        dict(tables.arrays("p", [{1: 0.5}, {2: 0.5}]))


def test_what_is_no_array_is_refused_by_the_name_of_the_output() -> None:
    with pytest.raises(RungError, match="output 's' is a object, which nothing here compares"):
        dict(tables.arrays("s", object()))


def test_an_element_of_a_sequence_with_the_name_of_an_output_is_refused_in_either_order() -> None:
    sequence, real = ("q", [np.zeros(1), np.ones(1)]), ("q[0]", np.full(1, 7.0))
    assert list(tables.outputs([sequence, ("q[2]", real[1])])) == ["q[0]", "q[1]", "q[2]"]
    for named in ([sequence, real], [real, sequence]):
        with pytest.raises(RungError, match=r"two outputs are called 'q\[0\]'"):
            tables.outputs(named)


def test_a_session_gives_the_arrays_of_a_sequence(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x", "two"], ["q"], axis=1),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4]),
        helper.make_tensor_sequence_value_info("q", TensorProto.FLOAT, None),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])]
    two = [numpy_helper.from_array(np.int64(2), "two")]
    proto = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, two), ir_version=8)
    del proto.opset_import[:]
    proto.opset_import.append(helper.make_opsetid("", 17))
    onnx.save(proto, path := tmp_path / "model.onnx")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)

    found = runtime.load(path, OPTIONS)({"x": x})

    assert found.keys() == {"y", "q[0]", "q[1]"}
    assert np.array_equal(found["q[0]"], x[:, :2])
    assert np.array_equal(found["q[1]"], x[:, 2:])
