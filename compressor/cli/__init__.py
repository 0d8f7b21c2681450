"""The commands; turns errors and verdicts into exit codes.

A new command is a function in a module here, and a line under `app`. Everything but typer is imported by the command
that needs it: `--help` stays quick.
"""

from __future__ import annotations

import math
import signal
import sys
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from compressor import __version__
from compressor.cli import ci, clean, export, log, look, measure, prove, recipes, registered, run
from compressor.errors import CompressorError, MachineError, Stopped, printable, refused

if TYPE_CHECKING:
    from types import FrameType

_PATIENCE_S = 5.0
"""For how long after a signal others are not heeded: the report is being written."""


def main() -> NoReturn:
    """Run the command line."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="replace")  # a terminal may know neither µ nor →
    stopping = _Stopping()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, stopping)
    log.begin()
    try:
        _run()
    except SystemExit as stop:
        log.end(stop.code)
        raise


def _run() -> NoReturn:
    """Run the command that is asked for, and exit with its code."""
    try:
        app()
    except CompressorError as error:
        _tell(error)
        sys.exit(error.exit_code)
    except OSError as error:
        if (ours := refused(error)) is None:
            _bug(error)
        _tell(ours)
        sys.exit(MachineError.exit_code)
    except Exception as error:  # noqa: BLE001 - what is none of ours is a bug of ours
        _bug(error)
    sys.exit(0)


def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,  # noqa: FBT002
) -> None:
    if version:
        typer.echo(f"compressor {__version__}")
        raise typer.Exit


def _tell(error: CompressorError) -> None:
    """Say what is wrong, without the password of a registry, whoever quotes it."""
    from compressor.registry import public

    log.error(str(error))
    typer.echo(f"compress: {public(str(error))}", err=True)
    ci.refused(public(str(error)))
    _note(error)


def _note(error: BaseException) -> None:
    """Say what else is known of an error."""
    for note in getattr(error, "__notes__", ()):
        typer.echo(f"compress: {log.hidden(printable(note))}", err=True)


def _bug(error: Exception) -> NoReturn:
    """Say what went wrong, where its traceback and what came before it are kept, and what to attach."""
    told, (last, *_) = traceback.format_exception(error), traceback.format_exception_only(error)
    whole = log.hidden("".join(told)).strip()
    kept = log.bug(whole)
    if kept is None or "--verbose" in sys.argv:
        typer.echo(whole, err=True)
    named = printable(log.hidden(last).strip().rpartition("\n")[2])
    attached = printable(str(kept)) if kept else "the lines above"
    typer.echo(f"compress: this is a bug, no mistake of yours: {named}", err=True)
    _note(error)
    typer.echo(
        f"compress: please open an issue with the command, and attach {attached}, the run's report.json if there is "
        "one, and the model if it may be shared",
        err=True,
    )
    sys.exit(1)


class _Stopping:
    """What a signal does: it unwinds, which stops the children and has the report of what was done written.

    Exit codes: 130 when interrupted, 143 when terminated, 129 when the terminal is gone.
    """

    def __init__(self) -> None:
        self._since_s = -math.inf

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if time.monotonic() - self._since_s < _PATIENCE_S:  # somebody presses Ctrl-C twice
            return
        self._since_s = time.monotonic()
        stop = Stopped(number)
        with suppress(OSError):  # nobody may read it any more
            typer.echo(f"compress: {stop.why}", err=True)
        raise stop


app = typer.Typer(
    name="compress",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Compress and compile a trained model until it meets a latency budget, and prove it.",
)
app.callback(invoke_without_command=True)(_options)
for command in (
    *(run.run, run.build, export.export, measure.bench, measure.compare),
    *(prove.gate, prove.verify, registered.history, registered.promote),
    *(run.publish, run.report, clean.clean, look.inspect, look.doctor),
):
    app.command()(command)

_recipe = typer.Typer(no_args_is_help=True, help="Write and check recipe files.", rich_markup_mode=None)
for part in (recipes.init, recipes.check, recipes.explain, recipes.schema):
    _recipe.command()(part)
app.add_typer(_recipe, name="recipe")
