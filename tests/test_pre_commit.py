"""The hook that other repositories take from this one, in a repository, by pre-commit itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

HOOKS = Path(__file__).parents[1] / ".pre-commit-hooks.yaml"
GOOD = "version: 1\ngates:\n  - latency: {p99: 50ms}\n"
BAD = "version: 1\ngates:\n  - latncy: {p99: 50ms}\n"
PreCommit = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def pre_commit(tmp_path: Path) -> PreCommit:
    """Give pre-commit in an empty repository that has the hook, run by what is installed here."""
    (hook,) = yaml.safe_load(HOOKS.read_text())
    program, _, words = hook["entry"].partition(" ")
    assert program == "compress"
    hook |= {"language": "system", "entry": f"{sys.executable} -m compressor {words}"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "PRE_COMMIT_HOME": str(tmp_path / "home"),
        "PRE_COMMIT_COLOR": "never",
    }
    repository = tmp_path / "repository"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, check=False, cwd=repository, env=environment, capture_output=True, text=True)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        assert run("git", "add", "--all").returncode == 0
        return run(sys.executable, "-m", "pre_commit", *words)

    repository.mkdir()
    config = {"repos": [{"repo": "local", "hooks": [hook]}]}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    assert run("git", "init", "--quiet").returncode == 0
    return call


def write(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "repository" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_manifest_is_one(pre_commit: PreCommit) -> None:
    checked = pre_commit("validate-manifest", str(HOOKS))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_good_recipes_pass_and_what_is_no_recipe_is_not_read(pre_commit: PreCommit, tmp_path: Path) -> None:
    for name in ("recipes/a.yaml", "models/recipes/with space.yml"):
        write(tmp_path, name, GOOD)
    for name in ("other/b.yaml", "recipes/notes.txt", "myrecipes/c.yaml"):
        write(tmp_path, name, BAD)
    ended = pre_commit("run", "--all-files", "--verbose")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "recipes/a.yaml: ok" in ended.stdout
    assert "models/recipes/with space.yml: ok" in ended.stdout
    assert ended.stdout.count(": ok") == 2


def test_a_bad_recipe_fails_with_its_line(pre_commit: PreCommit, tmp_path: Path) -> None:
    write(tmp_path, "recipes/a.yaml", BAD)
    ended = pre_commit("run", "--all-files")
    assert ended.returncode == 1
    assert "recipes/a.yaml:3: recipe.gates[0]" in ended.stdout
    assert "Failed" in ended.stdout


def test_without_recipes_there_is_nothing_to_do(pre_commit: PreCommit) -> None:
    ended = pre_commit("run", "--all-files")
    assert ended.returncode == 0
    assert "Skipped" in ended.stdout
