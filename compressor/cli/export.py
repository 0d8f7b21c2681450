"""`compress export`: a torch program as an ONNX file.

A new option of it is a parameter there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from compressor.cli import log, options
from compressor.errors import InputError

Program = Annotated[
    Path,
    typer.Argument(metavar="PROGRAM", help="package.module:factory with --input, or model.pt2.", show_default=False),
]


def export(  # noqa: PLR0913, PLR0917 - each parameter is an option of the command
    program: Program,
    weights: options.Weights = None,
    inputs: options.Inputs = None,
    dynamic: options.Dynamic = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the ONNX file goes; default: NAME.onnx here.")
    ] = None,
    opset: Annotated[int | None, typer.Option(min=7, help="Default: the exporter's own.")] = None,
    trust: options.Trust = False,  # noqa: FBT002
    as_json: options.Json = False,  # noqa: FBT002
    quiet: options.Quiet = False,  # noqa: FBT002
    verbose: options.Verbose = False,  # noqa: FBT002
    log_file: options.LogFile = None,
) -> None:
    """Export a torch program to an ONNX file, and run that beside it."""
    from compressor import console, pipeline

    log.to(log_file)
    source = options.program(program, weights, inputs, dynamic, trust=trust)
    if source is None:
        raise InputError(f"{program}: no torch program; expected package.module:factory, or a .pt2 file")
    out = output or Path(f"{source.name}.onnx")
    made = console.follow(pipeline.export(source, out, opset, verbose=verbose), quiet=quiet)
    console.exported(made, as_json=as_json, quiet=quiet)
