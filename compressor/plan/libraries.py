"""Libraries of custom operators that a recipe names: found, and fit to lie beside an artifact.

What must hold of one before it is loaded belongs here.
"""

from __future__ import annotations

from pathlib import Path

from compressor.errors import InputError
from compressor.plan import data
from compressor.recipe import Recipe


def libraries(recipe: Recipe, folder: Path) -> tuple[Path, ...]:
    """Give the libraries of a recipe whose relative paths start in `folder`.

    Raises:
        InputError: One is no file, or two have one name, with which both would stand beside an artifact.
    """
    found = tuple(dict.fromkeys(data.located(path, folder) for path in recipe.custom_ops))
    for path in found:
        if not path.is_file():
            raise InputError(f"custom_ops: {path}: no regular file; expected a shared library")
    names = [path.name for path in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(
            f"custom_ops: two libraries are called {twice!r}, but they lie in one folder later; rename one"
        )
    return found
