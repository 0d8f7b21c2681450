"""Reports in every format, by the suffix of their file; what a bench and a comparison found, in rows and a sentence.

Add a format of the report as a module with a function `render` and a line in `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compressor.errors import InputError
from compressor.formats import benched, compared, markdown, noise, report_json, tried
from compressor.formats.report_json import read
from compressor.formats.sentence import chosen_trial, sentence
from compressor.formats.snippet import snippet
from compressor.records import Report

__all__ = [
    "FORMATS",
    "Format",
    "benched",
    "chosen_trial",
    "compared",
    "noise",
    "read",
    "render",
    "sentence",
    "snippet",
    "tried",
]

Format = Callable[[Report], str]
FORMATS: Mapping[str, Format] = {"json": report_json.render, "md": markdown.render}


def render(report: Report, suffix: str) -> str:
    """Give the report as the text of a file with this suffix, such as `md`.

    Raises:
        InputError: No format has this suffix.
    """
    if suffix not in FORMATS:
        raise InputError(f"expected a report format of {', '.join(FORMATS)}, found {suffix!r}")
    return FORMATS[suffix](report)
