"""Blocks of random graphs that take a sequence [N, S, C] or a vector [N, C].

Add a block as a function, and to `SEQUENCE` or `VECTOR`.
"""

from __future__ import annotations

import numpy as np
from draft import Draft, Value
from image_blocks import linear


def dense(g: Draft, x: Value, out: int | None = None, *, bias: bool = True) -> Value:
    """Multiply the last axis with weights."""
    made = out or int(g.rng.integers(3, 9))
    y = g.op("MatMul", x, g.weight(x.channels, made, fan_in=x.channels))
    return g.op("Add", y, g.weight(made)) if bias else y


def feed_forward(g: Draft, x: Value) -> Value:
    y = dense(g, g.unary(dense(g, x)), x.channels)
    y = g.op("Add", x, y)
    return layer_norm(g, y) if g.maybe() else y


def gated(g: Draft, x: Value) -> Value:
    gate, up = g.op("Sigmoid", dense(g, x, 6)), dense(g, x, 6, bias=False)
    return dense(g, g.op("Mul", gate, up), x.channels)


def layer_norm(g: Draft, x: Value) -> Value:
    scale, shift = g.weight(x.channels, mean=1), g.weight(x.channels)
    return g.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=0.01)


def attention(g: Draft, x: Value) -> Value:
    """Attend with products of their own for query, key and value."""
    heads, width = g.pick([2, 3]), g.pick([2, 3])
    q, k, v = (_heads(g, dense(g, x, heads * width, bias=g.maybe()), heads) for _ in range(3))
    return _attended(g, x, (q, g.op("Transpose", k, perm=[0, 1, 3, 2]), v))


def fused_attention(g: Draft, x: Value) -> Value:
    """Attend with one product for query, key and value, which Split takes apart."""
    heads, width = g.pick([2, 3]), g.pick([2, 3])
    fused = dense(g, x, 3 * heads * width)
    parts = g.many("Split", 3, fused, g.ints(*[heads * width] * 3), axis=-1)
    q, k, v = (_heads(g, part, heads) for part in parts)
    return _attended(g, x, (q, g.op("Transpose", k, perm=[0, 1, 3, 2]), v))


def packed_attention(g: Draft, x: Value) -> Value:
    """Attend with one product that is reshaped to [N, S, 3, heads, width]."""
    heads, width = g.pick([2, 3]), g.pick([2, 3])
    y = g.reshape(dense(g, x, 3 * heads * width), (g.batch, x.shape[1], 3, heads, width))
    y = g.op("Transpose", y, perm=[2, 0, 3, 1, 4])
    q, k, v = (g.op("Gather", y, g.constant(np.array(i, np.int64)), axis=0) for i in range(3))
    return _attended(g, x, (q, g.op("Transpose", k, perm=[0, 1, 3, 2]), v))


def _heads(g: Draft, x: Value, heads: int) -> Value:
    y = g.reshape(x, (g.batch, x.shape[1], heads, x.channels // heads))
    return g.op("Transpose", y, perm=[0, 2, 1, 3])


def _attended(g: Draft, x: Value, qkv: tuple[Value, Value, Value]) -> Value:
    q, k, v = qkv
    scores = g.op("Mul", g.op("MatMul", q, k), g.constant(np.array(0.5, np.float32)))
    y = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    y = g.reshape(y, (g.batch, x.shape[1], int(y.shape[2]) * int(y.shape[3])))
    return g.op("Add", x, dense(g, y, x.channels))


def recurrent(g: Draft, x: Value) -> Value:
    """Run LSTM, GRU or RNN in one or two directions, over the sequence first as ONNX wants it."""
    kind, directions, hidden = g.pick(["LSTM", "GRU", "RNN"]), g.pick([1, 2]), g.pick([3, 4])
    gates, c = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], x.channels
    x = g.op("Transpose", x, perm=[1, 0, 2])
    w, r = g.weight(directions, gates * hidden, c, fan_in=c), g.weight(directions, gates * hidden, hidden, fan_in=4)
    bias = g.weight(directions, 2 * gates * hidden, fan_in=4) if g.maybe() else None
    state = _state(g, x, (directions, hidden)) if g.maybe() else None
    given = [x, w, r, bias, None, state]
    if kind == "LSTM":
        given += [state, g.weight(directions, 3 * hidden, fan_in=9) if g.maybe() else None]
    before = {"linear_before_reset": g.pick([0, 1])} if kind == "GRU" else {}
    direction = "bidirectional" if directions == 2 else g.pick(["forward", "reverse"])
    y, last = g.many(kind, 2, *given, hidden_size=hidden, direction=direction, **before)[:2]
    if g.maybe(0.3):
        return dense(g, g.reshape(g.op("Transpose", last, perm=[1, 0, 2]), (g.batch, directions * hidden)))
    y = g.op("Transpose", y, perm=[2, 0, 1, 3])
    y = g.reshape(y, (g.batch, x.shape[0], directions * hidden))
    return dense(g, y) if g.maybe() else y


def _state(g: Draft, x: Value, sizes: tuple[int, int]) -> Value:
    """Give an initial state: weights expanded to the batch, or zeros of a shape found at run time."""
    directions, hidden = sizes
    batch = g.op("Slice", g.op("Shape", x), g.ints(1), g.ints(2), g.ints(0))
    shape = g.op("Concat", g.ints(directions), batch, g.ints(hidden), axis=0)
    y = g.op("ConstantOfShape", shape) if g.maybe() else g.op("Expand", g.weight(directions, 1, hidden), shape)
    return g.shaped(y, (directions, g.batch, hidden))


def along_the_sequence(g: Draft, x: Value) -> Value:
    """Convolve channels last over the sequence."""
    y = g.op("Transpose", x, perm=[0, 2, 1])
    y = g.op("Conv", y, g.weight(5, x.channels, 3, fan_in=3 * x.channels), pads=[1, 1])
    return g.op("Transpose", g.unary(y), perm=[0, 2, 1])


def weights_left(g: Draft, x: Value) -> Value:
    """Multiply by weights from the left, over channels or positions."""
    if g.maybe():
        y = g.op("Transpose", dense(g, x), perm=[0, 2, 1])
        y = g.op("MatMul", g.weight(4, int(y.shape[1]), fan_in=4), y)
        return g.op("Transpose", y, perm=[0, 2, 1])
    return g.op("MatMul", g.weight(3, int(x.shape[1]), fan_in=3), dense(g, x))


def averaged(g: Draft, x: Value) -> Value:
    return g.reduce(g.pick(["ReduceMean", "ReduceMax", "ReduceL2"]), dense(g, x), [1], 0)


def first_position(g: Draft, x: Value) -> Value:
    return g.op("Gather", dense(g, x), g.constant(np.array(0, np.int64)), axis=1)


def flattened(g: Draft, x: Value) -> Value:
    y = dense(g, x, 3)
    flat = (g.batch, 3 * int(x.shape[1]))
    return linear(g, g.op("Flatten", y) if g.maybe() else g.reshape(y, flat), 5)


def one_axis(g: Draft, x: Value) -> Value:
    """Multiply by a vector, and spread what comes of it."""
    y = dense(g, x)
    y = g.op("Unsqueeze", g.op("MatMul", y, g.weight(y.channels, fan_in=y.channels)), g.ints(-1))
    return g.op("Mul", y, g.op("Sigmoid", dense(g, x, 5)))


def image(g: Draft, x: Value) -> Value:
    y = g.op("Transpose", dense(g, x, 6), perm=[0, 2, 1])
    return g.reshape(y, (g.batch, 6, 1, x.shape[1]))


def general(g: Draft, x: Value) -> Value:
    """Gemm in every form."""
    y, made = linear(g, x, 6), g.pick([3, 5])
    transposed = {"transA": 1} if g.maybe() else {}
    y = g.op("Transpose", y, perm=[1, 0]) if transposed else y
    flip = g.pick([0, 1])
    w = g.weight(*((made, 6) if flip else (6, made)), fan_in=6)
    shapes: list[tuple[int, ...]] = [(made,), (1, made), (1,), (1, 1), ()]
    bias = [g.weight(*g.pick(shapes if g.batch == "batch" else [*shapes, (2, made), (2, 1)]))] if g.maybe(0.8) else []
    return g.op("Gemm", y, w, *bias, alpha=0.7, beta=1.3, transB=flip, **transposed)


def multilayer(g: Draft, x: Value) -> Value:
    return g.op("Add", x, linear(g, g.unary(linear(g, x, 7)), x.channels))


def joined(g: Draft, x: Value) -> Value:
    others = [v for v in g.live if len(v.shape) == 2]
    return linear(g, g.op("Concat", g.unary(linear(g, x, 4)), *others[:2], axis=-1), 6)


def columns(g: Draft, x: Value) -> Value:
    """Multiply by weights from the left, channels in rows."""
    y = g.op("Transpose", linear(g, x, 5), perm=[1, 0])
    return g.op("Transpose", g.op("MatMul", g.weight(4, 5, fan_in=5), y), perm=[1, 0])


def outer(g: Draft, x: Value) -> Value:
    """Multiply two activations to a matrix for each sample."""
    a, b = g.op("Unsqueeze", linear(g, x, 3), g.ints(2)), g.op("Unsqueeze", linear(g, x, 4), g.ints(1))
    return g.op("MatMul", a, b)


def pixels(g: Draft, x: Value) -> Value:
    return g.reshape(linear(g, x, 4 * 6), (g.batch, 6, 2, 2))


def repeated(g: Draft, x: Value) -> Value:
    y = g.op("Unsqueeze", linear(g, x, 4), g.ints(1))
    return g.op("Add", g.op("Tile", y, g.ints(1, 3, 1)), g.weight(3, 1))


def weighted(g: Draft, x: Value) -> Value:
    y = linear(g, x, 4)
    return linear(g, g.op("Softmax", y, axis=-1), 3)


SEQUENCE = (feed_forward, gated, layer_norm, attention, fused_attention, packed_attention, recurrent, recurrent)
SEQUENCE += (along_the_sequence, weights_left, averaged, first_position, flattened, one_axis, image)
VECTOR = (general, general, multilayer, joined, columns, outer, pixels, repeated, weighted, layer_norm)
