"""Folders and names that files are not often in: what cannot be written is said, what can be written arrives whole."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import small
import yaml

from compressor import workspace
from compressor.errors import MachineError

ROOT = Path(__file__).parents[2]
ODD = '-ø 模型 Модель 🙂 50%25 #1 ?x=1&y "d" {b} a:b; \\\nnew'
Command = Callable[..., int]


@pytest.fixture
def fast(tmp_path: Path) -> Path:
    """Give a recipe with a rung that is quickly climbed."""
    asked = {
        "rungs": [{"name": "fused", "stages": ["fuse"]}],
        "gates": [{"size": {"max": "1MB"}}],
        "limits": {"measure": "200ms"},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(asked))
    return tmp_path / "recipe.yaml"


@pytest.fixture
def readonly(model: Path) -> Iterator[Path]:
    """Give a model in a folder that may not be written; root may, so its content is compared, too."""
    folder = model.parent / "readonly"
    folder.mkdir()
    shutil.copy(model, folder)
    folder.chmod(0o555)
    yield folder / model.name
    folder.chmod(0o755)


def content(folder: Path) -> dict[str, str]:
    """Give the hash of every file in a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
def test_nothing_is_written_beside_the_model(readonly: Path, tmp_path: Path, command: Command) -> None:
    asked = {
        "rungs": [{"name": "int8", "stages": [{"quantize": {"scheme": "static"}}]}],
        "gates": [{"size": {"max": "1MB"}}],
        "limits": {"measure": "200ms"},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(asked))
    before = content(readonly.parent)
    words = ("--recipe", tmp_path / "recipe.yaml", "--output", tmp_path / "out", "--registry", "none", "-q")
    assert command("run", readonly, *words) == 0
    assert content(readonly.parent) == before


def ran(home: Path, name: str, recipe: Path, *words: str) -> Path:
    """Run on a model of some name in a folder, with output to another of that name; give the folder of the run."""
    model = small.classifier(home / f"{name}.onnx")
    script = "from compressor import cli, gates\ngates.regression = lambda _before, _now: None\ncli.main()"
    env = {**{key: os.environ[key] for key in os.environ if not key.startswith("MLFLOW")}, "PYTHONPATH": str(ROOT)}
    called = [sys.executable, "-c", script, "run", "--recipe", str(recipe), "--output", name, "-q", *words]
    ended = subprocess.run([*called, "--", model.name], cwd=home, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    (report,) = (home / name).rglob("report.json")
    return report.parent


@pytest.mark.slow
def test_any_name_serves_for_model_and_output(tmp_path: Path, fast: Path) -> None:
    """A model's name that begins with a dash stands behind `--`, an output's needs none."""
    (home := tmp_path / ODD).mkdir()
    run = ran(home, ODD, fast, "--registry", "none")
    assert (run / "artifacts/baseline/model.onnx").read_bytes() == (home / f"{ODD}.onnx").read_bytes()


@pytest.mark.slow
def test_a_folder_of_another_script_holds_a_registry(tmp_path: Path, fast: Path) -> None:
    (home := tmp_path / "Ñandú ø").mkdir()
    run = ran(home, "Ñandú ø", fast)
    artifacts = {path.read_bytes() for path in run.rglob("artifacts/*/model.onnx")}
    (registered,) = {path.read_bytes() for path in home.rglob("mlartifacts/**/model.onnx")}
    assert registered in artifacts


@pytest.mark.parametrize("command_name", ["run", "bench"])
@pytest.mark.parametrize("folder", ["missing", "net.onnx", "/proc"])  # where root may not write either
def test_a_folder_for_temporary_files_that_cannot_be_used_is_named(
    model: Path, fast: Path, folder: str, command_name: str
) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(model.parent / folder)}
    words = [sys.executable, "-m", "compressor", command_name, model, "--recipe", fast, "--registry", "none"]
    before = content(model.parent)
    ended = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 5, ended.stderr
    assert f"TMPDIR is {env['TMPDIR']}, which cannot be written" in ended.stderr
    assert content(model.parent) == before


def test_a_full_folder_for_temporary_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, **_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    with pytest.raises(MachineError, match="No space left on device") as refused:
        workspace.check_temporary()
    assert str(tmp_path) in str(refused.value)


@pytest.mark.parametrize("below", ["", "sub/folder"])
def test_an_output_that_is_a_file_is_refused_and_kept(model: Path, fast: Path, command: Command, below: str) -> None:
    output = model.parent / "file"
    output.write_text("mine")
    assert command("run", model, "--recipe", fast, "--registry", "none", "--output", output / below) == 5
    assert output.read_text() == "mine"


def test_what_is_no_file_is_refused_before_it_is_read(
    model: Path, fast: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = model.parent / "pipe.onnx"
    os.mkfifo(pipe)  # opened for reading, it would wait for ever
    assert command("run", pipe, "--recipe", fast, "--registry", "none") == 2
    assert "no regular file" in capsys.readouterr().err
    (model.parent / "nowhere.onnx").symlink_to("gone.onnx")
    assert command("run", model.parent / "nowhere.onnx", "--recipe", fast, "--registry", "none") == 2


def test_a_linked_model_is_its_target(model: Path, fast: Path, command: Command) -> None:
    (model.parent / "link.onnx").symlink_to(model.name)
    assert command("run", "link.onnx", "--recipe", fast, "--registry", "none", "--dry-run", "-q") == 0


@pytest.mark.slow
def test_two_runs_into_the_models_folder_leave_the_first_and_the_model(
    model: Path, fast: Path, command: Command
) -> None:
    words = ("run", model, "--recipe", fast, "--registry", "none", "--output", model.parent, "-q")
    assert command(*words) == 0
    before = content(model.parent)
    assert command(*words) == 0
    after = content(model.parent)
    assert before.items() <= after.items()
    assert len(list(model.parent.rglob("report.json"))) == 2
