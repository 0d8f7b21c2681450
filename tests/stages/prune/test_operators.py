"""Each operator between two layers with weights: channels go through it, and removing them changes nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from pruned import hold, some

from compressor import graph
from compressor.stages.prune.groups import Coupled, analyse


class Net(NamedTuple):
    """A graph in ONNX text, shapes or arrays of its weights, and how many units its groups have."""

    text: str
    weights: dict[str, Any]
    units: list[int]
    opset: int = 17


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def number(value: float) -> Any:
    return np.array(value, np.float32)


def image(body: str, units: list[int], opset: int = 17, channels: int = 8, **weights: Any) -> Net:
    """Give Conv, a body from `a` with 8 channels of 6x6 to `b`, then Conv to the output."""
    text = f"""g (float[n,3,6,6] x) => (float[n,2,h,w] y) {{
        a = Conv <pads: ints = [1,1,1,1]> (x, w1, b1)
        {body}
        y = Conv (b, w2)
    }}"""
    given = {"w1": [8, 3, 3, 3], "b1": [8], "w2": [2, channels, 1, 1], **weights}
    return Net(text, given, units, opset)


def tokens(body: str, units: list[int], opset: int = 17, width: int = 8, **weights: Any) -> Net:
    """Give MatMul, a body from `a` with 8 features of s tokens to `b`, then MatMul to the output."""
    text = f"""g (float[n,s,4] x) => (float[n,s,2] y) {{
        a = MatMul (x, w1)
        {body}
        y = MatMul (b, w2)
    }}"""
    return Net(text, {"w1": [4, 8], "w2": [width, 2], **weights}, units, opset)


def flat(body: str, units: list[int], opset: int = 17, **weights: Any) -> Net:
    """Give Conv, a body from `a` with 8 channels of 6x6 to the output `y`."""
    text = f"""g (float[n,3,6,6] x) => (float[n,k] y) {{
        a = Conv <pads: ints = [1,1,1,1]> (x, w1, b1)
        {body}
    }}"""
    return Net(text, {"w1": [8, 3, 3, 3], "b1": [8], **weights}, units, opset)


def static(body: str, units: list[int], opset: int = 17, **weights: Any) -> Net:
    """Give Conv, a body from `a` [1,8,6,6] to the output `y`."""
    text = f"""g (float[1,3,6,6] x) => (float[m,k] y) {{
        a = Conv <pads: ints = [1,1,1,1]> (x, w1, b1)
        {body}
    }}"""
    return Net(text, {"w1": [8, 3, 3, 3], "b1": [8], **weights}, units, opset)


def recurrent(kind: str, gates: int, directions: int, body: str, **weights: Any) -> Net:
    """Give a recurrent layer of 6 hidden units from an input of 3 steps, a body from `h` to `b`, then MatMul."""
    direction = "bidirectional" if directions == 2 else "forward"
    optional = ("bias", "lengths", "h0", "c0", "peep")
    named = ", ".join(["u", "wx", "wh", *(name if name in weights else "" for name in optional)]).rstrip(", ")
    text = f"""g (float[3,2,4] x) => (float[p,2,2] y) {{
        u = MatMul (x, w0)
        h = {kind} <hidden_size: int = 6, direction: string = "{direction}"> ({named})
        {body}
        y = MatMul (b, w2)
    }}"""
    shapes = {
        "w0": [4, 5],
        "wx": [directions, gates * 6, 5],
        "wh": [directions, gates * 6, 6],
        "w2": [directions * 6, 2],
    }
    return Net(text, {**shapes, **weights}, [5, 6])


ONE = "b = Squeeze (h, direction)"
BOTH = "t = Transpose <perm: ints = [0,2,1,3]> (h)\nb = Reshape (t, joined)"

ATTENTION = """
    q = MatMul (a, wq)
    k = MatMul (a, wk)
    v = MatMul (a, wv)
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
    b = Reshape (ot, whole)"""
PROJECTIONS = {"wq": [8, 12], "wk": [8, 12], "wv": [8, 12]}
RUN_TIME = """
    shape = Shape (a)
    n0 = Gather (shape, zero)
    s0 = Gather (shape, one)
    n1 = Unsqueeze (n0, axis)
    s1 = Unsqueeze (s0, axis)
    heads = Concat <axis: int = 0> (n1, s1, four, three)
    whole = Concat <axis: int = 0> (n1, s1, twelve)"""
INDICES = {
    "zero": np.array(0),
    "one": np.array(1),
    "axis": ints(0),
    "four": ints(4),
    "three": ints(3),
    "twelve": ints(12),
}
FUSED = """
    qkv = MatMul (a, wqkv)
    parts = Reshape (qkv, split)
    moved = Transpose <perm: ints = [2,0,3,1,4]> (parts)
    q = Gather <axis: int = 0> (moved, zero)
    k = Gather <axis: int = 0> (moved, one)
    v = Gather <axis: int = 0> (moved, two)
    kt = Transpose <perm: ints = [0,1,3,2]> (k)
    s = MatMul (q, kt)
    p = Softmax <axis: int = -1> (s)
    o = MatMul (p, v)
    ot = Transpose <perm: ints = [0,2,1,3]> (o)
    b = Reshape (ot, whole)"""
SHUFFLE = """
    r = Reshape (a, split)
    t = Transpose <perm: ints = [0,2,1,3,4]> (r)
    b = Reshape (t, merge)"""
SE = """
    p = GlobalAveragePool (a)
    c = Conv (p, ws)
    d = Relu (c)
    e = Conv (d, we)
    f = HardSigmoid (e)
    b = Mul (a, f)"""
SHORTCUT = """
    c = Conv <pads: ints = [1,1,1,1], strides: ints = [2,2]> (a, wc)
    s = Slice (a, starts, ends, axes, steps)
    p = Pad (s, pads)
    b = Add (c, p)"""

NETS = {
    "relu": image("b = Relu (a)", [8]),
    "sigmoid": image("b = Sigmoid (a)", [8]),
    "softplus": image("b = Softplus (a)", [8]),
    "clip": image("b = Clip (a, lo, hi)", [8], lo=number(-0.3), hi=number(0.4)),
    "prelu": image("b = PRelu (a, slope)", [8], slope=[8, 1, 1]),
    "prelu_shared": image("b = PRelu (a, slope)", [8], slope=[1, 1, 1]),
    "add_of_a_channel_vector": image("b = Add (a, v)", [8], v=[1, 8, 1, 1]),
    "sum_of_lower_rank": image("b = Add (v, a)", [8], v=[8, 1, 1]),
    "add_of_an_image": image("b = Add (a, v)", [8], v=[1, 1, 6, 6]),
    "mul_by_a_number": image("b = Mul (a, v)", [8], v=[]),
    "where": image("c = Less (a, v)\nb = Where (c, a, v)", [8], v=[1, 8, 1, 1]),
    "mean_and_max": image("c = Mean (a, v)\nb = Max (c, a)", [8], v=[8, 1, 1]),
    "residual": image("c = Conv <pads: ints = [1,1,1,1]> (a, wc)\nb = Add (a, c)", [8], wc=[8, 8, 3, 3]),
    "inverted_residual": image(
        "c = Conv (a, wc)\nd = Relu (c)\ne = Conv <group: int = 16, pads: ints = [1,1,1,1]> (d, wd)\n"
        "f = Conv (e, we)\nb = Add (a, f)",
        [8, 16],
        wc=[16, 8, 1, 1],
        wd=[16, 1, 3, 3],
        we=[8, 16, 1, 1],
    ),
    "depthwise": image("b = Conv <group: int = 8> (a, wc)", [8], wc=[8, 1, 3, 3]),
    "depthwise_of_two_each": image("b = Conv <group: int = 8> (a, wc)", [8], channels=16, wc=[16, 1, 3, 3]),
    "two_groups": image("b = Conv <group: int = 2> (a, wc)", [4, 6], channels=12, wc=[12, 4, 1, 1]),
    "many_groups": image("b = Conv <group: int = 4> (a, wc, bc)", [4], wc=[8, 2, 1, 1], bc=[8]),
    "transposed": image("b = ConvTranspose (a, wc, bc)", [8, 5], channels=5, wc=[8, 5, 2, 2], bc=[5]),
    "transposed_depthwise": image("b = ConvTranspose <group: int = 8> (a, wc)", [8], wc=[8, 1, 2, 2]),
    "transposed_groups": image("b = ConvTranspose <group: int = 2> (a, wc)", [4, 6], channels=12, wc=[8, 6, 2, 2]),
    "batch_norm": image(
        "c = Relu (a)\nb = BatchNormalization (c, s, t, m, v)",
        [8],
        s=[8],
        t=[8],
        m=[8],
        v=np.linspace(0.5, 2, 8, dtype=np.float32),
    ),
    "instance_norm": image("b = InstanceNormalization (a, s, t)", [8], s=[8], t=[8]),
    "group_norm": image("b = GroupNormalization <num_groups: int = 4> (a, s, t)", [4], 21, s=[8], t=[8]),
    "group_norm_by_torch": image(
        "r = Reshape (a, split)\nc = InstanceNormalization (r, one, nil)\nd = Reshape (c, merge)\n"
        "e = Mul (d, s)\nb = Add (e, t)",
        [4],
        split=ints(0, 4, -1),
        merge=ints(0, 8, 6, 6),
        one=np.ones(4, np.float32),
        nil=np.zeros(4, np.float32),
        s=[8, 1, 1],
        t=[8, 1, 1],
    ),
    "max_pool": image("b = MaxPool <kernel_shape: ints = [2,2]> (a)", [8]),
    "average_pool": image("b = AveragePool <kernel_shape: ints = [2,2]> (a)", [8]),
    "global_pools": image("c = GlobalMaxPool (a)\nb = Add (a, c)", [8]),
    "resize_by_scales": image("b = Resize (a, , scales)", [8], scales=np.float32([1, 1, 2, 2])),
    "resize_to_sizes": static(
        "b = Resize (a, , , sizes)\nc = Conv (b, w2)\ny = Flatten (c)", [8], sizes=ints(1, 8, 12, 12), w2=[2, 8, 1, 1]
    ),
    "concat": image("c = Conv (a, wc)\nb = Concat <axis: int = 1> (a, c)", [8, 5], channels=13, wc=[5, 8, 1, 1]),
    "concat_twice_the_same": image("b = Concat <axis: int = 1> (a, a)", [8], channels=16),
    "split_sizes": image("c, d = Split <axis: int = 1> (a, s)\nb = Relu (d)", [3, 5], channels=5, s=ints(3, 5)),
    "split_even": image("c, d = Split <axis: int = 1> (a)\nb = Mul (c, d)", [4], channels=4),
    "split_18": image("c, d = Split <axis: int = 1, num_outputs: int = 2> (a)\nb = Mul (c, d)", [4], 18, channels=4),
    "slice": image("b = Slice (a, s, e, ax)", [3, 5], channels=5, s=ints(2), e=ints(-1), ax=ints(1)),
    "slice_to_the_end": image("b = Slice (a, s, e, ax)", [3, 5], channels=5, s=ints(3), e=ints(2**63 - 1), ax=ints(-3)),
    "pad": image("b = Pad (a, p)", [8], channels=13, p=ints(0, 2, 0, 0, 0, 3, 0, 0)),
    "pad_18": image("b = Pad (a, p, v, ax)", [8], 18, channels=13, p=ints(2, 3), v=number(0.5), ax=ints(1)),
    "pad_cuts": image("b = Pad (a, p)", [3, 5], channels=5, p=ints(0, -2, 0, 0, 0, -1, 0, 0)),
    "shortcut_of_option_a": image(
        SHORTCUT,
        [8, 4],
        channels=12,
        wc=[12, 8, 3, 3],
        starts=ints(0, 0),
        ends=ints(6, 6),
        axes=ints(2, 3),
        steps=ints(2, 2),
        pads=ints(0, 2, 0, 0, 0, 2, 0, 0),
    ),
    "transpose": image(
        "c = Transpose <perm: ints = [0,2,3,1]> (a)\nd = Mul (c, v)\nb = Transpose <perm: ints = [0,3,1,2]> (d)",
        [8],
        v=[8],
    ),
    "gather": image("b = Gather <axis: int = 1> (a, i)", [2, 5], channels=4, i=ints(6, 0, -1, 6)),
    "tile": image("b = Tile (a, r)", [8], channels=16, r=ints(1, 2, 1, 1)),
    "depth_to_space": image("b = DepthToSpace <blocksize: int = 2> (a)", [2], channels=2),
    "depth_to_space_crd": image("""b = DepthToSpace <blocksize: int = 2, mode: string = "CRD"> (a)""", [2], channels=2),
    "space_to_depth": image("b = SpaceToDepth <blocksize: int = 2> (a)", [8], channels=32),
    "squeeze_and_excitation": image(SE, [8, 4], ws=[4, 8, 1, 1], we=[8, 4, 1, 1]),
    "shuffle": image(SHUFFLE, [4], split=ints(0, 2, 4, 6, 6), merge=ints(0, 8, 6, 6)),
    "shuffle_of_four": image(SHUFFLE, [4], split=ints(0, 4, 2, 6, 6), merge=ints(0, -1, 6, 6)),
    "flatten": flat("c = Flatten (a)\ny = Gemm <transB: int = 1> (c, w2, b2)", [8], w2=[2, 288], b2=[2]),
    "reshape_to_vector": flat("c = Reshape (a, to)\ny = Gemm (c, w2)", [8], to=ints(-1, 288), w2=[288, 2]),
    "reshape_with_zero": flat("c = Reshape (a, to)\ny = Gemm (c, w2)", [8], to=ints(0, -1), w2=[288, 2]),
    "reduce_mean": flat(
        "c = ReduceMean <axes: ints = [2,3], keepdims: int = 0> (a)\ny = MatMul (c, w2)", [8], w2=[8, 2]
    ),
    "reduce_18": flat(
        "c = ReduceMax <keepdims: int = 0> (a, ax)\ny = MatMul (c, w2)", [8], 18, ax=ints(-1, 2), w2=[8, 2]
    ),
    "squeeze": flat(
        "c = GlobalAveragePool (a)\nd = Squeeze (c, ax)\ne = Unsqueeze (d, u)\nf = Squeeze (e, u)\ny = MatMul (f, w2)",
        [8],
        ax=ints(2, 3),
        u=ints(1),
        w2=[8, 2],
    ),
    "gemm_of_gemm": flat(
        "c = Flatten (a)\nd = Gemm <alpha: float = 0.5, beta: float = 2.0> (c, w2, b2)\ne = Relu (d)\n"
        "y = Gemm <transB: int = 1> (e, w3, b3)",
        [8, 10],
        w2=[288, 10],
        b2=[1, 10],
        w3=[2, 10],
        b3=[],
    ),
    "transposed_gemm": static(
        "c = GlobalAveragePool (a)\nd = Squeeze (c, ax)\ne = Unsqueeze (d, last)\ny = Gemm <transA: int = 1> (e, w2)",
        [8],
        ax=ints(0, 2, 3),
        last=ints(1),
        w2=[8, 2],
    ),
    "matmul_of_a_vector": static(
        "c = GlobalAveragePool (a)\nd = Squeeze (c, ax)\ne = MatMul (d, w2)\ny = Unsqueeze (e, first)",
        [8],
        ax=ints(0, 2, 3),
        first=ints(0),
        w2=[8, 2],
    ),
    "matmul_with_a_vector": flat(
        "c = GlobalAveragePool (a)\nd = Squeeze (c, ax)\ne = MatMul (d, w2)\ny = Unsqueeze (e, last)",
        [8],
        ax=ints(2, 3),
        last=ints(1),
        w2=[8],
    ),
    "weights_on_the_left": flat(
        "c = GlobalAveragePool (a)\nd = Squeeze (c, ax)\ne = MatMul (w2, d)\ny = Squeeze (e, last)",
        [8],
        ax=ints(3),
        last=ints(2),
        w2=[2, 8],
    ),
    "weights_reshaped": flat(
        "c = Flatten (a)\nw3 = Reshape (w2, to)\ny = MatMul (c, w3)", [8], w2=[8, 36, 4], to=ints(288, 4)
    ),
    "feed_forward": tokens(
        "c = MatMul (a, wc)\nd = Add (c, bc)\ne = Gelu (d)\nb = MatMul (e, wd)",
        [8, 12, 6],
        20,
        width=6,
        wc=[8, 12],
        bc=[12],
        wd=[12, 6],
    ),
    "layer_norm_between": tokens(
        "c = MatMul (a, wc)\nd = LayerNormalization (c, s, t)\ne = MatMul (d, wd)\nb = Relu (e)",
        [8, 8],
        wc=[8, 6],
        s=[6],
        t=[6],
        wd=[6, 8],
    ),
    "attention": tokens(ATTENTION, [8, 4], width=12, heads=ints(0, 0, 4, 3), whole=ints(0, 0, 12), **PROJECTIONS),
    "attention_with_one_unknown": tokens(
        ATTENTION, [8, 4], width=12, heads=ints(0, -1, 4, 3), whole=ints(0, -1, 12), **PROJECTIONS
    ),
    "attention_shaped_at_run_time": tokens(RUN_TIME + ATTENTION, [8, 4], width=12, **INDICES, **PROJECTIONS),
    "attention_fused": tokens(
        FUSED,
        [8, 4],
        width=12,
        wqkv=[8, 36],
        split=ints(0, 0, 3, 4, 3),
        whole=ints(0, 0, 12),
        zero=np.array(0),
        one=np.array(1),
        two=np.array(2),
    ),
    "lstm": recurrent("LSTM", 4, 1, ONE, bias=[1, 48], direction=ints(1)),
    "lstm_without_bias": recurrent("LSTM", 4, 1, ONE, direction=ints(1)),
    "lstm_with_peepholes": recurrent(
        "LSTM", 4, 1, ONE, bias=[1, 48], h0=[1, 2, 6], c0=[1, 2, 6], peep=[1, 18], direction=ints(1)
    ),
    "lstm_both_ways": recurrent("LSTM", 4, 2, BOTH, bias=[2, 48], joined=ints(0, 0, -1)),
    "gru": recurrent("GRU", 3, 1, ONE, bias=[1, 36], direction=ints(1)),
    "gru_both_ways": recurrent("GRU", 3, 2, BOTH, bias=[2, 36], joined=ints(0, 0, 12)),
    "rnn": recurrent("RNN", 1, 1, ONE, bias=[1, 12], direction=ints(1)),
    "layer_norm_with_its_mean": image(
        "c, m = LayerNormalization <axis: int = -1> (a, s)\nd = Mul (m, k)\nb = Add (c, d)", [8], s=[6], k=[1, 8, 1, 1]
    ),
    "cast_like_a_number": image("b = CastLike (a, v)", [8], v=number(1.0)),
    "squeeze_of_all": static(
        "c = GlobalAveragePool (a)\nd = Squeeze (c)\ne = MatMul (d, w2)\ny = Unsqueeze (e, first)",
        [8],
        first=ints(0),
        w2=[8, 2],
    ),
    "an_output_of_open_size": Net(
        """g (float[n,3,h,w] x) => (float[n,k] y) {
            a = Conv (x, w1)
            b = Conv (a, w2)
            shape = Shape (b)
            n0 = Gather (shape, zero)
            n1 = Unsqueeze (n0, axis)
            to = Concat <axis: int = 0> (n1, rest)
            y = Reshape (b, to)
        }""",
        {"w1": [8, 3, 1, 1], "w2": [4, 8, 1, 1], "zero": np.array(0), "axis": ints(0), "rest": ints(-1)},
        [8],
    ),
    "expand": tokens(
        "c = Expand (v, to)\nd = MatMul (a, wc)\nb = Add (c, d)", [8, 6], width=6, v=[1, 6], to=ints(1, 1, 6), wc=[8, 6]
    ),
    "cumulative_sum": tokens("b = CumSum (a, ax)", [8], ax=np.array(1)),
    "argmax_beside": tokens("c = ReduceMax <axes: ints = [1]> (a)\nb = Sub (a, c)", [8]),
}


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
@pytest.mark.parametrize("name", NETS)
def test_what_is_left_computes_what_the_model_does_without_the_rest(
    name: str, share: float, make: Any, tmp_path: Path
) -> None:
    coupled = _coupled(NETS[name], make)
    small = hold(coupled, some(coupled, share, seed=len(name)), tmp_path)
    assert graph.open_model(small).parameters < graph.open_model(tmp_path / "model.onnx").parameters


@pytest.mark.parametrize("name", NETS)
def test_channels_are_followed_through_each_operator(name: str, make: Any) -> None:
    coupled = _coupled(NETS[name], make)
    assert [len(group.units) for group in coupled.groups] == NETS[name].units


STAYING = {
    "sizes for some axes": static(
        "b = Resize <axes: ints = [1,2,3]> (a, , , sizes)\nc = Conv (b, w2)\ny = Flatten (c)",
        [],
        18,
        sizes=ints(8, 12, 12),
        w2=[2, 8, 1, 1],
    ),
    "integer weights": flat(
        "c = Flatten (a)\nf = Cast <to: int = 1> (w2)\ny = MatMul (c, f)",
        [],
        w2=np.resize(np.arange(-8, 8, dtype=np.int8), (288, 4)),
    ),
    "a size read inside If": Net(
        """g (float[n,3] x, bool c) => (float[n,2] y) {
            a = MatMul (x, w1)
            shape = Shape (a)
            s = If (c) <
                then_branch = t () => (float p) { e = Expand (one, shape) p = ReduceSum <keepdims: int = 0> (e) },
                else_branch = f () => (float q) { q = Identity (one) }>
            d = MatMul (a, w2)
            y = Add (d, s)
        }""",
        {"w1": [3, 8], "w2": [8, 2], "one": number(1.0)},
        [],
    ),
}


@pytest.mark.parametrize("name", STAYING)
def test_what_cannot_be_written_anew_stays(name: str, make: Any) -> None:
    assert _coupled(STAYING[name], make).groups == ()


def test_a_size_stays_that_an_operator_before_the_merge_could_not_do_without(make: Any) -> None:
    text = """g (float[n,s,4] x, float[k] z) => (float[n,s,2] y, float[k] t) {
        t = CumSum (z, axis)
        a = MatMul (x, w1)
        b = MatMul (a, w2)
        flat = Reshape (a, one)
        m = Mul (flat, z)
        p = ReduceMean <keepdims: int = 0> (m)
        y = Add (b, p)
    }"""
    weights = {"w1": [4, 8], "w2": [8, 2], "axis": np.array(0), "one": ints(-1)}
    assert _coupled(Net(text, weights, []), make).groups == ()


def _coupled(net: Net, make: Any) -> Coupled:
    return analyse(graph.load(make(net.text, net.weights, net.opset).path))
