"""report.md: a report for people, the verdict first, then what a sceptical colleague would ask for.

A section is a function in `_SECTIONS`: what was `measured`, what was `proved` beside other models, what was done and
`told` about it, which `ways` were tried, which `channels` were pruned.
"""

from __future__ import annotations

from compressor.formats.markdown import channels, measured, proved, told, ways
from compressor.formats.markdown.markup import text
from compressor.formats.sentence import sentence
from compressor.records import Report


def render(report: Report) -> str:
    """Give the report as GitHub-flavoured Markdown, in which no name or reason of the report is read as markup."""
    sections = (section(report) for section in _SECTIONS)
    return "\n\n".join(section for section in sections if section) + "\n"


def _verdict(report: Report) -> str:
    outcome = f"**{report.verdict.capitalize()}:** {sentence(report, text)}"
    return f"# {text(report.model.name)}: {report.verdict}\n\n{outcome}"


_SECTIONS = (
    _verdict,
    proved.verified,
    measured.rungs,
    measured.engines,
    measured.gates,
    proved.champion,
    measured.others,
    measured.quality,
    measured.costs,
    told.warnings,
    told.stages,
    channels.pruned,
    ways.tried,
    ways.operators,
    told.data,
    told.environment,
    told.loading,
    told.recipe,
)
