"""`compress gate` and `compress verify`: a report judged again, and what it chose measured again.

A new option is a parameter here, and a field of what is asked.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compressor.cli import ci, log, options
from compressor.cli.run import EXIT
from compressor.errors import InputError, PublishError, Stopped

if TYPE_CHECKING:
    from compressor.pipeline import Proof, Result
    from compressor.records import Progress, Trial


def gate(  # noqa: PLR0913, PLR0917 - each parameter is an option of the command
    path: Annotated[Path, typer.Argument(metavar="REPORT.json", help="The report to judge.", show_default=False)],
    recipe: Annotated[
        Path | None, typer.Option("--recipe", metavar="FILE", help="Whose gates judge; default: the report's own.")
    ] = None,
    sla: options.Sla = None,
    max_drop: options.MaxDrop = None,
    any_hardware: Annotated[  # noqa: FBT002
        bool, typer.Option("--any-hardware", help="Judge it wherever it was measured, whatever proved_on says.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the verdicts as JUnit XML.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as judged, on stdout.")] = False,  # noqa: FBT002
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,  # noqa: FBT002
    system: options.Ci = None,
) -> None:
    """Judge a report again, without measuring; exit with the verdict. A report from other hardware is refused."""
    from compressor import console, formats, pipeline, workspace
    from compressor.recipe import Overrides, of_report, override, read

    given = Overrides(sla=sla, max_drop=max_drop)
    asked = read(recipe) if recipe else of_report(formats.read(path).recipe, str(path))
    judged = pipeline.gate(pipeline.Gated(path, override(asked, given), any_hardware=any_hardware))
    if junit is not None:
        _check_junit(junit, path)
        workspace.write_text(junit, formats.render(judged, "xml"))
    if not quiet:
        console.judged(judged, as_json=as_json)
    if as_json:
        console.result(formats.render(judged, "json"))
    ci.tell(ci.Left(judged, path.absolute().parent, junit), recipe, system, quiet=quiet)
    sys.exit(EXIT[judged.verdict])


def verify(  # noqa: PLR0913, PLR0917 - each parameter is an option of the command
    source: Annotated[
        str, typer.Argument(metavar="REPORT.json", help="A report, or models:/NAME@candidate.", show_default=False)
    ],
    sla: options.Sla = None,
    max_drop: options.MaxDrop = None,
    against: options.Against = None,
    reserve: Annotated[str | None, typer.Option(help="Part of the budget kept for the network, e.g. 5ms.")] = None,
    rate: options.Rate = None,
    calibration: Annotated[Path | None, typer.Option(metavar="DATA", help="Inputs to send.")] = None,
    evaluation: options.Evaluation = None,
    metric: options.Metric = None,
    original: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="What it was made of; default: as kept beside it.")
    ] = None,
    rung: Annotated[str | None, typer.Option(metavar="NAME", help="Default: the one that was chosen.")] = None,
    custom_ops: options.CustomOps = None,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where reports go.")] = Path("reports"),
    registry: options.Registry = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json on stdout.")] = False,  # noqa: FBT002
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,  # noqa: FBT002
    verbose: options.Verbose = False,  # noqa: FBT002
    log_file: options.LogFile = None,
    system: options.Ci = None,
) -> None:
    """Measure here what a report chose elsewhere, beside its original; report, tag the version, exit with the verdict.

    The alias champion moves only if every gate is met here.
    """
    from compressor import console, formats
    from compressor.pipeline import Proof
    from compressor.recipe import Overrides

    log.to(log_file)
    log.hide(registry)
    given = Overrides(
        sla=sla,
        reserve=reserve,
        max_drop=max_drop,
        against=against,
        rate=rate,
        calibration=options.here(calibration),
        evaluation=options.here(evaluation),
        metric=metric,
        custom_ops=options.all_here(custom_ops),
    )
    options.importable(Path.cwd(), (metric, calibration, evaluation))
    proof = Proof(source, given, output, registry=registry, rung=rung, original=original, verbose=verbose)
    try:
        done, refusal = console.follow(_published(proof), quiet=quiet)
    except Stopped as stop:
        for note in getattr(stop, "__notes__", ()):
            console.say(note, wrap=True)
        raise
    if not quiet:
        console.verdict(done)
    if as_json:
        console.result(formats.render(done.report, "json"))
    ci.tell(ci.Left(done.report, done.folder, done.folder / "report.xml"), None, system, quiet=quiet)
    if refusal:
        raise refusal
    sys.exit(EXIT[done.report.verdict])


def _check_junit(junit: Path, report: Path) -> None:
    """Return if a file can be written there that takes nobody's report away."""
    if not junit.absolute().parent.is_dir():
        raise InputError(f"--junit: {junit.parent}: no such folder")
    if junit.is_dir() or junit.suffix != ".xml":
        raise InputError(f"--junit: expected a file that ends in .xml, found {junit}")
    if junit.exists() and junit.samefile(report):
        raise InputError(f"--junit: {junit} is the report itself; name another file")


def _published(proof: Proof) -> Generator[Progress | Trial, None, tuple[Result, PublishError | None]]:
    """Verify and record; a registry that refuses takes nothing from the result."""
    from compressor import pipeline

    done = yield from pipeline.verify(proof)
    try:
        return (yield from pipeline.publish(done, verbose=proof.verbose, nursery=proof.nursery)), None
    except PublishError as error:
        return done, error
