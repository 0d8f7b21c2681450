"""A program made by a function in the caller's code.

How inputs find the parameters of `forward` is settled in `_assigned`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compressor.errors import InputError
from compressor.export import weights
from compressor.export.inputs import Given
from compressor.export.program import Program
from compressor.export.source import BATCH, Axis, Source
from compressor.export.users import users

if TYPE_CHECKING:
    import torch

    from compressor.export.program import Arguments, Leaves

_UNKNOWN = 2


def made(source: Source) -> Program:
    """Call the factory, fill in the weights, and settle which parameter takes which input.

    Raises:
        InputError: There is no such factory, it fails, or weights or inputs do not fit what it makes.
    """
    module = _module(source)
    notes = [] if source.weights else ["without --weights, as the factory makes it"]
    if any(part.training for part in module.modules()):
        notes.append("it came in training mode, and was put in evaluation mode")
    _refuse_without_values(source, module)
    with users(source.model):
        notes += weights.fill(module, source.weights) if source.weights else []
        module = module.cpu().eval()
    parameters = _assigned(source, module)
    inputs = _inputs(source, list(parameters), _limit(module))
    unknown = [each.name for each in source.inputs if each.limit is None and each.dtype.startswith(("int", "uint"))]
    if unknown and _limit(module) is None:
        notes.append(
            f"whole numbers of {', '.join(unknown)} were drawn below {_UNKNOWN}; what they may be stands behind the "
            f"type, as in --input {unknown[0]}=1x16:int64:30522"
        )
    names = tuple(filter(None, parameters.values()))
    return Program(source.model, module, inputs, _arguments(names), tuple(notes), parameters=names)


def opened(program: Program, axes: Sequence[Axis]) -> Program:
    """Give the program with these axes open.

    Raises:
        InputError: Axes that share a symbol have several sizes.
    """
    symbols = {(axis.name, axis.axis): axis.symbol for axis in axes}
    inputs: list[Given] = []
    sizes: dict[str, int] = {}
    for each in program.inputs:
        shape = tuple(symbols.get((each.name, i), dim) for i, dim in enumerate(each.shape))
        inputs.append(replace(each, shape=shape))
        for symbol, size in zip(shape, each.at({}), strict=True):
            if isinstance(symbol, str) and sizes.setdefault(symbol, size) != size:
                raise InputError(f"--dynamic: {symbol} is {sizes[symbol]} and {size}; give both axes one size")
    others = {symbol: max(size + 1, 3) for symbol, size in sizes.items()}  # a size of 1 is traced as 2
    return replace(program, inputs=tuple(inputs), sizes=sizes, others=others)


def batched(source: Source) -> tuple[Axis, ...]:
    """Give the axes to open where nobody says which: the first of all inputs in which it has the same size."""
    sizes = [each.shape[0] for each in source.inputs if each.shape]
    return tuple(Axis(each.name, 0, BATCH) for each in source.inputs if each.shape and each.shape[0] == sizes[0])


def _module(source: Source) -> torch.nn.Module:
    import torch

    place, _, path = source.model.partition(":")
    sys.path += [str(folder) for folder in (Path.cwd(), *source.places)]  # last, so that nothing of ours is hidden
    with users(source.model):
        try:
            found = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name and f"{place}.".startswith(f"{error.name}."):
                raise InputError(f"{source.model}: no module {error.name}; looked in {Path.cwd()}") from error
            raise
        try:
            factory = reduce(getattr, path.split("."), found)
        except AttributeError as error:
            raise InputError(f"{source.model}: {found.__file__} has no {path}") from error
        module: Any = factory if isinstance(factory, torch.nn.Module) or not callable(factory) else factory()
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{source.model}: gives {type(module).__name__}, expected a torch.nn.Module")
    return module


def _refuse_without_values(source: Source, module: torch.nn.Module) -> None:
    """Refuse tensors on no device, and those whose shape is not known before a call, where weights are to fit it."""
    from torch.nn.parameter import is_lazy

    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor) and source.weights:
            raise InputError(
                f"{source.model}: {name} has no shape before the first call; call the module in {source.name}"
            )
        if tensor.is_meta:
            raise InputError(f"{source.model}: {name} is on the device meta, without values; make it on the CPU")


def _assigned(source: Source, module: torch.nn.Module) -> dict[str, str]:
    """Give the input names in forward's order, each with its parameter, or with nothing where it has no name.

    An input of a parameter's name is its; the others go to the parameters that are left, in their order.
    """
    parameters = inspect.signature(module.forward).parameters.values()
    named = [one.name for one in parameters if one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY}]
    needed = [one.name for one in parameters if one.name in named and one.default is one.empty]
    given = [each.name for each in source.inputs]
    if not named and given:  # *args, **kwargs
        return dict.fromkeys(given, "")
    left = [name for name in named if name not in given]
    taken = {name if name in named else (left.pop(0) if left else ""): name for name in given}
    if "" in taken or not set(needed) <= set(taken) or not given:
        shown = " ".join(f"--input {name}=..." for name in needed or named)
        raise InputError(
            f"{source.model}: forward takes {', '.join(named) or 'nothing'}, found inputs {', '.join(given) or 'none'}"
            f"; give {shown or 'none'}, each with its shape as in 1x3x224x224:float32"
        )
    return {taken[name]: name for name in named if name in taken}


def _inputs(source: Source, order: Sequence[str], limit: int | None) -> tuple[Given, ...]:
    by_name = {each.name: each for each in source.inputs}
    ordered = [by_name[name] for name in order]
    return tuple(Given(each.name, each.dtype, each.shape, each.limit or limit or _UNKNOWN) for each in ordered)


def _limit(module: torch.nn.Module) -> int | None:
    """Give the rows of the smallest table, below which indices of any table are."""
    import torch

    tables = (part for part in module.modules() if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag))
    return min((table.num_embeddings for table in tables), default=None)


def _arguments(names: tuple[str, ...]) -> Any:
    def arguments(leaves: Leaves) -> Arguments:
        return ((), dict(zip(names, leaves, strict=True))) if names else (tuple(leaves), {})

    return arguments
