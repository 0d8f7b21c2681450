"""`compress bench` and `compress compare`: measuring without compressing.

A new option is a parameter here, and a field of the recipe's overrides.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from compressor.cli import log, options
from compressor.cli.run import EXIT

_NOT_WORSE = {"not worse": 0, "worse": 3, "undecided": 4}


def bench(  # noqa: PLR0913, PLR0917 - each parameter is an option of the command
    model: Annotated[str, typer.Argument(metavar="MODEL", help=options.SOURCE, show_default=False)],
    sla: options.Sla = None,
    batch: Annotated[str | None, typer.Option(metavar="N,N,...", help="Batch sizes, the main one first.")] = None,
    rate: options.Rate = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Requests at a time, each sent when one is answered; no --rate.")
    ] = None,
    duration: options.Duration = None,
    samples: options.Samples = None,
    shape: options.Shapes = None,
    threads: options.Threads = None,
    engine: options.Engine = None,
    custom_ops: options.CustomOps = None,
    recipe: options.RecipePath = None,
    registry: options.Registry = None,
    as_json: options.Json = False,  # noqa: FBT002
    quiet: options.Quiet = False,  # noqa: FBT002
    verbose: options.Verbose = False,  # noqa: FBT002
    log_file: options.LogFile = None,
) -> None:
    """Measure one model: latency cold and warm, back to back and paced, per batch size.

    Exit 0 if every gate is met, 3 if one is not, 4 if the samples decide nothing. Without --sla or gates of a --recipe
    nothing is judged: exit 0 then proves nothing.
    """
    from compressor import console, pipeline
    from compressor.recipe import Overrides, batches

    log.to(log_file)
    given = Overrides(
        sla=sla,
        calibration=options.here(samples),
        shapes=tuple(shape or ()),
        threads=threads,
        rate=rate,
        concurrency=concurrency,
        duration=options.time(duration),
        engine=engine,
        custom_ops=options.all_here(custom_ops),
    )
    asked, folder = options.settle(recipe, given)
    wanted = pipeline.Asked(
        source=model,
        recipe=asked,
        folder=folder,
        registry=registry,
        batches=batches(batch) if batch is not None else (),
        fill=duration is not None,
        verbose=verbose,
    )
    found = console.follow(pipeline.bench(wanted), quiet=quiet)
    console.benched(found, as_json=as_json, quiet=quiet)
    sys.exit(EXIT[found.verdict] if found.verdict else 0)


def compare(  # noqa: PLR0913, PLR0917 - each parameter is an option of the command
    before: Annotated[str, typer.Argument(metavar="A", help=options.SOURCE, show_default=False)],
    after: Annotated[str, typer.Argument(metavar="B", help="The same, of the model to judge.", show_default=False)],
    metric: options.Metric = None,
    evaluation: options.Evaluation = None,
    samples: options.Samples = None,
    max_drop: options.MaxDrop = None,
    duration: options.Duration = None,
    shape: options.Shapes = None,
    threads: options.Threads = None,
    custom_ops: options.CustomOps = None,
    recipe: options.RecipePath = None,
    registry: options.Registry = None,
    as_json: options.Json = False,  # noqa: FBT002
    quiet: options.Quiet = False,  # noqa: FBT002
    verbose: options.Verbose = False,  # noqa: FBT002
    log_file: options.LogFile = None,
) -> None:
    """Compare two models, paired: speed, size, outputs, score. Exit 0 not worse, 3 worse, 4 undecided."""
    from compressor import console, pipeline
    from compressor.recipe import Overrides

    log.to(log_file)
    given = Overrides(
        max_drop=max_drop,
        calibration=options.here(samples),
        evaluation=options.here(evaluation),
        shapes=tuple(shape or ()),
        threads=threads,
        duration=options.time(duration),
        metric=metric,
        custom_ops=options.all_here(custom_ops),
    )
    asked, folder = options.settle(recipe, given)
    wanted = pipeline.Asked(
        source=before, recipe=asked, folder=folder, registry=registry, fill=duration is not None, verbose=verbose
    )
    found = console.follow(pipeline.compare(wanted, after), quiet=quiet)
    console.compared(found, as_json=as_json, quiet=quiet)
    sys.exit(_NOT_WORSE[found.verdict])
