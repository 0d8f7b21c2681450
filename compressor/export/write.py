"""The exporters of torch, newest first, each writing one ONNX file.

Another exporter is a function here, and a line in `EXPORTERS`.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compressor import graph
from compressor.errors import InputError, root
from compressor.export.inputs import Symbols, drawn
from compressor.export.program import Program, tensors
from compressor.export.users import reason

if TYPE_CHECKING:
    import torch

_KEPT = "namespace"
"""The one entry of nodes that names where in the module they come from; others hold paths and source code."""
_TRACED_AT_LEAST = 2
"""torch takes a size of 1 for one that is fixed."""
_SEED = 1


@dataclass(frozen=True)
class Target:
    """What is to be written: where, the names of outputs, the opset (or the exporter's own), entries of metadata."""

    out: Path
    outputs: tuple[str, ...]
    opset: int | None
    metadata: Mapping[str, str]


def newer(program: Program, target: Target) -> list[str]:
    """Write the file with the exporter that is made on torch.export.

    Raises:
        InputError: It fails, or gives another opset than was asked for.
    """
    import torch

    args, kwargs = program.called(drawn(program.inputs, _traced(program.sizes), _SEED))
    shapes = [{i: dim for i, dim in enumerate(each.shape) if isinstance(dim, str)} for each in program.inputs]
    dynamic: Any = dict(zip(program.parameters, shapes, strict=True)) if program.parameters else tuple(shapes)
    with _refusals(), torch.no_grad():
        made = torch.onnx.export(
            program.exported or program.module,
            args if program.exported is None else (),
            kwargs=kwargs if program.exported is None else None,
            input_names=[each.name for each in program.inputs],
            output_names=list(target.outputs),
            opset_version=target.opset,
            dynamic_shapes=dynamic if program.exported is None and any(shapes) else None,
            dynamo=True,
            verbose=False,
        )
        _save(made.model, program.renamed, target)
    return []


def older(program: Program, target: Target) -> list[str]:
    """Write the file with the exporter that traces one call; gives what it froze.

    Raises:
        InputError: It fails, or gives another opset than was asked for.
    """
    import torch

    args = [torch.from_numpy(one) for one in drawn(program.inputs, _traced(program.sizes), _SEED).values()]
    names = [each.name for each in program.inputs]
    axes = {
        each.name: {i: program.renamed.get(dim, dim) for i, dim in enumerate(each.shape) if isinstance(dim, str)}
        for each in program.inputs
    }
    with tempfile.TemporaryDirectory() as folder, _flat(program), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", torch.jit.TracerWarning)
        with _refusals(), torch.no_grad():
            torch.onnx.export(
                program.module,
                tuple(args),
                file := str(Path(folder) / target.out.name),
                input_names=names,
                output_names=list(target.outputs),
                opset_version=target.opset,
                dynamic_axes=axes,
                dynamo=False,
            )
            _save(graph.load(Path(file)), {}, target)
    frozen = [one for one in said if issubclass(one.category, torch.jit.TracerWarning)]
    at = ", ".join(dict.fromkeys(f"{Path(one.filename).name}:{one.lineno}" for one in frozen))
    return [f"what {at} decides by values is frozen as it was for the traced inputs"] if frozen else []


Exporter = Callable[[Program, Target], Sequence[str]]
EXPORTERS: Mapping[str, Exporter] = {"dynamo": newer, "torchscript": older}
"""By torch's names for them."""


def _traced(sizes: Symbols) -> Symbols:
    return {symbol: max(size, _TRACED_AT_LEAST) for symbol, size in sizes.items()}


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn whatever an exporter raises into one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        cause = root(error)
        raise InputError(f"{type(cause).__name__}: {reason(cause)}") from error


@contextmanager
def _flat(program: Program) -> Iterator[None]:
    """Let the module take tensors by place and give nothing else: names of weights stay as they are in no wrapper."""
    module, call = program.module, program.module.forward

    def forward(*leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = program.arguments(leaves)
        return tuple(tensor for _, tensor in tensors(call(*args, **kwargs)))

    module.forward = forward
    try:
        yield
    finally:
        module.forward = call


def _save(model: Any, renamed: Mapping[str, str], target: Target) -> None:
    """Write a model without what tells of the machine it was made on, as one file or the pair."""
    if (opset := model.opset_imports[""]) != (target.opset or opset):
        raise InputError(f"gives opset {opset}, not {target.opset}")
    names = [value.name for value in model.graph.outputs]
    if names != list(target.outputs):
        raise InputError(f"gives the outputs {', '.join(names)}, expected {', '.join(target.outputs)}")
    for node in model.graph.all_nodes():
        kept = node.metadata_props.get(_KEPT)
        _clear(node)
        if kept:
            node.metadata_props[_KEPT] = kept
        for value in node.outputs:
            _clear(value)
            _rename(value, renamed)
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        _clear(value)
        _rename(value, renamed)
    _clear(model.graph)
    _clear(model)
    model.metadata_props.update(target.metadata)
    graph.save(model, target.out)


def _clear(part: Any) -> None:
    part.metadata_props.clear()
    part.doc_string = None


def _rename(value: Any, renamed: Mapping[str, str]) -> None:
    """Give the open dimensions of a value the names that the program's inputs have for them."""
    for axis, dim in enumerate(value.shape or ()):
        if renamed and not isinstance(dim, int) and dim.value:
            value.shape[axis] = re.sub(r"[^\W\d]\w*", lambda found: renamed.get(found[0], found[0]), dim.value)
