"""The section on pruning: what went, from which layers, and which layers nothing could be taken from.

A line or a column more is added here.
"""

from __future__ import annotations

from collections.abc import Iterator

from compressor.formats.sections.blocks import Block, Items, Section, Table, Title
from compressor.formats.words import NOTHING, Escape
from compressor.records import Channels, Pruned, Repaired, Report
from compressor.units import human_bytes, write_fraction

_GROUPS_SHOWN = 30
_NAMES_SHOWN = 3


def pruned(report: Report, text: Escape) -> Section | None:
    """Show for each rung what pruning took away; None where nothing was pruned."""
    found = [(t.rung, stage.pruned) for t in report.trials for stage in t.stages if stage.pruned]
    blocks = [block for rung, one in found for block in _rung(text(rung), one, text)]
    return Section("What was pruned", tuple(blocks)) if found else None


def _rung(rung: str, one: Pruned, text: Escape) -> Iterator[Block]:
    yield Title(rung)
    yield from _asked(one, text)
    yield Table.of(("count", "before", "after", "gone"), _counts(one))
    if one.repaired:
        yield _repaired(one.repaired)
    free = [group for group in one.groups if not group.stay]
    header = ("channels made by", "before", "after", "share of MACs", "together with")
    yield Table.of(header, (_group(group, text) for group in free[:_GROUPS_SHOWN]))
    if len(free) > _GROUPS_SHOWN:
        yield f"And {len(free) - _GROUPS_SHOWN} more, which report.json lists."
    stay = [f"{text(g.name)}, {g.channels}: {text('; '.join(g.stay))}" for g in one.groups if g.stay]
    if stay:
        yield "Channels that stay:"
        yield Items.of(stay[:_GROUPS_SHOWN])


def _asked(one: Pruned, text: Escape) -> Iterator[str]:
    if one.asked is not None and one.gone is not None:
        of = {"channels": "channels that can be removed", "macs": "MACs"}.get(one.of, text(one.of))
        yield f"Asked for was {write_fraction(one.asked)} of the {of}; {one.gone:.1%} went."


def _repaired(found: Repaired) -> str:
    of = f"of their variance, on {'samples held out' if found.held_out else 'the samples it was fitted to'}"
    if not found.layers:
        return f"Nothing was repaired: the outputs are off by {found.before:.1%} {of}, and no other weights helped."
    return (
        f"{found.layers} {'layer was' if found.layers == 1 else 'layers were'} solved again for what the original "
        f"gives: the outputs are off by {found.after:.1%} {of}; as it was cut by {found.before:.1%}."
    )


def _counts(one: Pruned) -> Iterator[tuple[str, str, str, str]]:
    before_macs, after_macs = one.macs
    if before_macs and after_macs:
        yield _count("MACs", (before_macs, after_macs))
    yield _count("parameters", one.parameters)
    yield "file", human_bytes(one.size_bytes[0]), human_bytes(one.size_bytes[1]), _gone(one.size_bytes)
    yield _count("nodes", one.nodes)
    yield _count("channels", one.channels)


def _count(what: str, counts: tuple[int, int]) -> tuple[str, str, str, str]:
    return what, f"{counts[0]:,}", f"{counts[1]:,}", _gone(counts)


def _gone(counts: tuple[int, int]) -> str:
    before, after = counts
    return f"{1 - after / before:.1%}" if before else NOTHING


def _group(group: Channels, text: Escape) -> list[str]:
    others = group.layers[1:]
    more = f" and {len(others) - _NAMES_SHOWN} more" if len(others) > _NAMES_SHOWN else ""
    return [
        text(group.name),
        str(group.channels) + (f" ({group.together} at a time)" if group.together > 1 else ""),
        str(group.channels if group.kept is None else group.kept),
        NOTHING if group.macs is None else f"{group.macs:.1%}",
        text(", ".join(others[:_NAMES_SHOWN])) + more if others else NOTHING,
    ]
