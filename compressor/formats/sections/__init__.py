"""What a report holds, section by section, as blocks that every format of a page for people renders in its own way.

A section is a function that takes the report and how names are escaped, and gives None where there is nothing to tell:
what was `measured`, what was `proved` beside other models, what was done and `told` about it, which `ways` were tried,
which `channels` were pruned. A new kind of block stands in `blocks`, and in every format.
"""

from __future__ import annotations

from compressor.formats.sections import channels, measured, proved, told, ways
from compressor.formats.sections.blocks import Block, Cell, Code, Folded, Item, Items, Section, Strong, Table, Title

__all__ = [
    "Block",
    "Cell",
    "Code",
    "Folded",
    "Item",
    "Items",
    "Section",
    "Strong",
    "Table",
    "Title",
    "channels",
    "measured",
    "proved",
    "told",
    "ways",
]
