"""report.md: a report for people, the verdict first, then what a sceptical colleague would ask for.

What it tells stands in `sections`; a section more is a line in `_SECTIONS`, a kind of block a case in `_block`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from compressor.formats.figures import Figure, figures
from compressor.formats.markdown.markup import fenced, table, text
from compressor.formats.sections import (
    Block,
    Cell,
    Code,
    Folded,
    Items,
    Section,
    Strong,
    Table,
    Title,
    channels,
    measured,
    proved,
    told,
    ways,
)
from compressor.formats.sentence import sentence
from compressor.formats.words import Escape
from compressor.records import Report

Tell = Callable[[Report, Escape], Section | None]


def render(report: Report, pictures: Mapping[str, str] = MappingProxyType({})) -> str:
    """Give the report as GitHub-flavoured Markdown, in which no name or reason of the report is read as markup.

    `pictures`: where those of figures lie beside it, by the names of the figures.
    """
    shown = [_figure(one, pictures[one.name]) for one in figures(report) if one.name in pictures] if pictures else []
    pictured = ["## Figures", *shown] if shown else []
    told = [_verdict(report), *_told(report, _JUDGED), *pictured, *_told(report, _SECTIONS)]
    return "\n\n".join(told) + "\n"


def markdown(section: Section) -> str:
    """Give a section, whose text is Markdown already."""
    title = [f"## {section.title}"] if section.title else []
    return "\n\n".join([*title, *map(_block, section.blocks)])


def _told(report: Report, sections: Iterable[Tell]) -> list[str]:
    return [markdown(section) for tell in sections if (section := tell(report, text))]


def _verdict(report: Report) -> str:
    outcome = f"**{report.verdict.capitalize()}:** {sentence(report, text)}"
    return f"# {text(report.model.name)}: {report.verdict}\n\n{outcome}"


def _figure(figure: Figure, place: str) -> str:
    return f"![{text(figure.alternative)}]({place})\n\n{text(figure.title)}. {text(figure.caption)}"


def _block(block: Block) -> str:
    match block:
        case Table():
            return table(block.header, (list(map(_cell, row)) for row in block.rows))
        case Items():
            return "\n".join(_lines(block))
        case Title():
            return f"### {block.text}"
        case Code():
            return fenced(block.text, block.language)
        case Folded():
            code = fenced(block.code.text, block.code.language)
            return f"<details>\n<summary>{block.summary}</summary>\n\n{code}\n\n</details>"
        case str():
            return block


def _cell(cell: Cell) -> str:
    return f"**{cell.text}**{cell.after}" if isinstance(cell, Strong) else cell


def _lines(items: Items) -> Iterator[str]:
    for item in items.items:
        yield f"- {_cell(item.text)}"
        yield from (f"  - {detail}" for detail in item.details)


_JUDGED: tuple[Tell, ...] = (
    proved.verified,
    told.warnings,
    measured.rungs,
    measured.engines,
    measured.gates,
    proved.champion,
)
"""What stands before the figures."""
_SECTIONS: tuple[Tell, ...] = (
    measured.others,
    measured.quality,
    measured.costs,
    told.stages,
    channels.pruned,
    ways.tried,
    ways.operators,
    told.data,
    told.environment,
    told.loading,
    told.recipe,
)
