from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from compressor import graph
from compressor.graph import shapes

Make = Callable[..., Path]

TEXT = """g (float[N,8] x) => (float[N,M] y) { h = MatMul(x, W) y = Relu(h) }"""


def shape_of(model: object, name: str) -> list[object]:
    values = [value for node in model.graph for value in node.outputs]  # type: ignore[attr-defined]
    return [getattr(dim, "value", dim) for dim in next(value for value in values if value.name == name).shape]


def test_shapes_follow_the_inputs_given_and_leave_the_model_alone(make: Make) -> None:
    model = graph.load(make(TEXT, {"W": (8, 300)}))
    static = shapes.inferred(model, {"x": (5, 8)})
    assert (shape_of(static, "h"), shape_of(static, "y")) == ([5, 300], [5, 300])
    assert shape_of(model, "y") == ["N", "M"]


def test_without_given_shapes_symbols_are_kept(make: Make) -> None:
    assert shape_of(shapes.inferred(graph.load(make(TEXT, {"W": (8, 300)}))), "h") == ["N", 300]


def test_a_stale_shape_in_the_file_is_not_believed(make: Make) -> None:
    path = make(TEXT, {"W": (8, 300)})
    proto = onnx.load(path)
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, [7, 7, 7]))
    onnx.save(proto, path)
    assert shape_of(shapes.inferred(graph.load(path)), "h") == ["N", 300]


def test_the_shape_of_a_foreign_operator_is_kept(make: Make) -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "my.domain": 1]>
    g (float[2,8] x) => (float[A,B] y) { h = my.domain.Own(x) y = Relu(h) }"""
    path = make(text)
    proto = onnx.load(path)
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, [2, 9]))
    onnx.save(proto, path)
    assert shape_of(shapes.inferred(graph.load(path), {"x": (2, 8)}), "y") == [2, 9]


@pytest.mark.parametrize("rows", [4, 4000])
def test_a_change_made_through_onnx_keeps_weights_and_description(make: Make, rows: int) -> None:
    path = make(TEXT.replace("8", str(rows)), {"W": (rows, 3)})
    proto = onnx.load(path)
    proto.model_version, proto.domain, proto.doc_string = 7, "org.example", "words"
    onnx.helper.set_model_props(proto, {"names": "cat"})
    onnx.save(proto, path)
    seen = []

    def change(lean: onnx.ModelProto) -> onnx.ModelProto:
        seen.append(lean.ByteSize())
        return onnx.ModelProto(graph=lean.graph, opset_import=lean.opset_import, ir_version=lean.ir_version)

    changed = shapes.through(graph.load(path), change)
    assert seen[0] < 1000
    assert [value.name for value in changed.graph.inputs] == ["x"]
    original = onnx.numpy_helper.to_array(proto.graph.initializer[0])
    np.testing.assert_array_equal(changed.graph.initializers["W"].const_value.numpy(), original)
    assert (changed.model_version, changed.domain, changed.doc_string) == (7, "org.example", "words")
    assert changed.metadata_props == {"names": "cat"}
