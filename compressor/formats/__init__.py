"""Reports in every format, by the suffix of their file; what a bench and a comparison found, in rows and a sentence.

Add a format of the report as a module with a function `render` and a line in `FORMATS`, or in `EXPORTS` if it is
written only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from compressor.errors import InputError
from compressor.formats import (
    benched,
    compared,
    drawing,
    github,
    junit,
    markdown,
    noise,
    page,
    report_json,
    tracked,
    tried,
)
from compressor.formats.drawing import PAGE, PICTURES, draw, register
from compressor.formats.report_json import read
from compressor.formats.sentence import chosen_trial, deciding_trial, judged, sentence
from compressor.formats.snippet import snippet
from compressor.records import Report

__all__ = [
    "EXPORTS",
    "FORMATS",
    "PAGE",
    "PICTURES",
    "Format",
    "benched",
    "chosen_trial",
    "compared",
    "deciding_trial",
    "draw",
    "github",
    "judged",
    "noise",
    "read",
    "register",
    "render",
    "sentence",
    "snippet",
    "tried",
]

Format = Callable[[Report], str]
FORMATS: Mapping[str, Format] = {"json": report_json.render, "md": markdown.render, "xml": junit.render}
"""What every run writes, by the suffix of its file."""
EXPORTS: Mapping[str, Format] = {
    "html": page.render,
    "benchmark": tracked.benchmark,
    "bencher": tracked.bencher,
}
"""What is drawn once a report is final, and what other tools read, by a name of ours."""


def render(report: Report, suffix: str, folder: Path | None = None) -> str:
    """Give the report as the text of a file with this suffix, such as `md`, or for what reads that export.

    `folder`: that of the run, whose pictures Markdown shows.

    Raises:
        InputError: No format has this suffix, and no export this name.
    """
    known = {**FORMATS, **EXPORTS}
    if suffix not in known:
        raise InputError(f"expected a report format of {', '.join(known)}, found {suffix!r}")
    if suffix == "md" and folder:
        return drawing.text(report, folder)
    return known[suffix](report)
