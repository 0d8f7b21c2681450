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
from compressor.stages.prune.surgery import free_name

if TYPE_CHECKING:
    import onnx_ir as ir

_ROWS_A_FEATURE, _FEWEST_A_FEATURE = 60, 5
_FEWEST_ROWS, _MOST_ROWS = 20_000, 200_000
_MOST_PRODUCTS = 1.5e11
"""Rows that are looked at in all: more make a better fit, for up to some ten seconds of arithmetic a layer."""
_MOST_FEATURES = 6144
"""Of more, a covariance and what is computed from it would take more than 2 GB."""


@dataclass(frozen=True)
class Window:
    """How a convolution slides, one number an axis: kernel, stride, dilation, padding before and after.

    `auto`: SAME_UPPER or SAME_LOWER where the padding follows from the input's size instead.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    auto: str = ""

    def padding(self, sizes: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """Give the padding of an input of these sizes."""
        if not self.auto:
            return self.pads
        wanted = [
            max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
            for size, stride, k, dilation in zip(sizes, self.strides, self.kernel, self.dilations, strict=True)
        ]
        halves = [(n // 2, n - n // 2) for n in wanted]
        return tuple(half if self.auto == "SAME_UPPER" else half[::-1] for half in halves)


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
        """Count the places of an output that `features` and `rows` can be asked for."""
        return y.size // y.shape[-1] if self.window is None else prod(y.shape[2:])


def layers(model: ir.Model) -> Iterator[Layer]:
    """Give the layers of a model in normal form whose ranks are inferred, in the order of the graph."""
    for node in model.graph:
        if node.domain not in count.STANDARD_DOMAINS or node.op_type not in {"Conv", "Gemm", "MatMul"}:
            continue
        weights = node.inputs[1]
        if constant(weights) is None or len(weights.uses()) > 1 or not weights.dtype.is_floating_point():
            continue
        found = _convolution(node) if node.op_type == "Conv" else _product(node)
        if found is not None and found.n_features <= _MOST_FEATURES:
            yield found


def sampled(layer: Layer, y: Array, feeds: int, feed: int) -> Array:
    """Draw places of an output, so that all feeds together give enough rows for its features, and no more.

    `feed`: the number of this one, from which they are drawn.
    """
    features = layer.n_features
    most = min(_ROWS_A_FEATURE * features, _MOST_ROWS, _MOST_PRODUCTS / features**2)
    rows = int(max(most, _FEWEST_A_FEATURE * features, _FEWEST_ROWS)) // (feeds * (len(y) if layer.window else 1))
    there = layer.places(y)
    return np.sort(np.random.default_rng(feed).choice(there, min(max(rows, 1), there), replace=False))


def write(model: ir.Model, layer: Layer, matrix: Array, bias: Array) -> None:
    """Put weights [groups, out, features] and a bias [channels] into a model that is ours to change."""
    import onnx_ir as ir

    weights = model.graph.initializers[layer.weights]
    new = layer.unmatrix(matrix, weights.const_value.numpy())
    weights.const_value = ir.tensor(new, dtype=weights.const_value.dtype, name=weights.name)
    if layer.biased:
        _write_bias(model, layer, (bias / layer.scales[1]).astype(new.dtype))


def _write_bias(model: ir.Model, layer: Layer, bias: Array) -> None:
    """Change the bias, or give the layer one of its own where it has none or shares it."""
    import onnx_ir as ir

    old = model.graph.initializers[layer.bias] if layer.bias is not None else None
    if old is not None and len(old.uses()) == 1 and not old.is_graph_output():
        shape = old.const_value.shape.numpy() if old.const_value.size == bias.size else bias.shape
        old.const_value = ir.tensor(bias.reshape(shape), dtype=old.const_value.dtype, name=old.name)
        old.shape = ir.Shape(shape)
        return
    (node,) = (node for node in model.graph if any(output.name == layer.y for output in node.outputs))
    name = free_name(model.graph, f"{layer.weights}.bias")
    dtype = model.graph.initializers[layer.weights].const_value.dtype
    value = ir.val(name, const_value=ir.tensor(bias, dtype=dtype, name=name))
    model.graph.register_initializer(value)
    place = 2 if old is None else next(i for i, given in enumerate(node.inputs) if given is old)
    if place >= len(node.inputs):
        node.resize_inputs(place + 1)
    node.replace_input_with(place, value)


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
    bias = node.inputs[2] if len(node.inputs) > 2 else None  # noqa: PLR2004 - input `B`
    if bias is not None and constant(bias) is None:
        return None
    shape = weights.shape.numpy()
    return Layer(
        *(node.name, x.name, y.name, weights.name, None if bias is None else bias.name),
        biased=True,
        axis=1,
        n_features=prod(shape[1:]),
        groups=node.attributes.get_int("group", 1),
        window=_window(node, tuple(shape[2:])),
    )


def _window(node: ir.Node, kernel: tuple[int, ...]) -> Window:
    ones = (1,) * len(kernel)
    auto = node.attributes.get_string("auto_pad", "NOTSET")
    flat = (
        tuple(node.attributes.get_ints("pads", (0,) * (2 * len(kernel))))
        if auto == "NOTSET"
        else (0,) * 2 * len(kernel)
    )
    return Window(
        kernel,
        strides=tuple(node.attributes.get_ints("strides", ones)),
        dilations=tuple(node.attributes.get_ints("dilations", ones)),
        pads=tuple(zip(flat[: len(kernel)], flat[len(kernel) :], strict=True)),
        auto=auto if auto.startswith("SAME") else "",
    )


def _product(node: ir.Node) -> Layer | None:
    x, weights = node.inputs[0], node.inputs[1]
    if len(weights.shape.dims) != 2 or x.shape is None or len(x.shape.dims) < 2:  # noqa: PLR2004 - a matrix, rows
        return None
    return _matmul(node) if node.op_type == "MatMul" else _gemm(node)


def _matmul(node: ir.Node) -> Layer:
    """Describe a product with the addition of a bias behind it, if there is one."""
    x, weights, y, bias = node.inputs[0], node.inputs[1], node.outputs[0], None
    uses = y.uses()
    if len(uses) == 1 and not y.is_graph_output() and uses[0].node.op_type == "Add":
        other = uses[0].node.inputs[1 - uses[0].idx]
        if _is_vector(other, weights.shape[1]):
            y, bias = uses[0].node.outputs[0], other.name
    return Layer(
        *(node.name, x.name, y.name, weights.name, bias),
        biased=bias is not None,
        axis=-1,
        n_features=weights.shape[0],
        turned=True,
    )


def _gemm(node: ir.Node) -> Layer | None:
    x, weights, y = node.inputs[0], node.inputs[1], node.outputs[0]
    bias = node.inputs[2] if len(node.inputs) > 2 else None  # noqa: PLR2004 - input `C`
    turned = not node.attributes.get_int("transB", 0)
    scales = node.attributes.get_float("alpha", 1.0), node.attributes.get_float("beta", 1.0)
    channels = weights.shape[1 if turned else 0]
    if node.attributes.get_int("transA", 0) or 0 in scales or (bias is not None and not _is_vector(bias, channels)):
        return None
    return Layer(
        *(node.name, x.name, y.name, weights.name, None if bias is None else bias.name),
        biased=True,
        axis=-1,
        n_features=weights.shape[0 if turned else 1],
        turned=turned,
        scales=scales,
    )


def _is_vector(value: ir.Value, channels: object) -> bool:
    """Tell whether a constant holds one number a channel, along the last axis."""
    array = constant(value)
    return array is not None and array.ndim > 0 and array.size == array.shape[-1] == channels and array.ndim <= 2  # noqa: PLR2004


def _columns(x: Array, window: Window, places: Array) -> Array:
    """Give what the kernel sees, [batch, channels, places, kernel]."""
    pads = window.padding(x.shape[2:])
    padded = np.pad(x, ((0, 0), (0, 0), *pads)) if any(map(any, pads)) else x
    sizes = [
        (size - dilation * (kernel - 1) - 1) // stride + 1
        for size, dilation, kernel, stride in zip(
            padded.shape[2:], window.dilations, window.kernel, window.strides, strict=True
        )
    ]
    corners = [at * stride for at, stride in zip(np.unravel_index(places, sizes), window.strides, strict=True)]
    seen = []
    for offset in product(*map(range, window.kernel)):
        at: list[Any] = [c + o * d for c, o, d in zip(corners, offset, window.dilations, strict=True)]
        seen.append(padded[(slice(None), slice(None), *at)])
    return np.stack(seen, -1)
