"""The pages of the documentation, and what stands in them: blocks of code, commands, links, headings."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
OTHERS = tuple(
    page
    for folder in ("examples", "recipes", "reports", "calibration_data", "schemas", "benchmarks", ".")
    for page in sorted((ROOT / folder).glob("*.md"))
    if page.name != "CHANGELOG.md" and page not in PAGES
)
"""Pages beside the code, whose links are checked too."""
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```\s*$", re.MULTILINE | re.DOTALL)
_EXITS = re.compile(r"#\s*exits (\d+)")
_LINK = re.compile(r"(?<!!)\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text, and the line of the page where it begins."""

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """One command: its words, the exit code that the page states, the file that its output goes to."""

    words: tuple[str, ...]
    exits: int = 0
    into: str | None = None

    def __str__(self) -> str:
        return shlex.join(self.words)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        lines = (line.removeprefix(found[1]) for line in found[3].splitlines())
        yield Block(found[2], "\n".join(lines), text[: found.start()].count("\n") + 1)


def commands(block: Block) -> Iterator[Command]:
    """Give the commands of a block: all lines of a script, and those after `$ ` of what shows a console."""
    text = block.text.replace("\\\n", " ")
    if block.language in {"bash", "sh"}:
        lines = text.splitlines()
    elif block.language in {"", "console", "text"}:
        lines = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    else:
        lines = []
    for line in lines:
        exits = _EXITS.search(line)
        words = shlex.split(line, comments=True)
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            yield _command(words[:end], int(exits[1]) if exits else 0)
            words = words[end + 1 :]


def _command(words: list[str], exits: int) -> Command:
    if ">" in words:
        at = words.index(">")
        return Command(tuple(words[:at]), exits, words[at + 1])
    return Command(tuple(words), exits)


def prose(page: Path) -> str:
    """Give the text of a page without its blocks of code."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Give the anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(page)):
        plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        same = anchor
        for again in range(1, 100):
            if same not in found:
                break
            same = f"{anchor}-{again}"
        found.add(same)
    return found


def generators() -> None:
    """Let the modules that write the reference be imported."""
    if str(DOCS) not in sys.path:
        sys.path.append(str(DOCS))
