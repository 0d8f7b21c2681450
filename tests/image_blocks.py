"""Blocks of random graphs that take an image [N, C, H, W]; each gives values that later blocks may take.

Add a block as a function, and to `BLOCKS`.
"""

from __future__ import annotations

import numpy as np
from draft import Draft, Value


def plain(g: Draft, x: Value, out: int | None = None, stride: int = 1) -> Value:
    """Convolve without changing height and width, unless strided."""
    c, k = x.channels, g.pick([1, 3])
    made = out or int(g.rng.integers(3, 11))
    bias = [g.weight(made)] if g.maybe() else []
    return g.op("Conv", x, g.weight(made, c, k, k, fan_in=c * k * k), *bias, pads=[k // 2] * 4, strides=[stride] * 2)


def conv(g: Draft, x: Value) -> Value:
    return g.unary(plain(g, x))


def strided(g: Draft, x: Value) -> Value:
    return g.unary(plain(g, x, stride=2 if x.shape[2] > 2 else 1))


def grouped(g: Draft, x: Value) -> Value:
    groups, each = g.pick([2, 3]), g.pick([2, 3])
    y = g.unary(plain(g, x, groups * each))
    made = groups * g.pick([1, 2, 3])
    y = g.op("Conv", y, g.weight(made, each, 3, 3, fan_in=each * 9), g.weight(made), pads=[1] * 4, group=groups)
    return plain(g, g.unary(y)) if g.maybe() else g.unary(y)


def depthwise(g: Draft, x: Value) -> Value:
    c = int(g.rng.integers(3, 8))
    y, times = g.unary(plain(g, x, c)), g.pick([1, 1, 2])
    y = g.op("Conv", y, g.weight(c * times, 1, 3, 3, fan_in=9), g.weight(c * times), pads=[1] * 4, group=c)
    return plain(g, g.unary(y)) if g.maybe() else y


def transposed(g: Draft, x: Value) -> Value:
    groups, each, made = g.pick([1, 1, 2, 3]), g.pick([2, 3]), g.pick([2, 3, 4])
    y = g.unary(plain(g, x, groups * each))
    stride = 2 if x.shape[2] <= 4 else 1
    w = g.weight(groups * each, made, 2, 2, fan_in=each * 4)
    bias = [g.weight(made * groups)] if g.maybe() else []
    return g.unary(g.op("ConvTranspose", y, w, *bias, strides=[stride] * 2, group=groups))


def residual(g: Draft, x: Value) -> Value:
    y = plain(g, g.unary(plain(g, x)), x.channels)
    y = g.op("Add", y, x) if g.maybe() else g.op("Sum", y, x, *g.others(x, 1))
    return batch_norm(g, y) if g.maybe() else g.unary(y)


def batch_norm(g: Draft, x: Value) -> Value:
    y = g.op("Add", plain(g, x, x.channels), g.weight(x.channels, 1, 1))
    c = x.channels
    return g.op("BatchNormalization", y, g.weight(c, mean=1), g.weight(c), g.weight(c), g.weight(c, mean=1))


def instance_norm(g: Draft, x: Value) -> Value:
    y = plain(g, x)
    scale, shift = g.weight(y.channels, mean=1), g.weight(y.channels)
    return g.op("InstanceNormalization", y, scale, shift, epsilon=0.01)


def group_norm(g: Draft, x: Value) -> Value:
    groups, each = g.pick([2, 3]), g.pick([2, 3])
    y = plain(g, x, groups * each)
    if g.opset < 21 or g.maybe(0.3):  # 18 to 20 have a form that onnx refuses by now
        return g.unary(_group_norm_as_torch_writes_it(g, y, groups))
    scale, shift = g.weight(y.channels, mean=1), g.weight(y.channels)
    z = g.op("GroupNormalization", y, scale, shift, num_groups=groups, epsilon=0.01)
    return g.unary(g.shaped(z, y.shape))


def _group_norm_as_torch_writes_it(g: Draft, y: Value, groups: int) -> Value:
    z = g.shaped(g.op("Reshape", y, g.ints(0, groups, -1)), (g.batch, groups, y.channels // groups * area(y)))
    ones, zeros = (g.constant(np.full(groups, number, np.float32)) for number in (1, 0))
    z = g.op("InstanceNormalization", z, ones, zeros, epsilon=0.01)
    back = g.op("Shape", y) if g.maybe() else g.ints(0, *map(int, y.shape[1:]))
    z = g.shaped(g.op("Reshape", z, back), y.shape)
    z = g.op("Mul", z, g.weight(y.channels, 1, 1, mean=1))
    return g.op("Add", z, g.weight(y.channels, 1, 1))


def area(x: Value) -> int:
    return int(x.shape[2]) * int(x.shape[3])


def broadcast(g: Draft, x: Value) -> Value:
    y = plain(g, x)
    c, h, w = map(int, y.shape[1:])
    kind, shape = g.pick(_BINARY), g.pick([(c, 1, 1), (1, c, 1, 1), (1,), (), (h, w), (c, h, w), (1, 1, 1, w)])
    shape = (1,) if kind == "Div" and c in shape else shape  # a divisor that is zeroed says nothing
    by = g.weight(*shape, mean=1.5)
    if kind == "Pow":
        by = g.constant(np.full(shape, 2, np.float32))
    return plain(g, g.op(kind, *((by, y) if kind in _EITHER_WAY and g.maybe() else (y, by))))


def modulated(g: Draft, x: Value) -> Value:
    """Combine two activations of the same shape, or one with a pooled one."""
    y = plain(g, x)
    z = g.op("Tanh", plain(g, x, y.channels))
    z = g.op("GlobalMaxPool", z) if g.maybe() else z
    return plain(g, g.op(g.pick(["Add", "Mul", "Sub", "Max", "Min", "Mean"]), y, z))


def prelu(g: Draft, x: Value) -> Value:
    y = plain(g, x)
    slope = g.weight(*g.pick([(y.channels, 1, 1), (1,), (1, 1, 1)]), mean=0.3)
    return g.op("PRelu", y, slope)


def where(g: Draft, x: Value) -> Value:
    y = plain(g, x)
    z = plain(g, x, y.channels) if g.maybe() else g.weight(*g.pick([(1,), (y.channels, 1, 1)]))
    limit = g.weight(*g.pick([(1,), (y.channels, 1, 1)]))
    test = g.op(g.pick(["Greater", "LessOrEqual"]), y, limit)
    test = g.op("Not", test) if g.maybe() else test
    return plain(g, g.op("Where", test, y, z))


def concat(g: Draft, x: Value) -> Value:
    parts = [
        g.unary(plain(g, x)),
        x,
        *(v for v in g.live if v != x and v.shape[2:] == x.shape[2:] and len(v.shape) == 4),
    ]
    y = g.op("Concat", *parts[: g.pick([2, 3])], axis=g.pick([1, -3]))
    return plain(g, g.unary(y)) if y.channels > 12 or g.maybe() else y


def split(g: Draft, x: Value) -> list[Value]:
    half = g.pick([2, 3, 4])
    y = plain(g, x, 2 * half)
    if g.maybe():
        return _pieces(g, g.many("Split", 2, y, g.ints(half - 1, half + 1), axis=1))
    number = {"num_outputs": 2} if g.opset >= 18 else {}
    a, b = g.many("Split", 2, y, axis=1, **number)
    return [g.op("Mul", a, g.op("Sigmoid", b))] if g.maybe() else _pieces(g, [a, b])


def _pieces(g: Draft, parts: list[Value]) -> list[Value]:
    if g.maybe():
        return [plain(g, part) for part in parts]
    return [plain(g, g.op("Concat", g.unary(parts[0]), parts[1], axis=1))]


def sliced(g: Draft, x: Value) -> list[Value]:
    y = plain(g, x, g.pick([6, 7, 8]))
    first, last = g.pick([(0, 3), (1, 2**31), (2, -1), (-4, 9999)])
    rest = [g.ints(1)] if g.maybe() else []
    z = g.op("Slice", y, g.ints(first), g.ints(last), g.ints(1), *rest)
    return [plain(g, z), plain(g, y)] if g.maybe() else [plain(g, z)]


def strided_slice(g: Draft, x: Value) -> Value:
    y = plain(g, x, 6)
    axis, step = g.pick([(1, 2), (2, 2), (3, -1), (1, -1)])
    first, last = (0, 2**31) if step > 0 else (-1, -(2**31))
    return plain(g, g.op("Slice", y, g.ints(first), g.ints(last), g.ints(axis), g.ints(step)))


def option_a(g: Draft, x: Value) -> Value:
    """Add a shortcut that takes every other pixel and pads channels, as ResNets for CIFAR do."""
    more = g.pick([2, 3])
    stride = 2 if x.shape[2] > 2 else 1
    y = g.op("Slice", x, g.ints(0, 0), g.ints(2**31, 2**31), g.ints(2, 3), g.ints(stride, stride))
    y = g.op("Pad", y, g.ints(0, more, 0, 0, 0, g.pick([more, 0]), 0, 0))
    z = plain(g, g.unary(plain(g, x, stride=stride)), y.channels)
    return g.unary(g.op("Add", z, y))


def padded(g: Draft, x: Value) -> Value:
    y = plain(g, x)
    if g.opset >= 18 and g.maybe():
        y = g.op("Pad", y, g.ints(1, 0, 0, 2), None, g.ints(1, 3))
    elif g.maybe():
        y = g.op("Pad", y, g.ints(0, -1, 0, 0, 0, 2, 0, 0), g.constant(np.array(0.5, np.float32)))
    else:
        y = g.op("Pad", y, g.ints(0, 0, 1, 1, 0, 0, 0, 0), mode=g.pick(["constant", "edge"]))
    return plain(g, y)


def pooled(g: Draft, x: Value) -> Value:
    kind, stride = g.pick(["MaxPool", "AveragePool", "LpPool"]), 2 if x.shape[2] >= 4 else 1
    y = plain(g, x)
    return g.op(kind, y, kernel_shape=[2, 2], strides=[stride] * 2, pads=[0, 0, 1, 1])


def globally_pooled(g: Draft, x: Value) -> Value:
    y = g.unary(plain(g, x))
    return g.op(g.pick(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"]), y)


def resized(g: Draft, x: Value) -> Value:
    y, to = plain(g, x), min(6, 2 * int(x.shape[2]))
    mode = g.pick(["nearest", "linear"])
    if g.batch != "batch" and g.maybe():
        wanted = g.ints(int(g.batch), y.channels, to, to)
        return plain(g, g.op("Resize", y, None, None, wanted, mode=mode))
    if g.opset >= 18 and g.maybe():
        return plain(g, g.op("Resize", y, None, None, g.ints(to, to), axes=[2, 3], mode=mode))
    scales = g.constant(np.array([1, 1, to / int(y.shape[2]), to / int(y.shape[3])], np.float32))
    return plain(g, g.op("Resize", y, None, scales, mode=mode))


def resized_at_run_time(g: Draft, x: Value) -> Value:
    """Resize to sizes of which batch and channels come from Shape, as PyTorch writes interpolation."""
    y, to = plain(g, x), min(6, 2 * int(x.shape[2]))
    front = g.op("Slice", g.op("Shape", y), g.ints(0), g.ints(2), g.ints(0))
    z = g.op("Resize", y, None, None, g.op("Concat", front, g.ints(to, to), axis=0), mode="nearest")
    return plain(g, g.shaped(z, (*y.shape[:2], to, to)))


def depth_to_space(g: Draft, x: Value) -> Value:
    y = plain(g, x, 4 * g.pick([2, 3]))
    y = g.op("DepthToSpace", y, blocksize=2, mode=g.pick(["DCR", "CRD"]))
    return plain(g, y, stride=2)


def space_to_depth(g: Draft, x: Value) -> Value:
    y = plain(g, x, g.pick([2, 3]))
    y = g.op("Pad", y, g.ints(0, 0, 0, 0, 0, 0, *(int(side) % 2 for side in y.shape[2:])))
    return plain(g, g.unary(g.op("SpaceToDepth", y, blocksize=2)))


def shuffled(g: Draft, x: Value) -> Value:
    groups, each = g.pick([(2, 3), (3, 2), (2, 4)])
    y = plain(g, x, groups * each)
    h, w = map(int, y.shape[2:])
    z = g.reshape(y, (g.batch, groups, each, h, w))
    z = g.op("Transpose", z, perm=[0, 2, 1, 3, 4])
    z = g.reshape(z, y.shape)
    if g.maybe():
        return plain(g, z)
    made = groups * 2
    return g.op("Conv", z, g.weight(made, each, 1, 1, fan_in=each), group=groups)


def squeeze_and_excitation(g: Draft, x: Value) -> Value:
    y = g.unary(plain(g, x))
    pooled = g.op("GlobalAveragePool", y) if g.maybe() else g.reduce("ReduceMean", y, [2, 3], 1)
    if g.maybe():
        gate = plain(g, g.op("Relu", plain(g, pooled, 3)), y.channels)
    else:
        flat = g.op("Relu", linear(g, g.op("Flatten", pooled), 3))
        gate = g.op("Unsqueeze", linear(g, flat, y.channels), g.ints(2, 3))
    return plain(g, g.op("Mul", y, g.op(g.pick(["Sigmoid", "HardSigmoid"]), gate)))


def linear(g: Draft, x: Value, out: int) -> Value:
    return g.op("Gemm", x, g.weight(out, x.channels, fan_in=x.channels), g.weight(out), transB=1)


def flattened(g: Draft, x: Value) -> Value:
    y = g.unary(plain(g, x, 4)) if g.maybe() else x
    flat = (g.batch, y.channels * area(y))
    return linear(g, g.op("Flatten", y) if g.maybe() else g.reshape(y, flat), int(g.rng.integers(4, 9)))


def averaged(g: Draft, x: Value) -> Value:
    """Reduce height and width to nothing, in one of many ways."""
    y = g.unary(plain(g, x))
    if g.maybe():
        return g.reduce(g.pick(_REDUCTIONS), g.op("Tanh", y), [2, -1], 0)
    y = g.op("GlobalAveragePool", y)
    return g.op("Squeeze", y, g.ints(2, 3)) if g.maybe() else g.reshape(y, (g.batch, y.channels))


def reduced_channels(g: Draft, x: Value) -> Value:
    return g.op("Mul", x, g.op("Sigmoid", g.reduce("ReduceMean", plain(g, x), [1], 1)))


def sequence(g: Draft, x: Value) -> Value:
    y = plain(g, x, g.pick([4, 6, 8]))
    y = g.reshape(y, (g.batch, y.channels, area(y)))
    return g.op("Transpose", y, perm=[0, 2, 1])


def tiled(g: Draft, x: Value) -> Value:
    y = plain(g, x, 4)
    if g.maybe():
        y = g.op("Tile", g.op("GlobalAveragePool", y), g.ints(1, 1, 2, 2))
    else:
        y = g.op("Tile", y, g.ints(1, 2, 1, 1))
    return plain(g, y)


def expanded(g: Draft, x: Value) -> Value:
    y = g.op("GlobalAveragePool", plain(g, x))
    target = g.ints(1, g.pick([1, y.channels]), 2, 3)
    y = g.shaped(g.op("Expand", y, target), (*y.shape[:2], 2, 3))
    return plain(g, g.unary(y))


def gathered(g: Draft, x: Value) -> Value:
    y = plain(g, x, 6)
    picks = g.pick([[5, 4, 3, 2, 1, 0], [0, 2, 4], [1, -1, 3], [0, 0, 1, 1]])
    return plain(g, g.op("Gather", y, g.ints(*picks), axis=1))


def tied(g: Draft, x: Value) -> Value:
    """Read one kernel twice."""
    c = x.channels
    w = g.weight(c, c, 3, 3, fan_in=9 * c)
    y = g.op("Relu", g.op("Conv", x, w, pads=[1] * 4))
    return g.op("Add", plain(g, g.op("Conv", y, w, pads=[1] * 4)), g.weight(1))


def tied_inside(g: Draft, x: Value) -> Value:
    """Read one kernel twice, between layers of its own."""
    y = tied(g, plain(g, x))
    return plain(g, y)


def unsqueezed(g: Draft, x: Value) -> Value:
    y = g.op("Unsqueeze", plain(g, x), g.ints(2))
    return plain(g, g.op("Squeeze", g.unary(y), *([g.ints(2)])))


def transposed_axes(g: Draft, x: Value) -> Value:
    """Work on channels last for a while."""
    y = g.op("Transpose", plain(g, x), perm=[0, 2, 3, 1])
    y = g.op("Mul", y, g.weight(int(y.shape[-1]), mean=1))
    y = g.op("MatMul", y, g.weight(int(y.shape[-1]), 5, fan_in=int(y.shape[-1])))
    return g.op("Transpose", g.unary(y), perm=[0, 3, 1, 2])


BLOCKS = (conv, strided, grouped, depthwise, transposed, residual, batch_norm, instance_norm, group_norm, broadcast)
BLOCKS += (modulated, prelu, where, concat, split, sliced, strided_slice, option_a, padded, pooled, globally_pooled)
BLOCKS += (
    resized,
    resized_at_run_time,
    depth_to_space,
    space_to_depth,
    shuffled,
    squeeze_and_excitation,
    flattened,
    averaged,
)
BLOCKS += (reduced_channels, sequence, tiled, expanded, gathered, tied, tied_inside, unsqueezed, transposed_axes)
_BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mean")
_EITHER_WAY = ("Add", "Sub", "Mul", "Max", "Min")
_REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare")
_REDUCTIONS += ("ReduceLogSumExp", "ReduceProd")
