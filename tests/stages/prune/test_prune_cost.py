"""What is left of multiply-accumulates and parameters, counted by hand for each operator that multiplies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from compressor import graph
from compressor.errors import RungError
from compressor.records import Model
from compressor.stages.prune import cost
from compressor.stages.prune.groups import Coupled, analyse
from compressor.stages.prune.surgery import shrunk

Make = Callable[..., Model]


class Case(NamedTuple):
    """A graph, how many units go by the node that makes them, and counts by hand before and after."""

    text: str
    weights: dict[str, Any]
    removed: dict[str, int]
    macs: tuple[int, int]
    parameters: tuple[int, int]


def image(body: str, removed: dict[str, int], macs: tuple[int, int], parameters: tuple[int, int], **w: Any) -> Case:
    """Give a 1x1 Conv from 3 channels of 6x6 to `a`, a body to `b`, a 1x1 Conv to 2 channels."""
    text = f"""g (float[1,3,6,6] x) => (float[1,2,h,w] y) {{
        a = Conv (x, w1)
        {body}
        y = Conv (b, w2)
    }}"""
    return Case(text, w, removed, macs, parameters)


def matrices(
    shapes: str, body: str, removed: int, macs: tuple[int, int], parameters: tuple[int, int], **w: Any
) -> Case:
    """Give a body from x to h to y, of which node `first` loses units."""
    return Case(f"g ({shapes}) {{ {body} }}", w, {"first": removed}, macs, parameters)


def recurrent(
    kind: str, directions: int, removed: dict[str, int], macs: tuple[int, int], parameters: tuple[int, int], **w: Any
) -> Case:
    """Give 3 steps of 2 sequences: MatMul from 4 to 5, a recurrent layer of 6 hidden units, MatMul to 2."""
    joined = "t = Transpose <perm: ints = [0,2,1,3]> (h) b = Reshape (t, joined)"
    direction = "bidirectional" if directions == 2 else "forward"
    read = ["u", "wx", "wh", *(["bias"] if "bias" in w else [])]
    text = f"""g (float[3,2,4] x) => (float[3,2,2] y) {{
        u = MatMul (x, w0)
        h = {kind} <hidden_size: int = 6, direction: string = "{direction}"> ({", ".join(read)})
        {joined}
        y = MatMul (b, w2)
    }}"""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    shapes = {"wx": [directions, gates * 6, 5], "wh": [directions, gates * 6, 6], "w2": [6 * directions, 2]}
    target = np.array([0, 0, 6 * directions], np.int64)
    return Case(text, {"w0": [4, 5], **shapes, "joined": target, **w}, removed, macs, parameters)


ATTENTION = """g (float[2,5,4] x) => (float[2,5,2] y) {
    q = MatMul (x, wq)
    k = MatMul (x, wk)
    v = MatMul (x, wv)
    qr = Reshape (q, heads)
    kr = Reshape (k, heads)
    vr = Reshape (v, heads)
    qt = Transpose <perm: ints = [0,2,1,3]> (qr)
    kt = Transpose <perm: ints = [0,2,3,1]> (kr)
    vt = Transpose <perm: ints = [0,2,1,3]> (vr)
    s = MatMul (qt, kt)
    p = Softmax <axis: int = -1> (s)
    o = MatMul (p, vt)
    ot = Transpose <perm: ints = [0,2,1,3]> (o)
    b = Reshape (ot, whole)
    y = MatMul (b, w2)
}"""

# Each count: places times (weights of each layer), in the order of the nodes.
CASES = {
    "conv": Case(
        """g (float[1,3,6,6] x) => (float[1,2,6,6] y) {
            a = Conv <pads: ints = [1,1,1,1]> (x, w1, b1)
            b = Relu (a)
            y = Conv (b, w2)
        }""",
        {"w1": [8, 3, 3, 3], "b1": [8], "w2": [2, 8, 1, 1]},
        {"Conv_a": 2},
        (8352, 6264),  # 36 * (8*27 + 2*8), 36 * (6*27 + 2*6)
        (240, 180),  # 216 + 8 + 16, 162 + 6 + 12
    ),
    "depthwise of two each": image(
        "b = Conv <group: int = 4, pads: ints = [1,1,1,1]> (a, wd)",
        {"Conv_a": 1},
        (3600, 2700),  # 36 * (4*3 + 8*9 + 2*8), 36 * (3*3 + 6*9 + 2*6)
        (100, 75),
        w1=[4, 3, 1, 1],
        wd=[8, 1, 3, 3],
        w2=[2, 8, 1, 1],
    ),
    "groups, by place": image(
        "b = Conv <group: int = 2> (a, wg)",
        {"Conv_a": 1, "Conv_b": 2},
        (3456, 2088),  # 36 * (8*3 + 12*4 + 2*12), 36 * (6*3 + 8*3 + 2*8): a unit is a place in both groups
        (96, 58),
        w1=[8, 3, 1, 1],
        wg=[12, 4, 1, 1],
        w2=[2, 12, 1, 1],
    ),
    "groups, whole": image(
        "b = Conv <group: int = 4> (a, wg)",
        {"Conv_a": 1},
        (2016, 1512),  # 36 * (8*3 + 8*2 + 2*8), 36 * (6*3 + 6*2 + 2*6)
        (56, 42),
        w1=[8, 3, 1, 1],
        wg=[8, 2, 1, 1],
        w2=[2, 8, 1, 1],
    ),
    "transposed": image(
        "b = ConvTranspose (a, wt, bt)",
        {"Conv_a": 2, "ConvTranspose_b": 1},
        (7114, 4496),  # 36*8*3 + 36*8*5*4 + 49*5*2, 36*6*3 + 36*6*4*4 + 49*4*2: 6x6 becomes 7x7
        (199, 126),  # 24 + 160 + 5 + 10, 18 + 96 + 4 + 8
        w1=[8, 3, 1, 1],
        wt=[8, 5, 2, 2],
        bt=[5],
        w2=[2, 5, 1, 1],
    ),
    "transposed groups": image(
        "b = ConvTranspose <group: int = 2> (a, wt)",
        {"Conv_a": 1, "ConvTranspose_b": 2},
        (8952, 4888),  # 36*24 + 36*8*6*4 + 49*2*12, 36*18 + 36*6*4*4 + 49*2*8
        (240, 130),  # 24 + 192 + 24, 18 + 96 + 16
        w1=[8, 3, 1, 1],
        wt=[8, 6, 2, 2],
        w2=[2, 12, 1, 1],
    ),
    "gemm, B transposed": matrices(
        "float[3,4] x) => (float[3,2] y",
        "[first] h = Gemm <transB: int = 1> (x, w1, b1) y = Gemm (h, w2)",
        3,
        (144, 90),  # 3 * (8*4 + 8*2), 3 * (5*4 + 5*2)
        (56, 35),  # 32 + 8 + 16, 20 + 5 + 10
        w1=[8, 4],
        b1=[8],
        w2=[8, 2],
    ),
    "gemm, A transposed": matrices(
        "float[4,3] x) => (float[3,2] y",
        "[first] h = Gemm <transA: int = 1> (x, w1) y = Gemm (h, w2)",
        3,
        (144, 90),
        (48, 30),
        w1=[4, 8],
        w2=[8, 2],
    ),
    "gemm, weights left": matrices(
        "float[4,3] x) => (float[2,3] y",
        "[first] h = Gemm (w1, x) y = Gemm <transA: int = 1> (w2, h)",
        3,
        (144, 90),  # 8*3*4 + 2*3*8, 5*3*4 + 2*3*5
        (48, 30),
        w1=[8, 4],
        w2=[8, 2],
    ),
    "gemm, reader's input transposed": matrices(
        "float[4,3] x) => (float[3,2] y",
        "[first] h = Gemm (w1, x) y = Gemm <transA: int = 1> (h, w2)",
        3,
        (144, 90),  # 8*3*4 + 3*2*8, 5*3*4 + 3*2*5
        (48, 30),
        w1=[8, 4],
        w2=[8, 2],
    ),
    "matmul, weights right": matrices(
        "float[2,3,4] x) => (float[2,3,2] y",
        "[first] h = MatMul (x, w1) y = MatMul (h, w2)",
        2,
        (288, 216),  # 6 * (4*8 + 8*2), 6 * (4*6 + 6*2)
        (48, 36),
        w1=[4, 8],
        w2=[8, 2],
    ),
    "matmul, weights left": matrices(
        "float[2,4,3] x) => (float[2,2,3] y",
        "[first] h = MatMul (w1, x) y = MatMul (w2, h)",
        2,
        (288, 216),
        (48, 36),
        w1=[8, 4],
        w2=[2, 8],
    ),
    "matmul, a vector": matrices(
        "float[2,3,4] x) => (float[2,3] y",
        "[first] h = MatMul (x, w1) y = MatMul (h, v)",
        2,
        (240, 180),  # 6 * (4*8 + 8), 6 * (4*6 + 6)
        (40, 30),
        w1=[4, 8],
        v=[8],
    ),
    "matmul, a batch of weights": matrices(
        "float[2,3,4] x) => (float[2,3,5] y",
        "[first] h = MatMul (x, w1) y = MatMul (h, w2)",
        2,
        (432, 324),  # 6 * (4*8 + 8*5), 6 * (4*6 + 6*5)
        (144, 108),  # 2 * (32 + 40), 2 * (24 + 30)
        w1=[2, 4, 8],
        w2=[2, 8, 5],
    ),
    "heads": Case(
        ATTENTION,
        {
            **{name: [4, 12] for name in ("wq", "wk", "wv")},
            "w2": [12, 2],
            "heads": np.array([0, 0, 4, 3]),
            "whole": np.array([0, 0, 12]),
        },
        {"MatMul_q": 1},
        (2880, 2160),  # 10*(3*4*12) + 2*4*5*5*3 twice + 10*12*2, three quarters of each
        (168, 126),  # 3 * 48 + 24, three quarters
    ),
    "lstm": recurrent(
        "LSTM",
        1,
        {"MatMul_u": 1, "LSTM_h": 2},
        (1776, 912),  # 6 * (4*5 + 24*5 + 24*6 + 6*2), 6 * (4*4 + 16*4 + 16*4 + 4*2)
        (344, 184),  # 20 + 120 + 144 + 12 and 2*24 biases, 16 + 64 + 64 + 8 and 2*16
        bias=[1, 48],
    ),
    "lstm, both directions": recurrent(
        "LSTM",
        2,
        {"LSTM_h": 2},
        (3432, 1944),  # 6 * (20 + 48*5 + 48*6 + 12*2), 6 * (20 + 32*5 + 32*4 + 8*2)
        (572, 324),
    ),
    "gru, both directions": recurrent(
        "GRU",
        2,
        {"GRU_h": 2},
        (2640, 1512),  # 6 * (20 + 36*5 + 36*6 + 12*2), 6 * (20 + 24*5 + 24*4 + 8*2)
        (440, 252),
    ),
    "rnn": recurrent(
        "RNN",
        1,
        {"RNN_h": 2},
        (588, 384),  # 6 * (20 + 6*5 + 6*6 + 6*2), 6 * (20 + 4*5 + 4*4 + 4*2)
        (98, 64),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_what_is_left_is_what_a_count_by_hand_and_one_on_the_file_give(make: Make, tmp_path: Path, case: Case) -> None:
    model = make(case.text, case.weights)
    coupled = analyse(graph.load(model.path))
    taken = removed(coupled, case.removed)
    macs, parameters = cost.macs(coupled, None), cost.parameters(coupled)
    assert (macs.total, macs.left(taken)) == pytest.approx(case.macs, abs=1e-6)
    assert (parameters.total, parameters.left(taken)) == pytest.approx(case.parameters, abs=1e-6)
    assert (model.macs, model.parameters) == (case.macs[0], case.parameters[0])
    units = [unit for group, n in zip(coupled.groups, taken, strict=True) for unit in group.units[:n]]
    graph.save(shrunk(coupled, frozenset(units)), out := tmp_path / "out.onnx")
    small = graph.open_model(out)
    assert (small.macs, small.parameters) == (case.macs[1], case.parameters[1])
    assert small.nodes == model.nodes == case.text.count(" = ") - case.text.count(": i") - case.text.count(": s")
    assert small.size_bytes == out.stat().st_size < model.path.stat().st_size


def test_channels_are_counted_by_the_first_layer_that_makes_them(make: Make) -> None:
    case = CASES["groups, by place"]
    coupled = analyse(graph.load(make(case.text, case.weights).path))
    channels = cost.channels(coupled)
    assert channels.total == 8 + 12
    assert channels.left(removed(coupled, case.removed)) == pytest.approx(6 + 8)


def test_open_shapes_count_at_the_shapes_given(make: Make) -> None:
    text = "g (float[n,3,h,w] x) => (float[n,2,h,w] y) { a = Conv (x, w1) y = Conv (a, w2) }"
    coupled = analyse(graph.load(make(text, {"w1": [8, 3, 1, 1], "w2": [2, 8, 1, 1]}).path))
    with pytest.raises(RungError, match=r"the multiply-accumulates of Conv 'Conv_a' cannot be counted: write `of: par"):
        cost.macs(coupled, None)
    macs = cost.macs(coupled, {"x": (1, 3, 5, 7)})
    assert (macs.total, macs.left(np.array([3]))) == pytest.approx((35 * (24 + 16), 35 * (15 + 10)))
    assert cost.parameters(coupled).left(np.array([3])) == pytest.approx(15 + 10)


def test_a_weight_that_two_layers_read_is_one_parameter_and_multiplies_twice(make: Make) -> None:
    text = """g (float[1,4,6,6] x) => (float[1,2,6,6] y) {
        a = Conv (x, w)
        b = Conv (a, w)
        y = Conv (b, w2)
    }"""
    model = make(text, {"w": [4, 4, 1, 1], "w2": [2, 4, 1, 1]})
    assert (model.macs, model.parameters) == (36 * (16 + 16 + 8), 16 + 8)
    coupled = analyse(graph.load(model.path))
    assert coupled.groups == ()  # the channels of the input are those of both layers
    assert cost.macs(coupled, None).total == model.macs


def removed(coupled: Coupled, units: Mapping[str, int]) -> Any:
    assert set(units) <= {group.name for group in coupled.groups}
    return np.array([units.get(group.name, 0) for group in coupled.groups])
