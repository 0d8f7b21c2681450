from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from halves import FLOAT, HALF, IF, kinds, proto, run, sqnr_db, write

from compressor import graph, runtime
from compressor.engines.tensorrt.typed import Typed, typed
from compressor.errors import RungError
from compressor.records import Feeds

RNG = np.random.default_rng(1)
X = RNG.normal(size=(8, 4)).astype(np.float32)
W, V = (RNG.normal(size=(4, 4)).astype(np.float32) for _ in range(2))
PAIRS = """
    q1 = QuantizeLinear(x, s, o) d1 = DequantizeLinear(q1, s, o) dw = DequantizeLinear(w, s, o)
    h = MatMul(d1, dw) r = Relu(h) t = Tanh(r) m = Mul(t, k)
    q2 = QuantizeLinear(m, s, o) d2 = DequantizeLinear(q2, s, o) y = MatMul(d2, dw)"""
INT8 = {"s": 0.03, "o": np.int8(0), "w": RNG.integers(-127, 128, (4, 4)).astype(np.int8), "k": 2}


def none() -> Iterator[Feeds]:
    pytest.fail("samples were read")
    yield {}


def fp16(path: Path, *xs: Any) -> tuple[Typed, Path]:
    out = path.with_name("typed.onnx")
    return typed(path, out, "fp16", [{"x": x} for x in xs or (X,)]), out


@pytest.mark.parametrize(("asked", "made"), [("auto", "fp16"), ("fp16", "fp16"), ("fp32", "fp32")])
def test_precision_of_a_float_model(tmp_path: Path, asked: Any, made: str) -> None:
    path = write(tmp_path / "m.onnx", "y = MatMul(x, w)", {"w": W})
    assert typed(path, tmp_path / "t.onnx", asked, [{"x": X}]) == Typed(made, 0)  # type: ignore[arg-type]
    assert kinds(tmp_path / "t.onnx")["MatMul_y"] == (HALF if made == "fp16" else FLOAT)


@pytest.mark.parametrize(("asked", "made"), [("auto", "int8"), ("int8", "int8"), ("fp16", "fp16"), ("fp32", "fp32")])
def test_precision_of_a_quantized_model(tmp_path: Path, asked: Any, made: str) -> None:
    path = write(tmp_path / "m.onnx", PAIRS, INT8)
    feeds: Any = [{"x": X}] if made == "fp16" else none()
    assert typed(path, tmp_path / "t.onnx", asked, feeds) == Typed(made, 3, kept=3 * (made == "fp16"))  # type: ignore[arg-type]
    same = (tmp_path / "t.onnx").read_bytes() == path.read_bytes()
    assert same == (made != "fp16")


def test_int8_needs_something_quantized(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "y = MatMul(x, w)", {"w": W})
    with pytest.raises(RungError, match="precision int8: nothing in the graph is quantized; add `quantize`"):
        typed(path, tmp_path / "t.onnx", "int8", none())
    assert not (tmp_path / "t.onnx").exists()


def test_external_data_of_a_graph_that_stays_go_along(tmp_path: Path) -> None:
    (tmp_path / "from" / "w").mkdir(parents=True)
    path = tmp_path / "from" / "m.onnx"
    given = onnx.load(write(tmp_path / "m.onnx", "y = MatMul(x, w)", {"w": W}))
    onnx.save(given, path, save_as_external_data=True, location="w/data.bin", size_threshold=0)
    typed(path, tmp_path / "to" / "t.onnx", "fp32", none())
    assert graph.parts(tmp_path / "to" / "t.onnx") == (tmp_path / "to/t.onnx", tmp_path / "to/w/data.bin")
    assert np.array_equal(run(tmp_path / "to" / "t.onnx", x=X), X @ W)
    typed(path, tmp_path / "half.onnx", "fp16", [{"x": X}])
    assert graph.parts(tmp_path / "half.onnx") == (tmp_path / "half.onnx",)


def test_exactly_the_nodes_at_values_that_fp16_cannot_hold_stay_fp32(tmp_path: Path) -> None:
    body = "f = MatMul(x, w) g = MatMul(f, big) r = Relu(g) s = Mul(r, small) t = Abs(s) y = MatMul(t, v)"
    weights = {"w": W, "big": V * 40_000, "small": 1e-5, "v": V}
    path = write(tmp_path / "m.onnx", body, weights)
    f = X @ W
    g = f @ (V * 40_000)
    r = np.maximum(g, 0)
    values = {"x": X, "f": f, "g": g, "r": r, "s": r * 1e-5, **weights}
    reads = {"MatMul_f": "x w f", "MatMul_g": "f big g", "Relu_r": "g r", "Mul_s": "r small s", "Abs_t": "s"}
    expected = [n for n, names in reads.items() if max(np.abs(values[v]).max() for v in names.split()) > 32752]
    types, out = fp16(path)
    assert expected == ["MatMul_g", "Relu_r", "Mul_s"]
    assert list(types.overflowing) == expected
    found = kinds(out)
    assert [name for name in (*reads, "MatMul_y") if found[name] == FLOAT] == expected
    assert sqnr_db(run(path, x=X), run(out, x=X)) > 20 * math.log10(2**11 / 11)
    runtime.halved(path, tmp_path / "naive.onnx", ())
    assert not np.isfinite(run(tmp_path / "naive.onnx", x=X)).all()


@pytest.mark.parametrize(("most", "kept"), [(32752, ()), (32754, ("Mul_h", "Div_y")), (-32754, ("Mul_h", "Div_y"))])
def test_half_of_the_largest_number_is_the_limit(tmp_path: Path, most: int, kept: tuple[str, ...]) -> None:
    path = write(tmp_path / "m.onnx", "h = Mul(x, k) y = Div(h, k)", {"k": 2})
    small, large = np.float32([[1, 2, 3, 4]]), np.float32([[0, 0, most / 2, 0]])
    for samples in ((small, large), (large, small)):
        assert fp16(path, *samples)[0].overflowing == kept


@pytest.mark.parametrize("large", [-1e9, -np.finfo(np.float32).max])
def test_a_mask_that_fp16_cannot_hold_stays(tmp_path: Path, large: float) -> None:
    weights = {"w": W, "k": np.float32([0, large, 0, large])}
    path = write(tmp_path / "m.onnx", "h = MatMul(x, w) m = Add(h, k) p = Softmax(m) y = MatMul(p, w)", weights)
    types, out = fp16(path)
    assert types.overflowing == ("Add_m", "Softmax_p")
    assert kinds(out)["MatMul_h"] == HALF
    assert sqnr_db(run(path, x=X), run(out, x=X)) > 50


@pytest.mark.parametrize("value", [1e6, 3])
def test_names_types_and_constants_that_a_stage_left_unsaid_are_found(tmp_path: Path, value: float) -> None:
    given = proto(f"c = Constant<value_float={float(value)}>() h = Mul(x, c) d = Div(h, c) y = Neg(d)")
    onnx.save(given, path := tmp_path / "m.onnx")
    types, out = fp16(path)
    assert types.overflowing == (("Mul_h", "Div_d") if value == 1e6 else ())
    assert sqnr_db(run(path, x=X), run(out, x=X)) > 50


def test_pairs_and_what_touches_them_stay_fp32(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", PAIRS, INT8)
    types, out = fp16(path)
    assert types == Typed("fp16", 3, kept=3)
    found = kinds(out)
    at_pairs = ["MatMul_h", "Mul_m", "MatMul_y"]
    assert [found[name] for name in at_pairs] == [FLOAT] * 3
    assert [found[name] for name in ("Relu_r", "Tanh_t")] == [HALF] * 2
    nodes = onnx.load(out).graph.node
    makers = {output: node.op_type for node in nodes for output in node.output}
    scales = {"QuantizeLinear": [1], "DequantizeLinear": [1]}
    types_ = {tensor.name: tensor.data_type for tensor in onnx.load(out).graph.initializer}
    for node in nodes:
        read = [makers.get(name, "") for name in node.input]
        if node.op_type == "QuantizeLinear":
            assert read[0] in {"", "Mul"}
        if node.op_type == "Cast":
            assert "DequantizeLinear" not in read
        assert all(types_[node.input[i]] == FLOAT for i in scales.get(node.op_type, ()))


def test_a_quantized_graph_computes_the_same_but_for_fp16_between_its_pairs(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", PAIRS, INT8)
    _, out = fp16(path)
    wanted, found = run(path, x=X), run(out, x=X)
    step = 0.03 * np.abs(INT8["w"]).max() * 0.03 * 4  # of the second product, if each of its inputs is off by one
    assert 0 <= np.abs(wanted - found).max() <= step
    session = runtime.load(out, runtime.options(1, spinning=False))
    assert np.abs(session({"x": X})["y"] - wanted).max() <= step


def test_overflow_is_seen_where_a_quantized_graph_states_no_types(tmp_path: Path) -> None:
    body = PAIRS.replace("t = Tanh(r)", "u = Mul(r, k) a = Abs(u) t = Tanh(a)").replace("m = Mul(t, k)", "m = Neg(t)")
    path = write(tmp_path / "m.onnx", body, {**INT8, "k": 30_000})
    bare = onnx.load(path)
    del bare.graph.value_info[:]
    onnx.save(bare, path)
    types, out = fp16(path)
    assert types.overflowing == ("Mul_u", "Abs_a", "Tanh_t")
    assert np.isfinite(run(out, x=X)).all()


def test_a_model_of_many_inputs_keeps_them(tmp_path: Path) -> None:
    ins = "float[N,4] x, float[4] b, int64[N,4] n, bool[N,4] on"
    body = "f = Cast<to=1>(n) s = Add(x, b) t = Add(s, f) u = Where(on, t, x) y = MatMul(u, w)"
    path = write(tmp_path / "m.onnx", body, {"w": W}, ins=ins)
    feed = {"x": X, "b": W[0], "n": np.arange(32).reshape(8, 4), "on": X > 0}
    types = typed(path, tmp_path / "t.onnx", "fp16", [feed])
    assert types.overflowing == ()
    assert onnx.load(tmp_path / "t.onnx").graph.input == onnx.load(path).graph.input
    assert 50 < sqnr_db(run(path, **feed), run(tmp_path / "t.onnx", **feed)) < 100


def test_a_branch_that_overflows_is_held(tmp_path: Path) -> None:
    inside = "g = Mul(h, large) l = Mul(g, small) a = Add(l, x)"
    body = f"h = Relu(x) m = ReduceMax<keepdims=0>(h) {IF.format(then=inside)} y = MatMul(z, w)"
    path = write(tmp_path / "m.onnx", body, {"zero": 0, "large": 1e5, "small": 1e-5, "w": W})
    _, out = fp16(path)
    assert kinds(out)["MatMul_y"] == HALF
    assert sqnr_db(run(path, x=X), run(out, x=X)) > 50


def test_the_input_stays_and_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", PAIRS, INT8)
    before = path.read_bytes()
    first = fp16(path)[1].read_bytes()
    assert fp16(path)[1].read_bytes() == first
    assert path.read_bytes() == before
