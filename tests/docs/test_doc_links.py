"""Every link in a page leads somewhere, and every page is reached."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from doc_pages import DOCS, OTHERS, PAGES, ROOT, anchors, links, name

each = pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name)


@each
def test_its_links_resolve(page: Path) -> None:
    broken = [link for link in links(page) if not resolves(page, link)]
    assert not broken


def resolves(page: Path, link: str) -> bool:
    parts = urlsplit(link)
    if parts.scheme:
        return parts.scheme == "https" and "." in parts.netloc
    target = (page.parent / parts.path).resolve() if parts.path else page
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not parts.fragment or parts.fragment in anchors(target)


def test_every_page_is_reached_from_the_readme_or_the_index() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md", DOCS / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        if page.name == "README.md":
            waiting += [
                (page.parent / urlsplit(link).path).resolve() for link in links(page) if not urlsplit(link).scheme
            ]
    assert set(PAGES) - reached == set()
