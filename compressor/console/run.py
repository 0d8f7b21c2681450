"""A run: what it came to, and what other commands leave on disk.

A line on what a run left behind is a line in `verdict`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from compressor import formats
from compressor.console import out
from compressor.console.look import tensor_line
from compressor.console.out import STYLES, say, table, warn
from compressor.export import Exported
from compressor.pipeline import Engines, Kept, Result
from compressor.records import Report
from compressor.registry import CANDIDATE, public
from compressor.units import human_bytes

_MINUTE = "%Y-%m-%d %H:%M"


def verdict(done: Result) -> None:
    """Show the last lines of a run: verdict, warnings, where things are, what to do next."""
    report, folder = done.report, _short(done.folder)
    warn(report.warnings)
    say(f"{report.verdict}: {formats.sentence(report)}", style=STYLES[report.verdict], wrap=True)
    if (chosen := formats.chosen_trial(report)) is not None:
        for stage in filter(None, map(formats.tried.sentence, chosen.stages)):
            say(f"tried     {stage}", wrap=True)
        say(f"artifact  {folder / chosen.artifacts[0].files[0].path}")
    else:
        say(f"artifacts {folder / 'artifacts'} (none is chosen)")
    if reused := _reused(report):
        say(f"reused    {reused}", wrap=True)
    if report.verifies:
        first = report.verifies
        say(f"verifies  {first.rung} of {first.source}, {first.verdict} on {first.cpu}")
    say(f"report    {_report(done.folder)}")
    if report.registry and report.registry.version:
        alias = f" @{report.registry.alias}" if report.registry.alias else ""
        place = public(report.registry.uri)
        known = ", which holds the same thing already" if report.registry.confirmed else ""
        say(f"registry  {report.registry.model} version {report.registry.version}{alias}{known} in {place}")
        if report.registry.note:
            say(f"          no champion: {report.registry.note}", wrap=True)
    say(f"next      {_next(done)}")


def engines(made: Engines, *, as_json: bool) -> None:
    """Show what `build` built."""
    warn(made.warnings)
    if as_json:
        out.json(made)
        return
    for line in made.did:
        say(line, wrap=True)
    rows = [
        (
            one.files[0].path,
            one.device.replace("+", ", "),
            human_bytes(one.files[0].size_bytes),
            f"{one.build_s:.3g} s",
            one.options["computes"],
        )
        for one in made.artifacts
    ]
    if rows:
        table(("engine", "devices", "size", "built in", "computes"), rows)
    for note in dict.fromkeys(note for one in made.artifacts for note in one.notes):
        say(f"note      {note}", wrap=True)
    say(f"engines   {_short(made.folder)}" if rows else "engines   none")
    say(f"kit       {_short(made.kit)}")


def exported(made: Exported, *, as_json: bool, quiet: bool) -> None:
    """Show what `export` wrote."""
    if as_json:
        out.json(made)
    else:
        model = made.model
        rows = [
            ("file", f"{model.path} ({human_bytes(model.size_bytes)})"),
            ("exporter", f"{made.exporter} of torch {made.torch}, opset {model.opset}"),
            *(("input", tensor_line(tensor)) for tensor in model.inputs),
            *(("output", tensor_line(tensor)) for tensor in model.outputs),
            *((f"SQNR at {shapes}", f"{db:.0f} dB") for shapes, db in made.sqnr_db.items()),
        ]
        table(("what", "found"), rows)
    if not quiet:
        for note in made.notes:
            say(f"note      {note}", wrap=True)
        say(f"next      compress run {_short(made.model.path)} --sla 50ms")


def kept(found: Kept, *, as_json: bool) -> None:
    """Show what runs keep, and what of it was removed."""
    if as_json:
        stays, gone = (tuple(replace(one, value={}) for one in side) for side in (found.stays, found.gone))
        out.json(replace(found, stays=stays, gone=gone))
        return
    rows = [
        (
            entry.what,
            human_bytes(entry.size_bytes),
            f"{entry.made:{_MINUTE}}",
            f"{entry.used:{_MINUTE}}",
            went,
        )
        for entries, went in ((found.stays, "no"), (found.gone, "yes"))
        for entry in entries
    ]
    if rows:
        table(("made by", "size", "made (UTC)", "last used", "removed"), rows)
    total, freed = (human_bytes(sum(one.size_bytes for one in side)) for side in (found.stays, found.gone))
    say(f"kept      {total} in {_short(found.folder)}{f', {freed} removed' if found.gone else ''}")
    if found.in_use:
        say(f"in use    {found.in_use} stay, because a run that is going on may need them", wrap=True)
    if found.stays and not found.gone:
        say("next      compress clean --older-than 7d, --keep 2GB or --all removes it; runs make it again")


def _reused(report: Report) -> str:
    """Say what was not made anew; all of it was measured afresh."""
    stages = [stage for trial in report.trials for stage in trial.stages if stage.reused]
    oldest = min((stage.reused for stage in stages if stage.reused), default=None)
    if oldest is None:
        return ""
    names = ", ".join(dict.fromkeys(stage.stage for stage in stages))
    return f"{names}: as made by earlier runs, the first on {oldest:%Y-%m-%d at %H:%M} UTC; measured afresh"


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _report(folder: Path) -> Path:
    """Give the report for people: the page, where it could be drawn."""
    return _short(folder) / (formats.PAGE if (folder / formats.PAGE).is_file() else "report.md")


def _next(done: Result) -> str:
    chosen = formats.chosen_trial(done.report)
    if chosen is None:
        return f"read the reasons in {_report(done.folder)}"
    if (known := done.report.registry) and known.version and known.alias == CANDIDATE:
        there = f" --registry {public(known.uri)}"
        return f"where it will serve: compress verify models:/{known.model}@{CANDIDATE}{there}"
    first = chosen.artifacts[0]
    load = (_short(done.folder) / first.files[0].path).with_name("load.py")
    if first.is_engine:
        return f"copy {load.parent} to where {first.device.replace('+', ' or ')} is, and run load.py there"
    return f"{_short(Path(sys.executable))} {load}"
