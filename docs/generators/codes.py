"""The page of exit codes: what each says and what to do, held against the codes that the errors name.

A new code is a line in `CODES`.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping

from compressor import errors
from compressor.cli import measure, run
from generators import source

HEAD = """\
# Exit codes

<!-- Written by `python docs/generate.py` from the code; a test compares. Change the code, or docs/generators. -->

The exit code is the verdict: a CI job needs to read nothing else. All commands use the same numbers; `bench` and
`verify` exit like `run`, `gate` with the verdict of the report as judged, and `compare` with 0 for *not worse*, 3 for
*worse*, 4 for *undecided*. The last line on stderr says in a sentence what happened.
"""
CODES: Mapping[int, tuple[str, str]] = {
    0: (
        "every gate is met; or the command did what it was asked for",
        "serve what `chosen` names. Without a gate (`bench` without `--sla`) it proves nothing",
    ),
    1: (
        "a bug of compressor",
        "open an issue with the command, and attach the file that the last line names, and report.json if there is one",
    ),
    2: (
        "usage, recipe, model or data are wrong; found before any work where that is possible",
        "read the sentence: where, what was found, what was expected; `run --dry-run` checks all before any work",
    ),
    3: (
        "measured, and a gate is not met (of `compare`: worse)",
        "see [why a rung was refused](../reading-a-report.md#why-was-a-rung-refused)",
    ),
    4: (
        "inconclusive: too few samples, too noisy a machine, no evaluation data, or `limits.run` was over",
        "see [what inconclusive means](../reading-a-report.md#what-inconclusive-means-and-what-to-do)",
    ),
    5: (
        "this machine lacks what the recipe requires: a package, a device, disk space, a permission, a registry there",
        "install or free what the sentence names, or run where it is; `compress doctor` shows what is here",
    ),
    6: (
        "compressed, but the registry refused; everything is on disk",
        "`compress publish REPORT.json` when the registry is back",
    ),
    129: ("hung up: the terminal is gone (SIGHUP)", "the same command again goes on from what was made"),
    130: ("interrupted (SIGINT, Ctrl-C)", "the same command again goes on from what was made"),
    143: ("terminated (SIGTERM)", "the same command again goes on from what was made"),
}


def page() -> str:
    """Give the page."""
    rows = ((f"{code}", said, to_do) for code, (said, to_do) in CODES.items())
    table = source.table(("exit", "meaning", "what to do"), rows)
    return f"{HEAD}\n{table}\n\n## Which error ends in which code\n\n{_tree()}"


def known() -> frozenset[int]:
    """Give every code that the code itself names: of errors, of verdicts, of signals, and 1 for what nobody foresaw."""
    waiting: list[type[errors.CompressorError]] = [errors.CompressorError]
    found = {0, *run.EXIT.values(), *measure._NOT_WORSE.values()}  # noqa: SLF001 - the command's own table
    while waiting:
        cls = waiting.pop()
        found.add(cls.exit_code)
        waiting += cls.__subclasses__()
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return frozenset({*found, *(int(str(errors.Stopped(each).code)) for each in ends)})


def _tree() -> str:
    """Give the tree of errors as its module draws it."""
    drawn = (errors.__doc__ or "").split("```")[1].strip("\n")
    return f"```text\n{drawn}\n```\n"
