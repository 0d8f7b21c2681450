"""Random small graphs that compose every operator that pruning follows.

Add an operator to a block in `image_blocks` or `sequence_blocks`.
"""

from __future__ import annotations

import image_blocks
import onnx
import sequence_blocks
from draft import Draft, Value
from onnx import TensorProto

_BLOCKS = {4: image_blocks.BLOCKS, 3: sequence_blocks.SEQUENCE, 2: sequence_blocks.VECTOR}
_WIDEST = 12


def random_graph(seed: int) -> onnx.ModelProto:
    """Draw a valid model with one or two inputs, five to ten blocks and one or two outputs; batch open or 2."""
    g = Draft(seed)
    g.live = [_image(g)] if g.maybe(0.6) else [_embedded(g)]
    if g.maybe(0.3):
        g.live.append(g.input("vector", (g.batch, 5)))
    for _ in range(int(g.rng.integers(5, 11))):
        _grow(g)
    outputs = [_head(g)]
    exposed = g.pick(g.live)
    if g.maybe(0.2) and exposed.name not in {value.name for value in g.inputs}:
        outputs.append(exposed)
    return g.model(outputs)


def _image(g: Draft) -> Value:
    side = g.pick([4, 5, 6])
    return g.input("image", (g.batch, 3, side, side))


def _embedded(g: Draft) -> Value:
    ids = g.input("ids", (g.batch, g.pick([2, 4])), TensorProto.INT64)
    g.block = "embedded"
    table = g.weight(7, g.pick([4, 6]))
    x = g.op("Gather", table, ids)
    y = sequence_blocks.feed_forward(g, x)
    if g.maybe():  # the table is the head too
        g.live.append(g.op("MatMul", y, g.op("Transpose", table, perm=[1, 0])))
    return y


def _grow(g: Draft) -> None:
    """Add a block behind one of the last values, mostly the last."""
    x = g.live[-1] if g.maybe(0.7) else g.pick(g.live)
    block = g.pick(_BLOCKS[len(x.shape)])
    g.block = block.__name__
    made = block(g, x)
    for value in made if isinstance(made, list) else [made]:
        g.live.append(_small(g, value))


def _small(g: Draft, x: Value) -> Value:
    """Pool or mix down what has become large."""
    if len(x.shape) == 4 and max(map(int, x.shape[2:])) > 8:
        return g.op("GlobalAveragePool", x)
    if x.channels <= _WIDEST:
        return x
    return {4: image_blocks.plain, 3: sequence_blocks.dense, 2: sequence_blocks.dense}[len(x.shape)](g, x, _WIDEST // 2)


def _head(g: Draft) -> Value:
    """Join what nothing reads yet into scores for four classes."""
    g.block = "head"
    read = {name for node in g.nodes for name in node.input}
    leaves = [value for value in g.live if value.name not in read]
    scores = [sequence_blocks.dense(g, _vector(g, leaf), 4) for leaf in leaves]
    return g.op("Sum", *scores)


def _vector(g: Draft, x: Value) -> Value:
    if len(x.shape) == 2:
        return x
    return g.reduce("ReduceMean", x, range(2, 4) if len(x.shape) == 4 else [1], 0)
