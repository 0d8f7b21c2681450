from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from compressor import graph
from compressor.records import Tensor

Make = Callable[..., Path]


def test_inputs_and_outputs_are_described_as_numpy_names_them(make: Make) -> None:
    text = """g (int64[N,5] ids, bool flag, float16[?,3] h) => (string[N,5] s, float16 y) {
        s = Cast <to = 8> (ids) y = Identity(h) }"""
    model = graph.open_model(make(text))
    assert model.inputs == (
        Tensor("ids", "int64", ("N", 5)),
        Tensor("flag", "bool", ()),
        Tensor("h", "float16", (None, 3)),
    )
    assert model.outputs[0] == Tensor("s", "str", ("N", 5))


def test_odd_spellings_of_an_unknown_dimension_are_unknown(make: Make) -> None:
    path = make("g (float[1,3] x) => (float[1,3] y) { y = Relu(x) }")
    proto = onnx.load(path)
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_value = -1
    dims[1].dim_param = "?"
    onnx.save(proto, path)
    assert graph.open_model(path).inputs[0].shape == (None, None)


def test_an_output_without_a_shape_is_accepted(make: Make) -> None:
    path = make("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    proto = onnx.load(path)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(proto, path)
    assert graph.open_model(path).outputs == (Tensor("y", "float32", None),)


def test_weights_listed_as_inputs_are_no_inputs(make: Make) -> None:
    text = """<ir_version: 3, opset_import: ["": 17]>
    g (float[2,4] x, float[4,4] W) => (float[2,4] y) { y = MatMul(x, W) }"""
    assert [tensor.name for tensor in graph.open_model(make(text, {"W": (4, 4)})).inputs] == ["x"]


def test_opening_leaves_the_file_alone(make: Make) -> None:
    path = make("g (float[N,4] x) => (float[N,4] y) { y = MatMul(x, W) }", {"W": (4, 4)})
    before = path.read_bytes()
    graph.open_model(path, {"x": (2, 4)})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_summary_says_what_could_become_int8(make: Make) -> None:
    text = "g (float[2,4] x) => (float[2,4] y) { h = MatMul(x, W) n = LayerNormalization(h, s) y = Relu(n) }"
    summary = graph.summary(make(text, {"W": (4, 4), "s": (4,)}))
    assert (summary.weight_bytes, summary.int8_bytes) == (80, 64)
    assert summary.int8_share == pytest.approx(0.8)
    assert summary.opsets == {"ai.onnx": 17}
    assert summary.operators == {"LayerNormalization": 1, "MatMul": 1, "Relu": 1}
    assert (summary.quantized, summary.random, summary.training) == (False, (), ())


def test_a_summary_of_a_model_without_weights_has_no_share(make: Make) -> None:
    assert graph.summary(make("g (float[2] x) => (float[2] y) { y = Relu(x) }")).int8_share == 0


def test_random_and_training_nodes_are_named(make: Make) -> None:
    text = """g (float[2,3] x) => (float[2,3] y) {
        n = RandomNormalLike(x)
        a = Add(x, n)
        b, m, v = BatchNormalization <training_mode = 1> (a, s, s, s, s)
        y = Dropout(b, ratio, on) }"""
    summary = graph.summary(
        make(text, {"s": (3,), "ratio": np.array(0.5, np.float32), "on": np.array(1, dtype=np.bool_)})
    )
    assert summary.random == ("RandomNormalLike",)
    assert summary.training == ("b", "y")


def test_dropout_and_batch_normalization_as_exported_for_inference_are_not_training(make: Make) -> None:
    text = """g (float[2,3] x) => (float[2,3] y) {
        b = BatchNormalization(x, s, s, s, s)
        d = Dropout(b, ratio, off)
        y = Dropout(d) }"""
    weights = {"s": (3,), "ratio": np.array(0.5, np.float32), "off": np.array(0, dtype=np.bool_)}
    assert graph.summary(make(text, weights)).training == ()


@pytest.mark.parametrize(
    ("body", "quantized"),
    [
        ("q = QuantizeLinear(x, s) y = DequantizeLinear(q, s)", True),
        ("q, t, z = DynamicQuantizeLinear(x) y = Cast <to = 1> (q)", True),
        ("y = Relu(x)", False),
    ],
)
def test_quantized_files_are_recognised(make: Make, body: str, *, quantized: bool) -> None:
    path = make(f"g (float[2] x) => (float[2] y) {{ {body} }}", {"s": np.array(0.1, np.float32)})
    assert graph.is_quantized(path) is quantized


def test_an_input_that_indexes_tables_may_not_exceed_the_smallest(make: Make) -> None:
    text = """g (int32[B,S] ids, int64[B,S] mask, int64[K] where, float[9,2] x)
            => (float y, float z, float m, float w) {
        wide = Cast <to = 7> (ids)
        column = Unsqueeze(wide, axis)
        y = Gather(T, column)
        z = Gather <axis = 1> (U, ids)
        m = Cast <to = 1> (mask)
        w = Gather(x, where) }"""
    path = make(text, {"T": (50, 4), "U": (4, 30), "axis": np.array([2], np.int64)})
    assert graph.index_limits(path) == {"ids": 30}


def test_an_index_that_is_computed_has_no_limit(make: Make) -> None:
    text = "g (int64[3] ids) => (float y) { other = Add(ids, ids) y = Gather(T, other) }"
    assert graph.index_limits(make(text, {"T": (50, 4)})) == {}


def test_a_quantized_table_limits_its_index_too(make: Make) -> None:
    text = "g (int64[3] ids) => (float y) { T = DequantizeLinear(Q, s) y = Gather(T, ids) }"
    path = make(text, {"Q": np.ones((40, 4), np.int8), "s": np.array(0.1, np.float32)})
    assert graph.index_limits(path) == {"ids": 40}


ATTENTION = """g (float[2,4,8] x) => (float[2,4,8] y) {
    q = MatMul(x, Q) t = Transpose <perm = [0, 2, 1]> (q)
    s = MatMul(q, t) p = Softmax(s) d = Dropout(p) v = MatMul(d, q) y = MatMul(v, V) }"""
CLASSIFIER = "g (float[2,8] x) => (float[2,8] y) { h = MatMul(x, Q) l = MatMul(h, V) y = Softmax(l) }"


def test_attention_looks_like_a_transformer_and_a_classifier_does_not(make: Make) -> None:
    weights = {"Q": (8, 8), "V": (8, 8)}
    assert graph.looks_like_transformer(make(ATTENTION, weights))
    assert not graph.looks_like_transformer(make(CLASSIFIER, weights))


def test_attention_in_a_model_made_of_convolutions_does_not(make: Make) -> None:
    text = ATTENTION.replace("q = MatMul(x, Q)", "c = Conv(x, C) q = MatMul(c, Q)")
    assert not graph.looks_like_transformer(make(text, {"Q": (8, 8), "V": (8, 8), "C": (4, 4, 9)}))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("case", "limits"),
    [("13_tied_embedding_head", {"ids": 200}), ("27_multi_input_int64_bool_float", {"input_ids": 50})],
)
def test_cases_with_embeddings_tell_their_rows(shared: Path, case: str, limits: dict[str, int]) -> None:
    assert graph.index_limits(shared / "cases" / f"{case}.onnx") == limits


@pytest.mark.shared
def test_none_of_the_convolutional_models_looks_like_a_transformer(shared: Path) -> None:
    assert not [path.name for path in (shared / "models").glob("*.onnx") if graph.looks_like_transformer(path)]
