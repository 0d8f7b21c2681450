"""The options that several commands take, each declared once.

An option of one command alone stands in its signature.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compressor.cli import ci, log
from compressor.errors import InputError

if TYPE_CHECKING:
    from compressor.export import Source
    from compressor.recipe import Overrides, Recipe

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)]
TorchOrOnnx = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="model.onnx, or a torch program, which is exported: model.pt2, or package.module:factory with --input.",
        show_default=False,
    ),
]
Weights = Annotated[
    Path | None, typer.Option("--weights", metavar="FILE", help="Weights of a factory's module: .safetensors or .pt.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=DIMS[:TYPE[:BELOW]]",
        help="An input of a factory's module, e.g. x=1x3x224x224:float32 or ids=1x16:int64:30522; repeat it for more.",
    ),
]
Dynamic = Annotated[
    list[str] | None,
    typer.Option(
        "--dynamic",
        metavar="NAME:AXIS=SYMBOL",
        help="An axis that stays open, e.g. x:0=batch; default: the first, where that can be had.",
    ),
]
Trust = Annotated[bool, typer.Option("--trust", help="Load a .pt2 that could run code on this machine.")]
SOURCE = "An ONNX file, an artifact's folder, a report.json, or models:/NAME@ALIAS."
Sla = Annotated[str | None, typer.Option("--sla", help="Latency budget: 50ms for the p99, or p95=150ms.")]
RecipePath = Annotated[Path | None, typer.Option("--recipe", metavar="FILE", help="A recipe; the flags override it.")]
Shapes = Annotated[
    list[str] | None, typer.Option("--shape", metavar="NAME=DIMS", help="A static shape, e.g. input=1x3x224x224.")
]
Samples = Annotated[
    Path | None,
    typer.Option(
        "--samples",
        "--calibration",
        metavar="DATA",
        help="Inputs to send: a file, folder, zip or package.module:function.",
    ),
]
Evaluation = Annotated[
    Path | None, typer.Option("--evaluation", metavar="DATA", help="Inputs that are scored, likewise.")
]
MaxDrop = Annotated[str | None, typer.Option("--max-drop", help="Largest drop of the score, e.g. 1%.")]
Metric = Annotated[
    str | None, typer.Option("--metric", help="top1, f1, cosine, ... or package.module:function; default: by labels.")
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against", metavar="VERSION", help="models:/NAME@champion, which no rung may be worse than, measured here."
    ),
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
CustomOps = Annotated[
    list[Path] | None,
    typer.Option("--custom-ops", metavar="LIB.so", help="A library of custom operators; its code is run here."),
]
Ci = Annotated[
    ci.System | None,
    typer.Option("--ci", help="Which CI system to tell: annotations, summary, outputs; default: the one this runs in."),
]
Registry = Annotated[str | None, typer.Option("--registry", metavar="URI", help="MLflow tracking URI, or none.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and the result on stdout only.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Let vendors print.")]
LogFile = Annotated[
    Path | None,
    typer.Option("--log-file", metavar="FILE", help="Append a line a step, with its time and memory, to this file."),
]


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


def program(
    model: Path, weights: Path | None, inputs: list[str] | None, dynamic: list[str] | None, *, trust: bool
) -> Source | None:
    """Read what is said of a torch program; None for a MODEL that is none.

    Raises:
        InputError: What is said does not go with the MODEL.
    """
    from compressor.export import is_torch, source

    if is_torch(str(model)):
        return source(str(model), weights, (inputs or (), dynamic or ()), trust=trust)
    if weights or inputs or dynamic or trust:
        raise InputError(
            f"{model}: --weights, --input, --dynamic and --trust are of torch programs (package.module:factory, or a "
            ".pt2); leave them out for an ONNX file"
        )
    return None


def here(path: Path | None) -> Path | None:
    """Settle a flag's path where it was typed, as a recipe's is looked for beside it; not the name of a function."""
    from compressor.samples import is_name

    return path if path is None or is_name(path) else path.absolute()


def all_here(paths: list[Path] | None) -> tuple[Path, ...]:
    """Settle the paths of a flag that may be repeated."""
    return tuple(path.absolute() for path in paths or ())


def settle(path: Path | None, given: Overrides) -> tuple[Recipe, Path]:
    """Give the recipe with what the flags say put in its place, and where its relative paths start."""
    from compressor.recipe import default, override, read

    asked = override(read(path) if path else default(), given)
    log.hide(asked.registry.uri)
    folder = path.absolute().parent if path else Path.cwd()
    named = (asked.data.calibration, asked.data.evaluation)
    importable(folder, (asked.data.metric, *(data and data.path for data in named)))
    return asked, folder


def importable(folder: Path, names: Iterable[object]) -> None:
    """Let functions that are named be found in a folder and in the working folder: last, so that they hide nothing."""
    if any(":" in str(name) for name in names):
        sys.path += [str(folder), str(Path.cwd())]
