"""The stage and the gate that a page adds work when they are added as it says, in a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import DOCS, ROOT, Block, blocks

PAGE = DOCS / "extending.md"


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the package as the page extends it."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(ROOT / "compressor", folder / "compressor", ignore=shutil.ignore_patterns("__pycache__"))
    for block in blocks(PAGE):
        if block.language == "python" and (found := re.match(r"# (compressor/\S+\.py)\n", block.text)):
            assert not (folder / found[1]).exists()
            (folder / found[1]).write_text(block.text)
        elif block.language == "diff":
            patch(folder, block)
    return folder


def patch(folder: Path, block: Block) -> None:
    """Put the lines with + in the place of those with - before them, each of which must be there once."""
    name, *lines = block.text.splitlines()
    path = folder / name.strip()
    text = path.read_text()
    for old, new in re.findall(r"((?:^-.*\n)+)((?:^\+.*\n?)+)", "\n".join(lines) + "\n", re.MULTILINE):
        before, after = (re.sub(r"^[-+]", "", part, flags=re.MULTILINE) for part in (old, new))
        assert text.count(before) == 1, f"{name}: {before}"
        text = text.replace(before, after)
    path.write_text(text)


def recipe() -> str:
    """Give what the page says that a recipe takes then."""
    parts = [b.text for b in blocks(PAGE) if b.language == "text" and b.text.startswith(("rungs:", "gates:"))]
    assert len(parts) == 2
    return "limits: {measure: 1s}\n" + "\n".join(parts) + "\n"


def run(extended: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "compressor", *words],
        cwd=extended,
        env={**os.environ, "PYTHONPATH": str(extended)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_recipe_takes_them(extended: Path) -> None:
    (extended / "check.yaml").write_text(recipe())
    done = run(extended, "recipe", "check", "check.yaml")
    assert (done.returncode, done.stderr) == (0, "check.yaml: ok\n")


@pytest.mark.slow
def test_a_run_applies_the_stage_and_judges_by_the_gate(extended: Path) -> None:
    (extended / "run.yaml").write_text(recipe())
    shutil.copytree(ROOT / "calibration_data", extended / "calibration_data")
    done = run(
        *(extended, "run", str(ROOT / "examples" / "digits.onnx"), "--recipe", "run.yaml"),
        *("--registry", "none", "--all", "--quiet", "--json"),
    )
    assert done.returncode in {0, 4}, done.stderr  # on a busy machine, whether it is slower may stay open
    (trial,) = json.loads(done.stdout)["trials"]
    (applied,) = (stage for stage in trial["stages"] if stage["stage"] == "trim")
    assert applied["settings"] == {"below": "2%"} or applied["settings"]["below"] == pytest.approx(0.02)
    assert re.fullmatch(r"set [1-9]\d* weights to 0", applied["did"])
    (verdict,) = (verdict for verdict in trial["verdicts"] if verdict["gate"] == "files")
    assert (verdict["met"], verdict["observed"], verdict["limit"]) == (True, 1, 1)
