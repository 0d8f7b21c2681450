"""`compress recipe`: writing and checking recipe files.

A new subcommand is a function here, and a line in `compressor.cli`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from compressor.cli import options
from compressor.errors import InputError


def init(
    path: Annotated[Path | None, typer.Argument(metavar="FILE", help="Default: print it.")] = None,
    sla: options.Sla = None,
) -> None:
    """Write a recipe to start from: what `compress run --sla` does, every choice written out."""
    from compressor import console, workspace
    from compressor.recipe import Overrides, default, override, starter

    text = starter(override(default(), Overrides(sla=sla or "50ms")))
    if path is None:
        console.result(text)
    elif path.exists() or path.is_symlink():
        raise InputError(f"{path}: exists already; name another file")
    else:
        workspace.write_text(path, text)
        console.say(f"wrote {path}; next: compress run MODEL --recipe {path}")


def check(paths: Annotated[list[Path], typer.Argument(metavar="FILE...", show_default=False)]) -> None:
    """Check recipe files; exit 2 with the line of each problem."""
    from compressor import console
    from compressor.recipe import read

    for path in paths:
        read(path)
        console.say(f"{path}: ok")


def schema() -> None:
    """Print the JSON Schema of a recipe, for editors."""
    import json

    from compressor import console, recipe

    console.result(json.dumps(recipe.schema(), indent=2))
