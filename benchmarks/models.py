"""Well-known networks with random weights, for measuring speed where no trained model may be had.

    python benchmarks/models.py FOLDER [--only NAME]

Writes ONNX files at 1x3x224x224, as PyTorch's exporter writes them (BatchNormalization folded into the convolutions),
and prints parameters and multiply-accumulates beside the published ones. Weights are drawn from a seed, in sizes that
keep activations near 1. A new network is a function that takes a `Net` and its input, and a line in `NETWORKS`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper, save
from onnx.numpy_helper import from_array

from compressor import graph

IMAGE = (1, 3, 224, 224)
CLASSES = 1000
OPSET, IR = 17, 8
BRANCH = 0.1  # variance that a residual branch adds to its trunk, so that deep ones do not explode
GATED_GAIN = 8.0  # of what a gate of about one half follows
WIDTH, BLOCKS, HEADS, TOKENS, PATCH = 192, 12, 3, 197, 16  # of ViT-tiny


class Value(NamedTuple):
    """A tensor of the graph, and the length of the axis that weights run over: channels, or features of a token."""

    name: str
    size: int


class Kernel(NamedTuple):
    """A convolution: `gain` over the fan-in is the variance of its weights, 2 where ReLU follows (He et al. 2015).

    `padded`: at stride 1 the image keeps its size.
    """

    outputs: int
    side: int = 1
    stride: int = 1
    groups: int = 1
    gain: float = 2.0
    padded: bool = True


@dataclass(frozen=True)
class Net:
    """A graph that grows by what is called on it."""

    rng: np.random.Generator
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)

    def op(self, kind: str, x: Value, *others: str, **attributes: Any) -> Value:
        """Apply an operator that leaves the channels as they are."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [x.name, *others], [f"{name}_out"], name, **attributes))
        return Value(f"{name}_out", x.size)

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> str:
        """Give the name of an initializer."""
        name = f"weight_{len(self.weights)}"
        self.weights.append(from_array(np.asarray(values, dtype), name))
        return name

    def drawn(self, shape: tuple[int, ...], variance: float) -> str:
        """Give the name of an initializer of normal numbers around 0."""
        return self.constant(self.rng.normal(size=shape) * np.sqrt(variance))

    def conv(self, x: Value, kernel: Kernel) -> Value:
        """Apply a convolution with a bias."""
        seen = x.size // kernel.groups
        weight = self.drawn((kernel.outputs, seen, kernel.side, kernel.side), kernel.gain / (seen * kernel.side**2))
        window = {"kernel_shape": [kernel.side] * 2, "strides": [kernel.stride] * 2, "group": kernel.groups}
        bias, pads = self.drawn((kernel.outputs,), 0.01), [kernel.side // 2 * kernel.padded] * 4
        return self.op("Conv", x, weight, bias, pads=pads, **window)._replace(size=kernel.outputs)

    def gemm(self, x: Value, outputs: int) -> Value:
        """Apply a fully connected layer to a matrix."""
        weight = self.drawn((outputs, x.size), 1 / x.size)
        return self.op("Gemm", x, weight, self.drawn((outputs,), 0.01), transB=1)._replace(size=outputs)

    def linear(self, x: Value, outputs: int, gain: float = 1.0) -> Value:
        """Apply a fully connected layer to tokens, as the exporter writes it: the product, then the bias."""
        product = self.op("MatMul", x, self.drawn((x.size, outputs), gain / x.size))
        return self.op("Add", Value(self.drawn((outputs,), 0.01), outputs), product.name)

    def reshape(self, x: Value, *shape: int) -> Value:
        """Give another shape."""
        return self.op("Reshape", x, self.constant(shape, np.int64))

    def pooled(self, x: Value) -> Value:
        """Average over the image, to a matrix."""
        return self.op("Flatten", self.op("GlobalAveragePool", x), axis=1)


def resnet18(net: Net, x: Value) -> Value:
    """Build a ResNet of two 3x3 convolutions a block. Source: He et al. 2016, as torchvision has it."""
    x = _resnet_stem(net, x)
    for width, first in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for stride in (first, 1):
            inner = net.op("Relu", net.conv(x, Kernel(width, 3, stride)))
            x = _joined(net, x, net.conv(inner, Kernel(width, 3, gain=BRANCH)), stride)
    return net.gemm(net.pooled(x), CLASSES)


def resnet50(net: Net, x: Value) -> Value:
    """Build a ResNet of bottlenecks with the stride at 3x3. Source: He et al. 2016, as torchvision has it."""
    x = _resnet_stem(net, x)
    for width, blocks, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            stride = first if block == 0 else 1
            inner = net.op("Relu", net.conv(x, Kernel(width)))
            inner = net.op("Relu", net.conv(inner, Kernel(width, 3, stride)))
            x = _joined(net, x, net.conv(inner, Kernel(4 * width, gain=BRANCH)), stride)
    return net.gemm(net.pooled(x), CLASSES)


def mobilenet_v2(net: Net, x: Value) -> Value:
    """Build inverted residuals with ReLU6. Source: Sandler et al. 2018, table 2."""
    x = _relu6(net, net.conv(x, Kernel(32, 3, 2)))
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, width, blocks, first in table:
        for block in range(blocks):
            stride = first if block == 0 else 1
            inner = _relu6(net, net.conv(x, Kernel(x.size * expansion))) if expansion > 1 else x
            inner = _relu6(net, net.conv(inner, Kernel(inner.size, 3, stride, inner.size)))
            x = _added(net, x, inner, width, stride)
    return net.gemm(net.pooled(_relu6(net, net.conv(x, Kernel(1280)))), CLASSES)


def mobilenet_v3_large(net: Net, x: Value) -> Value:
    """Build inverted residuals with HardSwish and gates. Source: Howard et al. 2019, table 1, as torchvision has it."""
    x = net.op("HardSwish", net.conv(x, Kernel(16, 3, 2)))
    for side, expanded, width, gated, activation, stride in _MOBILENET_V3:
        inner = net.op(activation, net.conv(x, Kernel(expanded))) if expanded != x.size else x
        kernel = Kernel(expanded, side, stride, expanded, GATED_GAIN if gated else 2.0)
        inner = net.op(activation, net.conv(inner, kernel))
        x = _added(net, x, _gate(net, inner) if gated else inner, width, stride)
    x = net.pooled(net.op("HardSwish", net.conv(x, Kernel(960))))
    return net.gemm(net.op("HardSwish", net.gemm(x, 1280)), CLASSES)


def vit_tiny(net: Net, x: Value) -> Value:
    """Build a vision transformer of patches of 16. Source: Touvron et al. 2021 (DeiT-Ti), as timm has it."""
    patches = _patches(net, x)
    token = Value(net.drawn((1, 1, WIDTH), 1.0), WIDTH)
    x = net.op("Add", net.op("Concat", token, patches.name, axis=1), net.drawn((1, TOKENS, WIDTH), 0.01))
    for _ in range(BLOCKS):
        x = net.op("Add", x, _attention(net, _normalised(net, x)).name)
        x = net.op("Add", x, _perceptron(net, _normalised(net, x)).name)
    first = net.op("Gather", _normalised(net, x), net.constant(0, np.int64), axis=1)
    return net.gemm(first, CLASSES)


_MOBILENET_V3 = (  # side, expanded, width, gated, activation, stride
    (3, 16, 16, False, "Relu", 1),
    (3, 64, 24, False, "Relu", 2),
    (3, 72, 24, False, "Relu", 1),
    (5, 72, 40, True, "Relu", 2),
    (5, 120, 40, True, "Relu", 1),
    (5, 120, 40, True, "Relu", 1),
    (3, 240, 80, False, "HardSwish", 2),
    (3, 200, 80, False, "HardSwish", 1),
    (3, 184, 80, False, "HardSwish", 1),
    (3, 184, 80, False, "HardSwish", 1),
    (3, 480, 112, True, "HardSwish", 1),
    (3, 672, 112, True, "HardSwish", 1),
    (5, 672, 160, True, "HardSwish", 2),
    (5, 960, 160, True, "HardSwish", 1),
    (5, 960, 160, True, "HardSwish", 1),
)

Network = Callable[[Net, Value], Value]
NETWORKS: dict[str, tuple[Network, float, float]] = {  # with published millions of parameters, billions of MACs
    "resnet18": (resnet18, 11.69, 1.81),
    "resnet50": (resnet50, 25.56, 4.09),
    "mobilenet_v2": (mobilenet_v2, 3.50, 0.301),
    "mobilenet_v3_large": (mobilenet_v3_large, 5.48, 0.217),
    "vit_tiny": (vit_tiny, 5.72, 1.26),
}


def main() -> None:
    """Write files and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=NETWORKS)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    print("| network | parameters, M | published | MACs, G | published |\n| --- | --- | --- | --- | --- |")
    for name, (_, parameters, macs) in NETWORKS.items():
        if given.only in {None, name}:
            made = graph.open_model(write(name, given.folder))
            made = graph.at_shapes(made, {"input": IMAGE})
            print(f"| {name} | {made.parameters / 1e6:.2f} | {parameters} | {(made.macs or 0) / 1e9:.3f} | {macs} |")


def write(name: str, folder: Path, seed: int = 0) -> Path:
    """Write a network's file into a folder and give its path; the same seed gives the same file."""
    network, _, _ = NETWORKS[name]
    net, path = Net(np.random.default_rng(seed)), folder / f"{name}.onnx"
    logits = network(net, Value("input", IMAGE[1]))
    ends = [("input", IMAGE), (logits.name, (IMAGE[0], CLASSES))]
    put, got = (helper.make_tensor_value_info(end, TensorProto.FLOAT, shape) for end, shape in ends)
    made = helper.make_graph(net.nodes, name, [put], [got], net.weights)
    save(helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR), path)
    return path


def _resnet_stem(net: Net, x: Value) -> Value:
    x = net.op("Relu", net.conv(x, Kernel(64, 7, 2)))
    return net.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])


def _joined(net: Net, x: Value, branch: Value, stride: int) -> Value:
    """Add a branch to its trunk, which a 1x1 convolution fits to it where their shapes differ."""
    if x.size != branch.size:
        x = net.conv(x, Kernel(branch.size, 1, stride, gain=1.0))
    return net.op("Relu", net.op("Add", branch, x.name))


def _added(net: Net, x: Value, inner: Value, width: int, stride: int) -> Value:
    """Project to fewer channels, and add to the trunk where shapes permit."""
    residual = stride == 1 and x.size == width
    out = net.conv(inner, Kernel(width, gain=BRANCH if residual else 1.0))
    return net.op("Add", x, out.name) if residual else out


def _relu6(net: Net, x: Value) -> Value:
    return net.op("Clip", x, net.constant(0), net.constant(6))


def _gate(net: Net, x: Value) -> Value:
    """Scale channels by a gate that sees them all."""
    squeezed = max(8, (x.size // 4 + 4) // 8 * 8)
    seen = net.op("Relu", net.conv(net.op("GlobalAveragePool", x), Kernel(squeezed)))
    gate = net.op("HardSigmoid", net.conv(seen, Kernel(x.size, gain=1.0)), alpha=1 / 6, beta=0.5)
    return net.op("Mul", gate, x.name)


def _patches(net: Net, x: Value) -> Value:
    x = net.conv(x, Kernel(WIDTH, PATCH, PATCH, gain=1.0, padded=False))
    return net.op("Transpose", net.reshape(x, IMAGE[0], WIDTH, TOKENS - 1), perm=[0, 2, 1])


def _normalised(net: Net, x: Value) -> Value:
    scale = net.constant(1 + 0.1 * net.rng.normal(size=WIDTH))
    return net.op("LayerNormalization", x, scale, net.drawn((WIDTH,), 0.01), axis=-1, epsilon=1e-6)


def _attention(net: Net, x: Value) -> Value:
    depth = WIDTH // HEADS
    heads = net.reshape(net.linear(x, 3 * WIDTH), IMAGE[0], TOKENS, 3, HEADS, depth)
    stacked = net.op("Transpose", heads, perm=[2, 0, 3, 1, 4])
    query, key, value = (net.op("Gather", stacked, net.constant(i, np.int64), axis=0) for i in range(3))
    scaled = net.op("Mul", query, net.constant(depth**-0.5))
    scores = net.op("MatMul", scaled, net.op("Transpose", key, perm=[0, 1, 3, 2]).name)
    mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), value.name)
    tokens = net.reshape(net.op("Transpose", mixed, perm=[0, 2, 1, 3]), IMAGE[0], TOKENS, WIDTH)
    return net.linear(tokens._replace(size=WIDTH), WIDTH)


def _perceptron(net: Net, x: Value) -> Value:
    """Apply two layers with GELU between them, spelt out by the error function."""
    wide = net.linear(x, 4 * WIDTH)
    erf = net.op("Erf", net.op("Div", wide, net.constant(np.sqrt(2))))
    gelu = net.op("Mul", net.op("Mul", wide, net.op("Add", erf, net.constant(1)).name), net.constant(0.5))
    return net.linear(gelu, WIDTH)


if __name__ == "__main__":
    main()
