"""Graphs that mislead: axes merged with one of unknown size, and shapes that are found at run time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from pruned import feeds, hold, some
from random_graphs import random_graph

from compressor import graph
from compressor.stages.prune.groups import Coupled, analyse
from compressor.stages.prune.surgery import shrunk


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


ORDERS = """g (float[n,3,16] x) => (float[n,3] y) {{
    a = Conv (x, w1)
    b = Conv (x, w2)
    one = Reshape (a, to)
    turned = Transpose <perm: ints = [1,0,2]> (b)
    other = Reshape (turned, to)
    {body}
    shape = Shape (x)
    n0 = Gather (shape, nil)
    back = Concat <axis: int = 0> (n0, forty)
    e = Reshape (d, back)
    y = MatMul (e, w4)
}}"""
BODIES = {  # operators whose output is of the size, by name, of their first input
    "joined": "c = Concat <axis: int = 1> (one, other)\nd = MatMul (c, w3)",
    "sloped": "c = PRelu (one, other)\nd = MatMul (c, w3)",
}
DEEP = {  # ways in which the -1 of a target lies behind others
    "nested": "front = Concat <axis: int = 0> (minus, tokens)\nto = Concat <axis: int = 0> (front, four)",
    "converted": "long = Concat <axis: int = 0> (minus, tokens, four)\nshort = Cast <to: int = 6> (long)\n"
    "to = Cast <to: int = 7> (short)",
}


@pytest.mark.parametrize("body", BODIES)
def test_axes_that_merge_the_same_in_another_order_are_not_taken_for_one(body: str, make: Any, tmp_path: Path) -> None:
    numbers = {"to": ints(-1, 16), "nil": ints(0), "forty": ints(40)}
    width = {"joined": 32, "sloped": 16}[body]
    weights = {"w1": [8, 3, 1], "w2": [8, 3, 1], "w3": [width, 5], "w4": [40, 3], **numbers}
    coupled = opened(make, ORDERS.format(body=BODIES[body]), weights)
    # Index i is of channel i % 8 on one side, of i // n on the other: only the columns of w3 may go.
    assert [set(group.slices) for group in coupled.groups] == [{("w3", 1), ("w4", 0)}]
    hold(coupled, some(coupled, 0.5), tmp_path)


@pytest.mark.parametrize("target", DEEP)
def test_what_is_left_over_stays_left_over_however_deep_it_is_written(target: str, make: Any, tmp_path: Path) -> None:
    text = f"""g (float[n,s,6] x) => (float[n,s,5] y) {{
        a = MatMul (x, w1)
        r = Reshape (a, heads)
        t = Transpose <perm: ints = [0,2,1,3]> (r)
        shape = Shape (x)
        tokens = Slice (shape, one, two, nil)
        {DEEP[target]}
        m = Reshape (t, to)
        b = Relu (m)
        n0 = Slice (shape, nil, one, nil)
        back = Concat <axis: int = 0> (n0, eight, tokens, four)
        u = Reshape (b, back)
        v = Transpose <perm: ints = [0,2,1,3]> (u)
        w = Reshape (v, whole)
        y = MatMul (w, w2)
    }}"""
    numbers = {"heads": ints(0, 0, 8, 4), "whole": ints(0, 0, 32), "minus": ints(-1), "four": ints(4), "eight": ints(8)}
    numbers |= {"nil": ints(0), "one": ints(1), "two": ints(2)}
    coupled = opened(make, text, {"w1": [6, 32], "w2": [32, 5], **numbers})
    assert coupled.groups
    for share in (0.3, 0.6, 1.0):
        hold(coupled, some(coupled, share), tmp_path)


@pytest.mark.parametrize("seed", [211, 1252])
def test_groups_behind_a_shuffle_shaped_at_run_time_are_followed(seed: int, tmp_path: Path) -> None:
    onnx.save(random_graph(seed), tmp_path / "given.onnx")
    graph.normalise(tmp_path / "given.onnx", tmp_path / "model.onnx")
    coupled = analyse(graph.load(tmp_path / "model.onnx"))
    for share in (0.3, 0.6, 1.0):
        hold(coupled, some(coupled, share, seed), tmp_path, feeds(tmp_path / "model.onnx", 3, seed))


def test_a_grouped_convolution_of_open_channels_holds_them(make: Any, tmp_path: Path) -> None:
    text = """g (float[n,3,16] x) => (float[p,2,16] y) {
        a = Conv (x, w1)
        flat = Reshape (a, to)
        two = Transpose <perm: ints = [1,0]> (flat)
        many = Unsqueeze (two, nil)
        image = Transpose <perm: ints = [0,2,1]> (many)
        b = Conv <group: int = 2> (image, w2)
        y = Conv (b, w3)
    }"""
    weights = {"w1": [8, 3, 1], "w2": [4, 4, 1], "w3": [2, 4, 1], "to": ints(-1, 16), "nil": ints(0)}
    coupled = opened(make, text, weights)  # it runs with a batch of 1 only, which the graph does not say
    assert not any(name == "w1" or (name, axis) == ("w2", 1) for g in coupled.groups for name, axis in g.slices)
    hold(coupled, some(coupled, 0.5), tmp_path, feeds(tmp_path / "model.onnx", 1))


def test_a_size_that_shapes_another_tensor_unseen_stays(make: Any, tmp_path: Path) -> None:
    text = """g (float[n,3,5,5] x, float[n,8,4,2] v) => (float[n,2,5,5] y, float[p,q,r] t) {
        z = Conv (x, w1)
        shape = Shape (z)
        front = Slice (shape, nil, two, nil)
        same = Identity (front)
        to = Concat <axis: int = 0> (same, minus)
        t = Reshape (v, to)
        y = Conv (z, w2)
    }"""
    numbers = {"nil": ints(0), "two": ints(2), "minus": ints(-1)}
    coupled = opened(make, text, {"w1": [8, 3, 1, 1], "w2": [2, 8, 1, 1], **numbers})
    assert coupled.groups == ()
    hold(coupled, some(coupled, 0.5), tmp_path)


@pytest.mark.parametrize("blocks", [40, 1500])
def test_a_shape_that_comes_out_of_a_deep_network_is_followed_in_time(blocks: int, make: Any) -> None:
    chain = "\n".join(f"a{i + 1} = Add (a{i}, a{i})" for i in range(blocks))  # 2 ** blocks paths
    text = f"""g (float[n,4] x) => (float[n,3] y, float[m] e) {{
        a0 = Relu (x)
        {chain}
        most = ReduceMax <keepdims: int = 0> (a{blocks})
        whole = Cast <to: int = 7> (most)
        to = Unsqueeze (whole, nil)
        e = Expand (one, to)
        h = MatMul (x, w1)
        y = MatMul (h, w2)
    }}"""
    coupled = opened(make, text, {"w1": [4, 8], "w2": [8, 3], "nil": ints(0), "one": np.ones(1, np.float32)})
    assert len(coupled.groups) == 1
    assert shrunk(coupled, some(coupled, 0.5)).graph.initializers["w1"].shape == [4, 4]


def test_a_shape_that_only_the_file_states_of_an_output_is_no_constant(make: Any) -> None:
    text = """g (float[n,3,5] x) => (float[1,8,5] a, float[n,2,5] y) {
        a = Conv (x, w1)
        shape = Shape (a)
        r = Reshape (a, shape)
        y = Conv (r, w2)
    }"""
    coupled = opened(make, text, {"w1": [8, 3, 1], "w2": [2, 8, 1]})
    assert "Shape" in [node.op_type for node in coupled.model.graph]


def opened(make: Any, text: str, weights: dict[str, Any]) -> Coupled:
    return analyse(graph.load(make(text, weights).path))
