"""What people see: progress and trials as they come, the verdict at the end. The only module that prints.

Messages go to stderr, results to stdout. A new view of events is a class with `show` beside `_Live` and `_Lines`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol, Self, TypeVar

import rich.progress
from pydantic import TypeAdapter
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from compressor import formats
from compressor.gates import Gate
from compressor.grammar import key
from compressor.pipeline import Inspected, Machine, Result
from compressor.pipeline.choose import passed, undecided
from compressor.plan import Plan
from compressor.records import Latency, Measurement, Progress, Tensor, Trial
from compressor.units import human_bytes, human_ms, write_shape

T = TypeVar("T")
_NOTHING = "-"
_COLUMNS = ("rung", "size", "p50", "p99 at most", "speed-up", "score", "verdict")
_STYLES = {"pass": "bold green", "fail": "bold red", "inconclusive": "bold yellow"}


class View(Protocol):
    """Shows events while work goes on."""

    def show(self, event: Progress | Trial) -> None:
        """Show one event."""
        ...


def follow(work: Generator[Progress | Trial, None, T], *, quiet: bool) -> T:
    """Run the work to its end, showing what it yields; nothing if quiet, plain lines where stderr is no terminal."""
    with _view(quiet=quiet) as view:
        try:
            while True:
                view.show(next(work))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def say(text: str, *, style: str = "", wrap: bool = False) -> None:
    """Tell the user something on stderr; `wrap` breaks sentences between words, which would break a path."""
    console = _stderr()
    console.print(Text(text, style=style), soft_wrap=not wrap or not console.is_terminal)


def result(text: str) -> None:
    """Give a command's result on stdout, as it is."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    sys.stdout.flush()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Give a table as a command's result on stdout."""
    stdout = Console(soft_wrap=not sys.stdout.isatty(), highlight=False)
    stdout.print(_table(header, rows))


def verdict(done: Result) -> None:
    """Show the last lines of a run: verdict, warnings, where things are, what to do next."""
    report, folder = done.report, _short(done.folder)
    for warning in report.warnings:
        say(f"warning: {warning}", style="yellow", wrap=True)
    say(f"{report.verdict}: {formats.sentence(report)}", style=_STYLES[report.verdict], wrap=True)
    if (chosen := formats.chosen_trial(report)) is not None:
        say(f"artifact  {folder / chosen.artifacts[0].files[0].path}")
    else:
        say(f"artifacts {folder / 'artifacts'} (none is chosen)")
    say(f"report    {folder / 'report.md'}")
    if report.registry and report.registry.version:
        alias = f" @{report.registry.alias}" if report.registry.alias else ""
        say(f"registry  {report.registry.model} version {report.registry.version}{alias} in {report.registry.uri}")
    say(f"next      {_next(done)}")


def plan(settled: Plan) -> None:
    """Show what a run would do."""
    shapes = ", ".join(f"{name} {write_shape(dims)}" for name, dims in settled.shapes.items())
    data = settled.calibration.source
    rows = [
        ("model", f"{settled.model.path} ({human_bytes(settled.model.size_bytes)})"),
        ("shapes", shapes),
        ("calibration", f"{data.source}, {data.n} samples"),
        ("evaluation", _evaluation(settled)),
        ("threads", f"{settled.environment.threads} of {settled.environment.cpus_usable} usable CPUs"),
        ("gates", "; ".join(map(_gate, settled.recipe.gates))),
        ("rungs", ", ".join(rung.name for rung in settled.recipe.rungs)),
        ("registry", str(settled.recipe.registry.uri)),
    ]
    table(("what", "settled as"), rows)
    for warning in settled.warnings:
        say(f"warning: {warning}", style="yellow")


def inspected(seen: Inspected, *, as_json: bool) -> None:
    """Show a model."""
    if as_json:
        result(_json(seen))
        return
    model, summary = seen.model, seen.summary
    macs = "not settled: give --shape" if summary.macs is None else f"{summary.macs:,}"
    rows = [
        ("file", f"{model.path} ({human_bytes(summary.size_bytes)})"),
        ("parameters", f"{summary.parameters:,}"),
        ("MACs", macs),
        ("nodes", f"{summary.nodes}: " + ", ".join(f"{n} {kind}" for kind, n in summary.operators.items())),
        ("inputs", ", ".join(map(_tensor, model.inputs))),
        ("outputs", ", ".join(map(_tensor, model.outputs))),
        ("opset", ", ".join(f"{domain} {version}" for domain, version in summary.opsets.items())),
        ("could be INT8", f"{summary.int8_share:.0%} of {human_bytes(summary.weight_bytes)} of weights"),
        ("quantized", "yes, already" if summary.quantized else "no"),
    ]
    table(("what", "found"), rows)
    for name in summary.training:
        say(f"warning: {name} was exported in training mode; export it in inference mode", style="yellow")
    if summary.random:
        say(f"warning: random operators ({', '.join(summary.random)}): outputs differ from run to run", style="yellow")


def machine(seen: Machine, *, as_json: bool) -> None:
    """Show this machine."""
    if as_json:
        result(_json(seen))
        return
    saturates = "saturate on U8 x S8: INT8 weights are kept to 7 bits" if seen.saturates else "exact"
    extras = (
        f"{name} {'yes' if there else f'no (pip install compressor[{name}])'}" for name, there in seen.extras.items()
    )
    rows = [
        ("CPU", seen.cpu),
        ("instruction sets", " ".join(seen.isa) or "none of interest"),
        ("usable CPUs", str(seen.cpus_usable)),
        ("memory", human_bytes(seen.memory_bytes)),
        ("load", "unknown" if seen.load is None else f"{seen.load:.2f}"),
        ("integer kernels", saturates),
        ("GPU", seen.gpu or "none"),
        ("providers", ", ".join(seen.providers)),
        ("versions", ", ".join(f"{name} {version}" for name, version in seen.versions.items())),
        ("extras", ", ".join(extras)),
    ]
    table(("what", "found"), rows)


def _json(value: object) -> str:
    return TypeAdapter(type(value)).dump_json(value, indent=2).decode()


def _tensor(tensor: Tensor) -> str:
    shape = "unknown shape" if tensor.shape is None else ", ".join("?" if d is None else str(d) for d in tensor.shape)
    return f"{tensor.name} {tensor.dtype} [{shape}]"


def _stderr() -> Console:
    return Console(stderr=True, highlight=False)


def _view(*, quiet: bool) -> AbstractContextManager[View]:
    if quiet:
        return nullcontext(_Silent())
    console = _stderr()
    return _Live(console) if console.is_terminal else nullcontext(_Lines(console))


class _Silent:
    def show(self, event: Progress | Trial) -> None:
        """Show nothing."""


class _Lines:
    """One line a step and one a trial, for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begin = time.monotonic()
        self._step = ""

    def show(self, event: Progress | Trial) -> None:
        seconds = f"{time.monotonic() - self._begin:6.1f} s  "
        if isinstance(event, Trial):
            cells = zip(_COLUMNS[1:], _row(event)[1:], strict=True)
            told = "; ".join(f"{name} {cell}" for name, cell in cells if cell != _NOTHING)
            self._print(f"{seconds}{event.rung}: {told}")
        elif (step := event.step.partition(",")[0]) != self._step:
            self._step = step
            self._print(f"{seconds}{step}")

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


class _Live:
    """A table that grows by a row a trial, over a bar for the step that is going on."""

    def __init__(self, console: Console) -> None:
        self._trials: list[Trial] = []
        self._bar = rich.progress.Progress(
            rich.progress.SpinnerColumn(),
            rich.progress.TextColumn("{task.description}", markup=False),
            rich.progress.BarColumn(),
            rich.progress.TimeElapsedColumn(),
            console=console,
        )
        self._task = self._bar.add_task("", total=None)
        self._live = Live(self._bar, console=console, transient=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.remove_task(self._task)
        self._live.update(self._shown())
        self._live.__exit__(*error)  # type: ignore[arg-type]

    def show(self, event: Progress | Trial) -> None:
        if isinstance(event, Trial):
            self._trials.append(event)
            self._live.update(self._shown())
        else:
            self._bar.update(self._task, description=event.step, completed=event.done, total=event.total)

    def _shown(self) -> Group:
        rows = [_row(trial) for trial in self._trials]
        return Group(*([_table(_COLUMNS, rows)] if rows else []), self._bar)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    made = Table(box=None, pad_edge=False)
    for name in header:
        made.add_column(name, overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def _row(trial: Trial) -> list[str]:
    measured = trial.measurement
    if measured is None:
        return [trial.rung, *[_NOTHING] * 5, _outcome(trial)]
    latency = measured.latency
    return [
        trial.rung,
        human_bytes(measured.size_bytes),
        human_ms(latency.p50_ms),
        _p99(latency),
        _speedup(measured),
        f"{measured.score.metric} {measured.score.value:.4g}" if measured.score else _NOTHING,
        _outcome(trial),
    ]


def _p99(latency: Latency) -> str:
    return human_ms(latency.p99_high_ms) if latency.p99_high_ms is not None else f"n = {latency.n}, too few"


def _speedup(measured: Measurement) -> str:
    speedup = measured.speedup
    return f"{speedup.ratio:.2f}x ({speedup.low:.2f} to {speedup.high:.2f})" if speedup else _NOTHING


def _outcome(trial: Trial) -> str:
    if trial.failure:
        return f"not built: {trial.failure.stage}: {trial.failure.reason}"
    if passed(trial):
        return "met"
    met = None if undecided(trial) else False
    word = "undecided" if met is None else "not met"
    return f"{word}: {', '.join(verdict.gate for verdict in trial.verdicts if verdict.met is met)}"


def _evaluation(settled: Plan) -> str:
    if settled.evaluation is None:
        return "none: accuracy will be inconclusive"
    return f"{settled.evaluation.source.source}, {len(settled.evaluation)} samples, {settled.metric}"


def _gate(gate: Gate) -> str:
    settings = gate.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)
    return f"{key(type(gate))} " + ", ".join(f"{name} {value}" for name, value in settings.items())


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _next(done: Result) -> str:
    folder, chosen = _short(done.folder), formats.chosen_trial(done.report)
    if chosen is None:
        return f"read the reasons in {folder / 'report.md'}"
    artifact = folder / chosen.artifacts[0].files[0].path
    return f"{_short(Path(sys.executable))} {artifact.with_name('load.py')}"
