"""Write the models of this folder: small networks with random weights, as both exporters of PyTorch write them.

    python tests/data/exported/export.py     (needs torch 2.13 and onnxscript)

Made with torch 2.13.0. `*_script.onnx` come from the TorchScript exporter at opset 17, `*_dynamo.onnx` from the newer
one at opset 20. The weights are drawn from a seed; nothing here was trained, so nothing is owed to anyone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn
from torch.nn import functional

FOLDER = Path(__file__).parent


class Recurrent(nn.Module):
    """Two recurrent layers and a classifier of the last step."""

    def __init__(self, layer: type[nn.Module], *, both: bool) -> None:
        super().__init__()
        self.layer = layer(6, 16, num_layers=2, batch_first=True, bidirectional=both)  # type: ignore[call-arg]
        self.head = nn.Linear(32 if both else 16, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.layer(x)[0][:, -1])


class Encoder(nn.Module):
    """PyTorch's own transformer encoder, and a classifier of the mean token."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 4, 48, batch_first=True, activation="gelu")
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(24, 4)

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


IMAGE, TOKENS = (2, 3, 12, 12), (2, 5, 24)
NETS: dict[str, tuple[Any, tuple[int, ...], dict[int, str]]] = {
    "lstm": (lambda: Recurrent(nn.LSTM, both=True), (2, 5, 6), {0: "batch", 1: "steps"}),
    "gru": (lambda: Recurrent(nn.GRU, both=False), (2, 5, 6), {0: "batch", 1: "steps"}),
    "encoder": (Encoder, TOKENS, {0: "batch", 1: "steps"}),
    "encoder_static": (Encoder, TOKENS, {}),
    "attention": (Attention, TOKENS, {0: "batch", 1: "steps"}),
    "groupnorm": (Grouped, IMAGE, {0: "batch"}),
    "shuffle": (Shuffled, IMAGE, {0: "batch"}),
}


def main() -> None:
    """Write all of them."""
    for name, (make, shape, axes) in NETS.items():
        torch.manual_seed(len(name))
        net, x = make().eval(), torch.randn(shape)
        script, dynamo = FOLDER / f"{name}_script.onnx", FOLDER / f"{name}_dynamo.onnx"
        named = {"input_names": ["x"], "output_names": ["y"]}
        torch.onnx.export(net, (x,), script, dynamo=False, opset_version=17, dynamic_axes={"x": axes}, **named)
        sizes = ({axis: torch.export.Dim(word) for axis, word in axes.items()},)
        torch.onnx.export(net, (x,), dynamo, dynamo=True, opset_version=20, dynamic_shapes=sizes, **named)
        model = onnx.load(dynamo)
        for node in model.graph.node:
            del node.metadata_props[:]  # where in PyTorch's sources it came from
        onnx.save(model, dynamo)  # as one file
        dynamo.with_suffix(".onnx.data").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
