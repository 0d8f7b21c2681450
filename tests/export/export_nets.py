"""Networks that are odd in what they give, or in where their weights are."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Nowhere(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(-x.abs() - 1)


class Partly(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.masked_fill(x > 0, -torch.inf), x


class View(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(4, 4))
        self.register_buffer("first", self.table.data[0])

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.table


class Refusing(nn.Linear):
    def _load_from_state_dict(self, *_args: object) -> None:
        raise ValueError("no weights for me")


def meta() -> nn.Module:
    return nn.Linear(4, 3, device="meta")


def lazy() -> nn.Module:
    return nn.LazyLinear(3)


def refusing() -> nn.Module:
    return Refusing(4, 3)
