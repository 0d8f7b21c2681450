"""Other graphs of the kinds that the bug reports stand for, through the real command.

Another one is an entry in `KINDS`: the graph in ONNX text, its constants (a shape: drawn), and what is odd about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from whole_run import Ended, compress, feeds, samples, sqnr_db

RUNGS = """
rungs:
  - {name: static, stages: [{quantize: {scheme: static, operators: all}}, fuse]}
  - {name: dynamic, stages: [{quantize: {scheme: dynamic}}]}
limits: {measure: 50ms}
"""
DATA, LEAST_DB = 96, 20
MASKED = np.array([[[1, 1, 1, 0, 0, 0]]], np.bool_)
ATTENTION = """g ({kind}[1,6,8] x, bool[1,1,6] m) => ({kind}[1,6,8] y) {{
    q = MatMul(x, Q) \n k = MatMul(x, K) \n t = Transpose<perm=[0,2,1]>(k) \n s = MatMul(q, t)
    {masked} \n p = Softmax(a) \n v = MatMul(x, V) \n o = MatMul(p, v) \n y = MatMul(o, O) }}"""
BRANCHES = """g (float[batch,8] x, bool up) => (float[batch,8] y) {
    q = MatMul(x, W)
    y = If (up) <then_branch = t () => (float[batch,8] u) { u = MatMul(q, W) },
                 else_branch = e () => (float[batch,8] v) { r = Relu(q) \n v = MatMul(r, W) }> }"""
CONVS = """g (float[batch,4,8,8] x) => (float[batch,8,8,8] y) {
    a = Conv<pads=[1,1,1,1]>(x, W, b) \n r = Relu(a) \n y = Conv<pads=[1,1,1,1]>(r, V) }"""
CONSTANTS = {"W": (8, 4, 3, 3), "b": (8,), "V": (8, 8, 3, 3)}


@dataclass(frozen=True)
class Kind:
    """A model of one kind. `built`: rungs that must be there. `told`: what the report says of it somewhere."""

    text: str
    constants: Mapping[str, Any]
    change: Callable[[onnx.ModelProto], None] = lambda _: None
    described: Mapping[str, Any] = field(default_factory=dict)
    opset: str = '"": 17'
    built: tuple[str, ...] = ("static", "dynamic")
    told: str = ""


def drawn(shape: Any, seed: int = 0) -> np.ndarray:
    fan_in = math.prod(shape[1:]) or 1
    return np.random.default_rng(seed).normal(size=shape, scale=fan_in**-0.5).astype(np.float32)


def attention(value: float, *, where: bool, kind: str = "float") -> Kind:
    masked = "a = Where(m, s, low)" if where else "z = Where(m, zero, low) \n a = Add(s, z)"
    dtype = np.float16 if kind == "float16" else np.float32
    weights = {name: drawn((8, 8), ord(name)).astype(dtype) for name in "QKVO"}
    more = {"low": np.array(value, dtype)} | ({} if where else {"zero": np.array(0, dtype)})
    described = {"m": lambda _rng, n: np.repeat(MASKED, n, axis=0)}
    return Kind(ATTENTION.format(kind=kind, masked=masked), weights | more, described=described)


def constant_nodes(model: onnx.ModelProto) -> None:
    """Make a Constant node of every initializer."""
    nodes = [onnx.helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in model.graph.initializer]
    kept = [*nodes, *model.graph.node]
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.node.extend(kept)


def constants_in_branches(model: onnx.ModelProto) -> None:
    """Give each branch a weight of its own in a Constant node."""
    for seed, branch in enumerate(next(n for n in model.graph.node if n.op_type == "If").attribute):
        name = f"own_{seed}"
        for node in branch.g.node:
            node.input[:] = [name if read == "W" else read for read in node.input]
        own = numpy_helper.from_array(drawn((8, 8), seed + 1), name)
        branch.g.node.insert(0, onnx.helper.make_node("Constant", [], [name], value=own))


def renamed(*names: str) -> Callable[[onnx.ModelProto], None]:
    """Give what renames x, W, b, a, r, V and y, and takes the names of all nodes."""
    new = dict(zip("xWbarVy", names, strict=True))

    def rename(model: onnx.ModelProto) -> None:
        for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
            value.name = new[value.name]
        for node in model.graph.node:
            node.name = ""
            node.input[:] = [new[name] for name in node.input]
            node.output[:] = [new[name] for name in node.output]

    return rename


def zeroed(shape: tuple[int, ...], axis: int, *channels: int) -> np.ndarray:
    """Draw weights without some channels."""
    weights = drawn(shape)
    np.moveaxis(weights, axis, 0)[list(channels)] = 0
    return weights


KINDS: Mapping[str, Kind] = {
    "a weight read along both axes by layers whose ranges differ": Kind(
        """g (float[batch,8] x) => (float[batch,8] y) {
            a = Gemm<transB=1>(x, W, b) \n s = Mul(a, c) \n d = Gemm(s, W, b) \n y = Div(d, c) }""",
        {"W": (8, 8), "b": (8,), "c": np.array(60, np.float32)},
    ),
    "a weight and a bias of two ConvTransposes": Kind(
        """g (float[batch,4,8,8] x) => (float[batch,4,8,8] y) { a = ConvTranspose<pads=[1,1,1,1]>(x, W, b)
            s = Mul(x, c) \n d = ConvTranspose<pads=[1,1,1,1]>(s, W, b) \n y = Add(a, d) }""",
        {"W": (4, 4, 3, 3), "b": (4,), "c": np.array(60, np.float32)},
        built=("static",),
    ),
    "a weight that a branch reads too": Kind(BRANCHES, {"W": (8, 8)}),
    "weights in Constant nodes": Kind(
        "g (float[batch,8] x) => (float[batch,8] y) { a = MatMul(x, W) \n d = Add(a, b) \n y = Relu(d) }",
        {"W": (8, 8), "b": (8,)},
        constant_nodes,
    ),
    "weights in Constant nodes of branches": Kind(BRANCHES, {"W": (8, 8)}, constants_in_branches),
    "a product over no elements": Kind(
        """g (float[4,8] x) => (float[4,8] y) {
            e = Slice(x, z, z, one) \n a = MatMul(e, N) \n d = MatMul(x, W) \n y = Add(a, d) }""",
        {"W": (8, 8), "N": np.zeros((0, 8), np.float32), "z": np.array([0]), "one": np.array([1])},
    ),
    "a product of no rows": Kind(
        """g (float[4,8] x) => (float[4,8] y) {
            e = Slice(x, z, z) \n a = MatMul(e, W) \n d = MatMul(x, W) \n y = Concat<axis=0>(a, d) }""",
        {"W": (8, 8), "z": np.array([0])},
    ),
    "an empty constant that is joined": Kind(
        """g (float[batch,4,8,8] x) => (float[batch,8,8,8] y) {
            c = Concat<axis=1>(x, E) \n y = Conv<pads=[1,1,1,1]>(c, W, b) }""",
        {"W": (8, 4, 3, 3), "b": (8,), "E": np.zeros((1, 0, 8, 8), np.float32)},
        built=("static",),
    ),
    "columns without weights whose bias lives": Kind(
        """g (float[batch,8] x) => (float[batch,8] y) {
            a = MatMul(x, W) \n d = Add(a, b) \n r = Relu(d) \n y = MatMul(r, V) }""",
        {"W": zeroed((8, 8), 1, 1, 4), "V": (8, 8), "b": (8,)},
    ),
    "dead channels of a ConvTranspose": Kind(
        "g (float[batch,4,8,8] x) => (float[batch,6,10,10] y) { a = ConvTranspose(x, W, b) \n y = Relu(a) }",
        {"W": zeroed((4, 6, 3, 3), 1, 1, 2), "b": (6,)},
        built=("static",),
    ),
    "weights that are all zero": Kind(
        "g (float[batch,8] x) => (float[batch,8] y) { a = Gemm(x, Z, b) \n r = Relu(a) \n "
        "m = Gemm(r, V, b) \n y = Add(m, x) }",
        {"Z": np.zeros((8, 8), np.float32), "V": (8, 8), "b": (8,)},
    ),
    "float16 in the middle": Kind(
        """g (float[batch,8] x) => (float[batch,8] y) { a = MatMul(x, V) \n h = Cast<to=10>(a)
            m = MatMul(h, W) \n f = Cast<to=1>(m) \n y = MatMul(f, V) }""",
        {"V": (8, 8), "W": drawn((8, 8)).astype(np.float16)},
        told="float16 inside float32",
    ),
    "a mask of minus infinity": attention(-math.inf, where=False),
    "a mask of -1e9 by Where": attention(-1e9, where=True),
    "a mask of the least float16": attention(-65504, where=False, kind="float16"),
    "names that the quantizer gives": Kind(
        CONVS,
        CONSTANTS,
        renamed("x", "x_quantized", "x_scale", "W_DequantizeLinear_Output", "b_quantized_scale", "x_zero_point", "y"),
        built=("static",),
        told="renamed 3 tensors",
    ),
    "names of markup, paths and lines": Kind(
        CONVS,
        CONSTANTS,
        renamed("../x", "<b>W</b>", "b\nb", "a: [1, {", "it's \\", '"V"=1x3', "/etc/y"),
        built=("static",),
    ),
    "vectors": Kind(
        "g (float[batch,8] x) => (float[batch] y) { a = MatMul(x, W) \n y = MatMul(a, v) }", {"W": (8, 8), "v": (8,)}
    ),
    "an operator on text beside": Kind(
        "g (string[batch] s, float[batch,8] x) => (float[batch,8] y, string[batch] o) {"
        " o = Identity(s) \n y = MatMul(x, W) }",
        {"W": (8, 8)},
        described={"s": lambda _rng, n: np.array(["ab", "cdø"] * (n // 2))},
    ),
    "a NaN that never leaves": Kind(
        """g (float[batch,8] x) => (float[batch,8] y) {
            a = MatMul(x, W) \n l = Sqrt(a) \n i = IsNaN(l) \n c = Where(i, zero, l) \n y = MatMul(c, W) }""",
        {"W": (8, 8), "zero": np.array(0, np.float32)},
    ),
}


def made(kind: Kind, path: Path) -> Path:
    """Write the model of a kind."""
    model = onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{kind.opset}]>\n{kind.text}")
    for name, given in kind.constants.items():
        array = drawn(given, ord(name[0])) if isinstance(given, tuple) else given
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    kind.change(model)
    onnx.save(model, path)
    return path


def run(kind: Kind, home: Path, recipe: str = RUNGS) -> tuple[Path, Ended]:
    """Run a kind with data that are drawn for it."""
    model = made(kind, home / "model.onnx")
    (home / "recipe.yaml").write_text(recipe)
    np.savez(home / "data.npz", **samples(model, kind.described, DATA, seed=0))
    words = ["--recipe", home / "recipe.yaml", "--calibration", home / "data.npz", "--threads", 1]
    more = ["--registry", "none", "--output", home / "reports", "--all"]
    return model, compress("run", model, "--sla", "1s", *words, *more)


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_computes_what_the_original_does(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    model, ended = run(kind, tmp_path)
    assert ended.code in {0, 3, 4}
    assert set(kind.built) <= set(ended.artifacts())
    fed = feeds(model, samples(model, kind.described, 24, seed=7))
    for artifact in ended.artifacts(baseline=True).values():
        assert min(sqnr_db(model, artifact, fed).values()) > LEAST_DB
    assert kind.told in str(ended.report["trials"])


QUANTIZED: Mapping[str, Kind] = {
    "of IR 3, with scales that are inputs": Kind(
        """g (uint8[1,4,8,8] x, float xs, uint8 xz, int8[8,4,3,3] W, float ws, int8 wz, float ys, uint8 yz)
            => (uint8[1,8,8,8] y) { y = QLinearConv<pads=[1,1,1,1]>(x, xs, xz, W, ws, wz, ys, yz) }""",
        {
            "xs": np.array(0.02, np.float32),
            "ws": np.array(0.01, np.float32),
            "ys": np.array(0.1, np.float32),
            "xz": np.array(128, np.uint8),
            "wz": np.array(0, np.int8),
            "yz": np.array(128, np.uint8),
            "W": np.random.default_rng(0).integers(-127, 127, (8, 4, 3, 3)).astype(np.int8),
        },
        lambda model: setattr(model, "ir_version", 3),
        {"x": {"int_range": [0, 256]}},
        opset='"": 10',
    ),
    "in its weights alone": Kind(
        """g (float[batch,8] x) => (float[batch,8] y) {
            w = DequantizeLinear(W, s) \n a = MatMul(x, w) \n r = Relu(a) \n y = MatMul(r, V) }""",
        {
            "W": np.random.default_rng(0).integers(-127, 127, (8, 8)).astype(np.int8),
            "s": np.array(0.01, np.float32),
            "V": (8, 8),
        },
    ),
    "at run time": Kind(
        """g (float[batch,8] x) => (float[batch,8] y) { q, s, z = DynamicQuantizeLinear(x)
            i = MatMulInteger(q, W, z) \n f = Cast<to=1>(i) \n t = Mul(s, w) \n y = Mul(f, t) }""",
        {"W": np.random.default_rng(0).integers(-127, 127, (8, 8)).astype(np.int8), "w": np.array(0.01, np.float32)},
    ),
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_what_is_quantized_already_stays_as_it_is(name: str, tmp_path: Path) -> None:
    model, ended = run(QUANTIZED[name], tmp_path)
    before = [node.op_type for node in onnx.load(model).graph.node]
    for rung in ("static", "dynamic"):
        assert "it is quantized already" in str(ended.trials[rung]["stages"])
        assert [node.op_type for node in ended.graph(rung).node] == before
        assert [value.name for value in ended.graph(rung).input] == ["x"]


RANDOM: Mapping[str, Kind] = {
    "in a branch": Kind(
        """g (float[batch,8] x, bool up) => (float[batch,8] y) { a = MatMul(x, W)
            y = If (up) <then_branch = t () => (float[batch,8] u) { u = RandomNormalLike(a) },
                         else_branch = e () => (float[batch,8] v) { v = Relu(a) }> }""",
        {"W": (8, 8)},
        described={"up": lambda _rng, n: np.ones(n, np.bool_)},
    ),
    "with a seed": Kind(
        """g (float[batch,8] x) => (float[batch,8] y) {
            a = MatMul(x, W) \n u = RandomUniform<shape=[1,8], seed=1.0>() \n y = Add(a, u) }""",
        {"W": (8, 8)},
    ),
    "in whole numbers": Kind(
        "g (float[batch,8] x) => (int32[batch,1] y) { a = MatMul(x, W) \n y = Multinomial(a) }", {"W": (8, 8)}
    ),
}


@pytest.mark.parametrize("name", RANDOM)
def test_a_random_graph_is_called_so_and_stays_random(name: str, tmp_path: Path) -> None:
    model, ended = run(RANDOM[name], tmp_path)
    assert ended.code == 4
    assert any("other outputs when it is run again" in warning for warning in ended.report["warnings"])
    texts = [onnx.printer.to_text(onnx.load(path)) for path in (model, *ended.artifacts().values())]
    assert len(texts) == 3
    assert all(any(word in text for word in ("Random", "Multinomial")) for text in texts)


def test_a_dropout_in_training_mode_is_warned_about_in_its_own_words(tmp_path: Path) -> None:
    kind = Kind(
        "g (float[batch,8] x) => (float[batch,8] y) { a = MatMul(x, W) \n d = Dropout(a, r, t) \n y = MatMul(d, W) }",
        {"W": (8, 8), "r": np.array(0.5, np.float32), "t": np.array(True)},  # noqa: FBT003
    )
    _, ended = run(kind, tmp_path, RUNGS.replace("limits", "gates: [{accuracy: {max_drop: 1%}}]\nlimits"))
    (warning,) = [text for text in ended.report["warnings"] if "training mode" in text]
    assert "chance" in warning


@pytest.mark.parametrize("last", ["Softmax", "Identity"])
def test_a_network_whose_weights_are_all_the_same_is_never_called_right(last: str, tmp_path: Path) -> None:
    kind = Kind(
        f"""g (float[batch,16] x) => (float[batch,10] y) {{
            a = Gemm(x, W) \n r = Relu(a) \n c = Gemm(r, V) \n y = {last}(c) }}""",
        {"W": np.full((16, 32), 0.02, np.float32), "V": np.full((32, 10), 0.02, np.float32)},
    )
    _, ended = run(kind, tmp_path)
    assert ended.report["chosen"] in {"baseline", None}
    for rung in ("static", "dynamic"):
        assert "the original model gives the same for every sample" in ended.trials[rung]["failure"]["reason"]
