"""Every command that a page shows is run in a folder that holds what the page presumes, or named here with a reason."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import doc_place
import pytest
import typer
import yaml
from doc_pages import DOCS, PAGES, ROOT, Block, Command, blocks, commands, name, prose
from doc_place import Place
from registered import NOISE

from compressor import cli, recipe

NOT_HERE = {
    "python3 -m venv": "installs packages from the network",
    ".venv/bin/pip": "installs packages from the network",
    "source .venv/bin/activate": "needs the environment that the command before it makes",
    "pip": "installs packages from the network",
    "nox": "makes environments from the network; continuous integration runs it",
    ".venv/bin/nox": "the same",
    "python benchmarks/": "takes minutes, and models that are not part of this repository",
    "python examples/train_digits.py": "trains for minutes",
    "python docs/generate.py": "writes into this repository; what it writes is compared by another test",
    "docker": "needs a daemon",
    "bencher": "another program",
}
"""Commands of others, by how they begin."""
ONLY_PARSED = {
    "run nets:": "a whole climb behind an export; both are run by themselves",
    "run model.onnx --sla 50ms --target tensorrt": "engines are built once, by `build`",
}
"""Commands of ours that are held against the command line, and not run."""
NEEDS = {
    "--target tensorrt": "tensorrt_rtx_bindings",
    "export": "torch",
}
"""Commands that are only parsed where a package is missing."""
TIMED = frozenset({"run", "bench", "compare", "gate", "verify"})
BUSY = re.compile(r"waited for a CPU|preempted|quieter machine|too few|undecided")
OPTION = re.compile(r"(?<![\w/-])--[a-z][a-z-]+")
INLINE = re.compile(r"`([^`\n]+)`")
PROJECT: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SCRIPTS = "".join(path.read_text() for path in sorted((ROOT / "benchmarks").rglob("*.py")))
FOREIGN = frozenset({*OPTION.findall(SCRIPTS), "--adapter", "--file"})
"""Options of scripts and of other programs, in prose."""
TREE = typer.main.get_command(cli.app)
each = pytest.mark.parametrize("page", PAGES, ids=name)
with_commands = [page for page in PAGES if any(True for block in blocks(page) for _ in commands(block))]


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return doc_place.made(tmp_path_factory)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Let mlflow forget the registry of a page, which is gone when other tests come."""
    yield
    if "mlflow" in sys.modules:
        sys.modules["mlflow"].set_tracking_uri("")
        sys.modules["mlflow"].set_registry_uri("")


@NOISE
@pytest.mark.slow
@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("page", with_commands, ids=name)
def test_its_commands_do_what_the_page_says(
    page: Path, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = doc_place.copied(template, tmp_path, page.read_text())
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        written(block, place)
        for command in commands(block):
            where = f"{name(page)}:{block.line}: {command}"
            if Path(command.words[0]).name not in {"compress", "compressor"}:
                others(command, place, where)
            elif reason(str(command)):
                parsed(command)
            else:
                ended = place.compress(command)
                assert ended.code in expected(command, ended.out + ended.err), f"{where}: {ended.code}\n{ended.err}"


@each
def test_its_commands_are_understood(page: Path) -> None:
    for block in blocks(page):
        for command in commands(block):
            if Path(command.words[0]).name in {"compress", "compressor"}:
                parsed(command)
            elif command.words[0] != "python":
                assert any(str(command).startswith(begin) for begin in NOT_HERE), f"{name(page)}: {command}"


@each
def test_commands_and_options_in_its_sentences_exist(page: Path) -> None:
    for code in INLINE.findall(prose(page)):
        if code.startswith("compress "):
            check_words(code.split()[1:], f"{name(page)}: {code}")
        elif not code.startswith(("python", "nox", "pip", "bencher", "skl2onnx")):
            unknown = set(OPTION.findall(code)) - options(TREE) - FOREIGN
            assert not unknown, f"{name(page)}: {code}"


@each
def test_its_recipes_are_recipes(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        if block.language == "yaml":
            tree = yaml.safe_load(block.text)
            check_yaml(tree, block, f"{name(page)}:{block.line}")
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "python":
            compile(block.text, f"{name(page)}:{block.line}", "exec")


def test_every_reason_is_still_needed() -> None:
    shown = [str(command) for page in PAGES for block in blocks(page) for command in commands(block)]
    ours = [line for line in shown if line.startswith(("compress", "compressor"))]
    assert {begin for begin in ONLY_PARSED if not any(begin in line for line in ours)} == set()


def written(block: Block, place: Place) -> None:
    """Write a block whose first line names a file, into that file."""
    found = re.match(r"# ([\w./-]+\.(?:py|yaml))\b", block.text)
    if found:
        (place.folder / found[1]).parent.mkdir(parents=True, exist_ok=True)
        (place.folder / found[1]).write_text(block.text + "\n", encoding="utf-8")


def reason(command: str) -> str:
    """Say why a command of ours is not run here; nothing if it is."""
    for part, why in ONLY_PARSED.items():
        if part in command:
            return why
    for part, package in NEEDS.items():
        if part in command:
            try:
                __import__(package)
            except ImportError:
                return f"{package} is not installed"
    return ""


def expected(command: Command, told: str) -> set[int]:
    """Give the exit codes that will do: on a busy machine, what rests on time may stay undecided."""
    undecided = command.words[1] in TIMED and BUSY.search(told)
    return {command.exits, 4} if undecided else {command.exits}


def others(command: Command, place: Place, where: str) -> None:
    """Run a script, or look whether what a command of others names is there."""
    line = str(command)
    begin = next((begin for begin in NOT_HERE if line.startswith(begin)), None)
    if begin is None:
        assert command.words[0] == "python", where
        done = subprocess.run(
            [sys.executable, *map(place._settled, command.words[1:])],
            cwd=place.folder,
            capture_output=True,
            check=False,
        )
        assert done.returncode == command.exits, f"{where}\n{done.stderr.decode()}"
        return
    for script in re.findall(r"\b(?:benchmarks|docs|examples)/\S+\.py", line):
        text = (ROOT / script).read_text()
        assert all(option in text for option in OPTION.findall(line)), where
    for extra in re.findall(r"compressor\[([\w,-]+)\]", line):
        assert set(extra.split(",")) <= set(PROJECT["project"]["optional-dependencies"]), where


def parsed(command: Command) -> None:
    """Hold a command against the command line, without running it."""
    words = list(command.words[1:])
    node: Any = TREE
    path = []
    while hasattr(node, "commands") and words and words[0] in node.commands:
        path.append(words.pop(0))
        node = node.commands[path[-1]]
    assert path or words[0].startswith("--"), f"{shlex.join(command.words)}: no such command"
    if path:
        node.make_context(" ".join(path), words)


def check_words(words: list[str], where: str) -> None:
    """Make sure that a command exists that sentences name, and its options; of several, with | between them, all."""
    node: Any = TREE
    while words and hasattr(node, "commands"):
        if words[0].startswith(("-", "…")):
            break
        for word in words[0].split("|"):
            assert word in node.commands or word == "COMMAND", where
        if words[0] == "COMMAND":
            return
        node = node.commands[words.pop(0).split("|")[0]]
    unknown = set(OPTION.findall(" ".join(words))) - {"--help"} - options(node)
    assert not unknown, where


def options(node: Any) -> set[str]:
    found = {flag for parameter in node.params for flag in parameter.opts}
    return found.union(*map(options, getattr(node, "commands", {}).values()))


def check_yaml(tree: Any, block: Block, where: str) -> None:
    """Read a block as the recipe that it is a part of, or as the file of a CI system."""
    keys = set(tree)
    if keys <= {*recipe.Recipe.model_fields, "$include", "environment"}:
        without = {key: value for key, value in tree.items() if key not in {"$include", "environment"}}
        text = re.sub(r'"?\$\{\w+(?::-([^}]*))?\}"?', lambda found: found[1] or "x", yaml.safe_dump(without))
        recipe.parse(text, where)
    elif keys == {"stages"}:
        recipe.Rung.model_validate({"name": "shown", **tree})
    else:
        assert keys & {"on", True, "gate", "repos", "preprocess"}, f"{where}: neither a recipe nor a file of CI"
        for line in block.text.splitlines():
            if found := re.match(r"\s*- (?:run: )?(compress .+?)(?: #.*)?$", line):
                parsed(Command(tuple(shlex.split(found[1]))))


def test_pages_are_found() -> None:
    assert {DOCS / "guide.md", DOCS / "reference" / "recipe.md"} <= set(PAGES)
