"""Channels that are dead by construction are found, and removing them changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from pruned import feeds, run

from compressor import graph
from compressor.records import Model
from compressor.stages import Prune
from compressor.stages.prune.groups import analyse

Array = Any
DEAD = (1, 4, 6)


class Planted(NamedTuple):
    """A graph in ONNX text, its weights, and for the axes that must lose indices which these are."""

    text: str
    weights: dict[str, Array]
    dead: dict[tuple[str, int], tuple[int, ...]]


def image(body: str) -> str:
    return f"""g (float[n,3,6,6] x) => (float[n,2,h,w] y) {{
        a = Conv <pads: ints = [1,1,1,1]> (x, w1, b1)
        {body}
        y = Conv (b, w2)
    }}"""


def drawn(**shapes: list[int]) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def planted(text: str, weights: dict[str, Array], dead: dict[tuple[str, int], tuple[int, ...]]) -> Planted:
    """Set the slices to 0."""
    for (name, axis), indices in dead.items():
        np.moveaxis(weights[name], axis, 0)[list(indices)] = 0
    return Planted(text, weights, dead)


STEM: dict[str, list[int]] = {"w1": [8, 3, 3, 3], "b1": [8], "w2": [2, 8, 1, 1]}
MADE: dict[tuple[str, int], tuple[int, ...]] = {("w1", 0): DEAD, ("b1", 0): DEAD}


def plain() -> Planted:
    return planted(image("b = Relu (a)"), drawn(**STEM), dict(MADE))


def read_by_nothing() -> Planted:
    return planted(image("b = Sigmoid (a)"), drawn(**STEM), {("w2", 1): DEAD})


def residual() -> Planted:
    text = image("c = Conv <pads: ints = [1,1,1,1]> (a, wc)\nd = Relu (c)\nb = Add (a, d)")
    return planted(text, drawn(**STEM, wc=[8, 8, 3, 3]), {**MADE, ("wc", 0): DEAD})


def concat() -> Planted:
    text = image("c = Conv (a, wc, bc)\nd = Relu (c)\nb = Concat <axis: int = 1> (a, d)")
    weights = drawn(**{**STEM, "w2": [2, 13, 1, 1]}, wc=[5, 8, 1, 1], bc=[5])
    return planted(text, weights, {**MADE, ("wc", 0): (0, 3), ("bc", 0): (0, 3)})


def depthwise() -> Planted:
    text = image("c = Relu (a)\nd = Conv <group: int = 8, pads: ints = [1,1,1,1]> (c, wd, bd)\nb = Relu (d)")
    return planted(text, drawn(**STEM, wd=[8, 1, 3, 3], bd=[8]), {**MADE, ("wd", 0): DEAD, ("bd", 0): DEAD})


def squeeze_and_excitation() -> Planted:
    body = (
        "p = GlobalAveragePool (a)\nc = Conv (p, ws)\nd = Relu (c)\ne = Conv (d, we)\nf = Sigmoid (e)\nb = Mul (a, f)"
    )
    weights = drawn(**STEM, ws=[4, 8, 1, 1], we=[8, 4, 1, 1])
    return planted(image(body), weights, {**MADE, ("we", 0): DEAD, ("ws", 0): (2,)})


def group_norm() -> Planted:
    body = "c = GroupNormalization <num_groups: int = 4> (a, s, t)\nb = Relu (c)"
    whole = (2, 3, 6, 7)  # the second and the last group
    made = {("w1", 0): whole, ("b1", 0): whole, ("s", 0): whole, ("t", 0): whole}
    return planted(image(body), drawn(**STEM, s=[8], t=[8]), made)


def shuffle() -> Planted:
    body = "r = Reshape (a, split)\nt = Transpose <perm: ints = [0,2,1,3,4]> (r)\nb = Reshape (t, merge)"
    numbers = {"split": np.array([0, 2, 4, 6, 6]), "merge": np.array([0, 8, 6, 6])}
    places = (1, 5, 2, 6)  # the second and the third of both halves
    return planted(image(body), {**drawn(**STEM), **numbers}, {("w1", 0): places, ("b1", 0): places})


def grouped() -> Planted:
    text = image("b = Conv <group: int = 4> (a, wc, bc)")
    dead = {("w1", 0): (2, 3), ("b1", 0): (2, 3), ("wc", 0): (2, 3), ("bc", 0): (2, 3)}  # the second group
    return planted(text, drawn(**STEM, wc=[8, 2, 1, 1], bc=[8]), dead)


def heads() -> Planted:
    text = """g (float[n,s,6] x) => (float[n,s,2] y) {
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
    weights = drawn(wq=[6, 12], wk=[6, 12], wv=[6, 12], w2=[12, 2])
    third = (6, 7, 8)  # the third of four heads of three
    numbers = {"heads": np.array([0, 0, 4, 3]), "whole": np.array([0, 0, 12])}
    return planted(
        text, {**weights, **numbers}, {("wq", 1): third, ("wk", 1): third, ("wv", 1): third, ("w2", 0): third}
    )


def turned() -> Planted:
    text = """g (float[n,6] x) => (float[n,20] y) {
        a = MatMul (x, w1)
        b = Sigmoid (a)
        w3 = Transpose (w2)
        y = MatMul (b, w3)
    }"""
    return planted(text, drawn(w1=[6, 16], w2=[20, 16]), {("w2", 1): (0, 9, 15)})


def feed_forward() -> Planted:
    text = """g (float[n,s,6] x) => (float[n,s,6] y) {
        a = MatMul (x, w1)
        c = Add (a, b1)
        b = Relu (c)
        d = MatMul (b, w2)
        y = Add (x, d)
    }"""
    return planted(text, drawn(w1=[6, 16], b1=[16], w2=[16, 6]), {("w1", 1): (0, 9, 15), ("b1", 0): (0, 9, 15)})


def recurrent(kind: str, gates: int) -> Planted:
    text = f"""g (float[3,2,4] x) => (float[3,2,2] y) {{
        h = {kind} <hidden_size: int = 6> (x, wx, wh, bh)
        b = Squeeze (h, axis)
        y = MatMul (b, w2)
    }}"""
    weights = drawn(wx=[1, gates * 6, 4], wh=[1, gates * 6, 6], bh=[1, 2 * gates * 6], w2=[6, 2])
    units = (1, 5)
    rows = tuple(6 * gate + unit for gate in range(gates) for unit in units)
    both = tuple(6 * gate + unit for gate in range(2 * gates) for unit in units)
    dead = {("wx", 1): rows, ("wh", 1): rows, ("bh", 1): both}
    return planted(text, {**weights, "axis": np.array([1])}, dead)


NETS: dict[str, Callable[[], Planted]] = {
    "plain": plain,
    "read by nothing": read_by_nothing,
    "residual": residual,
    "concat": concat,
    "depthwise": depthwise,
    "squeeze and excitation": squeeze_and_excitation,
    "group norm": group_norm,
    "shuffle": shuffle,
    "grouped": grouped,
    "heads": heads,
    "feed-forward": feed_forward,
    "read through a Transpose": turned,
    "lstm": lambda: recurrent("LSTM", 4),
    "gru": lambda: recurrent("GRU", 3),
}


@pytest.mark.parametrize("name", NETS)
def test_exactly_the_dead_are_removed_and_nothing_changes(name: str, make: Any, apply: Any) -> None:
    net = NETS[name]()
    model: Model = make(net.text, net.weights, 21 if name == "group norm" else 17)
    path, _ = apply(Prune(ratio=_share(model, net), of="channels", multiple=1), model)
    _assert_gone(path, model, net)
    given = feeds(path)
    wanted, found = run(model.path, given)[0], run(path, given)[0]
    assert np.abs(found - wanted).max() < 1e-5 * max(1.0, float(np.abs(wanted).max()))


def _share(model: Model, net: Planted) -> str:
    """Give the share of the removable channels that is dead, by counting zeros."""
    coupled = analyse(graph.load(model.path))
    total = sum(group.channels for group in coupled.groups)
    dead = 0
    for group in coupled.groups:
        first = next(key for key in group.slices if key in net.dead or not any(k in net.dead for k in group.slices))
        dead += len(net.dead.get(first, ())) // group.slices[first] * group.width
    return f"{100 * dead / total:.9f}%"


def _assert_gone(path: Path, model: Model, net: Planted) -> None:
    """Assert that the weights that are left are those that were not dead, in their order."""
    left = {name: value.const_value.numpy() for name, value in graph.load(path).graph.initializers.items()}
    before = {name: value.const_value.numpy() for name, value in graph.load(model.path).graph.initializers.items()}
    for name in {name for name, _ in net.dead}:
        wanted = before[name]
        for (other, axis), indices in net.dead.items():
            if other == name:
                wanted = np.delete(wanted, indices, axis)
        if left[name].shape == wanted.shape:
            assert np.array_equal(left[name], wanted)
        else:  # the other axis loses what another layer's dead channels are read by
            assert left[name].size < before[name].size
            assert all(left[name].shape[axis] == wanted.shape[axis] for other, axis in net.dead if other == name)
