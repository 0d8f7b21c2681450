"""The export of a torch program: loaded, written, and run beside the module.

What is tried when an exporter fails is settled in `_tries`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from compressor import graph, units
from compressor.errors import InputError, MachineError
from compressor.export import archived, factory, verify, write
from compressor.export.program import Program
from compressor.export.source import Source
from compressor.records import Model, Progress, Work

_KEY = "compressor.export."


@dataclass(frozen=True)
class Exported:
    """An ONNX file of a torch program. `sqnr_db`: of the worst output against the module, by the shapes it ran at."""

    model: Model
    name: str
    exporter: str  # dynamo, or the older torchscript
    torch: str
    sqnr_db: Mapping[str, float]
    notes: tuple[str, ...]


def export(source: Source, out: Path, opset: int | None = None) -> Work[Exported]:
    """Write a torch program as an ONNX file that was run beside it.

    Where nobody says which axes are open, the first is, if that can be had.

    Raises:
        InputError: The program cannot be loaded or run, or no exporter writes a file that computes the same.
        MachineError: torch or onnxscript is not installed, or the file may not be written.
    """
    _refuse_missing(source)
    yield Progress("load")
    program = archived.loaded(source) if source.is_program else factory.made(source)
    failed: list[tuple[str, str]] = []
    for tried, exporter in _tries(source, program):
        yield Progress(f"{exporter} exporter")
        try:
            return _written(source, tried, exporter, (out, opset), failed)
        except InputError as error:
            failed.append((f"the {exporter} exporter{_open(tried)}", str(error)))
    raise InputError(f"{source.model}: cannot be exported: {'; '.join(_reasons(failed))}")


def _refuse_missing(source: Source) -> None:
    for package in ("torch", "onnxscript"):
        if find_spec(package) is None:
            raise MachineError(
                f"{source.model}: its export needs {package}, which is not installed; pip install 'compressor[torch]'"
            )


def _tries(source: Source, program: Program) -> Iterator[tuple[Program, str]]:
    """Give what is tried in turn: with open axes before fixed ones, and each with the newer exporter first."""
    verify.outputs(program)
    if source.is_program:
        programs = [program]
    elif source.dynamic:
        programs = [factory.opened(program, source.dynamic)]
    else:
        programs = [factory.opened(program, axes), program] if (axes := factory.batched(source)) else [program]
    yield from ((each, exporter) for each in programs for exporter in write.EXPORTERS)


def _written(
    source: Source, program: Program, exporter: str, how: tuple[Path, int | None], failed: list[tuple[str, str]]
) -> Exported:
    """Write the file beside, run it, put it in its place, and tell what is odd about it."""
    import torch

    out, opset = how
    steady, wanted = verify.repeats(program), verify.outputs(program)
    notes = [*program.notes, *_reasons(failed)]
    notes += [f"output {name} holds values that are not finite" for name in verify.odd(wanted)]
    metadata = {"source": Path(source.model).name, "exporter": exporter, "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / out.name
        target = write.Target(file, tuple(wanted), opset, {f"{_KEY}{k}": v for k, v in metadata.items()})
        notes += write.EXPORTERS[exporter](program, target)
        found = dict(_compared(program, file, steady=steady))
        graph.open_model(file)
        graph.save(graph.load(file), out)
    if not steady:
        notes.append(
            "outputs differ when the module is run again on the same input, so the file was not compared with it"
        )
    model = graph.open_model(out)
    return Exported(model, source.name, exporter, torch.__version__, found if steady else {}, tuple(notes))


def _compared(program: Program, out: Path, *, steady: bool) -> Iterator[tuple[str, float]]:
    """Run the file at the sizes that were given and at others; gives the shapes and how near it is to the module."""
    for sizes in [program.sizes, program.others] if program.sizes else [program.sizes]:
        shapes = ", ".join(f"{each.name} {units.write_shape(each.at(sizes))}" for each in program.inputs)
        db, differing = verify.compared(program, sizes, out)
        if steady and differing:
            raise InputError(f"what it wrote differs from the module at {shapes} ({differing})")
        yield shapes, db


def _reasons(failed: list[tuple[str, str]]) -> Iterator[str]:
    """Say what failed and why, each reason once."""
    for reason in dict.fromkeys(reason for _, reason in failed):
        yield f"{', '.join(what for what, why in failed if why == reason)} failed: {reason}"


def _open(program: Program) -> str:
    """Say which axes were to stay open."""
    axes = [f"{one.name}:{i}" for one in program.inputs for i, dim in enumerate(one.shape) if isinstance(dim, str)]
    return f" with {', '.join(axes)} open" if axes else " with fixed shapes"
