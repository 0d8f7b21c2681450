"""Which channels go together in small graphs, which stay, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pruned import hold, some

from compressor import graph
from compressor.records import Model
from compressor.stages.prune.groups import Coupled, Group, analyse

Make = Callable[..., Model]
Analyse = Callable[..., Coupled]


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


@pytest.fixture
def found(make: Make) -> Analyse:
    """Analyse a graph in ONNX text."""

    def _found(text: str, opset: int = 17, **weights: Any) -> Coupled:
        return analyse(graph.load(make(text, weights, opset).path))

    return _found


def sizes(coupled: Coupled) -> dict[str, tuple[int, int]]:
    """Give units and channels of a unit, by the node that makes them."""
    return {group.name: (len(group.units), group.width) for group in coupled.groups}


def reasons(coupled: Coupled) -> dict[str, str]:
    return {frozen.name: "; ".join(frozen.reasons) for frozen in coupled.frozen}


def image(body: str, outputs: str = "float[n,2,h,w] y", given: str = "float[n,3,6,6] x") -> str:
    return f"g ({given}) => ({outputs}) {{ a = Conv <pads: ints = [1,1,1,1]> (x, w1) {body} y = Conv (b, w2) }}"


W = {"w1": [8, 3, 3, 3], "w2": [2, 8, 1, 1]}


def test_a_group_names_its_nodes_its_units_and_its_slices(found: Analyse) -> None:
    coupled = found(image("c = Conv (a, wc, bc) b = Add (a, c)"), **W, wc=[8, 8, 1, 1], bc=[8])
    (group,) = coupled.groups
    slices = {("w1", 0): 1, ("w2", 1): 1, ("wc", 0): 1, ("wc", 1): 1, ("bc", 0): 1}
    assert group == Group("Conv_a", tuple(range(8)), 1, ("Conv_a", "Conv_c"), slices)
    assert group.channels == 8
    assert coupled.units["w1", 0].tolist() == coupled.units["b", 1].tolist() == list(range(8))
    assert coupled.summed >= {("w2", 1), ("wc", 1)}
    assert not coupled.summed & {("w1", 0), ("wc", 0), ("bc", 0)}
    assert set(coupled.units["x", 1].tolist()) == {-1}


def test_output_channels_stay_and_the_reason_names_the_output(found: Analyse) -> None:
    coupled = found(image("b = Relu (a)"), **W)
    (frozen,) = coupled.frozen
    assert (frozen.name, frozen.channels) == ("Conv_y", 2)
    assert frozen.reasons == ("the model has an output 'y', whose shape stays",)


def test_features_that_the_model_gives_out_stay(found: Analyse) -> None:
    coupled = found(image("b = Relu (a)", "float[n,2,6,6] y, float[n,8,6,6] b"), **W)
    assert coupled.groups == ()
    assert "an output 'b'" in reasons(coupled)["Conv_a"]


def test_an_operator_without_a_rule_is_named_with_its_node(found: Analyse) -> None:
    coupled = found(image("[odd] c = LRN <size: int = 3> (a) b = Relu (c)"), **W)
    assert coupled.groups == ()
    assert reasons(coupled)["Conv_a"] == "LRN 'odd' cannot be followed"


def test_softmax_over_channels_keeps_them(found: Analyse) -> None:
    coupled = found(image("[soft] b = Softmax <axis: int = 1> (a)"), **W)
    assert "Softmax 'soft' works along this axis" in reasons(coupled)["Conv_a"]


def test_names_that_two_nodes_make_are_made_unique(found: Analyse) -> None:
    text = image("[same] c = Conv (a, wc) [same] d = Conv (c, wd) b = Relu (d)")
    coupled = found(text, **W, wc=[6, 8, 1, 1], wd=[8, 6, 1, 1])
    assert sizes(coupled) == {"Conv_a": (8, 1), "same": (6, 1), "same_1": (8, 1)}


def test_a_shortcut_that_slices_and_pads_ties_stages_of_different_width(found: Analyse) -> None:
    text = """g (float[n,3,8,8] x) => (float[n,2,2,2] y) {
        a = Conv <pads: ints = [1,1,1,1]> (x, wa)
        c = Conv <pads: ints = [1,1,1,1], strides: ints = [2,2]> (a, wc)
        s = Slice (a, from, to, axes, steps)
        p = Pad (s, pads)
        b = Add (c, p)
        d = Conv <pads: ints = [1,1,1,1], strides: ints = [2,2]> (b, wd)
        s2 = Slice (b, from, to, axes, steps)
        p2 = Pad (s2, pads2)
        e = Add (d, p2)
        y = Conv (e, wy)
    }"""
    cut = {"from": ints(0, 0), "to": ints(2**62, 2**62), "axes": ints(2, 3), "steps": ints(2, 2)}
    pads = {"pads": ints(0, 8, 0, 0, 0, 8, 0, 0), "pads2": ints(0, 16, 0, 0, 0, 16, 0, 0)}
    w = {"wa": [16, 3, 3, 3], "wc": [32, 16, 3, 3], "wd": [64, 32, 3, 3], "wy": [2, 64, 1, 1]}
    coupled = found(text, **w, **cut, **pads)
    assert [len(group.units) for group in coupled.groups] == [16, 16, 32]
    assert [group.makers for group in coupled.groups] == [
        ("Conv_a", "Conv_c", "Conv_d"),
        ("Conv_c", "Conv_d"),
        ("Conv_d",),
    ]
    wide = coupled.units["wd", 0]
    assert wide[24:40].tolist() == coupled.units["wa", 0].tolist() == coupled.units["wc", 0][8:24].tolist()


ATTENTION = """g (float[n,s,4] x) => (float[n,s,2] y) {
    q = MatMul (x, wq)
    k = MatMul (x, wk)
    v = MatMul (x, wv)
    qr = Reshape (q, heads)
    kr = Reshape (k, heads)
    vr = Reshape (v, heads)
    qt = Transpose <perm: ints = [0,2,1,3]> (qr)
    kt = Transpose <perm: ints = [0,2,3,1]> (kr)
    vt = Transpose <perm: ints = [0,2,1,3]> (vr)
    s1 = MatMul (qt, kt)
    p = Softmax <axis: int = -1> (s1)
    o = MatMul (p, vt)
    ot = Transpose <perm: ints = [0,2,1,3]> (o)
    b = Reshape (ot, whole)
    y = MatMul (b, w2)
}"""


@pytest.mark.parametrize(("heads", "width"), [(4, 3), (3, 4), (2, 16), (16, 2)])
def test_of_attention_whole_heads_go(found: Analyse, heads: int, width: int) -> None:
    n = heads * width
    shapes = {"heads": ints(0, 0, heads, width), "whole": ints(0, 0, n)}
    coupled = found(ATTENTION, wq=[4, n], wk=[4, n], wv=[4, n], w2=[n, 2], **shapes)
    assert sizes(coupled) == {"MatMul_q": (heads, width)}
    assert coupled.groups[0].makers == ("MatMul_q", "MatMul_k", "MatMul_v")
    assert coupled.units["wv", 1].tolist() == [i // width for i in range(n)]


def test_heads_merged_with_an_open_batch_stay_with_a_sentence(found: Analyse) -> None:
    text = """g (float[n,s,4] x) => (float[n,s,2] y) {
        q = MatMul (x, wq)
        v = MatMul (x, wv)
        qr = Reshape (q, heads)
        vr = Reshape (v, heads)
        qt = Transpose <perm: ints = [0,2,1,3]> (qr)
        vt = Transpose <perm: ints = [0,2,1,3]> (vr)
        shape = Shape (x)
        tokens = Slice (shape, one, two)
        merged = Concat <axis: int = 0> (minus, tokens, three)
        [merge] qm = Reshape (qt, merged)
        vm = Reshape (vt, merged)
        kt = Transpose <perm: ints = [0,2,1]> (qm)
        s1 = MatMul (qm, kt)
        p = Softmax <axis: int = -1> (s1)
        o = MatMul (p, vm)
        back = Concat <axis: int = 0> (minus, four, tokens, three)
        om = Reshape (o, back)
        ot = Transpose <perm: ints = [0,2,1,3]> (om)
        b = Reshape (ot, whole)
        y = MatMul (b, w2)
    }"""
    constants = {name: ints(i) for name, i in (("one", 1), ("two", 2), ("three", 3), ("four", 4), ("minus", -1))}
    shapes = {"heads": ints(0, 0, 4, 3), "whole": ints(0, 0, 12), **constants}
    coupled = found(text, wq=[4, 12], wv=[4, 12], w2=[12, 2], **shapes)
    assert sizes(coupled) == {"MatMul_v": (3, 4)}  # what is left: the same places of the values of all heads
    assert "an axis whose size is known at run time only" in reasons(coupled)["MatMul_q"]


def test_a_channel_shuffle_is_followed(found: Analyse) -> None:
    body = "r = Reshape (a, split) t = Transpose <perm: ints = [0,2,1,3,4]> (r) b = Reshape (t, merge)"
    coupled = found(image(body), **W, split=ints(0, 2, 4, 6, 6), merge=ints(0, 8, 6, 6))
    (group,) = coupled.groups
    assert len(group.units) * group.width == 8
    made, read = coupled.units["w1", 0], coupled.units["w2", 1]
    assert read.tolist() == made.reshape(2, 4).T.ravel().tolist()


def test_of_a_group_norm_whole_groups_go(found: Analyse) -> None:
    text = image("b = GroupNormalization <num_groups: int = 4> (a, s, t)")
    coupled = found(text, 21, **W, s=[8], t=[8])
    assert sizes(coupled) == {"Conv_a": (4, 2)}
    assert coupled.groups[0].slices["s", 0] == 2


@pytest.mark.parametrize(
    ("groups", "within", "wanted"),
    [
        (32, 4, {"Conv_a": (32, 4)}),  # whole groups: 32 units against 4 places and 4 places
        (2, 32, {"Conv_a": (32, 2), "Conv_b": (32, 2)}),  # places: 32 and 32 units against 2 groups
    ],
)
def test_of_grouped_convolutions_groups_go_or_places(found: Analyse, groups: int, within: int, wanted: Any) -> None:
    n = groups * within
    text = image(f"b = Conv <group: int = {groups}> (a, wg)")
    coupled = found(text, w1=[n, 3, 3, 3], wg=[n, within, 1, 1], w2=[2, n, 1, 1])
    assert sizes(coupled) == wanted


def test_what_a_graph_inside_reads_stays(found: Analyse) -> None:
    body = """[branch] b = If (test) <
        then_branch = one () => (float[n,8,6,6] t) { t = Relu (a) },
        else_branch = two () => (float[n,8,6,6] e) { e = Neg (a) }
    >"""
    coupled = found(image(body, given="float[n,3,6,6] x, bool test"), **W)
    assert coupled.groups == ()
    assert "If 'branch' reads it in a graph inside" in reasons(coupled)["Conv_a"]


def test_a_size_that_is_computed_with_stays(found: Analyse) -> None:
    text = """g (float[n,s,4] x) => (float[n,s,2] y) {
        a = MatMul (x, w1)
        [sizes] shape = Shape (a)
        real = Cast <to: int = 1> (shape)
        product = ReduceProd <keepdims: int = 0> (real)
        b = Div (a, product)
        y = MatMul (b, w2)
    }"""
    coupled = found(text, w1=[4, 8], w2=[8, 2])
    assert coupled.groups == ()
    assert reasons(coupled)["MatMul_a"] == "Shape 'sizes' gives the size of this axis to a computation"


def test_a_known_size_that_is_computed_with_stays_as_a_number_or_its_channels_do(
    found: Analyse, tmp_path: Path
) -> None:
    text = """g (float[n,s,4] x) => (float[n,s,2] y) {
        a = MatMul (x, w1)
        shape = Shape (a)
        dim = Gather (shape, two)
        real = Cast <to: int = 1> (dim)
        root = Sqrt (real)
        b = Div (a, root)
        y = MatMul (b, w2)
    }"""
    coupled = found(text, w1=[4, 8], w2=[8, 2], two=np.array(2))
    assert coupled.groups or "gives the size" in reasons(coupled)["MatMul_a"]
    hold(coupled, some(coupled, 0.4), tmp_path)


def test_a_size_that_shapes_another_tensor_may_change(found: Analyse) -> None:
    text = """g (float[n,s,4] x) => (float[n,s,2] y) {
        a = MatMul (x, w1)
        shape = Shape (a)
        n0 = Gather (shape, zero)
        s0 = Gather (shape, one)
        d0 = Gather (shape, two)
        target = Concat <axis: int = 0> (n0, s0, d0)
        b = Reshape (a, target)
        y = MatMul (b, w2)
    }"""
    coupled = found(text, w1=[4, 8], w2=[8, 2], zero=ints(0), one=ints(1), two=ints(2))
    assert sizes(coupled) == {"MatMul_a": (8, 1)}


def test_layer_norm_keeps_its_width_and_not_that_of_the_feed_forward_behind_it(found: Analyse) -> None:
    text = """g (float[n,s,4] x) => (float[n,s,2] y) {
        a = MatMul (x, w1)
        [norm] l = LayerNormalization (a, s1, t1)
        f = MatMul (l, w2)
        r = Relu (f)
        y = MatMul (r, w3)
    }"""
    coupled = found(text, w1=[4, 8], s1=[8], t1=[8], w2=[8, 16], w3=[16, 2])
    assert sizes(coupled) == {"MatMul_f": (16, 1)}
    assert reasons(coupled)["MatMul_a"] == "LayerNormalization 'norm' takes statistics over this axis"


def test_analysis_changes_nothing_and_says_the_same_every_time(make: Make) -> None:
    import onnx_ir as ir

    model = graph.load(make(image("b = Relu (a)"), W).path)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    one, two = analyse(model), analyse(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    assert (one.groups, one.frozen, one.summed) == (two.groups, two.frozen, two.summed)
    assert {key: units.tolist() for key, units in one.units.items()} == {k: u.tolist() for k, u in two.units.items()}
