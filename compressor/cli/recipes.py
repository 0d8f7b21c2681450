"""`compress recipe`: writing and checking recipe files.

A new subcommand is a function here, and a line in `compressor.cli`.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from compressor.cli import options
from compressor.errors import InputError

_RECIPES = frozenset({".yaml", ".yml"})


def init(  # noqa: PLR0913, PLR0917 - each parameter is an option of the command
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help="An ONNX file to write it for.")] = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="Default: print it.")] = None,
    sla: options.Sla = None,
    calibration: Annotated[Path | None, typer.Option(metavar="PATH", help="Inputs that settle INT8 ranges.")] = None,
    evaluation: options.Evaluation = None,
    metric: options.Metric = None,
    max_drop: options.MaxDrop = None,
    shape: options.Shapes = None,
    quiet: options.Quiet = False,  # noqa: FBT002
) -> None:
    """Write a recipe to start from: for MODEL and the data that is found, or else all that `run --sla` means."""
    from compressor import console, pipeline
    from compressor.recipe import Overrides, default, override, starter

    _check_new(to)
    if model is None:
        if calibration or evaluation or metric or shape:
            raise InputError("recipe init: --calibration, --evaluation, --metric and --shape are of a MODEL: name it")
        _give(starter(override(default(), Overrides(sla=sla or "50ms", max_drop=max_drop))), to, "MODEL")
        return
    if model.suffix in _RECIPES:
        raise InputError(f"{model}: expected a model to write a recipe for; a file to write it to is --to {model}")
    given = Overrides(
        sla=sla,
        max_drop=max_drop,
        calibration=options.here(calibration),
        evaluation=options.here(evaluation),
        metric=metric,
        shapes=tuple(shape or ()),
    )
    asked, _ = options.settle(None, given)
    folder = to.absolute().parent if to else Path.cwd()
    started = console.follow(pipeline.start(model, asked, folder), quiet=quiet)
    _give(started.text, to, str(model))
    if not quiet:
        for note in started.notes:
            console.say(f"note      {note}", wrap=True)


def explain(  # noqa: PLR0913, PLR0917 - each parameter is an option of the command
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe file.", show_default=False)],
    model: Annotated[Path, typer.Option("--model", metavar="MODEL", help="An ONNX file.", show_default=False)],
    sla: options.Sla = None,
    calibration: Annotated[Path | None, typer.Option(metavar="PATH", help="Inputs that settle INT8 ranges.")] = None,
    evaluation: options.Evaluation = None,
    metric: options.Metric = None,
    max_drop: options.MaxDrop = None,
    shape: options.Shapes = None,
    threads: options.Threads = None,
    target: options.Target = None,
    registry: options.Registry = None,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where reports would go.")] = Path("reports"),
    as_json: options.Json = False,  # noqa: FBT002
    quiet: options.Quiet = False,  # noqa: FBT002
) -> None:
    """Print what `compress run MODEL --recipe RECIPE` would do, all settled, and about how long it would take."""
    from compressor import console
    from compressor.pipeline import Request, prepare
    from compressor.plan import Job
    from compressor.recipe import Overrides

    given = Overrides(
        sla=sla,
        max_drop=max_drop,
        calibration=options.here(calibration),
        evaluation=options.here(evaluation),
        metric=metric,
        shapes=tuple(shape or ()),
        threads=threads,
        target=target,
        registry=registry,
    )
    asked, folder = options.settle(recipe, given)
    request = Request(Job(model, asked, output, folder))
    console.plan(console.follow(prepare(request), quiet=quiet), as_json=as_json)


def check(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recipe files.", show_default=False)],
) -> None:
    """Check recipe files, all of them; exit 2 with the line of each problem."""
    from compressor import console
    from compressor.recipe import read

    problems: list[str] = []
    for path in paths:
        try:
            read(path)
            console.say(f"{path}: ok")
        except InputError as error:
            problems += error.args
    if problems:
        raise InputError(*problems)


def schema() -> None:
    """Print the JSON Schema of a recipe, for editors."""
    import json

    from compressor import console, recipe

    console.result(json.dumps(recipe.schema(), indent=2))


def _check_new(path: Path | None) -> None:
    if path is None:
        return
    if path.exists() or path.is_symlink():
        raise InputError(f"{path}: exists already; name another file")
    if not path.parent.is_dir():
        raise InputError(f"{path}: its folder is not there; make it, or name another file")


def _give(text: str, to: Path | None, model: str) -> None:
    """Print a recipe, or write it to a file that is not there yet."""
    from compressor import console, workspace

    if to is None:
        console.result(text)
        return
    _check_new(to)
    workspace.write_text(to, text)
    console.say(f"wrote {to}; next: {shlex.join(['compress', 'run', str(model), '--recipe', str(to)])}")
