"""`compress history` and `compress promote`: what is registered.

What else is asked of a registry is a function here.
"""

from __future__ import annotations

from typing import Annotated

import typer

from compressor.cli import log, options

_Name = Annotated[str, typer.Argument(metavar="NAME", help="A registered model.", show_default=False)]


def history(
    name: _Name,
    registry: options.Registry = None,
    as_json: options.Json = False,  # noqa: FBT002
) -> None:
    """Show the versions of a model: size, p99, score, verdict, recipe."""
    from compressor import console, pipeline

    log.hide(registry)
    console.history(console.follow(pipeline.history(name, registry), quiet=True), as_json=as_json)


def promote(
    name: _Name,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Its number.", show_default=False)],
    registry: options.Registry = None,
    force: Annotated[bool, typer.Option("--force", help="Also one that did not meet every gate.")] = False,  # noqa: FBT002
) -> None:
    """Make a version the champion."""
    from compressor import console, pipeline

    log.hide(registry)
    done = console.follow(pipeline.promote(name, version, registry, force=force), quiet=True)
    before = f", in the place of version {done.before}" if done.before else ""
    console.say(f"{done.name} version {done.version} is the champion{before}")
