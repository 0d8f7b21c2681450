"""What a command tells the CI system that it runs in: annotations, summaries, outputs, where the test report lies.

Another system is a function here, a word in `System` and a line in `tell`.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from compressor.errors import CompressorError

if TYPE_CHECKING:
    from compressor.recipe import Place
    from compressor.records import Report

System = Literal["github", "gitlab", "plain", "none"]
_YES = frozenset({"true", "1"})
_FOUND = re.compile(r"(?P<file>.+?):(?: line )?(?P<line>\d+)(?:, column \d+)?: (?P<said>.+)")
"""A line of an error that begins with a place in a file."""


@dataclass(frozen=True)
class _Place:
    """A line of a file."""

    file: Path
    line: int


@dataclass(frozen=True)
class Left:
    """What a command left: a report, the folder of its run, and where the test report lies, if one was written."""

    report: Report
    folder: Path
    junit: Path | None


def detected() -> System:
    """Tell in which CI system this process runs, by the variables that it sets."""
    systems: Mapping[str, System] = {"GITHUB_ACTIONS": "github", "GITLAB_CI": "gitlab", "CI": "plain"}
    return next((system for name, system in systems.items() if os.environ.get(name, "").lower() in _YES), "none")


def tell(left: Left, recipe: Path | None, ci: str | None, *, quiet: bool = False) -> None:
    """Tell the CI system what a command left; never fails, since the exit code is the gate's.

    `recipe` is the file whose gates are annotated, `ci` a `System`, None for the one that is found. `quiet` leaves out
    what only people read.
    """
    system = ci or detected()
    if system == "github":
        _github(left.report, left.folder, recipe)
    elif system == "gitlab" and not quiet:
        _gitlab(left)
    elif system == "plain" and not quiet:
        _plain(left)


def refused(told: str) -> None:
    """Annotate what a command is refused for, where that is read: at the line of the recipe, if it begins with one."""
    if (_typed() or detected()) != "github":
        return
    from compressor import console
    from compressor.formats import github

    for line in told.splitlines()[: github.MOST]:
        message, place = _placed(line)
        console.say(github.annotation("error", "compress", message, place))


def _github(report: Report, folder: Path, recipe: Path | None) -> None:
    """Write summary and outputs; annotate on stderr, which the runner reads as it reads stdout."""
    from compressor import console
    from compressor.formats import github

    for line in github.commands(report, _places(recipe)):
        console.say(line)
    where = str(_relative(folder / "report.md"))
    _append("GITHUB_STEP_SUMMARY", lambda taken: github.summary(report, where, github.ROOM_BYTES - taken))
    pairs = github.outputs(report, folder).items()
    _append("GITHUB_OUTPUT", lambda _taken: "".join(_assigned(name, value) for name, value in pairs))


def _gitlab(left: Left) -> None:
    """Fold the gates into a section of the job's log, closed where they are met."""
    closed = "[collapsed=true]" if left.report.verdict == "pass" else ""
    _mark(f"section_start:{int(time.time())}:compressor_gates{closed}", "gates")
    _plain(left)
    _mark(f"section_end:{int(time.time())}:compressor_gates", "")


def _plain(left: Left) -> None:
    """Say a line a gate, and where the test report lies."""
    from compressor import console, formats

    if (decided := formats.deciding_trial(left.report)) is not None:
        for verdict in decided.verdicts:
            console.say(f"gate      {decided.rung}, {verdict.gate}: {formats.judged(verdict)}")
    if left.junit:
        console.say(f"junit     {left.junit}")


def _places(recipe: Path | None) -> Mapping[str, Place]:
    """Give the lines of the recipe that ask for something, as the repository names its files."""
    from compressor.recipe import places

    if recipe is None:
        return {}
    with suppress(CompressorError):  # it may be gone since it was read
        return {name: replace(place, file=_relative(place.file)) for name, place in places(recipe).items()}
    return {}


def _relative(path: Path) -> Path:
    """Give a path as seen from the root of the repository, where it lies in it."""
    whole, root = path.absolute().parent.resolve() / path.name, os.environ.get("GITHUB_WORKSPACE")
    if root and whole.is_relative_to(Path(root).resolve()):
        return whole.relative_to(Path(root).resolve())
    return whole


def _append(variable: str, write: Callable[[int], str]) -> None:
    """Append to the file that a variable names, if any, what `write` gives when it knows the bytes that are there."""
    from compressor import console

    if not (name := os.environ.get(variable)):
        return
    try:
        with Path(name).open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(write(file.tell()))
    except OSError as error:
        told = f"warning: {variable}: {name} cannot be written ({error.strerror}); the verdict stands all the same"
        console.say(told, style="yellow", wrap=True)


def _assigned(name: str, value: str) -> str:
    """Give a line that sets an output, or several where the value has some, between words that nobody can guess."""
    if "\n" not in value and "\r" not in value:
        return f"{name}={value}\n"
    fence = f"end-{secrets.token_hex(16)}"
    return f"{name}<<{fence}\n{value}\n{fence}\n"


def _mark(section: str, title: str) -> None:
    """Write a line that GitLab takes for the border of a section, in which no name of a report may stand."""
    with suppress(OSError):  # nobody reads it any more
        typer.echo(f"\x1b[0K{section}\r\x1b[0K{title}", err=True, color=True)


def _typed() -> str | None:
    """Give what `--ci` says on the command line, which need not have been understood."""
    words = sys.argv[1:]
    after = (value for word, value in pairwise(words) if word == "--ci")
    joined = (word.removeprefix("--ci=") for word in words if word.startswith("--ci="))
    return next(iter((*after, *joined)), None)


def _placed(line: str) -> tuple[str, _Place | None]:
    """Take the place off the start of an error's line, if there is such a file."""
    found = _FOUND.fullmatch(line)
    if found is None or not Path(found["file"]).is_file():
        return line, None
    return found["said"], _Place(_relative(Path(found["file"])), int(found["line"]))
