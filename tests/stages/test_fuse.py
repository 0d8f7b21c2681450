from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from compressor import graph
from compressor.stages import Fuse, Quantize

# A shape computed at run time from constants, a node that does nothing, and two that cancel each other out.
WORDY = """g (float[batch,3,8,8] image, float[1,2] unread) => (float[batch,144] y) {
  i = Identity(image)
  a = Conv(i, W)
  t = Transpose<perm=[0,2,3,1]>(a)
  u = Transpose<perm=[0,3,1,2]>(t)
  rest = Mul(six, by)
  shape = Concat<axis=0>(first, rest)
  y = Reshape(u, shape)
}"""
WEIGHTS = {
    "W": (4, 3, 3, 3),
    "six": np.array([36]),
    "by": np.array([4]),
    "first": np.array([0]),
}


@pytest.fixture
def wordy(make: Any) -> Any:
    return make(WORDY, WEIGHTS)


def test_what_computes_nothing_goes_and_is_named(wordy: Any, apply: Any, db: Any) -> None:
    made = apply(Fuse(), wordy)
    assert sorted(made.kinds) == ["Conv", "Reshape"]
    assert made.did.what.startswith(f"{wordy.nodes} nodes became 2 (gone: 1 Concat, ")
    assert "2 Transpose" in made.did.what
    assert db(wordy, made.path) > 100


def test_the_file_does_not_grow(wordy: Any, apply: Any) -> None:
    assert apply(Fuse(), wordy).path.stat().st_size < wordy.size_bytes


def test_the_input_file_stays_and_what_describes_the_model_survives(wordy: Any, apply: Any) -> None:
    before = wordy.path.read_bytes()
    made = onnx.load(apply(Fuse(), wordy).path)
    assert wordy.path.read_bytes() == before
    old = onnx.load(wordy.path)
    assert (made.graph.input, made.graph.output) == (old.graph.input, old.graph.output)
    assert (made.model_version, made.domain, made.doc_string) == (42, "org.example", "what it is for")
    assert {p.key: p.value for p in made.metadata_props} == {"classes": "cat,dog", "stride": "32"}
    onnx.checker.check_model(made, full_check=True)


def test_twice_the_same_bytes_and_the_second_finds_nothing(wordy: Any, apply: Any) -> None:
    one, two = (apply(Fuse(), wordy, name=name).path for name in ("one.onnx", "two.onnx"))
    assert one.read_bytes() == two.read_bytes()
    again = apply(Fuse(), graph.open_model(one), name="again.onnx")
    assert (again.did.changed, again.did.what) == (False, "left as it is: nothing to simplify")
    assert again.path.read_bytes() == one.read_bytes()


def test_constants_are_not_folded_to_megabytes_and_the_rest_is_simplified(make: Any, apply: Any, db: Any) -> None:
    model = make(
        "g (float[1,1024] x) => (float[1,1024] y) { i = Identity(x) \n big = Expand(one, size) \n y = MatMul(i, big) }",
        {"one": np.array([[0.5]], np.float32), "size": np.array([1024, 1024])},
    )
    made = apply(Fuse(), model)
    assert sorted(made.kinds) == ["Expand", "MatMul"]
    assert made.path.stat().st_size <= model.size_bytes
    assert db(model, made.path) > 100


def test_a_matrix_used_twice_is_not_stored_twice(make: Any, apply: Any) -> None:
    model = make(
        """g (int64[1,6] ids) => (float[1,6,200] y) {
          e = Gather(E, ids) \n t = Transpose<perm=[1,0]>(E) \n y = MatMul(e, t) }""",
        {"E": (200, 16)},
    )
    made = apply(Fuse(), model)
    assert not made.did.changed
    assert "would grow" in made.did.what
    assert made.path.stat().st_size == model.size_bytes


def test_a_random_node_is_not_folded(make: Any, apply: Any) -> None:
    model = make(
        "g (float[1,4] x) => (float[1,4] y) { n = RandomNormal<shape=[1,4]>() \n i = Identity(x) \n y = Add(i, n) }", {}
    )
    assert "RandomNormal" in apply(Fuse(), model).kinds


def test_quantized_weights_stay_integers(wordy: Any, apply: Any) -> None:
    quantized = graph.open_model(apply(Quantize(), wordy, name="quantized.onnx").path)
    made = apply(Fuse(), quantized)
    kinds = {t.name: t.data_type for t in onnx.load(made.path).graph.initializer if list(t.dims) == [4, 3, 3, 3]}
    assert list(kinds.values()) == [onnx.TensorProto.INT8]
    assert made.did.changed
    assert "Concat" not in made.kinds


def test_other_outputs_than_before_are_undone(wordy: Any, apply: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(model: onnx.ModelProto, **_: object) -> tuple[onnx.ModelProto, bool]:
        result = onnx.ModelProto()
        result.CopyFrom(model)
        weight = next(t for t in result.graph.initializer if t.name == "W")
        weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.float32(1.1), "W"))
        return result, True

    monkeypatch.setattr("onnxsim.simplify", wrong)
    made = apply(Fuse(), wordy)
    assert (made.did.changed, made.did.what) == (False, "left as it is: simplified, its outputs would differ (20 dB)")
    assert made.path.read_bytes() == wordy.path.read_bytes()


def test_a_refusal_of_onnxsim_is_told(wordy: Any, apply: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: onnx.ModelProto, **__: object) -> tuple[onnx.ModelProto, bool]:
        raise RuntimeError("no such operator\nat line 7")

    monkeypatch.setattr("onnxsim.simplify", refuse)
    made = apply(Fuse(), wordy)
    assert (made.did.changed, made.did.what) == (False, "left as it is: onnxsim refused the graph (no such operator)")


def test_a_result_that_is_no_usable_model_is_undone(wordy: Any, apply: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_outputs(model: onnx.ModelProto, **_: object) -> tuple[onnx.ModelProto, bool]:
        result = onnx.ModelProto()
        result.CopyFrom(model)
        del result.graph.node[:], result.graph.output[:]
        return result, True

    monkeypatch.setattr("onnxsim.simplify", without_outputs)
    made = apply(Fuse(), wordy)
    assert not made.did.changed
    assert made.did.what.startswith("left as it is: simplified, it would be no usable model (")
    assert made.path.read_bytes() == wordy.path.read_bytes()


def test_a_model_above_two_gigabytes_is_left_alone(wordy: Any, apply: Any) -> None:
    made = apply(Fuse(), replace(wordy, size_bytes=2_000_000_000))
    assert (made.did.changed, made.did.what) == (False, "left as it is: onnxsim takes no model above 2 GB")
    assert len(made.kinds) == wordy.nodes


def test_a_graph_that_cannot_be_simplified_keeps_its_subgraphs(make: Any, apply: Any, db: Any) -> None:
    model = make(
        """g (float[1,4] x) => (float[1,4] y) {
          a = MatMul(x, W) \n top = ReduceMax<keepdims=0>(x) \n zero = Constant<value_float=0.0>()
          above = Greater(top, zero)
          y = If(above) <then_branch = t () => (float[1,4] u) { u = Relu(a) },
                         else_branch = e () => (float[1,4] v) { v = Neg(a) }>
        }""",
        {"W": (4, 4)},
    )
    made = apply(Fuse(), model)
    assert "If" in made.kinds
    assert db(model, made.path) > 100
