from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from halves import FLOAT, HALF, IF, kinds, proto, run, sqnr_db, write
from onnxruntime.transformers import float16

from compressor import graph, runtime
from compressor.errors import RungError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4)).astype(np.float32)
W, V = (RNG.normal(size=(4, 4)).astype(np.float32) for _ in range(2))
CHAIN = "h = MatMul(x, w) r = Relu(h) s = Mul(r, k) y = MatMul(s, v)"


def halved(folder: Path, body: str, weights: Any = None, keep: Any = (), **io: str) -> tuple[Path, Path]:
    path = write(folder / "model.onnx", body, weights, **io)
    runtime.halved(path, folder / "half.onnx", keep)
    return path, folder / "half.onnx"


def test_magnitudes_are_the_largest_over_all_samples(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", CHAIN, {"w": W, "k": -3, "v": V})
    feeds = [RNG.normal(size=(2, 4), scale=scale).astype(np.float32) for scale in (1, 50, 7)]
    x = np.concatenate(feeds)
    h = x @ W
    r = np.maximum(h, 0)
    values = {"x": x, "w": W, "k": np.float32(-3), "v": V, "h": h, "r": r, "s": r * -3, "y": r * -3 @ V}
    expected = {name: np.abs(value).max() for name, value in values.items()}
    found = runtime.largest(path, [{"x": feed} for feed in feeds])
    assert found == pytest.approx(expected, rel=1e-5)


def test_only_values_of_float32_have_magnitudes(tmp_path: Path) -> None:
    ins = "int64[N,4] x, double[N,4] d"
    path = write(tmp_path / "m.onnx", "f = Cast<to=1>(x) e = Cast<to=1>(d) y = Add(f, e)", ins=ins)
    feeds = [{"x": np.full((1, 4), -7), "d": np.full((1, 4), 2.5)}]
    assert runtime.largest(path, feeds) == {"f": 7, "e": 2.5, "y": 4.5}


def test_infinite_values_and_constants_are_infinite(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "e = Exp(x) n = Neg(e) y = Max(n, k)", {"k": -np.inf})
    found = runtime.largest(path, [{"x": np.float32([[1, 2, 3, 1000]])}])
    assert found == {"x": 1000, "e": math.inf, "n": math.inf, "k": math.inf, "y": math.inf}


def test_a_value_of_no_numbers_is_not_large(tmp_path: Path) -> None:
    body = "e = Slice(x, one, one, one) r = Relu(e) y = Concat<axis=1>(x, r)"
    found = runtime.largest(write(tmp_path / "m.onnx", body, {"one": np.int64([1])}), [{"x": X}])
    assert (found["e"], found["r"]) == (0, 0)
    assert found["y"] == np.abs(X).max()


def test_without_samples_only_constants_have_magnitudes(tmp_path: Path) -> None:
    assert runtime.largest(write(tmp_path / "m.onnx", "y = Mul(x, k)", {"k": -5}), []) == {"k": 5}


def test_a_model_of_fp16_alone_stays_as_it_is(tmp_path: Path) -> None:
    io = {"ins": "float16[N,4] x", "outs": "float16[N,4] y"}
    path, out = halved(tmp_path, "h = Mul(x, k) y = Relu(h)", {"k": np.float16(3)}, **io)
    x = X.astype(np.float16)
    assert runtime.largest(path, [{"x": x}]) == {}
    assert np.array_equal(run(out, x=x), run(path, x=x))
    assert kinds(out) == kinds(path)


def test_inputs_and_outputs_stay_and_all_between_is_fp16(tmp_path: Path) -> None:
    ins, outs = "float[N,4] x, float[N,4] u, int64[N,4] n, float16[N,4] p", "float[N,4] y, float[N,4] r, float16[N,4] q"
    body = "r = Add(x, u) f = Cast<to=1>(n) s = Mul(r, f) y = MatMul(s, w) q = Relu(p)"
    path, out = halved(tmp_path, body, {"w": W}, ins=ins, outs=outs)
    old, new = onnx.load(path).graph, onnx.load(out).graph
    assert (new.input, new.output, new.name) == (old.input, old.output, old.name)
    assert [tensor.data_type for tensor in new.initializer] == [HALF]
    found = kinds(out)
    assert {found[name] for name in ("Add_r", "Cast_f", "Mul_s", "MatMul_y", "Relu_q")} == {HALF}


def test_it_is_as_close_as_fp16_can_be(tmp_path: Path) -> None:
    path, out = halved(tmp_path, CHAIN, {"w": W, "k": 0.3, "v": V})
    # a rounding is off by at most 2^-11 of a value; there are three of constants and five of values
    worst = 20 * math.log10(2**11 / 8)
    assert worst < sqnr_db(run(path, x=X), run(out, x=X)) < 100
    session = runtime.load(out, runtime.options(1, spinning=False))
    assert sqnr_db(run(path, x=X), session({"x": X})["y"]) > worst


def test_a_kept_node_holds_what_fp16_cannot(tmp_path: Path) -> None:
    weights = {"w": W * 30_000, "k": 1e-5, "v": V}
    path, out = halved(tmp_path, CHAIN, weights, ["MatMul_h", "Relu_r", "Mul_s"])
    wanted = run(path, x=X)
    assert np.abs(X @ W).max() * 30_000 > 65504
    assert sqnr_db(wanted, run(out, x=X)) > 50
    runtime.halved(path, tmp_path / "naive.onnx", ())
    assert not np.isfinite(run(tmp_path / "naive.onnx", x=X)).all()


def test_a_constant_that_is_too_large_is_held_by_a_kept_node(tmp_path: Path) -> None:
    path, out = halved(tmp_path, "h = Mul(x, k) y = Div(h, k)", {"k": 1e6}, ["Mul_h", "Div_y"])
    assert np.array_equal(run(out, x=X), run(path, x=X))


def test_with_all_nodes_kept_nothing_is_rounded(tmp_path: Path) -> None:
    keep = ["MatMul_h", "Relu_r", "Mul_s", "MatMul_y"]
    path, out = halved(tmp_path, CHAIN, {"w": W, "k": 0.3, "v": V}, keep)
    assert np.array_equal(run(out, x=X), run(path, x=X))
    assert set(kinds(out).values()) == {FLOAT}


def test_a_cast_of_the_model_is_none_of_the_converter(tmp_path: Path) -> None:
    body = "f = Cast<to=1>(n) h = MatMul(f, w) y = Mul(h, k)"
    keep = ["MatMul_h", "Mul_y"]
    path, out = halved(tmp_path, body, {"w": W, "k": 0.3}, keep, ins="int64[N,4] n")
    n = np.arange(8).reshape(2, 4)
    assert np.array_equal(run(out, n=n), run(path, n=n))


def test_what_a_kept_and_another_node_read_is_fp16_for_the_other(tmp_path: Path) -> None:
    _, out = halved(tmp_path, "r = Relu(x) a = Neg(r) b = Abs(r) y = Add(a, b)", keep=["Relu_r", "Neg_a"])
    found = kinds(out)
    assert [found[name] for name in ("Relu_r", "Neg_a", "Abs_b", "Add_y")] == [FLOAT, FLOAT, HALF, HALF]
    by_name = {node.name: node for node in onnx.load(out).graph.node}
    assert by_name["Neg_a"].input[0] == by_name["Relu_r"].output[0]


@pytest.mark.parametrize(
    "then",
    [
        pytest.param("g = Mul(h, k) a = Add(g, x)", id="reads a value, an input and a constant"),
        pytest.param("g = Mul(h, large) l = Mul(g, small) a = Add(l, x)", id="overflows inside"),
        pytest.param("g = Max(h, k) l = Min(g, h) a = Add(l, l)", id="has what the converter keeps"),
        pytest.param(
            "i = If(c) <then_branch = u () => (float[N,4] j) { j = Mul(h, k) }, "
            "else_branch = v () => (float[N,4] l) { l = Mul(x, k) }> a = Neg(i)",
            id="nested",
        ),
    ],
)
@pytest.mark.parametrize("keep", [(), ("If_z",), ("If_z", "Relu_h", "Mul_y")])
def test_a_graph_inside_a_node_stays_fp32(tmp_path: Path, then: str, keep: tuple[str, ...]) -> None:
    body = f"h = Relu(x) m = ReduceMax<keepdims=0>(h) {IF.format(then=then)} y = Mul(z, k)"
    path, out = halved(tmp_path, body, {"zero": 0, "k": 3, "large": 1e5, "small": 1e-5}, keep)
    for x in (X, -np.abs(X)):  # either branch
        assert sqnr_db(run(path, x=x), run(out, x=x)) > 60
    assert kinds(out)["ReduceMax_m"] == HALF
    runtime.load(out, runtime.options(1, spinning=False)).close()


def test_a_value_is_cast_once_for_all_graphs_that_read_it(tmp_path: Path) -> None:
    body = f"h = Relu(x) m = ReduceMax<keepdims=0>(h) {IF.format(then='g = Mul(h, h) a = Add(g, h)')} y = Neg(z)"
    _, out = halved(tmp_path, body, {"zero": 0})
    nodes = onnx.load(out).graph.node
    assert sum(node.op_type == "Cast" and node.input[0] == "h" for node in nodes) == 1


def test_a_loop_keeps_what_it_carries(tmp_path: Path) -> None:
    body = """h = Relu(x) z = Loop(n, true, h)
        <body = b (int64 i, bool c, float[N,4] s) => (bool d, float[N,4] t)
        { d = Identity(c) u = Mul(s, k) t = Add(u, h) }>
        y = Neg(z)"""
    path, out = halved(tmp_path, body, {"n": np.int64(3), "true": np.bool_(1), "k": 2})
    assert sqnr_db(run(path, x=X), run(out, x=X)) > 60
    assert kinds(out)["Relu_h"] == HALF


def test_scales_of_resize_stay_as_they_must(tmp_path: Path) -> None:
    io = {"ins": "float[1,1,4,4] x", "outs": "float[1,1,8,8] y"}
    path, out = halved(tmp_path, "r = Resize(x, , s) y = Relu(r)", {"s": np.float32([1, 1, 2, 2])}, **io)
    x = RNG.normal(size=(1, 1, 4, 4)).astype(np.float32)
    assert sqnr_db(run(path, x=x), runtime.load(out, runtime.options(1, spinning=False))({"x": x})["y"]) > 60


def test_external_data_are_read_and_the_input_stays(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    path = write(tmp_path / "m.onnx", CHAIN, {"w": W, "k": 0.3, "v": V})
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w/data.bin", size_threshold=0)
    before = {file: file.read_bytes() for file in graph.parts(path)}
    assert len(before) == 2
    runtime.halved(path, tmp_path / "half.onnx", ["Relu_r"])
    assert runtime.largest(path, [{"x": X}])["v"] == np.abs(V).max()
    assert {file: file.read_bytes() for file in graph.parts(path)} == before
    assert graph.parts(tmp_path / "half.onnx") == (tmp_path / "half.onnx",)
    assert kinds(tmp_path / "half.onnx")["MatMul_y"] == HALF


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    path, out = halved(tmp_path, CHAIN, {"w": W, "k": 0.3, "v": V}, {"MatMul_h", "Relu_r", "Mul_s"})
    runtime.halved(path, tmp_path / "again.onnx", ["Mul_s", "Relu_r", "MatMul_h"])
    assert out.read_bytes() == (tmp_path / "again.onnx").read_bytes()


def test_what_describes_the_model_survives(tmp_path: Path) -> None:
    given = proto("y = Relu(x)")
    given.doc_string, given.model_version = "what it is for", 42
    onnx.helper.set_model_props(given, {"classes": "cat,dog"})
    onnx.save(given, tmp_path / "m.onnx")
    runtime.halved(tmp_path / "m.onnx", tmp_path / "half.onnx", ())
    made = onnx.load(tmp_path / "half.onnx")
    assert (made.doc_string, made.model_version) == ("what it is for", 42)
    assert {p.key: p.value for p in made.metadata_props} == {"classes": "cat,dog"}


def test_what_the_converter_refuses_ends_the_rung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: Any, **_named: Any) -> Any:
        raise ValueError("no such\n  thing")

    monkeypatch.setattr(float16, "convert_float_to_float16", refuse)
    with pytest.raises(RungError, match=r"the graph cannot be made FP16 \(ValueError: no such thing\)"):
        halved(tmp_path, "y = Relu(x)")


def test_what_does_not_run_ends_the_rung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(model: Any, **_named: Any) -> Any:
        model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.float16(3), "k"))
        return model

    monkeypatch.setattr(float16, "convert_float_to_float16", spoil)
    with pytest.raises(RungError, match="float16"):
        halved(tmp_path, "y = Mul(x, k)", {"k": 3})
