from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from compressor import runtime
from compressor.runtime import names, profile

SIDE = 256
HEAD = '<ir_version: 8, opset_import: ["": 17]>'
X = {"x": np.random.default_rng(0).normal(size=(1, SIDE)).astype(np.float32)}
RUN = {"name": "model_run"}


def write(path: Path, body: str, products: int = 1) -> Path:
    model = onnx.parser.parse_model(f"{HEAD} g (float[1,{SIDE}] x) => (float[1,{SIDE}] y) {{ {body} }}")
    rng = np.random.default_rng(1)
    for i in range(products):
        weight = rng.normal(0, SIDE**-0.5, (SIDE, SIDE)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, f"W{i}"))
    onnx.save(model, path)
    return path


def chain(products: int) -> str:
    steps = [f"[product{i}] h{i + 1} = MatMul({f'h{i}' if i else 'x'}, W{i})" for i in range(products)]
    return " ".join([*steps, f"[end] y = Softmax(h{products})"])


def test_each_operator_stands_with_its_nodes_and_what_it_takes_now_costliest_first(tmp_path: Path) -> None:
    before, now = (write(tmp_path / f"{n}.onnx", chain(n), n) for n in (1, 16))
    found = runtime.times(before, now, [X]).operators
    assert [(one.operator, one.nodes) for one in found] == [("MatMul", 1), ("Softmax", 1)]
    products, ending = found
    assert products.now_ms > 4 * products.before_ms > 0
    assert products.now_ms > ending.now_ms > 0


def test_what_is_new_stands_under_its_own_name_and_what_is_gone_takes_nothing(tmp_path: Path) -> None:
    before, now = write(tmp_path / "a.onnx", chain(1)), write(tmp_path / "b.onnx", "[other] y = Elu(x)", 0)
    found = {one.operator: one for one in runtime.times(before, now, [X]).operators}
    assert found["Elu"].nodes == 0
    assert found["Elu"].before_ms == 0 < found["Elu"].now_ms
    assert found["MatMul"].now_ms == 0 < found["MatMul"].before_ms


def test_integer_kernels_count_for_the_operator_that_they_compute(tmp_path: Path) -> None:
    before = write(tmp_path / "a.onnx", "[product] y = MatMul(x, W0)")
    now = write(
        tmp_path / "b.onnx",
        """[zero] z = Constant<value=int8 {0}>() [small] s = Constant<value_float=0.01>()
        [q] w = QuantizeLinear(W0, s, z) [dyn] q, qs, qz = DynamicQuantizeLinear(x)
        [product_quant] i = MatMulInteger(q, w, qz, z) [f] f = Cast<to=1>(i) [m] m = Mul(qs, s) [s] y = Mul(f, m)""",
    )
    found = {one.operator: one for one in runtime.times(before, now, [X]).operators}
    assert found["MatMul"].nodes == 1
    assert found["MatMul"].before_ms > 0
    assert found["MatMul"].now_ms > 0
    assert not {"MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"} & found.keys()


def test_nodes_that_became_slower_are_named_with_both_times(tmp_path: Path) -> None:
    before = write(tmp_path / "a.onnx", "[product] h = Relu(x) [end] y = Softmax(h)", 0)
    now = write(tmp_path / "b.onnx", "[product] h = MatMul(x, W0) [end] y = Identity(h)")
    found = runtime.times(before, now, [X]).slower
    assert list(found) == ["product"]
    before_ms, now_ms = found["product"]
    assert 0 < before_ms < now_ms


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.onnx", chain(1))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path / "scratch")
    runtime.times(path, path, [X])
    assert list((tmp_path / "scratch").iterdir()) == []


def event(name: str, us: int, kernel: str = "Conv") -> dict[str, object]:
    return {"name": f"{name}_kernel_time", "dur": us, "args": {"op_name": kernel}}


def test_the_first_run_is_not_counted_nor_what_runs_other_nodes() -> None:
    events = [
        *({"name": "session_initialization", "dur": 5}, event("a", 900), RUN),
        *(event("a", 10), event("b", 100, "If"), event("a", 2), RUN, event("a", 20), RUN),
    ]
    assert profile._runs(events) == [{("a", "Conv"): pytest.approx(0.012)}, {("a", "Conv"): pytest.approx(0.02)}]


def test_a_run_that_was_interrupted_does_not_count() -> None:
    node = ("a", "Conv")
    runs = [{node: ms} for ms in (1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 3.0, 90.0)]
    assert profile._typical([profile.Counter(run) for run in runs]) == {node: 2.0}


KNOWN = names.known(
    onnx.parser.parse_model(
        f"""{HEAD} g (float[1,3,8,8] x, float[4,3,3,3] w) => (float[1,4,8,8] z) {{
        [conv] a = Conv(x, w) [norm] b = Neg(a) [act] c = Relu(b) [dense] d = MatMul(c, c) [relu] z = Relu(d) }}"""
    ).graph
)


@pytest.mark.parametrize(
    ("called", "kernel", "node"),
    [
        ("act", "Relu", "act"),
        ("conv_token_12", "QLinearConv", "conv"),
        ("c_nchwc", "Conv", "conv"),  # with what fused into it, by the output of the last
        ("a_nchwc_token_3", "Conv", "conv"),
        ("dense_quant", "MatMulIntegerToFloat", "dense"),
        ("dense/MatMulScaleFusion/", "FusedMatMul", "dense"),
        ("dense/MatMulAddFusion", "Gemm", "dense"),
        ("Transpose_token_1", "Transpose", None),
        ("", "Conv", None),
    ],
)
def test_a_node_of_the_optimised_graph_is_traced_to_the_one_it_was_made_of(
    called: str, kernel: str, node: str | None
) -> None:
    found = names.origin(called, kernel, KNOWN)
    assert (found.name if found else None) == node


def test_nodes_in_branches_are_known_too() -> None:
    model = onnx.parser.parse_model(
        f"""{HEAD} g (bool c, float[1] x) => (float[1] y) {{
        [choice] y = If(c) <then_branch = t () => (float[1] u) {{ [inner] u = Relu(x) }},
                            else_branch = e () => (float[1] v) {{ [other] v = Neg(x) }}> }}"""
    )
    assert sorted(node.name for node in names.nodes(model.graph)) == ["choice", "inner", "other"]
