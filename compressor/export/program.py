"""A torch program: the module, and what it is called with.

What every origin of programs has to say is a field of `Program`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from compressor.errors import InputError
from compressor.export.inputs import Given, Symbols
from compressor.export.users import users
from compressor.records import Array, Feeds

if TYPE_CHECKING:
    import torch

    Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
    Leaves: TypeAlias = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Program:
    """A module and its inputs, in the order in which `arguments` takes their tensors.

    `sizes`: of open axes as they were given; `others`: other ones, which it must take as well. `parameters`: of forward
    that take the inputs, where they take them by name. `exported`: what torch.export made of it before, in which open
    axes have other names; `renamed` gives ours.
    """

    model: str
    module: torch.nn.Module
    inputs: tuple[Given, ...]
    arguments: Callable[[Leaves], Arguments]
    notes: tuple[str, ...] = ()
    sizes: Symbols = field(default_factory=dict)
    others: Symbols = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    exported: torch.export.ExportedProgram | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)

    def called(self, feeds: Feeds) -> Arguments:
        """Give the arguments of a call with these values."""
        import torch

        return self.arguments([torch.from_numpy(feeds[each.name].copy()) for each in self.inputs])

    def outputs(self, feeds: Feeds) -> dict[str, Array]:
        """Run the module; gives its outputs under the names that they get in ONNX, in its order.

        Raises:
            InputError: The caller's code fails.
        """
        import torch

        args, kwargs = self.called(feeds)
        with users(self.model), torch.no_grad():
            found = tensors(self.module(*args, **kwargs))
            values = [tensor.detach().cpu().numpy() for _, tensor in found]
        taken, names = {each.name for each in self.inputs}, [name for name, _ in found]
        if not names:
            raise InputError(f"{self.model}: forward gives no tensor, so there is nothing to export")
        if taken & set(names) or len(set(names)) < len(names):
            names = [f"{name}_output_{i}" for i, name in enumerate(names)]
        return dict(zip(names, values, strict=True))


def tensors(found: Any) -> list[tuple[str, torch.Tensor]]:
    """Give the tensors in what a module returns, each with a name made of keys, attributes and places on the way to it.

    A single one without a key is `output`, others are `output_0` and so on; None and plain numbers are no outputs.
    """
    import torch
    from torch.utils._pytree import tree_flatten_with_path

    leaves = [(path, leaf) for path, leaf in tree_flatten_with_path(found)[0] if isinstance(leaf, torch.Tensor)]
    return [(_named([_step(key) for key in path], alone=len(leaves) == 1), leaf) for path, leaf in leaves]


def _named(steps: list[str], *, alone: bool) -> str:
    if alone and all(step.isdecimal() for step in steps):
        return "output"
    return "_".join(["output", *steps] if steps[0].isdecimal() else steps)


def _step(key: Any) -> str:
    return str(next(getattr(key, field) for field in ("key", "idx", "name") if hasattr(key, field)))
