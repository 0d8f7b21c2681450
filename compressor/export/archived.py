"""A program from a `.pt2` file, which torch.export.save wrote.

What is read of such a program is read here.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compressor.errors import InputError, root
from compressor.export import scan
from compressor.export.inputs import Given, Symbols
from compressor.export.program import Program
from compressor.export.source import BATCH, DTYPES, Source
from compressor.export.users import reason

if TYPE_CHECKING:
    import torch

    from compressor.export.program import Arguments, Leaves

_FEWEST = 2
_UNKNOWN = 2


def loaded(source: Source) -> Program:
    """Load a program; of a file that is not trusted, what was scanned.

    Raises:
        InputError: It is no such file, loading it could run code, or torch cannot load it.
    """
    from torch.utils._pytree import tree_unflatten

    path = Path(source.model)
    scan.check_file(path)
    exported = _exported(path, path) if source.trust else _scanned(path)
    arguments = dict(_arguments(path, exported))
    tensors = {name: value for name, value in arguments.items() if _is_tensor(value)}
    if other := next((name for name, value in tensors.items() if _dtype(value) not in DTYPES), None):
        raise InputError(f"{path}: input {other} is {_dtype(tensors[other])}, expected one of {', '.join(DTYPES)}")
    limit, (sizes, others) = _limit(exported), _sizes(exported, tensors)

    def called(leaves: Leaves) -> Arguments:
        flat = {**arguments, **dict(zip(tensors, leaves, strict=True))}
        args, kwargs = tree_unflatten(list(flat.values()), exported.call_spec.in_spec)
        return tuple(args), dict(kwargs)

    inputs = tuple(Given(name, _dtype(one), tuple(map(_dim, one.shape)), limit) for name, one in tensors.items())
    return Program(
        model=source.model,
        module=exported.module(),
        inputs=inputs,
        arguments=called,
        notes=(f"{path.name} was loaded as trusted, without a scan",) if source.trust else (),
        sizes=sizes,
        others=others,
        exported=exported,
        renamed=_renamed(tensors),
    )


def _scanned(path: Path) -> torch.export.ExportedProgram:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "scanned.pt2"
        scan.checked_copy(path, copy)
        return _exported(path, copy)


def _exported(path: Path, file: Path) -> torch.export.ExportedProgram:
    import torch

    if not zipfile.is_zipfile(file):
        raise InputError(f"{path}: no readable .pt2; expected what torch.export.save writes")
    try:
        return torch.export.load(file)
    except Exception as error:  # torch raises what it comes across
        why = reason(root(error))
        raise InputError(
            f"{path}: torch {torch.__version__} cannot load it ({type(root(error)).__name__}: {why}); save it again "
            "with this version, or export it from its source"
        ) from error


def _arguments(path: Path, exported: torch.export.ExportedProgram) -> Iterator[tuple[str, Any]]:
    """Give the arguments of the program by name: tensors without data, and what is constant."""
    from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument

    values = {node.name: node.meta.get("val") for node in exported.graph.nodes if node.op == "placeholder"}
    for spec in exported.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT:
            continue
        if not isinstance(spec.arg, TensorArgument | ConstantArgument):
            raise InputError(f"{path}: input {spec.arg.name} is no tensor, and not constant; export it as a tensor")
        yield spec.arg.name, values[spec.arg.name] if isinstance(spec.arg, TensorArgument) else spec.arg.value


def _sizes(exported: torch.export.ExportedProgram, tensors: Mapping[str, Any]) -> tuple[Symbols, Symbols]:
    """Give each open dimension its size in the example that is kept with the program, and another that it takes."""
    from torch.utils._pytree import tree_leaves

    examples = [one for one in tree_leaves(exported.example_inputs) if _is_tensor(one)]
    seen: dict[Any, int] = {}
    if len(examples) == len(tensors):
        pairs = zip(tensors.values(), examples, strict=True)
        seen = {
            dim.node.expr: size
            for one, example in pairs
            for dim, size in zip(one.shape, example.shape, strict=True)
            if not isinstance(dim, int)
        }
    sizes, others = {}, {}
    for symbol, bounds in exported.range_constraints.items():
        size = sizes[symbol] = seen.get(symbol, max(_FEWEST, int(bounds.lower)))
        others[symbol] = size + 1 if bounds.upper > size else size - 1 if bounds.lower < size else size
    dims = [dim for one in tensors.values() for dim in one.shape if not isinstance(dim, int)]
    now, then = ({str(dim): int(dim.node.expr.subs(chosen)) for dim in dims} for chosen in (sizes, others))
    return now, then


def _renamed(tensors: Mapping[str, Any]) -> dict[str, str]:
    """Give the open axes names that say what they are; the symbol of a first axis is the batch."""
    names: dict[str, str] = {}
    for name, value in tensors.items():
        for axis, dim in enumerate(value.shape):
            if not isinstance(dim, int) and str(dim).isidentifier():
                is_first = axis == 0 and BATCH not in names.values()
                names.setdefault(str(dim), BATCH if is_first else f"{name}_{axis}")
    return names


def _limit(exported: torch.export.ExportedProgram) -> int:
    """Give the rows of the smallest table that is indexed."""
    import torch

    embedding = torch.ops.aten.embedding.default
    rows = [int(node.args[0].meta["val"].shape[0]) for node in exported.graph.nodes if node.target is embedding]
    return min(rows, default=_UNKNOWN)


def _is_tensor(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _dim(dim: Any) -> int | str:
    return dim if isinstance(dim, int) else str(dim)
