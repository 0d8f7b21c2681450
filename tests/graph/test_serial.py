from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from compressor import graph

CLASSES = ["cat", "dog", "owl"]
Make = Callable[[int], Path]


@pytest.fixture
def classifier(tmp_path: Path) -> Make:
    """Write a classifier as scikit-learn's exporter does: a sequence of maps from each class to its probability."""

    def _classifier(opset: int) -> Path:
        nodes = [
            helper.make_node("MatMul", ["x", "W"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["p"], axis=1),
            helper.make_node("ZipMap", ["p"], ["probabilities"], domain="ai.onnx.ml", classlabels_strings=CLASSES),
        ]
        maps = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
        proto = helper.make_model(
            helper.make_graph(
                nodes,
                "classifier",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
                [helper.make_value_info("probabilities", helper.make_sequence_type_proto(maps))],
                [numpy_helper.from_array(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32), "W")],
            ),
            opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 2)],
            ir_version=6,
        )
        onnx.save(proto, tmp_path / "classifier.onnx")
        return tmp_path / "classifier.onnx"

    return _classifier


def probabilities(path: Path) -> list[dict[str, float]]:
    """Run a classifier on two samples, which needs no word of ours."""
    x = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found: list[dict[str, float]] = session.run(None, {"x": x})[0]
    return found


@pytest.mark.parametrize("opset", [9, 12, 17, 21])
def test_a_sequence_of_maps_stays_one_whatever_the_opset(classifier: Make, opset: int, tmp_path: Path) -> None:
    path, out = classifier(opset), tmp_path / "out.onnx"

    graph.normalise(path, out)

    (before,), (now,) = (onnx.load(each).graph.output for each in (path, out))
    assert now == before, "its name and type are as the file states them, and nothing of ours stays in it"
    for one, other in zip(probabilities(path), probabilities(out), strict=True):
        assert one.keys() == other.keys() == set(CLASSES)
        assert one == pytest.approx(other, rel=1e-5)


def test_a_map_is_named_in_the_record(classifier: Make) -> None:
    (output,) = graph.open_model(classifier(17)).outputs

    assert (output.name, output.dtype, output.shape) == ("probabilities", "map", None)


def test_a_map_inside_a_branch_stays_one() -> None:
    maps = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    )
    branches = {
        name: helper.make_graph(
            [helper.make_node("ZipMap", [f"{source}"], [name], domain="ai.onnx.ml", classlabels_int64s=[3, 7])],
            name,
            [],
            [helper.make_value_info(name, maps)],
        )
        for name, source in (("then", "x"), ("else", "twice"))
    }
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branches["then"], else_branch=branches["else"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", inputs, [helper.make_value_info("y", maps)]),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)],
    )
    before = onnx.ModelProto()
    before.CopyFrom(proto)

    assert graph.serialised(graph.deserialised(proto)) == before


def test_a_sequence_keeps_its_type_through_the_version_converter(tmp_path: Path) -> None:
    text = """<ir_version: 7, opset_import: ["" : 11]>
    g (float[n,4] x) => (seq(float[n,2]) q) { q = SplitToSequence <axis: int = 1> (x, two) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(np.int64(2), "two"))
    onnx.save(proto, tmp_path / "model.onnx")

    graph.normalise(tmp_path / "model.onnx", tmp_path / "out.onnx")

    written = onnx.load(tmp_path / "out.onnx")
    assert written.opset_import[0].version == 17
    assert written.graph.output[0].type.sequence_type.elem_type.tensor_type.elem_type == TensorProto.FLOAT


def test_metadata_of_a_file_that_happens_to_have_our_key_are_no_type() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Relu(x) }'
    )
    proto.graph.output[0].metadata_props.add(key="compressor.type", value="AAAA")
    proto.graph.output[0].metadata_props.add(key="theirs", value="kept")

    written = graph.serialised(graph.deserialised(proto))

    assert [(entry.key, entry.value) for entry in written.graph.output[0].metadata_props] == [("theirs", "kept")]
    assert written.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT
