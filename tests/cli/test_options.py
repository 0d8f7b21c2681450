from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compressor.cli import options
from compressor.recipe import Overrides


def test_a_path_is_settled_where_it_was_typed_but_not_the_name_of_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert options.here(Path("data.csv")) == tmp_path / "data.csv"
    assert options.here(Path("package.module:function")) == Path("package.module:function")
    assert options.here(None) is None


@pytest.mark.parametrize("name", ["calibration", "evaluation", "metric"])
def test_functions_are_looked_for_beside_the_recipe_and_where_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    value = "mine:f" if name == "metric" else "{path: mine:f}"
    (tmp_path / "deep/r.yaml").write_text(f"data: {{{name}: {value}}}\nregistry: {{uri: none}}\n")
    options.settle(Path("deep/r.yaml"), Overrides())
    assert sys.path == [str(tmp_path / "deep"), str(tmp_path)]
