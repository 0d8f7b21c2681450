"""`compress run` and what deals with the report that it leaves.

A new option of `run` is a parameter there.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compressor.cli import ci, log, options
from compressor.errors import InputError, PublishError, Stopped

if TYPE_CHECKING:
    from compressor.pipeline import Request, Result
    from compressor.records import Progress, Trial

EXIT = {"pass": 0, "fail": 3, "inconclusive": 4}


def run(  # noqa: PLR0913, PLR0917 - each parameter is an option of the command
    model: options.TorchOrOnnx,
    sla: options.Sla = None,
    recipe: options.RecipePath = None,
    weights: options.Weights = None,
    inputs: options.Inputs = None,
    dynamic: options.Dynamic = None,
    trust: options.Trust = False,  # noqa: FBT002
    calibration: Annotated[Path | None, typer.Option(metavar="PATH", help="Inputs that settle INT8 ranges.")] = None,
    evaluation: options.Evaluation = None,
    metric: options.Metric = None,
    max_drop: options.MaxDrop = None,
    reserve: Annotated[str | None, typer.Option(help="Part of the budget kept for the network, e.g. 5ms.")] = None,
    rate: options.Rate = None,
    against: options.Against = None,
    shape: options.Shapes = None,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where reports go.")] = Path("reports"),
    registry: options.Registry = None,
    name: Annotated[str | None, typer.Option(help="Name of the registered model.")] = None,
    threads: options.Threads = None,
    target: options.Target = None,
    profile: options.Profiles = None,
    custom_ops: options.CustomOps = None,
    every: Annotated[bool, typer.Option("--all", help="Climb every rung, also past one that is enough.")] = False,  # noqa: FBT002
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, show the plan, stop.")] = False,  # noqa: FBT002
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json on stdout.")] = False,  # noqa: FBT002
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,  # noqa: FBT002
    verbose: options.Verbose = False,  # noqa: FBT002
    log_file: options.LogFile = None,
    system: options.Ci = None,
) -> None:
    """Climb the ladder until a rung meets every gate; report, register, and exit with the verdict."""
    from compressor import console
    from compressor.pipeline import Request, prepare
    from compressor.plan import Job
    from compressor.recipe import Overrides

    log.to(log_file)
    if sla is None and recipe is None:
        raise InputError("run: nothing says how fast is fast enough; give --sla 50ms, or --recipe FILE")
    given = Overrides(
        sla=sla,
        reserve=reserve,
        max_drop=max_drop,
        calibration=options.here(calibration),
        evaluation=options.here(evaluation),
        shapes=tuple(shape or ()),
        registry=registry,
        name=name,
        threads=threads,
        target=target,
        profiles=tuple(profile or ()),
        rate=rate,
        metric=metric,
        against=against,
        custom_ops=options.all_here(custom_ops),
    )
    asked, folder = options.settle(recipe, given)
    source = options.program(model, weights, inputs, dynamic, trust=trust)
    request = Request(Job(model, asked, output, folder, source=source), every=every, verbose=verbose)
    if dry_run:
        console.plan(console.follow(prepare(request), quiet=quiet), as_json=as_json)
        return
    done, refusal = _climb(request, quiet=quiet, as_json=as_json)
    ci.tell(ci.Left(done.report, done.folder, done.folder / "report.xml"), recipe, system, quiet=quiet)
    if refusal:
        raise refusal
    sys.exit(EXIT[done.report.verdict])


def build(  # noqa: PLR0913, PLR0917 - each parameter is an option of the command
    model: options.ModelPath,
    target: options.Target = None,
    profile: options.Profiles = None,
    precision: Annotated[str | None, typer.Option(help="int8, fp16, fp32 or auto.")] = None,
    recipe: options.RecipePath = None,
    calibration: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Inputs that settle INT8 ranges, and what FP16 cannot hold.")
    ] = None,
    shape: options.Shapes = None,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where engines go.")] = Path("engines"),
    as_json: options.Json = False,  # noqa: FBT002
    quiet: options.Quiet = False,  # noqa: FBT002
    verbose: options.Verbose = False,  # noqa: FBT002
    log_file: options.LogFile = None,
) -> None:
    """Build TensorRT engines of a model as it is, and a kit for a machine where NVIDIA's own TensorRT builds."""
    from compressor import console, pipeline
    from compressor.errors import MachineError
    from compressor.plan import Job
    from compressor.recipe import Overrides

    log.to(log_file)
    given = Overrides(
        calibration=options.here(calibration),
        shapes=tuple(shape or ()),
        target=target,
        profiles=tuple(profile or ()),
        precision=precision,
    )
    asked, folder = options.settle(recipe, given)
    made = console.follow(pipeline.build(Job(model, asked, output, folder), verbose=verbose), quiet=quiet)
    console.engines(made, as_json=as_json)
    if made.unbuilt:
        raise MachineError(f"{model}: {made.unbuilt}; the kit in {made.kit} builds it where such a device is")


def publish(
    path: Annotated[Path, typer.Argument(metavar="REPORT.json", help="That of a finished run.", show_default=False)],
    registry: Annotated[
        str | None, typer.Option(metavar="URI", help="Default: what the recipe says; `none` only draws.")
    ] = None,
    log_file: options.LogFile = None,
) -> None:
    """Draw a finished run's page, and record it in the registry that its recipe names; once more does no harm."""
    from compressor import console, formats, pipeline
    from compressor.recipe import of_report

    log.to(log_file)
    done = formats.read(path)
    if done.unfinished == pipeline.GOING_ON:
        raise InputError(f"{path}: {done.unfinished}; wait for its end, or run again, which goes on from what is made")
    asked = of_report(done.recipe, str(path))
    uri = registry or asked.registry.uri
    if uri in {None, "none"} and not registry:
        raise InputError(f"{path}: its recipe names no registry; give --registry URI, or none to draw its page alone")
    result = pipeline.Result(done, path.absolute().parent, None if uri == "none" else uri)
    console.verdict(console.follow(pipeline.publish(result), quiet=True))


def report(
    path: Annotated[Path, typer.Argument(metavar="REPORT.json", help="The report to print.", show_default=False)],
    suffix: Annotated[str, typer.Option("--format", help="md, html, json, xml (JUnit), benchmark or bencher.")] = "md",
) -> None:
    """Print a report that a run wrote, in another format."""
    from compressor import console, formats

    console.result(formats.render(formats.read(path), suffix, path.absolute().parent))


def _climb(request: Request, *, quiet: bool, as_json: bool) -> tuple[Result, PublishError | None]:
    """Run, publish, show; give what was found, and what the registry refused for."""
    from compressor import console, formats

    try:
        done, refusal = console.follow(_published(request), quiet=quiet)
    except Stopped as stop:
        for note in getattr(stop, "__notes__", ()):
            console.say(note, wrap=True)
        raise
    if not quiet:
        console.verdict(done)
    if as_json:
        console.result(formats.render(done.report, "json"))
    return done, refusal


def _published(request: Request) -> Generator[Progress | Trial, None, tuple[Result, PublishError | None]]:
    """Run and record; a registry that refuses takes nothing from the result."""
    from compressor import pipeline

    settled = yield from pipeline.prepare(request)
    done = yield from pipeline.run(settled, request)
    try:
        return (yield from pipeline.publish(done, verbose=request.verbose, nursery=request.nursery)), None
    except PublishError as error:
        return done, error
