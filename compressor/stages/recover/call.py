"""One node of a graph as the operators see it: its settings, and the words to refuse it with.

What several operators have to know of a node is a field or method of `Call`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from compressor.errors import RungError

if TYPE_CHECKING:
    import torch

    Tensor: TypeAlias = torch.Tensor
    Operator = Callable[..., Tensor | tuple[Tensor, ...]]
    """Computes a node: its `Call`, then its inputs, None where one is left out; trailing ones may be missing."""

_TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    16: "bfloat16",
}
"""Source: TensorProto.DataType in onnx.proto."""


@dataclass(frozen=True)
class Call:
    """A node without its inputs. `outputs`: how many are asked for, the last of them by name."""

    name: str
    operator: str
    opset: int
    settings: Mapping[str, Any]
    outputs: int = 1

    def get(self, setting: str, default: Any = None) -> Any:
        """Give a setting of the node, or what it is where the node leaves it out."""
        return self.settings.get(setting, default)

    def refusal(self, why: str) -> RungError:
        """Give the error that says which node cannot be computed, and why."""
        return RungError(f"node {self.name!r} ({self.operator}): {why}")

    def need(self, *, only: bool, why: str) -> None:
        """Go on only if that holds.

        Raises:
            RungError: It does not.
        """
        if not only:
            raise self.refusal(why)

    def single(self) -> None:
        """Go on only if nothing but the first output is asked for.

        Raises:
            RungError: Another output is.
        """
        self.need(only=self.outputs == 1, why="only its first output can be computed")

    def dtype(self, number: int) -> torch.dtype:
        """Give the type that ONNX has this number for.

        Raises:
            RungError: torch has none.
        """
        import torch

        self.need(only=number in _TYPES, why=f"torch computes with no elements of type {number}")
        return getattr(torch, _TYPES[number])
