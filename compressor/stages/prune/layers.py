"""Layers that mix channels linearly, as matrix products: what they read in rows, what they give, and their weights.

Every such layer is `y = features @ weights + bias` in groups: a plain convolution or a matrix product is one group, a
depthwise convolution has one for each channel. Another such operator is a branch of `layers` and of `Layer.features`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from compressor.graph import count
from compressor.records import Array
from compressor.stages.prune.constants import constant

if TYPE_CHECKING:
    import onnx_ir as ir

_ROWS_A_FEATURE, _FEWEST_A_FEATURE = 60, 5
_FEWEST_ROWS, _MOST_ROWS = 20_000, 200_000
_MOST_PRODUCTS = 4e11
"""Rows that are looked at in all: more make a better fit, for up to some ten seconds of arithmetic a layer."""
_FEWEST_AXES = 3  # of a convolution's input: batch, channels, one that it slides over


@dataclass(frozen=True)
class Window:
    """How a convolution slides, one number an axis: kernel, stride, dilation, padding before and after."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Layer:
    """A node with constant weights that nobody else reads.

    `x`, `y`: names of what it reads and gives; `y` has the bias in it. `weights`, `bias`: initializers; a layer without
    bias can be given one if `biased`. `axis`: of the channels of `y`, 1 or -1. `n_features`: within a group. `turned`:
    the weights are [in, out], not [out, in]. `scales`: what the node multiplies weights and bias by.
    """

    node: str
    x: str
    y: str
    weights: str
    bias: str | None
    biased: bool
    axis: int
    n_features: int
    groups: int = 1
    turned: bool = False
    scales: tuple[float, float] = (1.0, 1.0)
    window: Window | None = None

    @property
    def summed(self) -> int:
        """The axis of the weights along which they are summed."""
        return 0 if self.turned else 1

    @property
    def kernel(self) -> int:
        """How many features a channel of the input is."""
        return prod(self.window.kernel) if self.window else 1

    def matrix(self, weights: Array) -> Array:
        """Give the weights as [groups, out, features], float64."""
        whole = weights.T if self.turned else weights
        return self.scales[0] * whole.reshape(self.groups, whole.shape[0] // self.groups, -1).astype(np.float64)

    def unmatrix(self, matrix: Array, like: Array) -> Array:
        """Give weights in the layer's own layout and type."""
        whole = (matrix / self.scales[0]).reshape(-1, *(like.T if self.turned else like).shape[1:])
        return np.ascontiguousarray(whole.T if self.turned else whole).astype(like.dtype)

    def features(self, x: Array, places: Array) -> Array:
        """Give what the layer multiplies at these places of its output, [groups, rows, features], float32.

        Args:
            x: What the node reads.
            places: Flat indices of places of one sample's output, or of rows of a matrix product.
        """
        if self.window is None:
            return x.reshape(1, -1, x.shape[-1])[:, places].astype(np.float32)
        columns = _columns(x.astype(np.float32), self.window, places)  # [batch, channels, places, kernel]
        batch, channels, n, kernel = columns.shape
        grouped = columns.reshape(batch, self.groups, channels // self.groups, n, kernel)
        return grouped.transpose(1, 0, 3, 2, 4).reshape(self.groups, batch * n, -1)

    def rows(self, y: Array, places: Array) -> Array:
        """Give what stands at these places of an array like the layer's output, [groups, rows, outputs], float32."""
        if self.window is None:
            return y.reshape(1, -1, y.shape[-1])[:, places].astype(np.float32)
        batch, channels = y.shape[:2]
        picked = y.reshape(batch, self.groups, channels // self.groups, -1)[..., places].astype(np.float32)
        return picked.transpose(1, 0, 3, 2).reshape(self.groups, batch * len(places), -1)

    def places(self, y: Array) -> int:
        """Count the places of an output that `features` and `outputs` can be asked for."""
        return y.size // y.shape[-1] if self.window is None else prod(y.shape[2:])


def layers(model: ir.Model) -> Iterator[Layer]:
    """Give the layers of a model in normal form whose shapes are inferred, in the order of the graph."""
    for node in model.graph:
        if node.domain not in count.STANDARD_DOMAINS or node.op_type not in {"Conv", "Gemm", "MatMul"}:
            continue
        weights = node.inputs[1]
        if constant(weights) is None or len(weights.uses()) > 1 or not weights.dtype.is_floating_point():
            continue
        found = _convolution(node) if node.op_type == "Conv" else _product(node)
        if found is not None:
            yield found


def sampled(layer: Layer, y: Array, n: int, feed: int) -> Array:
    """Draw places of an output, so that of `n` feeds together there are enough rows for its features, and no more.

    `feed`: its number, from which they are drawn.
    """
    features = layer.n_features
    most = min(_ROWS_A_FEATURE * features, _MOST_ROWS, _MOST_PRODUCTS / features**2)
    rows = int(max(most, _FEWEST_A_FEATURE * features, _FEWEST_ROWS)) // n
    there = layer.places(y)
    return np.sort(np.random.default_rng(feed).choice(there, min(max(rows, 1), there), replace=False))


def write(model: ir.Model, layer: Layer, matrix: Array, bias: Array) -> None:
    """Put weights [groups, out, features] and a bias [channels] into a model that is ours to change."""
    import onnx_ir as ir

    initializers = model.graph.initializers
    weights = initializers[layer.weights]
    new = layer.unmatrix(matrix, weights.const_value.numpy())
    weights.const_value = ir.tensor(new, dtype=weights.const_value.dtype, name=weights.name)
    if not layer.biased:
        return
    bias = (bias / layer.scales[1]).astype(new.dtype)
    if layer.bias is not None and len(initializers[layer.bias].uses()) == 1:
        old = initializers[layer.bias]
        shape = old.const_value.shape.numpy() if old.const_value.size == bias.size else bias.shape
        old.const_value = ir.tensor(bias.reshape(shape), dtype=weights.const_value.dtype, name=old.name)
        old.shape = ir.Shape(shape)
        return
    node = next(node for node in model.graph if node.name == layer.node)
    value = ir.val(f"{layer.weights}.bias", const_value=ir.tensor(bias, name=f"{layer.weights}.bias"))
    model.graph.register_initializer(value)
    node.resize_inputs(3)
    node.replace_input_with(2, value)


def weights_of(model: ir.Model, layer: Layer) -> Array:
    """Give the weights of a layer as it multiplies with them, float64 [groups, out, features]."""
    return layer.matrix(model.graph.initializers[layer.weights].const_value.numpy())


def bias_of(model: ir.Model, layer: Layer) -> Array:
    """Give the bias of a layer as it adds it, float64 [channels]; 0 where it has none."""
    weights = model.graph.initializers[layer.weights].const_value
    channels = weights.shape[1 if layer.turned else 0]
    if layer.bias is None:
        return np.zeros(channels)
    array = model.graph.initializers[layer.bias].const_value.numpy().astype(np.float64)
    return layer.scales[1] * np.broadcast_to(array.reshape(-1), channels)


def _convolution(node: ir.Node) -> Layer | None:
    x, weights, y = node.inputs[0], node.inputs[1], node.outputs[0]
    shape = x.shape
    if shape is None or len(shape.dims) < _FEWEST_AXES or not all(isinstance(dim, int) for dim in shape.dims[2:]):
        return None
    window = _window(node, tuple(shape.dims[2:]), tuple(weights.shape.numpy()[2:]))
    bias = node.inputs[2] if len(node.inputs) > 2 else None  # noqa: PLR2004 - input `B`
    if bias is not None and constant(bias) is None:
        return None
    groups = node.attributes.get_int("group", 1)
    name = None if bias is None else bias.name
    return Layer(
        *(node.name, x.name, y.name, weights.name, name),
        biased=True,
        axis=1,
        n_features=prod(weights.shape.numpy()[1:]),
        groups=groups,
        window=window,
    )


def _window(node: ir.Node, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> Window:
    ones = (1,) * len(kernel)
    strides = tuple(node.attributes.get_ints("strides", ones))
    dilations = tuple(node.attributes.get_ints("dilations", ones))
    auto = node.attributes.get_string("auto_pad", "NOTSET")
    flat = tuple(node.attributes.get_ints("pads", (0,) * (2 * len(kernel))))
    pads = tuple(zip(flat[: len(kernel)], flat[len(kernel) :], strict=True))
    if auto.startswith("SAME"):
        wanted = [
            max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
            for size, stride, k, dilation in zip(sizes, strides, kernel, dilations, strict=True)
        ]
        pads = tuple((n // 2, n - n // 2) if auto == "SAME_UPPER" else (n - n // 2, n // 2) for n in wanted)
    elif auto == "VALID":
        pads = ((0, 0),) * len(kernel)
    return Window(kernel, strides, dilations, pads)


def _product(node: ir.Node) -> Layer | None:
    x, weights, y = node.inputs[0], node.inputs[1], node.outputs[0]
    if len(weights.shape.dims) != 2 or x.shape is None or len(x.shape.dims) < 2:  # noqa: PLR2004 - a matrix, rows
        return None
    if node.op_type == "MatMul":
        added = _added(y)
        return Layer(
            *(node.name, x.name, (added[1] if added else y).name, weights.name, added[0].name if added else None),
            biased=added is not None,
            axis=-1,
            n_features=weights.shape[0],
            turned=True,
        )
    bias = node.inputs[2] if len(node.inputs) > 2 else None  # noqa: PLR2004 - input `C`
    channels = weights.shape[0 if node.attributes.get_int("transB", 0) else 1]
    if node.attributes.get_int("transA", 0) or (bias is not None and not _is_vector(bias, channels)):
        return None
    return Layer(
        *(node.name, x.name, y.name, weights.name, None if bias is None else bias.name),
        biased=True,
        axis=-1,
        n_features=weights.shape[1 if node.attributes.get_int("transB", 0) else 0],
        turned=not node.attributes.get_int("transB", 0),
        scales=(node.attributes.get_float("alpha", 1.0), node.attributes.get_float("beta", 1.0)),
    )


def _added(y: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """Give the bias that is added to a matrix product, and the sum; None where there is none."""
    uses = y.uses()
    if len(uses) != 1 or y.is_graph_output() or uses[0].node.op_type != "Add":
        return None
    add = uses[0].node
    other = add.inputs[1 - uses[0].idx]
    return (other, add.outputs[0]) if y.shape is not None and _is_vector(other, y.shape[-1]) else None


def _is_vector(value: ir.Value, channels: object) -> bool:
    """Tell whether a constant holds one number a channel, along the last axis."""
    array = constant(value)
    return array is not None and array.ndim > 0 and array.size == array.shape[-1] == channels and array.ndim <= 2  # noqa: PLR2004


def _columns(x: Array, window: Window, places: Array) -> Array:
    """Give what the kernel sees, [batch, channels, places, kernel]."""
    padded = np.pad(x, ((0, 0), (0, 0), *window.pads)) if any(map(any, window.pads)) else x
    picked = np.unravel_index(places, _output(x.shape[2:], window))
    corners = [place * stride for place, stride in zip(picked, window.strides, strict=True)]
    seen = []
    for offset in product(*map(range, window.kernel)):
        at: list[Any] = [c + o * d for c, o, d in zip(corners, offset, window.dilations, strict=True)]
        seen.append(padded[(slice(None), slice(None), *at)])
    return np.stack(seen, -1)


def _output(sizes: tuple[int, ...], window: Window) -> tuple[int, ...]:
    return tuple(
        (size + before + after - dilation * (kernel - 1) - 1) // stride + 1
        for size, (before, after), dilation, kernel, stride in zip(
            sizes, window.pads, window.dilations, window.kernel, window.strides, strict=True
        )
    )
