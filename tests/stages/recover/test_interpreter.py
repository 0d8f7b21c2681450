"""A graph in torch computes what ONNX Runtime computes, or is refused with the node named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from exact import made_up
from random_graphs import random_graph

from compressor import graph, runtime
from compressor.errors import RungError
from compressor.stages.recover.interpreter import Network

torch = pytest.importorskip("torch", reason="recovery needs torch")
TYPES = {"float32": "float", "int64": "int64", "int32": "int32", "bool": "bool", "float64": "double"}
X = (2, 4, 7, 8)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


CONVOLUTIONS = [
    ("y = Conv (x, w, b)", {"x": X, "w": (6, 4, 3, 3), "b": (6,)}),
    ("y = Conv <pads = [1,2], strides = [2], dilations = [2]> (x, w)", {"x": (2, 4, 17), "w": (6, 4, 3)}),
    ("y = Conv <pads = [1,0,2,0,1,1], group = 2> (x, w)", {"x": (1, 4, 5, 6, 4), "w": (6, 2, 2, 3, 3)}),
    ("y = Conv <pads = [1,0,2,3], strides = [2,1], group = 4> (x, w)", {"x": X, "w": (8, 1, 3, 2)}),
    ("y = Conv <pads = [1,1,1,1], dilations = [2,1]> (x, w)", {"x": X, "w": (6, 4, 2, 3)}),
    ('y = Conv <auto_pad = "SAME_UPPER", strides = [2,2]> (x, w)', {"x": X, "w": (6, 4, 3, 3)}),
    ('y = Conv <auto_pad = "SAME_LOWER", strides = [2,2]> (x, w)', {"x": X, "w": (6, 4, 4, 3)}),
    ('y = Conv <auto_pad = "SAME_UPPER", strides = [3,1]> (x, w)', {"x": X, "w": (6, 4, 1, 4)}),
    ('y = Conv <auto_pad = "VALID", strides = [3,1]> (x, w)', {"x": X, "w": (6, 4, 2, 4)}),
    ("y = ConvTranspose (x, w, b)", {"x": X, "w": (4, 3, 3, 3), "b": (3,)}),
    ("y = ConvTranspose <pads = [1,2], strides = [2]> (x, w)", {"x": (2, 4, 9), "w": (4, 3, 4)}),
    ("y = ConvTranspose <strides = [2,1,2], group = 2> (x, w)", {"x": (1, 4, 3, 4, 3), "w": (4, 3, 2, 2, 3)}),
    (
        "y = ConvTranspose <strides = [2,3], output_padding = [1,2], pads = [1,0,0,1], dilations = [2,1]> (x, w, b)",
        {"x": X, "w": (4, 3, 3, 3), "b": (3,)},
    ),
    ("y = ConvTranspose <strides = [2,3], output_shape = [14,23]> (x, w)", {"x": X, "w": (4, 3, 3, 3)}),
    (
        'y = ConvTranspose <strides = [2,3], output_shape = [14,23], auto_pad = "SAME_UPPER"> (x, w)',
        {"x": X, "w": (4, 3, 3, 3)},
    ),
    ('y = ConvTranspose <strides = [2,2], auto_pad = "SAME_UPPER"> (x, w)', {"x": X, "w": (4, 3, 3, 3)}),
    ('y = ConvTranspose <strides = [2,2], auto_pad = "SAME_LOWER"> (x, w)', {"x": X, "w": (4, 3, 3, 3)}),
    ('y = ConvTranspose <strides = [2,2], auto_pad = "VALID"> (x, w)', {"x": X, "w": (4, 3, 3, 3)}),
]
POOLS = [
    ("y = MaxPool <kernel_shape = [3,2], strides = [2,1], pads = [1,0,1,1]> (x)", {"x": X}),
    ("y = MaxPool <kernel_shape = [3], strides = [2], ceil_mode = 1> (x)", {"x": (2, 4, 8)}),
    ("y = MaxPool <kernel_shape = [2,2], strides = [3,3], ceil_mode = 1, pads = [0,0,1,1]> (x)", {"x": X}),
    ("y = MaxPool <kernel_shape = [2,2,2], strides = [2,2,2]> (x)", {"x": (1, 2, 5, 6, 4)}),
    ("y = MaxPool <kernel_shape = [2,3], dilations = [2,1], pads = [1,1,1,1]> (x)", {"x": X}),
    ('y = MaxPool <kernel_shape = [3,3], strides = [2,2], auto_pad = "SAME_UPPER"> (x)', {"x": X}),
    ('y = MaxPool <kernel_shape = [2,2], strides = [2,2], auto_pad = "SAME_LOWER"> (x)', {"x": X}),
    ("y = AveragePool <kernel_shape = [3,2], strides = [2,1]> (x)", {"x": X}),
    ("y = AveragePool <kernel_shape = [3,2], pads = [1,0,2,1]> (x)", {"x": X}),
    ("y = AveragePool <kernel_shape = [3,2], pads = [1,0,2,1], count_include_pad = 1> (x)", {"x": X}),
    ("y = AveragePool <kernel_shape = [3,3], strides = [2,2], ceil_mode = 1, pads = [1,1,1,1]> (x)", {"x": X}),
    ("y = AveragePool <kernel_shape = [3,3], strides = [2,2], ceil_mode = 1> (x)", {"x": X}),
    (
        "y = AveragePool <kernel_shape = [3,3], strides = [2,2], ceil_mode = 1, count_include_pad = 1> (x)",
        {"x": X},
    ),
    (
        "y = AveragePool <kernel_shape=[3,3], strides=[3,3], ceil_mode=1, pads=[1,1,1,1], count_include_pad=1> (x)",
        {"x": X},
    ),
    ('y = AveragePool <kernel_shape = [3,3], strides = [2,2], auto_pad = "SAME_UPPER"> (x)', {"x": X}),
    ("y = AveragePool <kernel_shape = [3], strides = [2], pads = [1,1]> (x)", {"x": (2, 4, 9)}),
    ("y = GlobalAveragePool (x)", {"x": X}),
    ("y = GlobalMaxPool (x)", {"x": (2, 4, 9)}),
]
PRODUCTS = [
    ("y = Gemm (x, w)", {"x": (5, 4), "w": (4, 6)}),
    ("y = Gemm <alpha = 0.5, beta = 2.0, transA = 1, transB = 1> (x, w, b)", {"x": (4, 5), "w": (6, 4), "b": (6,)}),
    ("y = Gemm (x, w, b)", {"x": (5, 4), "w": (4, 6), "b": (5, 1)}),
    ("y = MatMul (x, w)", {"x": (2, 3, 5, 4), "w": (4, 6)}),
    ("y = MatMul (x, w)", {"x": (2, 3, 5, 4), "w": (3, 4, 6)}),
    ("y = MatMul (x, w)", {"x": (5, 4), "w": (4,)}),
    ('y = Einsum <equation = "bij, bjk -> bik"> (x, w)', {"x": (2, 3, 4), "w": (2, 4, 5)}),
    ('y = Einsum <equation = "...ij->...ji"> (x)', {"x": (2, 3, 4)}),
    ("y = Softmax (x)", {"x": (2, 3, 5)}),
    ("y = Softmax <axis = 1> (x)", {"x": (2, 3, 5)}),
    ("y = LogSoftmax <axis = 0> (x)", {"x": (2, 3, 5)}),
    ("y = ReduceMean <axes = [2,3], keepdims = 0> (x)", {"x": X}),
    ("y = ReduceMean (x)", {"x": X}),
    ("y = ReduceSum <keepdims = 0> (x, a)", {"x": X, "a": ints(-1, 1)}),
    *((f"y = Reduce{kind} <axes = [1,-1]> (x)", {"x": X}) for kind in ("Max", "Min", "Prod", "L1", "L2", "SumSquare")),
    *((f"a = Exp (x) y = Reduce{kind} <axes = [1], keepdims = 0> (a)", {"x": X}) for kind in ("LogSum", "LogSumExp")),
    ("y = ReduceSum (x, a)", {"x": ints(1, 2, 3), "a": ints(0)}),
    ("y = ArgMax <axis = 1, keepdims = 0> (x)", {"x": X}),
    ("y = ArgMin <axis = -1> (x)", {"x": X}),
    ("y = CumSum (x, a)", {"x": (2, 5), "a": np.array(1, np.int64)}),
    ("v = Abs (c) y = BatchNormalization <epsilon = 0.01> (x, a, b, m, v)", {"x": X} | dict.fromkeys("abcm", (4,))),
    ("y = LayerNormalization <epsilon = 0.01> (x, a, b)", {"x": (2, 3, 5), "a": (5,), "b": (5,)}),
    ("y = LayerNormalization <axis = 1> (x, a)", {"x": (2, 3, 5), "a": (3, 5)}),
    ("y = InstanceNormalization <epsilon = 0.01> (x, a, b)", {"x": X, "a": (4,), "b": (4,)}),
    ("y = LRN <size = 3, alpha = 0.1, beta = 0.5, bias = 2.0> (x)", {"x": (2, 6, 5, 4)}),
    *(
        (f"y = LSTM <hidden_size = 3{way}> (x, w, r, b)", {"x": (5, 2, 4)} | recurrent)
        for way, recurrent in (
            ("", {"w": (1, 12, 4), "r": (1, 12, 3), "b": (1, 24)}),
            (', direction = "reverse"', {"w": (1, 12, 4), "r": (1, 12, 3), "b": (1, 24)}),
            (', direction = "bidirectional"', {"w": (2, 12, 4), "r": (2, 12, 3), "b": (2, 24)}),
        )
    ),
    (
        "a, h, y = LSTM <hidden_size = 3> (x, w, r, , , i, j)",
        {"x": (5, 2, 4), "w": (1, 12, 4), "r": (1, 12, 3), "i": (1, 2, 3), "j": (1, 2, 3)},
    ),
    *(
        (f"y = GRU <hidden_size = 3{way}> (x, w, r, b)", {"x": (5, 2, 4)} | recurrent)
        for way, recurrent in (
            ("", {"w": (1, 9, 4), "r": (1, 9, 3), "b": (1, 18)}),
            (", linear_before_reset = 1", {"w": (1, 9, 4), "r": (1, 9, 3), "b": (1, 18)}),
            (', direction = "bidirectional"', {"w": (2, 9, 4), "r": (2, 9, 3), "b": (2, 18)}),
        )
    ),
    (
        'y = RNN <hidden_size = 3, direction = "bidirectional"> (x, w, r, b)',
        {"x": (5, 2, 4), "w": (2, 3, 4), "r": (2, 3, 3), "b": (2, 6)},
    ),
    (
        "a, y = GRU <hidden_size = 3> (x, w, r, , , i)",
        {"x": (5, 2, 4), "w": (1, 9, 4), "r": (1, 9, 3), "i": (1, 2, 3)},
    ),
]
ALONE = (
    *("Abs", "Ceil", "Celu", "Cos", "Dropout", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "Identity"),
    *("IsNaN", "LeakyRelu", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus"),
    *("Asinh", "Atan", "Cosh", "Sinh", "Softsign", "Tan", "Tanh", "ThresholdedRelu"),
)
POINTWISE = [
    *((f"y = {kind} (x)", {"x": (3, 4)}) for kind in ALONE),
    *((f"y = {kind} <alpha = 0.3> (x)", {"x": (3, 4)}) for kind in ("Elu", "LeakyRelu", "Celu", "ThresholdedRelu")),
    ("y = Selu <alpha = 1.5, gamma = 2.0> (x)", {"x": (3, 4)}),
    ("y = HardSigmoid <alpha = 0.3, beta = 0.4> (x)", {"x": (3, 4)}),
    ("a = Exp (x) y = Log (a)", {"x": (3, 4)}),
    *((f"a = Sin (x) y = {kind} (a)", {"x": (3, 4)}) for kind in ("Acos", "Asin", "Atanh")),
    ("a = Cosh (x) y = Acosh (a)", {"x": (3, 4)}),
    ("a = Exp (x) y = Sqrt (a)", {"x": (3, 4)}),
    ("y = PRelu (x, w)", {"x": X, "w": (4, 1, 1)}),
    ("y = Clip (x, a, b)", {"x": X, "a": np.float32(-0.5), "b": np.float32(0.7)}),
    ("y = Clip (x, , b)", {"x": X, "b": np.float32(0.7)}),
    ("y = Clip (x)", {"x": X}),
    ("a = Exp (x) y = Pow (a, w)", {"x": X, "w": (8,)}),
    *((f"y = {kind} (x, w)", {"x": X, "w": (4, 1, 8)}) for kind in ("Add", "Sub", "Mul", "Div")),
    *((f"y = {kind} (x, w, v)", {"x": X, "w": (4, 1, 8), "v": (8,)}) for kind in ("Min", "Max", "Sum", "Mean")),
    ("y = Div (x, w)", {"x": ints(7, -7, 6), "w": ints(2, 2, -4)}),
    ("y = Mod (x, w)", {"x": ints(7, -7, 6), "w": ints(2, 3, -4)}),
    ("y = Mod <fmod = 1> (x, w)", {"x": floats(7, -7, 6), "w": floats(2, 3, -4)}),
    *(
        (f"c = {kind} (x, w) y = Where (c, x, v)", {"x": (3, 4), "w": (4,), "v": (3, 1)})
        for kind in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")
    ),
    *(
        (f"a = Greater (x, w) b = Less (x, v) y = {kind} (a, b)", {"x": (3, 4), "w": (4,), "v": (3, 1)})
        for kind in ("And", "Or", "Xor")
    ),
    ("a = Greater (x, w) b = Not (a) y = Cast <to = 1> (b)", {"x": (3, 4), "w": (4,)}),
    ("y = Cast <to = 7> (x)", {"x": floats(1.7, -1.7, 3.2)}),
    ("a = Cast <to = 9> (x) y = Cast <to = 11> (a)", {"x": floats(1.7, 0, -3.2)}),
    ("y = CastLike (x, w)", {"x": ints(1, 2), "w": (3,)}),
]
LAYOUT = [
    ("y = Concat <axis = -1> (x, w)", {"x": (2, 3), "w": (2, 4)}),
    ("a, y = Split <axis = 1> (x, s)", {"x": (2, 5), "s": ints(2, 3)}),
    ("a, y = Split <axis = 1> (x)", {"x": (2, 6)}),
    ("y = Slice (x, s, e)", {"x": X, "s": ints(0, 1), "e": ints(1, 2**62)}),
    (
        "y = Slice (x, s, e, a, t)",
        {"x": X, "s": ints(-1, 1), "e": ints(-(2**62), -1), "a": ints(2, -1), "t": ints(-2, 3)},
    ),
    ("y = Slice (x, s, e, a)", {"x": X, "s": ints(9), "e": ints(12), "a": ints(2)}),
    ("y = Pad (x, p, v)", {"x": (2, 3), "p": ints(0, 1, 2, -1), "v": np.float32(1.5)}),
    ("y = Pad (x, p)", {"x": X, "p": ints(0, 1, 2, 0, 0, 0, 1, 3)}),
    ('y = Pad <mode = "reflect"> (x, p)', {"x": X, "p": ints(0, 1, 2, 0, 0, 0, 6, 3)}),
    ('y = Pad <mode = "edge"> (x, p)', {"x": X, "p": ints(0, 0, 2, 0, 0, 0, 9, 3)}),
    ("y = Reshape (x, s)", {"x": X, "s": ints(0, -1, 8)}),
    ("y = Reshape <allowzero = 1> (x, s)", {"x": (0, 3), "s": ints(3, 0)}),
    ("y = Flatten (x)", {"x": X}),
    ("y = Flatten <axis = -1> (x)", {"x": X}),
    ("y = Flatten <axis = 0> (x)", {"x": X}),
    ("y = Squeeze (x, a)", {"x": (1, 3, 1), "a": ints(-1)}),
    ("y = Squeeze (x)", {"x": (1, 3, 1)}),
    ("y = Unsqueeze (x, a)", {"x": (2, 3), "a": ints(-1, 0)}),
    ("y = Transpose (x)", {"x": X}),
    ("y = Transpose <perm = [0,2,3,1]> (x)", {"x": X}),
    ("y = Expand (x, s)", {"x": (3, 1), "s": ints(2, 1, 4)}),
    ("y = Tile (x, s)", {"x": (2, 3), "s": ints(2, 3)}),
    ("y = Gather <axis = 1> (x, i)", {"x": (3, 5), "i": ints(0, -1, 2).reshape(3, 1)}),
    ("y = Gather (x, i)", {"x": (3, 5), "i": np.array(-1, np.int64)}),
    ("y = GatherElements <axis = 1> (x, i)", {"x": (2, 5), "i": ints(0, -1, 2, 3).reshape(2, 2)}),
    ("y = GatherND (x, i)", {"x": (2, 5, 3), "i": ints(0, -1, 1, 3).reshape(2, 2)}),
    ("y = Shape (x)", {"x": X}),
    ("y = Shape <start = 1, end = -1> (x)", {"x": X}),
    ("y = Size (x)", {"x": X}),
    ("c = Constant <value = float[3] {1.0, 2.0, 3.0}> () y = Mul (x, c)", {"x": (2, 3)}),
    ("c = Constant <value_ints = [3, 2]> () y = Reshape (x, c)", {"x": (2, 3)}),
    ("c = Constant <value_float = 2.5> () y = Mul (x, c)", {"x": (2, 3)}),
    ("s = Shape (x) c = ConstantOfShape (s) y = Add (x, c)", {"x": (2, 3)}),
    ("s = Shape (x) y = ConstantOfShape <value = int64[1] {7}> (s)", {"x": (2, 3)}),
    ("y = Range (x, e, d)", {"x": np.array(2, np.int64), "e": np.array(11, np.int64), "d": np.array(3, np.int64)}),
    *((f'y = DepthToSpace <blocksize = 2, mode = "{mode}"> (x)', {"x": (2, 8, 3, 4)}) for mode in ("DCR", "CRD")),
    ("y = SpaceToDepth <blocksize = 2> (x)", {"x": (2, 3, 4, 6)}),
    ("y = Trilu (x)", {"x": (4, 5)}),
    ("y = Trilu <upper = 0> (x, k)", {"x": (4, 5), "k": np.array(1, np.int64)}),
]
MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
RESIZES = [
    *(
        (f'y = Resize <mode = "linear", coordinate_transformation_mode = "{mode}"> (x, , , s)', {"x": X, "s": size})
        for mode in MODES
        for size in (ints(2, 4, 5, 13), ints(2, 4, 14, 3), ints(2, 4, 1, 8))
    ),
    *(
        (
            f'y = Resize <coordinate_transformation_mode = "{mode}", nearest_mode = "{near}"> (x, , s)',
            {"x": X, "s": size},
        )
        for mode in MODES
        for near in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        for size in (floats(1, 1, 2, 1.5), floats(1, 1, 0.6, 0.5))
    ),
    ('y = Resize <mode = "linear"> (x, , s)', {"x": X, "s": floats(1, 1, 2, 2)}),
]
LATER = [
    (18, "y = Mish (x)", {"x": (3, 4)}),
    (20, "y = Gelu (x)", {"x": (3, 4)}),
    (20, 'y = Gelu <approximate = "tanh"> (x)', {"x": (3, 4)}),
    (18, "a, b, y = Split <axis = 1, num_outputs = 3> (x)", {"x": (2, 7)}),
    (18, "y = ReduceMax <keepdims = 0> (x, a)", {"x": X, "a": ints(-1, 1)}),
    (18, "y = Pad (x, p, , a)", {"x": X, "p": ints(1, 2, 0, 3), "a": ints(-1, 1)}),
    (18, 'y = Resize <mode = "linear", axes = [2,3]> (x, , , s)', {"x": X, "s": ints(5, 13)}),
    (18, "y = GroupNormalization <num_groups = 2> (x, a, b)", {"x": X, "a": (2,), "b": (2,)}),
    (21, "y = GroupNormalization <num_groups = 2> (x, a, b)", {"x": X, "a": (4,), "b": (4,)}),
]
CASES = [
    *((17, *case) for case in (*CONVOLUTIONS, *POOLS, *PRODUCTS, *POINTWISE, *LAYOUT, *RESIZES)),
    *LATER,
]


def written(folder: Path, body: str, arrays: Mapping[str, Any], opset: int = 17) -> tuple[Path, dict[str, np.ndarray]]:
    """Write a model of this body, whose input is x and whose initializers are the other arrays."""
    rng = np.random.default_rng(len(body))
    made = {
        name: rng.normal(size=given).astype(np.float32) if isinstance(given, tuple) else np.asarray(given)
        for name, given in arrays.items()
    }
    x = made.pop("x")
    sizes = "[" + ",".join(map(str, x.shape)) + "]" if x.ndim else ""
    header = f'<ir_version: 8, opset_import: ["": {opset}]> g ({TYPES[x.dtype.name]}{sizes} x) => (float[] y)'
    model = onnx.parser.parse_model(f"{header} {{ {body} }}")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in made.items())
    model.graph.output[0].type.Clear()
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx", {"x": x}


def by_runtime(path: Path, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(feeds))[0])


def by_torch(path: Path, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(Network(path)({name: torch.from_numpy(array) for name, array in feeds.items()})["y"])


@pytest.mark.parametrize(("opset", "body", "arrays"), CASES, ids=[f"{body}@{opset}" for opset, body, _ in CASES])
def test_an_operator_computes_what_onnx_runtime_does(tmp_path: Path, opset: int, body: str, arrays: Any) -> None:
    path, feeds = written(tmp_path, body, arrays, opset)
    wanted, found = by_runtime(path, feeds), by_torch(path, feeds)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if wanted.dtype.kind == "f":
        assert np.abs(found - wanted).max(initial=0) <= 1e-4 * np.abs(wanted).max(initial=0)
    else:
        assert np.array_equal(found, wanted)


BRANCH = """
    b = Constant <value_int = 1> ()
    c = Cast <to = 9> (b)
    [n] y = If (c) <
        then_branch = t () => (float[] z) { z = Identity (x) },
        else_branch = e () => (float[] z) { z = Neg (x) }
    >
"""
REFUSED = [
    ("[n] y = Det (x)", {"x": (3, 3)}, r"'n' \(Det\): this operator"),
    ("[n] y = com.microsoft.Gelu (x)", {"x": (3, 3)}, r"'n' \(com\.microsoft\.Gelu\): this operator"),
    (
        BRANCH,
        {"x": (3, 3)},
        r"'n' \(If\): this operator",
    ),
    (
        "[n] y, i = MaxPool <kernel_shape = [2,2]> (x) j = Identity (i)",
        {"x": X},
        r"'n' \(MaxPool\): only its first output",
    ),
    ("[n] y = AveragePool <kernel_shape = [2,2], dilations = [2,2]> (x)", {"x": X}, r"'n' \(AveragePool\): .*gaps"),
    ('[n] y = Resize <mode = "cubic"> (x, , s)', {"x": X, "s": floats(1, 1, 2, 2)}, r"'n' \(Resize\): mode cubic"),
    ("[n] y = Resize <antialias = 1> (x, , s)", {"x": X, "s": floats(1, 1, 2, 2)}, r"'n' \(Resize\): antialias"),
    (
        '[n] y = Resize <coordinate_transformation_mode = "half_pixel_symmetric"> (x, , s)',
        {"x": X, "s": floats(1, 1, 2, 2)},
        r"'n' \(Resize\): coordinates of half_pixel_symmetric",
    ),
    ('[n] y = Pad <mode = "wrap"> (x, p)', {"x": (2, 3), "p": ints(0, 1, 0, 1)}, r"'n' \(Pad\): mode wrap"),
    ('[n] y = Pad <mode = "reflect"> (x, p)', {"x": (2, 3), "p": ints(0, 3, 0, 1)}, r"'n' \(Pad\): it reflects more"),
    (
        '[n] y = GRU <hidden_size = 3, activations = ["Sigmoid", "Relu"]> (x, w, r)',
        {"x": (5, 2, 4), "w": (1, 9, 4), "r": (1, 9, 3)},
        r"'n' \(GRU\): its activations",
    ),
    (
        "[n] y = LSTM <hidden_size = 3, layout = 1> (x, w, r)",
        {"x": (5, 2, 4), "w": (1, 12, 4), "r": (1, 12, 3)},
        r"'n' \(LSTM\): layout",
    ),
    (
        "[n] y = GRU <hidden_size = 3> (x, w, r, , s)",
        {"x": (5, 2, 4), "w": (1, 9, 4), "r": (1, 9, 3), "s": np.array([5, 3], np.int32)},
        r"'n' \(GRU\): its input sequence_lens",
    ),
    ("[n] y = MatMul (x, w)", {"x": (2, 3), "w": (4, 3)}, r"'n' \(MatMul\): torch could not compute it"),
    ("[n] y = Cast <to = 8> (x)", {"x": (2, 3)}, r"'n' \(Cast\): torch computes with no elements of type 8"),
]


@pytest.mark.parametrize(("body", "arrays", "why"), REFUSED, ids=[body for body, *_ in REFUSED])
def test_what_cannot_be_computed_exactly_is_refused(tmp_path: Path, body: str, arrays: Any, why: str) -> None:
    path, feeds = written(tmp_path, body, arrays, 19)
    with pytest.raises(RungError, match=why):
        by_torch(path, feeds)


def test_a_model_with_functions_is_refused(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[2] x) => (float[2] y) { y = own.f (x) }
        <domain: "own", opset_import: ["": 17]> f (a) => (b) { b = Relu (a) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    with pytest.raises(RungError, match="functions of its own"):
        Network(tmp_path / "model.onnx")


BODY = """
    c = Conv <pads = [1,1,1,1]> (x, w, b)
    n = BatchNormalization (c, scale, shift, mean, var)
    r = Resize (n, , scales)
    p = Pow (r, two)
    k = Clip (p, low, high)
    s = Reshape (k, sizes)
    y = Mul (s, half)
"""
ARRAYS = {
    "x": (1, 4, 3, 3),
    "w": (4, 4, 3, 3),
    **dict.fromkeys(("b", "scale", "shift", "mean"), (4,)),
    "var": floats(1, 2, 3, 4),
    "scales": floats(1, 1, 2, 2),
    "two": floats(2, 2, 2, 2, 2, 2),
    "low": np.float32(-1),
    "high": np.float32(1),
    "sizes": ints(0, -1),
    "half": floats(0.5),
}


def test_weights_are_what_nodes_compute_with(tmp_path: Path) -> None:
    network = Network(written(tmp_path, BODY, ARRAYS)[0])
    assert set(network.weights) == {"w", "b", "scale", "shift"}


@pytest.mark.parametrize("body", ["y = MatMul (w, x)", "y = MatMul (x, w)", "a = Transpose (w) y = Gemm (x, a)"])
def test_gradients_reach_the_weights(tmp_path: Path, body: str) -> None:
    """By central differences of a sum of squares, computed by ONNX Runtime."""
    path, feeds = written(tmp_path, body, {"x": (4, 4), "w": (4, 4)})
    network = Network(path)
    network({"x": torch.from_numpy(feeds["x"])})["y"].square().sum().backward()
    nudged = []
    for step in (0.01, -0.01):
        changed = onnx.load(path)
        weight = onnx.numpy_helper.to_array(changed.graph.initializer[0]).copy()
        weight[1, 2] += step
        changed.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
        onnx.save(changed, tmp_path / "nudged.onnx")
        nudged.append(float(np.square(by_runtime(tmp_path / "nudged.onnx", feeds), dtype=np.float64).sum()))
    assert float(network.weights["w"].grad[1, 2]) == pytest.approx((nudged[0] - nudged[1]) / 0.02, rel=1e-3)


def test_zeros_of_a_matrix_stay(tmp_path: Path) -> None:
    matrix = np.tril(np.arange(1, 17, dtype=np.float32).reshape(4, 4))
    path, feeds = written(tmp_path, "y = Gemm (x, w, b)", {"x": (4, 4), "w": matrix, "b": floats(0, 0, 0, 1)})
    network = Network(path)
    network({"x": torch.from_numpy(feeds["x"])})["y"].square().sum().backward()
    assert np.array_equal(network.weights["w"].grad != 0, matrix != 0)
    assert (network.weights["b"].grad != 0).all()


def test_saving_writes_the_weights_and_nothing_else(tmp_path: Path) -> None:
    path, _ = written(tmp_path, BODY, ARRAYS)
    network = Network(path)
    with torch.no_grad():
        network.weights["w"].mul_(2)
    network.save(tmp_path / "out.onnx")
    before, after = (onnx.load(file) for file in (path, tmp_path / "out.onnx"))
    arrays = [{t.name: onnx.numpy_helper.to_array(t) for t in m.graph.initializer} for m in (before, after)]
    assert list(arrays[0]) == list(arrays[1])
    for name, array in arrays[0].items():
        assert arrays[1][name].dtype == array.dtype
        assert np.array_equal(arrays[1][name], 2 * array if name == "w" else array)
    assert [(n.op_type, n.input, n.output) for n in after.graph.node] == [
        (n.op_type, n.input, n.output) for n in before.graph.node
    ]


def test_saving_unchanged_weights_gives_the_same_bytes_as_copying(tmp_path: Path) -> None:
    path, _ = written(tmp_path, BODY, ARRAYS)
    graph.save(graph.load(path), tmp_path / "copy.onnx")
    Network(path).save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "copy.onnx").read_bytes()


def test_the_footprint_is_what_all_nodes_make(tmp_path: Path) -> None:
    path, feeds = written(tmp_path, "a = Relu (x) b = Concat <axis = 0> (a, a) y = Neg (b)", {"x": (3, 5)})
    assert Network(path).footprint_bytes({"x": torch.from_numpy(feeds["x"])}) == 4 * (15 + 30 + 30)


@pytest.mark.parametrize("seed", range(24))
def test_a_random_graph_computes_what_onnx_runtime_does_or_is_refused(tmp_path: Path, seed: int) -> None:
    onnx.save(random_graph(seed), tmp_path / "given.onnx")
    graph.normalise(tmp_path / "given.onnx", tmp_path / "model.onnx")
    model = graph.open_model(tmp_path / "model.onnx")
    feeds = next(iter(made_up(model, 1)))
    found, refusal = {}, ""
    try:
        found = Network(model.path)({name: torch.from_numpy(np.array(array)) for name, array in feeds.items()})
    except RungError as error:
        refusal = str(error)
    assert re.match(r"^$|node '.+' \((LSTM|LpPool|GlobalLpPool)\): ", refusal)
    wanted = {} if refusal else runtime.load(model.path, runtime.options(1, spinning=False))(feeds)
    for name, array in wanted.items():
        assert np.abs(found[name].detach().numpy() - array).max() <= 1e-4 * np.abs(array).max()


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["crepe_tiny", "efficientnet_lite0", "mlperf_tiny_kws_dscnn_bn", "resnet20_cifar10", "ultraface_rfb320"]
)
def test_real_models_compute_what_onnx_runtime_does(shared: Path, tmp_path: Path, name: str) -> None:
    graph.normalise(shared / "models" / f"{name}.onnx", tmp_path / "model.onnx")
    model = graph.open_model(tmp_path / "model.onnx")
    feeds = next(iter(made_up(model, 1)))
    wanted = runtime.load(model.path, runtime.options(1, spinning=False))(feeds)
    with torch.no_grad():
        found = Network(model.path)({key: torch.from_numpy(np.array(array)) for key, array in feeds.items()})
    for output, array in wanted.items():
        assert np.abs(found[output].numpy() - array).max() <= 1e-4 * np.abs(array).max()
