"""Networks as a caller's own code defines them, and what a caller saves of them."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

WORDS = 50


class Residual(nn.Module):
    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(width_in, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width))
        self.second = nn.Sequential(nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        self.short = nn.Conv2d(width_in, width, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.short(x))


def resnet() -> nn.Module:
    """Give a small ResNet, in training mode, whose BatchNorm has seen other data than N(0, 1)."""
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 4))
    net = nn.Sequential(stem, Residual(8, 8, 1), Residual(8, 16, 2), head)
    for _ in range(20):
        net(torch.randn(16, 3, 8, 8) * 2 + 1)
    return net


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, ids: Tensor, kinds: Tensor | None = None, mask: Tensor | None = None) -> dict[str, Any]:
        assert kinds is None
        hidden = self.layers(self.words(ids), src_key_padding_mask=None if mask is None else mask == 0)
        return {"hidden": hidden, "pooled": {"mean": hidden.mean(1)}}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(6, 10, batch_first=True)
        self.out = nn.Linear(10, 3)

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        steps, (state, _) = self.cells(series)
        return self.out(steps[:, -1]), state


class Fixed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(4, 6).relu()


class Deciding(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum().item() > -1e9 else x


class Random(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


def failing() -> nn.Module:
    raise ValueError("no such size")


def number() -> int:
    return 3


torch.manual_seed(0)
linear = nn.Sequential(nn.Linear(5, 2))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.other.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.one(x))


def program(path: Path) -> Path:
    """Save the ResNet as torch.export does, its first axis open."""
    shapes = ({0: Dim("n", min=1, max=64)},)
    example = (torch.randn(4, 3, 8, 8),)
    torch.export.save(torch.export.export(resnet().eval(), example, dynamic_shapes=shapes), path)
    return path


def call_all(paths: list[Path]) -> None:
    """Load programs as torch does, and call them, whatever comes of it."""
    for path in paths:
        with suppress(Exception):
            torch.export.load(path).module()(torch.randn(4, 3, 8, 8))


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def rewritten(source: Path, out: Path, member: str, change: Callable[[bytes], bytes]) -> Path:
    """Copy an archive with the members changed whose names end so."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            new.writestr(info.filename, change(data) if info.filename.endswith(member) else data)
    return out


def checkpoint(path: Path) -> bytes:
    """Give what torch.save makes of an object that makes a file when it is loaded."""
    file = io.BytesIO()
    torch.save(((Touch(path),), {}), file)
    return file.getvalue()


def plain_pickle(path: Path) -> bytes:
    """Give a pickle of the oldest kind, without the bytes by which pickles are known."""
    return pickle.dumps(Touch(path), 0)


def expression(path: Path) -> Callable[[bytes], bytes]:
    """Put code into the first symbolic size."""
    code = f"__import__('os').mkdir('{path}') or Symbol('s".encode()
    return lambda data: data.replace(b"Symbol('s", code, 1)


def guard(path: Path) -> Callable[[bytes], bytes]:
    """Put code into what a program checks before it runs."""

    def change(data: bytes) -> bytes:
        return json.dumps({**json.loads(data), "guards_code": [f"__import__('os').mkdir('{path}') or True"]}).encode()

    return change


def named(path: Path) -> Callable[[bytes], bytes]:
    """Put code into the name of an input, which torch writes into the source of the program."""

    def change(data: bytes) -> bytes:
        program = json.loads(data)
        name = program["graph_module"]["graph"]["inputs"][-1]["as_tensor"]["name"]
        code = f"{name}=__import__('os').mkdir('{path}')"
        return data.replace(f'"{name}"'.encode(), json.dumps(code).encode())

    return change


def called(_path: Path) -> Callable[[bytes], bytes]:
    """Let the program call a function of another module in the place of an operator."""
    return lambda data: data.replace(b"torch.ops.aten.relu.default", b"torch.os.system", 1)
