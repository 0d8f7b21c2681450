"""Writes the pages under docs/reference from the code that they describe: `python docs/generate.py`.

Another generated page is a module in `generators` with a `page`, and a line in `PAGES`.
"""  # noqa: INP001 - a script

from __future__ import annotations

from pathlib import Path

from generators import codes, commands, recipe, report

REFERENCE = Path(__file__).parent / "reference"
PAGES = {
    "recipe.md": recipe.page,
    "report.md": report.page,
    "commands.md": commands.page,
    "exit-codes.md": codes.page,
}


def main() -> None:
    """Write every page anew."""
    REFERENCE.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
