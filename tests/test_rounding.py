"""FP16 on a CPU: what a graph with such types gives, held against onnx's reference implementation, which rounds."""

from __future__ import annotations

import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from compressor import runtime

X = np.array([300.0, -2.0, np.pi, 0.1], np.float32)
HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y)'
GRAPHS = {
    "overflow": "{ h = Cast <to = 10> (x) s = Mul (h, h) r = Sqrt (s) y = Cast <to = 1> (r) }",
    "constant": "{ h = Cast <to = 10> (x) s = Mul (h, c) y = Cast <to = 1> (s) }",
    "attribute": "{ h = Cast <to = 10> (x) s = Add (h, c) y = Cast <to = 1> (s) }",
    "branch": (
        "<bool p = {1}> { h = Cast <to = 10> (x) "
        "b = If (p) <then_branch = t () => (float16[4] a) { a = Mul (h, h) }, "
        "else_branch = e () => (float16[4] d) { d = Identity (h) }> y = Cast <to = 1> (b) }"
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_fp16_value_is_rounded(tmp_path: Path, name: str) -> None:
    model = onnx.parser.parse_model(f"{HEAD} {GRAPHS[name]}")
    third = onnx.numpy_helper.from_array(np.array([0.3], np.float16), "c")
    if name == "constant":
        model.graph.initializer.append(third)
    if name == "attribute":
        model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["c"], value=third))
    onnx.save(model, path := tmp_path / "half.onnx")
    with warnings.catch_warnings(), np.errstate(over="ignore"):
        warnings.simplefilter("ignore")
        (expected,) = ReferenceEvaluator(model).run(None, {"x": X})
    out = tmp_path / "rounded.onnx"
    assert runtime.rounded(path, out)
    with closing(runtime.load(out, runtime.options(1, spinning=False))) as session:
        np.testing.assert_array_equal(session({"x": X})["y"], expected)
    onnx.checker.check_model(onnx.load(out), full_check=True)


def test_a_cpu_alone_does_not_round_which_is_why_this_is_here(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(f"{HEAD} {GRAPHS['overflow']}"), path := tmp_path / "half.onnx")
    with closing(runtime.load(path, runtime.options(1, spinning=False))) as session:
        found = session({"x": X})["y"]
    if np.isinf(found[0]):
        pytest.skip("this CPU has FP16 kernels")
    assert found[0] == pytest.approx(300)


def test_float32_and_models_that_take_fp16_themselves_are_left_alone(tmp_path: Path) -> None:
    whole = onnx.parser.parse_model(f"{HEAD} {{ y = Relu (x) }}")
    half = onnx.parser.parse_model(f"{HEAD.replace('float', 'float16')} {{ y = Relu (x) }}")
    for model in (whole, half):
        onnx.save(model, path := tmp_path / "model.onnx")
        assert not runtime.rounded(path, tmp_path / "out.onnx")
        assert not (tmp_path / "out.onnx").exists()
