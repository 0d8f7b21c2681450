"""What a report that is final has besides its text: a page, and pictures beside report.md that show its figures.

What else is drawn of a report is written in `draw`, which is meant for a child process of its own: it runs JavaScript.
"""

from __future__ import annotations

from pathlib import Path

from compressor import workspace
from compressor.formats import figures, markdown, page
from compressor.records import Report

PAGE = "report.html"
PICTURES = "report-figures"
"""The folder of the pictures, beside the report."""


def draw(report: Report, folder: Path) -> tuple[str, ...]:
    """Write the page and the pictures of a report into the folder of its run, and report.md so that it shows them.

    Gives the reason of each figure that cannot be drawn, which the page tells already.
    """
    drawn, refused = figures.drawn(report)
    whole = page.page(report, drawn, refused)
    for one in drawn:
        with workspace.replacing(folder / PICTURES / f"{one.figure.name}.png") as temporary:
            temporary.write_bytes(figures.png(one))
    for path in {*(folder / PICTURES).glob("*.png")} - {folder / PICTURES / f"{one.figure.name}.png" for one in drawn}:
        path.unlink()  # of an earlier time
    workspace.write_text(folder / PAGE, whole)
    workspace.write_text(folder / "report.md", text(report, folder))
    return refused


def register(report: Report, folder: Path) -> None:
    """Say in the page of a report, where it was drawn, as what it was recorded since then."""
    if (path := folder / PAGE).is_file():
        workspace.write_text(path, page.registered(path.read_text(encoding="utf-8"), report))


def text(report: Report, folder: Path) -> str:
    """Give the report as Markdown that shows the pictures that lie in the folder of its run."""
    there = (folder / PICTURES).glob("*.png")
    return markdown.render(report, {path.stem: f"{PICTURES}/{path.name}" for path in there})
