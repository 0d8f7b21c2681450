"""The options that several commands take, each declared once.

An option of one command alone stands in its signature.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compressor.errors import InputError

if TYPE_CHECKING:
    from compressor.recipe import Overrides, Recipe

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)]
SOURCE = "An ONNX file, an artifact's folder, a report.json, or models:/NAME@ALIAS."
Sla = Annotated[str | None, typer.Option("--sla", help="Latency budget: 50ms for the p99, or p95=150ms.")]
RecipePath = Annotated[Path | None, typer.Option("--recipe", metavar="FILE", help="A recipe; the flags override it.")]
Shapes = Annotated[
    list[str] | None, typer.Option("--shape", metavar="NAME=DIMS", help="A static shape, e.g. input=1x3x224x224.")
]
Samples = Annotated[
    Path | None,
    typer.Option("--samples", "--calibration", metavar="PATH", help="Inputs to send; default: found, else made up."),
]
Evaluation = Annotated[Path | None, typer.Option("--evaluation", metavar="PATH", help="Inputs that are scored.")]
MaxDrop = Annotated[str | None, typer.Option("--max-drop", help="Largest drop of the score, e.g. 1%.")]
Metric = Annotated[
    str | None, typer.Option("--metric", help="top1, f1, cosine, ... or package.module:function; default: by labels.")
]
Rate = Annotated[
    str | None, typer.Option("--rate", metavar="RATE", help="Arrivals: 200/s, poisson:200/s, or the CSV of a trace.")
]
Duration = Annotated[
    str | None,
    typer.Option(
        "--duration",
        metavar="TIME",
        help="Longest time of one measurement, e.g. 30s; where no latency gate is to be decided, all of it is used, "
        "so that the tail is measured too.",
    ),
]
Threads = Annotated[int | None, typer.Option("--threads", help="Threads of a session; default: the usable CPUs.")]
Engine = Annotated[str | None, typer.Option("--engine", metavar="NAME", help="auto or onnxruntime.")]
Target = Annotated[
    str | None,
    typer.Option(
        "--target", metavar="NAME", help="What INT8 is for, e.g. x86-avx2; tensorrt:a10g,l4 builds engines for these."
    ),
]
Profiles = Annotated[
    list[str] | None,
    typer.Option(
        "--profile", metavar="NAME=RANGE", help="Shapes of an engine, e.g. batch=1/8/32; with a comma of more inputs."
    ),
]
Registry = Annotated[str | None, typer.Option("--registry", metavar="URI", help="MLflow tracking URI, or none.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and the result on stdout only.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Let vendors print.")]


def time(duration: str | None) -> str | None:
    """Check a duration before it becomes part of a recipe, whose words for it nobody typed.

    Raises:
        InputError: It is no time above 0.
    """
    from compressor.units import seconds

    try:
        fits = duration is None or seconds(duration) > 0
    except ValueError:
        fits = False
    if not fits:
        raise InputError(f"--duration: expected a time such as 30s, found {duration!r}")
    return duration


def here(path: Path | None) -> Path | None:
    """Settle a flag's path where it was typed; a recipe's would be looked for beside the recipe first."""
    return path and path.absolute()


def settle(path: Path | None, given: Overrides) -> tuple[Recipe, Path]:
    """Give the recipe with what the flags say put in its place, and where its relative paths start."""
    from compressor.recipe import default, override, read

    asked = override(read(path) if path else default(), given)
    folder = path.absolute().parent if path else Path.cwd()
    if ":" in (asked.data.metric or ""):  # last, so that what lies there hides nothing of ours
        sys.path += [str(folder), str(Path.cwd())]
    return asked, folder
