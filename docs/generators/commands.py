"""The page of every command with its arguments and options, from the command line's own tree.

A command needs nothing here; an option or argument without help needs one in the code.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from typing import Any

import typer

from compressor import cli
from generators import source

HEAD = """\
# Every command and option

<!-- Written by `python docs/generate.py` from the code; a test compares. Change the code, or docs/generators. -->

`compress COMMAND --help` prints the same; `compressor` is the same program, where another `compress` is on the path.
`compress --version` prints the version; `--install-completion` and `--show-completion` are for completion in a shell.
Results go to stdout, progress and messages to stderr. What each exit code means: [exit-codes.md](exit-codes.md).
"""


def page() -> str:
    """Give the page."""
    return HEAD + "".join(_section(path, command) for path, command in commands())


def commands() -> Iterator[tuple[str, Any]]:
    """Give every command by its words."""
    yield from _below(typer.main.get_command(cli.app), ())


def meaning(parameter: Any) -> str:
    """Give what an argument or option means; empty where nobody says it."""
    return parameter.help or ""


def _below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        if hasattr(inner, "commands"):
            yield from _below(inner, (*path, name))
        else:
            yield " ".join((*path, name)), inner


def _section(path: str, command: Any) -> str:
    told = "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(command.help or "").split("\n\n"))
    rows = ((_shown(each), _default(each), meaning(each)) for each in command.params if each.name != "help")
    arguments = " ".join(_named(each) for each in command.params if each.param_type_name == "argument")
    usage = f"compress {path} {arguments}".strip()
    return f"\n## {path}\n\n```text\n{usage} [OPTIONS]\n```\n\n{told}\n\n" + _table(rows)


def _table(rows: Iterator[tuple[str, ...]]) -> str:
    listed = tuple(rows)
    return source.table(("argument or option", "default", "meaning"), listed) + "\n" if listed else ""


def _named(argument: Any) -> str:
    shown = argument.metavar or argument.name.upper()
    return shown if argument.required else f"[{shown}]"


def _flag(parameter: Any) -> str:
    return parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar or parameter.name


def _shown(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_named(parameter)}`"
    value = "" if parameter.is_flag else f" {parameter.metavar or _kind(parameter)}"
    return ", ".join(f"`{flag}{value}`" for flag in (*parameter.opts, *parameter.secondary_opts)) + (
        "; may be repeated" if parameter.multiple else ""
    )


def _kind(parameter: Any) -> str:
    hint = parameter.type_descriptor.annotation
    if typing.get_origin(hint) is typing.Literal:
        return "|".join(map(str, typing.get_args(hint)))
    return {int: "N", float: "NUMBER"}.get(hint, "TEXT")


def _default(parameter: Any) -> str:
    if parameter.required:
        return "(required)"
    return "" if parameter.default in (None, False, ()) else f"`{parameter.default}`"
