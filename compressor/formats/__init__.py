"""Reports in every format, by the suffix of their file; what a bench and a comparison found, in rows and a sentence.

Add a format of the report as a module with a function `render` and a line in `FORMATS`, or in `EXPORTS` if it is
written only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compressor.errors import InputError
from compressor.formats import benched, compared, github, junit, markdown, noise, report_json, tracked, tried
from compressor.formats.report_json import read
from compressor.formats.sentence import chosen_trial, deciding_trial, judged, sentence
from compressor.formats.snippet import snippet
from compressor.records import Report

__all__ = [
    "EXPORTS",
    "FORMATS",
    "Format",
    "benched",
    "chosen_trial",
    "compared",
    "deciding_trial",
    "github",
    "judged",
    "noise",
    "read",
    "render",
    "sentence",
    "snippet",
    "tried",
]

Format = Callable[[Report], str]
FORMATS: Mapping[str, Format] = {"json": report_json.render, "md": markdown.render, "xml": junit.render}
"""What every run writes, by the suffix of its file."""
EXPORTS: Mapping[str, Format] = {"benchmark": tracked.benchmark, "bencher": tracked.bencher}
"""What other tools read, by a name of ours."""


def render(report: Report, suffix: str) -> str:
    """Give the report as the text of a file with this suffix, such as `md`, or for what reads that export.

    Raises:
        InputError: No format has this suffix, and no export this name.
    """
    known = {**FORMATS, **EXPORTS}
    if suffix not in known:
        raise InputError(f"expected a report format of {', '.join(known)}, found {suffix!r}")
    return known[suffix](report)
