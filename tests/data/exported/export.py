"""Write the models of this folder: small networks with random weights, as both exporters of PyTorch write them.

    python tests/data/exported/export.py     (torch 2.13.0 and onnxscript made the files that are here)

Add a network as a class, and to `NETS`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from torch import nn
from torch.nn import functional

FOLDER = Path(__file__).parent


class Words(nn.Module):
    """An embedding, an LSTM, an LSTM of two directions, and a classifier of its last step."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(20, 12), nn.Linear(2 * 8, 4)
        self.first = nn.LSTM(12, 16, batch_first=True)
        self.second = nn.LSTM(16, 8, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.second(self.first(self.table(x))[0])[0][:, -1])


class Stacked(nn.Module):
    """PyTorch's own stack of two LSTMs, and a classifier of the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(6, 16, num_layers=2, batch_first=True), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.layer(x)[0][:, -1])


class Gated(nn.Module):
    """A GRU, and a classifier of its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.GRU(6, 16, batch_first=True), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.layer(x)[1][-1])


class Encoder(nn.Module):
    """PyTorch's own transformer encoder, and a classifier of the mean token."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 4, 48, batch_first=True, activation="gelu")
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(24, 4)
        for weights in self.layers.parameters():  # the layers are copies of one, which the exporter would store once
            weights.data.normal_(1.0 if weights.ndim == 1 else 0.0, 0.2)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.layers(x).mean(1))


class Attention(nn.Module):
    """Attention with one product for queries, keys and values, as vision transformers write it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(24), nn.Linear(24, 96), nn.Linear(32, 24)
        self.up, self.down = nn.Linear(24, 48), nn.Linear(48, 24)

    def forward(self, x: torch.Tensor) -> Any:
        b, s, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, s, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, 32))
        return x + self.down(functional.gelu(self.up(x)))


class Grouped(nn.Module):
    """Convolutions with GroupNorm and SiLU."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU()),
            *(nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.GroupNorm(6, 24), nn.SiLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 4)),
        )
        for layer in (self.layers[1], self.layers[4]):
            nn.init.normal_(layer.weight, 1, 0.2)
            nn.init.normal_(layer.bias)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x)


class Shuffled(nn.Module):
    """A unit of ShuffleNetV2: half of the channels pass, the other half is convolved, then both are shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.one, self.each, self.two = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 1)
        self.last, self.head = nn.Conv2d(16, 12, 1), nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> Any:
        left, right = self.first(x).relu().chunk(2, 1)
        right = self.two(self.each(self.one(right).relu())).relu()
        both = torch.cat((left, right), 1)
        b, c, h, w = both.shape
        both = both.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)
        return self.head(self.last(both).relu().mean((2, 3)))


BATCH, STEPS = {0: "batch"}, {0: "batch", 1: "steps"}
IMAGE, TOKENS, FEATURES = (2, 3, 12, 12), (2, 5, 24), (2, 5, 6)
NETS: dict[str, tuple[type[nn.Module], tuple[int, ...], dict[int, str]]] = {
    "attention": (Attention, TOKENS, STEPS),
    "encoder": (Encoder, TOKENS, BATCH),
    "encoder_static": (Encoder, TOKENS, {}),
    "groupnorm": (Grouped, IMAGE, BATCH),
    "gru": (Gated, FEATURES, STEPS),
    "lstm": (Words, (2, 5), STEPS),
    "lstm_stacked": (Stacked, FEATURES, STEPS),
    "shuffle": (Shuffled, IMAGE, BATCH),
}
"""What each is made by, the shape of its input, and which axes of that are open. What takes (2, 5) takes integers."""


def main() -> None:
    """Write all of them, and stop where one does not compute what PyTorch does."""
    for seed, (name, (make, shape, axes)) in enumerate(NETS.items()):
        torch.manual_seed(seed)
        net, x = make().eval(), torch.randn(shape) if len(shape) > len(STEPS) else torch.randint(20, shape)
        named: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"]}
        sizes = {axis: torch.export.Dim(word) for axis, word in axes.items()}
        for kind, how in {
            "script": {"dynamo": False, "opset_version": 17, "dynamic_axes": {"x": axes}},
            "dynamo": {"dynamo": True, "opset_version": 20, "dynamic_shapes": (sizes,), "external_data": False},
        }.items():
            path = FOLDER / f"{name}_{kind}.onnx"
            torch.onnx.export(net, (x,), path, **how, **named)
            _strip(path)
            _compare(path, net, x)


def _strip(path: Path) -> None:
    """Leave out what exporters note about source code."""
    model = onnx.load(path)
    for one in (model, model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input):
        one.ClearField("doc_string")
        one.ClearField("metadata_props")
    for one in (*model.graph.output, *model.graph.initializer):
        one.ClearField("doc_string")
        one.ClearField("metadata_props")
    onnx.save(model, path)


def _compare(path: Path, net: nn.Module, x: torch.Tensor) -> None:
    wanted = net(x).detach().numpy()
    found = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x.numpy()})[0]
    worst = np.abs(found - wanted).max() / np.abs(wanted).max()
    print(f"{path.name:30}{path.stat().st_size:8} bytes, differs from PyTorch by {worst:.1e}")
    if worst > 1e-5:
        sys.exit(f"{path.name} computes something else")


if __name__ == "__main__":
    main()
