"""Models from torch: exported in a child, then used like any ONNX file.

What a run needs of a model that it exports itself is settled in `exported`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from compressor import export as exporting
from compressor import machine, workspace
from compressor.errors import InputError
from compressor.export import Exported, Source
from compressor.isolation import Limits
from compressor.pipeline.steps import Steps
from compressor.plan import Job, Origin
from compressor.records import Work

_LONGEST_S = 3600


def export(source: Source, out: Path, opset: int | None = None, *, verbose: bool = False) -> Work[Exported]:
    """Write a torch program to an ONNX file, in a child that may take an hour and all memory.

    Raises:
        InputError: It cannot be loaded safely, cannot be exported, or the file does not compute the same.
        MachineError: torch is not installed, or the file may not be written.
    """
    if out.is_dir():
        raise InputError(f"{out}: is a folder, expected the name of a file; choose another --output")
    workspace.check_writable(out.absolute().parent, "choose another --output")
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    limits = Limits().model_copy(update={"seconds": _LONGEST_S, "memory": machine.memory_bytes()})
    return (yield from _export(source, out.absolute(), opset, Steps(limits, verbose=verbose)))


def exported(job: Job, *, verbose: bool) -> Work[tuple[Job, tuple[str, ...]]]:
    """Give the job with the ONNX file that its torch program became, and what is to be known about that.

    The file lies among the reports, in a folder named by its content.

    Raises:
        InputError: As for `export`.
        MachineError: As for `export`.
    """
    source = job.source
    if source is None:
        return job, ()
    workspace.check_writable(job.reports, "choose another --output")
    home = job.reports.absolute() / workspace.file_name(source.name)
    home.mkdir(parents=True, exist_ok=True)
    steps = Steps(job.recipe.limits, verbose=verbose)
    file_name = f"{workspace.file_name(source.name)}.onnx"
    source = replace(source, places=(job.folder,))
    with TemporaryDirectory(dir=home, prefix=".exported-") as scratch:
        made = yield from _export(source, Path(scratch) / file_name, None, steps)
        folder = home / f"exported-{made.model.sha256[:12]}"
        folder.mkdir(exist_ok=True)
        for file in sorted(Path(scratch).iterdir(), reverse=True):  # the graph last: it is never there without its data
            file.replace(folder / file.name)
    origin = Origin(source.name, (Path(source.model).absolute().parent,)) if source.is_program else job.origin
    notes = tuple(f"export: {note}" for note in made.notes)
    return replace(job, model=folder / file_name, source=None, origin=origin), notes


def _export(source: Source, out: Path, opset: int | None, steps: Steps) -> Work[Exported]:
    with steps.of(source.model):
        return (yield from steps.call("export", exporting.export, source, out, opset)).value
