"""`compress clean`: what runs keep for later runs.

Another thing to remove is an option here and a field of `pipeline.clean.Wanted`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compressor.cli import options
from compressor.errors import InputError

if TYPE_CHECKING:
    from compressor.pipeline import Wanted


def clean(
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where reports are.")] = Path("reports"),
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Remove what no run used for so long, e.g. 7d.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Remove what was used longest ago until so much is left, e.g. 2GB."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Remove everything.")] = False,  # noqa: FBT002
    as_json: options.Json = False,  # noqa: FBT002
) -> None:
    """Show what runs keep for later runs, and remove it by age and size; reports and artifacts stay."""
    from compressor import console, pipeline

    console.kept(pipeline.clean(output, _wanted(older_than, keep, every=every)), as_json=as_json)


def _wanted(older_than: str | None, keep: str | None, *, every: bool) -> Wanted | None:
    from compressor import units
    from compressor.pipeline import Wanted

    if every and (older_than is not None or keep is not None):
        raise InputError("clean: --all removes everything; give it alone, or --older-than and --keep without it")
    if every:
        return Wanted(keep_bytes=0)
    if older_than is None and keep is None:
        return None
    try:
        age_s = None if older_than is None else units.seconds(older_than)
    except ValueError as error:
        raise InputError(f"--older-than: expected a time such as 7d, found {older_than!r}") from error
    try:
        return Wanted(age_s, None if keep is None else units.size_bytes(keep))
    except ValueError as error:
        raise InputError(f"--keep: {error}") from error
