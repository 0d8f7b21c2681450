"""Small models of every kind of type, shape and structure that ONNX Runtime takes, with inputs that they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

MLP = "{ a = MatMul(x, W) \n c = Add(a, b) \n d = Relu(c) \n y = MatMul(d, V) }"
MLP_WEIGHTS = {"W": (64, 128), "b": (128,), "V": (128, 10)}
TYPES = {"float": np.float32, "double": np.float64, "float16": np.float16}


@dataclass(frozen=True)
class Odd:
    """A model, one sample of each input without its batch axis unless `whole`, and what comes of it.

    `kept`: what the report says of a model that nothing was quantized of; empty where something is. `scheme`: how the
    others are quantized.
    """

    proto: onnx.ModelProto
    samples: Mapping[str, tuple[int, ...]]
    dtype: Any = np.float32
    whole: bool = False
    kept: str = ""
    scheme: str = "static"

    def feeds(self, n: int, seed: int) -> dict[str, Array]:
        """Draw n samples of each input: `[n, …]`."""
        generator = np.random.default_rng(seed)
        return {name: _drawn(self.dtype, (n, *shape), generator) for name, shape in self.samples.items()}


def parsed(
    text: str,
    weights: Mapping[str, Any],
    imports: str = '"" : 17',
    ir: int = 8,
    dtype: Any = np.float32,
) -> onnx.ModelProto:
    """Give a model in ONNX text, with weights drawn where only a shape is given."""
    proto: onnx.ModelProto = onnx.parser.parse_model(f"<ir_version: {ir}, opset_import: [{imports}]> {text}")
    generator = np.random.default_rng(0)
    for name, value in weights.items():
        array = value if isinstance(value, np.ndarray) else _weight(value, generator).astype(dtype)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


def mlp(opset: int = 17, ir: int = 8, type_: str = "float") -> Odd:
    """Give two layers over 64 features in an opset, an IR version and a type."""
    text = f"g ({type_}[n,64] x) => ({type_}[n,10] y) {MLP}"
    proto = parsed(text, MLP_WEIGHTS, f'"" : {opset}', ir, TYPES[type_])
    return Odd(proto, {"x": (64,)}, TYPES[type_])


def recurrent(operator: str, gates: int) -> Odd:
    """Give a recurrent layer that takes its state and gives it back."""
    states = ["h", "c"] if operator == "LSTM" else ["h"]
    inputs = "".join(f", float[1,n,24] {state}0" for state in states)
    outputs = "".join(f", float[1,n,24] {state}1" for state in states)
    text = f"""g (float[n,6,16] x{inputs}) => (float[6,n,8] y{outputs}) {{
        xt = Transpose <perm: ints = [1, 0, 2]> (x)
        Y, {", ".join(f"{s}1" for s in states)} =
            {operator} <hidden_size: int = 24> (xt, W, R, B, , {", ".join(f"{s}0" for s in states)})
        q = Squeeze(Y, one)
        y = MatMul(q, V)
    }}"""
    shapes = {"W": (1, 24 * gates, 16), "R": (1, 24 * gates, 24), "B": (1, 48 * gates), "V": (24, 8)}
    samples = {"x": (1, 6, 16), **{f"{state}0": (1, 1, 24) for state in states}}
    return Odd(parsed(text, {**shapes, "one": np.array([1])}), samples, whole=True)


def trees() -> onnx.ModelProto:
    """Give an ensemble of eight trees with two leaves each, over eight features."""
    generator, count = np.random.default_rng(0), 8
    nodes = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=np.repeat(range(count), 3).tolist(),
        nodes_nodeids=[0, 1, 2] * count,
        nodes_featureids=np.ravel([(i, 0, 0) for i in range(count)]).tolist(),
        nodes_values=np.ravel([(0.1 * i, 0.0, 0.0) for i in range(count)]).tolist(),
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * count,
        nodes_truenodeids=[1, 0, 0] * count,
        nodes_falsenodeids=[2, 0, 0] * count,
        target_treeids=np.repeat(range(count), 2).tolist(),
        target_nodeids=[1, 2] * count,
        target_ids=[0] * 2 * count,
        target_weights=generator.normal(size=2 * count).tolist(),
    )
    return _classic([nodes], [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])])


def linear(*, as_maps: bool) -> onnx.ModelProto:
    """Give a linear classifier that answers with text and, as scikit-learn's exporter writes it, a map a sample."""
    classes = ["cat", "dog", "owl"]
    nodes = [
        helper.make_node(
            "LinearClassifier",
            ["x"],
            ["label", "p"],
            domain="ai.onnx.ml",
            coefficients=np.random.default_rng(0).normal(size=24).tolist(),
            intercepts=[0.0, 0.1, 0.2],
            classlabels_strings=classes,
            post_transform="SOFTMAX",
        )
    ]
    scores = helper.make_tensor_value_info("p", TensorProto.FLOAT, ["n", 3])
    if as_maps:
        nodes.append(helper.make_node("ZipMap", ["p"], ["m"], domain="ai.onnx.ml", classlabels_strings=classes))
        held = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
        scores = helper.make_value_info("m", helper.make_sequence_type_proto(held))
    return _classic(nodes, [helper.make_tensor_value_info("label", TensorProto.STRING, ["n"]), scores])


def _classic(nodes: Sequence[onnx.NodeProto], outputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    proto: onnx.ModelProto = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=imports, ir_version=8
    )
    return proto


def _weight(shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    return np.asarray(generator.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[:-1]))))


def _drawn(dtype: Any, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    if dtype is str:
        return generator.choice([f"word{i}" for i in range(40)], shape)
    if np.dtype(dtype).kind in "iu":
        return generator.integers(0, 100, shape).astype(dtype)
    return np.asarray(generator.standard_normal(shape).astype(dtype))


NOTHING = "nothing to quantize"
ALREADY = "it is quantized already"
WORDS = [f"word{i}" for i in range(40)]
_QUOTED = ", ".join(f'"{word}"' for word in WORDS)
_TEXT = (
    f"keys_strings: strings = [{_QUOTED}], "
    f"values_int64s: ints = [{', '.join(map(str, range(40)))}], default_int64: int = 0"
)
_CONVS = {"K": (8, 8, 3, 3), "A": (8, 8, 3, 3), "B": (8, 8, 3, 3), "zero": np.array(0, np.float32)}
_PADDED = "kernel_shape: ints = [3, 3], pads: ints = [1, 1, 1, 1]"
_LOOP = """g (float[n,32] x) => (float[n,8] y, float[m,n,32] all) {
    last, all = Loop (M, T, x)
        <body = step (int64 i, bool c, float[n,32] s) => (bool c2, float[n,32] s2, float[n,32] o) {
        t = MatMul(s, W)
        s2 = Tanh(t)
        c2 = Identity(c)
        o = Identity(s2)
    }>
    y = MatMul(last, V)
}"""
_SCAN = """g (float[n,5,32] x, float[n,16] s0) => (float[n,8] y, float[5,n,16] o) {
    xt = Transpose <perm: ints = [1, 0, 2]> (x)
    last, o = Scan <num_scan_inputs: int = 1, body: graph = step (float[n,16] s, float[n,32] xi)
        => (float[n,16] s2, float[n,16] e) {
        u = MatMul(xi, W)
        v = Add(u, s)
        s2 = Tanh(v)
        e = Identity(s2)
    }> (s0, xt)
    y = MatMul(last, V)
}"""
_PRODUCT = {"W": (32, 16)}

ODD: Mapping[str, Odd] = {
    **{f"opset {opset}": mlp(opset, ir) for opset, ir in ((7, 3), (9, 4), (11, 6), (13, 7), (22, 10), (26, 13))},
    "float64": mlp(type_="double"),
    "float16": mlp(type_="float16"),
    "float64 inputs and outputs of a float32 model": Odd(
        parsed(
            "g (double[n,3,8,8] x) => (double[n,8,6,6] y) { f = Cast <to: int = 1> (x) \n c = Conv(f, K) \n "
            "y = Cast <to: int = 11> (c) }",
            {"K": (8, 3, 3, 3)},
        ),
        {"x": (3, 8, 8)},
        np.float64,
    ),
    "float16 in part": Odd(
        parsed(
            "g (float[n,3,8,8] x) => (float[n,8,6,6] y) { h = Cast <to: int = 10> (x) \n c = Conv(h, K) \n "
            "r = Relu(c) \n f = Cast <to: int = 1> (r) \n y = Conv(f, L) }",
            {"K": np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float16) / 5, "L": (8, 8, 1, 1)},
        ),
        {"x": (3, 8, 8)},
    ),
    "ids in, truth and classes out": Odd(
        parsed(
            "g (int64[b,s] ids) => (float[b,s,16] y, bool[b,s,16] flag, int64[b,s,1] k) { e = Gather(E, ids) \n "
            "y = MatMul(e, W) \n flag = Greater(y, zero) \n k = ArgMax <axis: int = -1> (y) }",
            {"E": (100, 32), **_PRODUCT, "zero": np.array(0, np.float32)},
        ),
        {"ids": (6,)},
        np.int64,
    ),
    "bytes in": Odd(
        parsed(
            "g (uint8[n,3,8,8] x) => (float[n,8,6,6] y) { f = Cast <to: int = 1> (x) \n d = Div(f, s) \n "
            "y = Conv(d, K) }",
            {"K": (8, 3, 3, 3), "s": np.array(255, np.float32)},
        ),
        {"x": (3, 8, 8)},
        np.uint8,
    ),
    "text in": Odd(
        parsed(
            f"g (string[n] s) => (float[n,8] y) {{ i = ai.onnx.ml.LabelEncoder <{_TEXT}> (s) \n e = Gather(E, i) \n "
            "y = MatMul(e, W) }",
            {"E": (40, 32), "W": (32, 8)},
            '"" : 17, "ai.onnx.ml" : 3',
        ),
        {"s": ()},
        str,
    ),
    "an If with a convolution in each branch": Odd(
        parsed(
            f"""g (float[n,8,8,8] x) => (float[n,8,8,8] y) {{
                mean = ReduceMean <keepdims: int = 0> (x)
                c = Greater(mean, zero)
                z = If (c) <then_branch = t () => (float[n,8,8,8] p) {{ p = Conv <{_PADDED}> (x, A) }},
                            else_branch = e () => (float[n,8,8,8] q) {{ q = Conv <{_PADDED}> (x, B) }}>
                y = Conv <{_PADDED}> (z, K)
            }}""",
            _CONVS,
        ),
        {"x": (8, 8, 8)},
    ),
    "a Loop around a product": Odd(
        parsed(_LOOP, {"W": (32, 32), "V": (32, 8), "M": np.array(4), "T": np.ones((), bool)}), {"x": (32,)}
    ),
    "a Scan over time": Odd(parsed(_SCAN, {"W": (32, 16), "V": (16, 8)}), {"x": (5, 32), "s0": (16,)}),
    "an LSTM with state": recurrent("LSTM", 4),
    "a GRU with state": recurrent("GRU", 3),
    "an RNN with state": recurrent("RNN", 1),
    "a sequence out": Odd(
        parsed(
            "g (float[n,32] x) => (float[n,16] y, seq(float[n,8]) q) { m = MatMul(x, W) \n "
            "q = SplitToSequence <axis: int = 1> (m, eight) \n y = Relu(m) }",
            {**_PRODUCT, "eight": np.array(8)},
        ),
        {"x": (32,)},
    ),
    "a batch that the file fixes": Odd(
        parsed("g (float[4,8,8,8] x) => (float[4,8,6,6] y) { y = Conv(x, K) }", {"K": (8, 8, 3, 3)}), {"x": (8, 8, 8)}
    ),
    "a cache that is empty": Odd(
        parsed(
            "g (float[n,0,32] past, float[n,4,32] x) => (float[n,4,16] y) { k = Concat <axis: int = 1> (past, x) \n "
            "y = MatMul(k, W) }",
            _PRODUCT,
        ),
        {"past": (0, 32), "x": (4, 32)},
    ),
    "a scalar beside": Odd(
        parsed("g (float[1,32] x, float k) => (float[1,16] y) { m = Mul(x, k) \n y = MatMul(m, W) }", _PRODUCT),
        {"x": (1, 32), "k": ()},
        whole=True,
    ),
    "an output as long as the data say": Odd(
        parsed(
            "g (float[n,32] x) => (float[n,16] y, int64[2,k] z) { y = MatMul(x, W) \n p = Greater(x, high) \n "
            "z = NonZero(p) }",
            {**_PRODUCT, "high": np.array(1, np.float32)},
        ),
        {"x": (32,)},
    ),
    "a function of its own": Odd(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
            g (float[n,32] x) => (float[n,8] y) <float[32,8] W = {WEIGHTS}> { m = local.Block(x, W) \n y = Abs(m) }
            <domain: "local", opset_import: ["" : 17]> Block (a, k) => (b) { t = MatMul(a, k) \n b = Relu(t) }
            """.replace("WEIGHTS", ", ".join(f"{v:.6f}" for v in np.random.default_rng(0).normal(size=256) / 6))
        ),
        {"x": (32,)},
    ),
    "inputs and outputs named as a quantizer names its own": Odd(
        parsed(
            "g (float[n,32] x, float[n,32] x_scale) => (float[n,16] y, float[n,32] x_zero_point, float[n,16] y_scale) "
            "{ x_zero_point = Add(x, x_scale) \n m = MatMul(x, W) \n y = Relu(m) \n y_scale = MatMul(x_scale, V) }",
            {**_PRODUCT, "V": (32, 16)},
        ),
        {"x": (32,), "x_scale": (32,)},
    ),
    "constants named as a quantizer by blocks names its own": Odd(
        parsed(
            "g (float[n,32] x) => (float[n,16] y, float[n,16] z) { m = MatMul(x, W) \n y = Mul(m, W_scales) \n "
            "z = Add(m, W_Q8) }",
            {**_PRODUCT, "W_scales": (16,), "W_Q8": (16,)},
        ),
        {"x": (32,)},
        scheme="weights",
    ),
    "trees": Odd(trees(), {"x": (8,)}, kept=NOTHING),
    "a linear classifier with text out": Odd(linear(as_maps=False), {"x": (8,)}, kept=NOTHING),
    "a linear classifier with maps out": Odd(linear(as_maps=True), {"x": (8,)}, kept=NOTHING),
    "no weights": Odd(parsed("g (float[n,32] x) => (float[n,32] y) { y = Relu(x) }", {}), {"x": (32,)}, kept=NOTHING),
    "bfloat16 inside": Odd(
        parsed("g (float[n,8] x) => (float[n,8] y) { h = Cast <to: int = 16> (x) \n y = Cast <to: int = 1> (h) }", {}),
        {"x": (8,)},
        kept=NOTHING,
    ),
}
