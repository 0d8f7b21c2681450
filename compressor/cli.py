"""The commands; turns errors and verdicts into exit codes.

A new command is a function here. Everything but typer is imported by the command that needs it: `--help` stays quick.
"""

from __future__ import annotations

import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from compressor import __version__
from compressor.errors import CompressorError, InputError, MachineError, PublishError, refused

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from compressor.pipeline import Request, Result
    from compressor.records import Progress, Trial

_EXIT = {"pass": 0, "fail": 3, "inconclusive": 4}

app = typer.Typer(
    name="compress",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Compress and compile a trained model until it meets a latency budget, and prove it.",
)
recipes = typer.Typer(no_args_is_help=True, help="Write and check recipe files.", rich_markup_mode=None)
app.add_typer(recipes, name="recipe")

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)]
Shapes = Annotated[
    list[str] | None, typer.Option("--shape", metavar="NAME=DIMS", help="A static shape, e.g. input=1x3x224x224.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def main() -> NoReturn:
    """Run the command line."""
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    try:
        app()
    except CompressorError as error:
        typer.echo(f"compress: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if (ours := refused(error)) is None:
            _bug()
        typer.echo(f"compress: {ours}", err=True)
        sys.exit(MachineError.exit_code)
    except Exception:  # noqa: BLE001 - what is none of ours is a bug of ours
        _bug()
    sys.exit(0)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,  # noqa: FBT002
) -> None:
    if version:
        typer.echo(f"compressor {__version__}")
        raise typer.Exit


@app.command()
def run(  # noqa: PLR0913, PLR0917 - each parameter is an option of the command
    model: ModelPath,
    sla: Annotated[str | None, typer.Option(help="Latency budget: 50ms for the p99, or p95=150ms.")] = None,
    recipe: Annotated[Path | None, typer.Option(metavar="FILE", help="A recipe; the flags below override it.")] = None,
    calibration: Annotated[Path | None, typer.Option(metavar="PATH", help="Inputs that settle INT8 ranges.")] = None,
    evaluation: Annotated[Path | None, typer.Option(metavar="PATH", help="Inputs that are scored.")] = None,
    max_drop: Annotated[str | None, typer.Option(help="Largest drop of the score, e.g. 1%.")] = None,
    reserve: Annotated[str | None, typer.Option(help="Part of the budget kept for the network, e.g. 5ms.")] = None,
    shape: Shapes = None,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where reports go.")] = Path("reports"),
    registry: Annotated[str | None, typer.Option(metavar="URI", help="MLflow tracking URI, or none.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the registered model.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of a session; default: the usable CPUs.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Climb every rung, also past one that is enough.")] = False,  # noqa: FBT002
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, show the plan, stop.")] = False,  # noqa: FBT002
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json on stdout.")] = False,  # noqa: FBT002
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,  # noqa: FBT002
    verbose: Annotated[bool, typer.Option("--verbose", help="Let vendors print.")] = False,  # noqa: FBT002
) -> None:
    """Climb the ladder until a rung meets every gate; report, register, and exit with the verdict."""
    from compressor import console
    from compressor.pipeline import Request, prepare
    from compressor.plan import Job
    from compressor.recipe import Overrides, default, override, read

    if sla is None and recipe is None:
        raise InputError("run: nothing says how fast is fast enough; give --sla 50ms, or --recipe FILE")
    calibration, evaluation = _here(calibration), _here(evaluation)
    given = Overrides(sla, reserve, max_drop, calibration, evaluation, tuple(shape or ()), registry, name, threads)
    asked = override(read(recipe) if recipe else default(), given)
    folder = recipe.absolute().parent if recipe else Path.cwd()
    if ":" in (asked.data.metric or ""):  # last, so that what lies there hides nothing of ours
        sys.path += [str(folder), str(Path.cwd())]
    request = Request(Job(model, asked, output, folder), every=every, verbose=verbose)
    if dry_run:
        console.plan(console.follow(prepare(request), quiet=quiet))
        return
    sys.exit(_climb(request, quiet=quiet, as_json=as_json))


@app.command("publish")
def publish_(
    path: Annotated[Path, typer.Argument(metavar="REPORT.json", show_default=False)],
    registry: Annotated[str | None, typer.Option(metavar="URI", help="Default: what the recipe says.")] = None,
) -> None:
    """Record a finished run in the registry that its recipe names; once more does no harm."""
    import json

    from compressor import console, formats
    from compressor.pipeline import Result, publish
    from compressor.recipe import parse

    done = formats.read(path)
    asked = parse(json.dumps(dict(done.recipe)), f"{path}: recipe")
    uri = registry or asked.registry.uri or "none"
    if uri == "none":
        raise InputError(f"{path}: its recipe names no registry; give --registry URI")
    console.verdict(console.follow(publish(Result(done, path.absolute().parent, uri)), quiet=True))


@app.command()
def report(
    path: Annotated[Path, typer.Argument(metavar="REPORT.json", show_default=False)],
    suffix: Annotated[str, typer.Option("--format", help="md or json.")] = "md",
) -> None:
    """Print a report that a run wrote, in another format."""
    from compressor import console, formats

    console.result(formats.render(formats.read(path), suffix))


@app.command()
def inspect(model: ModelPath, shape: Shapes = None, as_json: Json = False) -> None:  # noqa: FBT002
    """Describe a model: parameters, multiply-accumulates, operators, inputs and outputs, what could become INT8."""
    from compressor import console, pipeline
    from compressor.recipe import shapes

    seen = console.follow(pipeline.inspect(model, shapes(shape or ())), quiet=True)
    console.inspected(seen, as_json=as_json)


@app.command()
def doctor(as_json: Json = False) -> None:  # noqa: FBT002
    """Describe this machine: CPUs, instruction sets, whether integer kernels saturate, GPU, versions, extras."""
    from compressor import console, pipeline

    console.machine(console.follow(pipeline.doctor(), quiet=True), as_json=as_json)


@recipes.command("init")
def recipe_init(
    path: Annotated[Path | None, typer.Argument(metavar="FILE", help="Default: print it.")] = None,
    sla: Annotated[str | None, typer.Option(help="Latency budget: 50ms for the p99, or p95=150ms.")] = None,
) -> None:
    """Write a recipe to start from: what `compress run --sla` does, every choice written out."""
    from compressor import console, workspace
    from compressor.recipe import Overrides, default, override, starter

    text = starter(override(default(), Overrides(sla=sla or "50ms")))
    if path is None:
        console.result(text)
    elif path.exists() or path.is_symlink():
        raise InputError(f"{path}: exists already; name another file")
    else:
        workspace.write_text(path, text)
        console.say(f"wrote {path}; next: compress run MODEL --recipe {path}")


@recipes.command("check")
def recipe_check(paths: Annotated[list[Path], typer.Argument(metavar="FILE...", show_default=False)]) -> None:
    """Check recipe files; exit 2 with the line of each problem."""
    from compressor import console
    from compressor.recipe import read

    for path in paths:
        read(path)
        console.say(f"{path}: ok")


@recipes.command("schema")
def recipe_schema() -> None:
    """Print the JSON Schema of a recipe, for editors."""
    import json

    from compressor import console
    from compressor.recipe import schema

    console.result(json.dumps(schema(), indent=2))


def _here(path: Path | None) -> Path | None:
    """Settle a flag's path where it was typed; a recipe's would be looked for beside the recipe first."""
    return path and path.absolute()


def _climb(request: Request, *, quiet: bool, as_json: bool) -> int:
    """Run, publish, show; give the exit code."""
    from compressor import console, formats

    done, refusal = console.follow(_published(request), quiet=quiet)
    if not quiet:
        console.verdict(done)
    if as_json:
        console.result(formats.render(done.report, "json"))
    if refusal:
        raise refusal
    return _EXIT[done.report.verdict]


def _published(request: Request) -> Generator[Progress | Trial, None, tuple[Result, PublishError | None]]:
    """Run and record; a registry that refuses takes nothing from the result."""
    from compressor.pipeline import prepare, publish, run

    settled = yield from prepare(request)
    done = yield from run(settled, request)
    try:
        return (yield from publish(done, verbose=request.verbose)), None
    except PublishError as error:
        return done, error


def _bug() -> NoReturn:
    """Keep the traceback of the exception being handled, and say where to report it."""
    traceback.print_exc()
    typer.echo("compress: a bug; please open an issue with the lines above and the command", err=True)
    sys.exit(1)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    """Unwind, which stops the children; 130 when interrupted, 143 when terminated."""
    typer.echo(f"compress: stopped by {signal.Signals(number).name}; what was written so far stays", err=True)
    sys.exit(128 + number)
