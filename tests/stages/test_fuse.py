from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compressor import graph, schemes
from compressor.errors import InputError
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
    quantized = graph.open_model(apply(Quantize(scheme="static"), wordy, name="quantized.onnx").path)
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


# A block as exporters write it: attention with two heads of four, and a perceptron with Gelu, between normalisations.
BLOCK = """g (float[1,6,8] x) => (float[1,6,8] y) {
  n = LayerNormalization<axis=-1>(x, g1, b1)
  qm = MatMul(n, Wq) qa = Add(qm, bq) qr = Reshape(qa, heads) q = Transpose<perm=[0,2,1,3]>(qr)
  km = MatMul(n, Wk) ka = Add(km, bk) kr = Reshape(ka, heads) k = Transpose<perm=[0,2,3,1]>(kr)
  vm = MatMul(n, Wv) va = Add(vm, bv) vr = Reshape(va, heads) v = Transpose<perm=[0,2,1,3]>(vr)
  s = MatMul(q, k) d = Div(s, two) w = Softmax<axis=-1>(d) c = MatMul(w, v)
  t = Transpose<perm=[0,2,1,3]>(c) r = Reshape(t, flat) om = MatMul(r, Wo) oa = Add(om, bo)
  z = Add(oa, n) m = LayerNormalization<axis=-1>(z, g2, b2)
  um = MatMul(m, Wu) ua = Add(um, bu) e0 = Div(ua, root) e1 = Erf(e0) e2 = Add(e1, one) e3 = Mul(ua, e2)
  h = Mul(e3, half)
  pm = MatMul(h, Wp) pa = Add(pm, bp) a = Add(pa, m) y = LayerNormalization<axis=-1>(a, g3, b3)
}"""
BLOCK_WEIGHTS = {
    **dict.fromkeys(("Wq", "Wk", "Wv", "Wo"), (8, 8)),
    **dict.fromkeys(("bq", "bk", "bv", "bo", "bp", "g1", "b1", "g2", "b2", "g3", "b3"), (8,)),
    "Wu": (8, 32),
    "bu": (32,),
    "Wp": (32, 8),
    "heads": np.array([1, 6, 2, 4]),
    "flat": np.array([1, 6, 8]),
    **{name: np.array(value, np.float32) for name, value in {"two": 2, "root": 2**0.5, "one": 1, "half": 0.5}.items()},
}


@pytest.fixture
def block(make: Any) -> Any:
    return make(BLOCK, BLOCK_WEIGHTS)


def test_a_transformer_is_fused_where_that_is_asked_and_computes_the_same(block: Any, apply: Any, db: Any) -> None:
    made = apply(Fuse(transformer=True), block)
    assert {"Attention", "BiasGelu", "SkipLayerNormalization"} <= set(made.kinds)
    assert "Softmax" not in made.kinds
    told = "fused into 1 Attention, 1 BiasGelu, 2 SkipLayerNormalization: only ONNX Runtime reads the file; then "
    assert made.did.what.startswith(told)
    assert made.did.changed
    assert db(block, made.path) > 100
    again = apply(Fuse(transformer=True), block, name="again.onnx")
    assert again.path.read_bytes() == made.path.read_bytes()


def test_without_being_asked_no_operator_of_onnx_runtime_gets_in(block: Any, apply: Any, db: Any) -> None:
    made = apply(Fuse(), block)
    assert {node.domain for node in onnx.load(made.path).graph.node} == {""}
    assert "fused" not in made.did.what
    assert db(block, made.path) > 100


def test_what_no_other_reader_knows_is_undone(wordy: Any, apply: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def foreign(model: onnx.ModelProto, **_: object) -> tuple[onnx.ModelProto, bool]:
        result = onnx.ModelProto()
        result.CopyFrom(model)
        result.graph.node[0].domain = "com.microsoft"
        return result, True

    monkeypatch.setattr("onnxsim.simplify", foreign)
    told = "left as it is: onnxsim put in operators of com.microsoft, which other readers lack"
    assert apply(Fuse(), wordy).did.what == told


def test_what_is_no_transformer_is_only_simplified(wordy: Any, apply: Any) -> None:
    made = apply(Fuse(transformer=True), wordy)
    assert sorted(made.kinds) == ["Conv", "Reshape"]
    assert made.did.what.startswith(f"no transformer to fuse; then {wordy.nodes} nodes became 2")


def test_a_fusion_that_changes_the_outputs_is_undone(
    block: Any, apply: Any, monkeypatch: pytest.MonkeyPatch, db: Any
) -> None:
    def wrong(path: Path, out: Path) -> dict[str, int]:
        model = onnx.load(path)
        weight = next(t for t in model.graph.initializer if t.name == "g3")
        weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.float32(1.1), "g3"))
        onnx.save(model, out)
        return {"Attention": 1}

    monkeypatch.setattr("compressor.runtime.fuse_transformer", wrong)
    made = apply(Fuse(transformer=True), block)
    assert made.did.what.startswith("transformer not fused: its outputs would differ (")
    assert db(block, made.path) > 100


def test_a_package_that_the_fusions_lack_is_told(block: Any, apply: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime.transformers", None)
    made = apply(Fuse(transformer=True), block)
    told = (
        "transformer not fused: the fusions of transformers need the package onnxruntime.transformers; install it; then"
    )
    assert made.did.what.startswith(told)


def test_the_target_decides_where_nothing_is_asked(block: Any) -> None:
    def settled(target: str, *, asked: bool | None = None) -> bool | None:
        scheme = schemes.by_name(target)
        assert scheme
        return Fuse(transformer=asked).resolve(block.path, scheme).transformer

    assert [settled(target) for target in ("x86-vnni", "arm-i8mm", "cuda", "tensorrt")] == [
        False,
        False,
        True,
        False,
    ]
    assert settled("x86-vnni", asked=True)
    assert settled("cuda", asked=False) is False
    with pytest.raises(InputError, match="TensorRT reads no operators of ONNX Runtime; leave it out"):
        settled("tensorrt", asked=True)
