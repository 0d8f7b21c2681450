"""Which initializers count as learnt: by what the graph does with them, and by their values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from compressor import graph
from compressor.stages.recover.weights import is_learnt


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def learnt(folder: Path, inputs: str, body: str, arrays: dict[str, np.ndarray], opset: int = 17) -> set[str]:
    text = f'<ir_version: 8, opset_import: ["": {opset}]> g ({inputs}) => (float[n] y) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    onnx.save(proto, folder / "model.onnx")
    values = graph.load(folder / "model.onnx").graph.initializers
    return {name for name, value in values.items() if is_learnt(value)}


IMAGE, ROWS = "float[1,4,8,8] x", "float[3,4] x"
NORM = {"s": np.ones(4, np.float32), "t": np.zeros(4, np.float32), "m": drawn(4), "v": 1 + drawn(4) ** 2}
SCALES = {"s": drawn(4), "t": drawn(4)}
LAYERS = [
    (IMAGE, "y = Conv (x, w, b)", {"w": drawn(6, 4, 3, 3), "b": drawn(6)}, "w b"),
    (IMAGE, "y = Conv (x, w, b)", {"w": drawn(6, 4, 3, 3), "b": np.zeros(6, np.float32)}, "w b"),
    (IMAGE, "y = ConvTranspose (x, w, b)", {"w": drawn(4, 6, 3, 3), "b": drawn(6)}, "w b"),
    (ROWS, "y = Gemm (x, w, b)", {"w": drawn(4, 5), "b": drawn(5)}, "w b"),
    (ROWS, "a = Transpose (w) y = MatMul (x, a)", {"w": drawn(5, 4)}, "w"),
    ("float[5,2,4] x", "y = LSTM <hidden_size = 3> (x, w, r, b, , h)", {
        "w": drawn(1, 12, 4), "r": drawn(1, 12, 3), "b": drawn(1, 24), "h": drawn(1, 2, 3)}, "w r b"),
    (IMAGE, "y = BatchNormalization (x, s, t, m, v)", NORM, "s t"),
    (ROWS, "y = LayerNormalization (x, s, t)", {"s": NORM["s"], "t": NORM["t"]}, "s t"),
    ("int64[3] x", "y = Gather (w, x)", {"w": drawn(9, 4)}, "w"),
    (ROWS, "a = MatMul (x, w) m = Mul (a, s) y = Add (m, t)", {"w": drawn(4, 4), **SCALES}, "w s t"),
    (IMAGE, "a = Conv (x, w) y = Mul (a, s)", {"w": drawn(6, 4, 1, 1), "s": drawn(6, 1, 1)}, "w s"),
    (ROWS, "r = Sqrt (x) d = Div (x, r) m = Mul (s, d) y = Add (m, t)", SCALES, "s t"),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "body", "arrays", "names"), LAYERS)
def test_weights_of_layers_are_learnt(
    tmp_path: Path, inputs: str, body: str, arrays: dict[str, np.ndarray], names: str
) -> None:
    assert learnt(tmp_path, inputs, body, arrays) == set(names.split())


TRIANGLE = np.tril(np.ones((4, 4), np.float32))
RULES = [
    (ROWS, "y = Mul (x, w)", {"w": drawn(4)}),  # no layer before it
    (ROWS, "y = Add (x, w)", {"w": drawn(3, 4)}),  # a grid
    ("float[4,4] x", "a = MatMul (x, x) y = Add (a, w)", {"w": drawn(4, 4)}),  # a value for each place
    ("float[4,4] x", "a = MatMul (x, x) y = Mul (a, w)", {"w": TRIANGLE}),
    ("float[4,4] x", "a = MatMul (x, x) y = Mul (a, w)", {"w": np.array([1, 0, 1, 1], np.float32)}),
    ("float[4,4] x", "a = MatMul (x, x) y = Add (a, w)", {"w": np.array([0, -1e9, 0, 0], np.float32)}),
    ("float[4,4] x", "a = MatMul (x, x) y = Sub (a, w)", {"w": drawn(4)}),
    ("float[4,4] x", "a = MatMul (x, x) y = Div (a, w)", {"w": drawn(4)}),
    ("float[4,4] x", "a = MatMul (x, x) y = Pow (a, w)", {"w": drawn(4)}),
    ("float[4,4] x, bool[4,4] c", "a = MatMul (x, x) y = Where (c, a, w)", {"w": drawn(4)}),
    (ROWS, "y = MatMul (x, w)", {"w": TRIANGLE}),  # sums up
    (ROWS, "y = MatMul (x, w)", {"w": np.full((4, 2), 0.25, np.float32)}),  # a mean
    (IMAGE, "y = Conv <group = 4> (x, w)", {"w": np.full((4, 1, 3, 3), 1 / 9, np.float32)}),
    ("int64[3] x", "y = Gather (w, x)", {"w": TRIANGLE}),  # rows of a mask
    (ROWS, "a = MatMul (x, w) b = Exp (w) y = Mul (a, b)", {"w": drawn(4, 4)}),  # learnt, and something else too
    (ROWS, "y = MatMul (x, w)", {"w": np.array([[np.inf, 1], [2, 3], [4, 5], [6, 7]], np.float32)}),
    (ROWS, "y = MatMul (x, w)", {"w": drawn(4, 5).astype(np.float16)}),
    (ROWS, "y = Gemm (x, w)", {"w": drawn(1, 1)}),
    (ROWS, "a = Identity (w) y = Relu (x)", {"w": drawn(4, 5)}),
]


@pytest.mark.parametrize(("inputs", "body", "arrays"), RULES)
def test_masks_grids_and_settings_are_not_learnt(
    tmp_path: Path, inputs: str, body: str, arrays: dict[str, np.ndarray]
) -> None:
    assert learnt(tmp_path, inputs, body, arrays) == set()
