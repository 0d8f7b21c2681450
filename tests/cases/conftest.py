"""Files of public bug reports, each run once for all tests that look at it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from bug_reports import DATA, FEWER, RUNGS, Run, drawn
from whole_run import Ended, compress


@pytest.fixture(scope="session")
def manifest(shared: Path) -> Mapping[str, Any]:
    listed = yaml.safe_load((shared / "cases" / "manifest.yaml").read_text(encoding="utf-8"))["cases"]
    return {entry["file"]: entry for entry in listed}


@pytest.fixture(scope="session")
def run(shared: Path, manifest: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Give a function that runs a case with data that fit it, once for all tests that look at it."""
    done: dict[tuple[str, ...], Ended] = {}

    def go(case: str, *words: object, recipe: str = RUNGS, data: bool = True) -> Ended:
        key = (case, recipe, *map(str, words))
        if key not in done:
            home = tmp_path_factory.mktemp("case")
            (home / "recipe.yaml").write_text(recipe, encoding="utf-8")
            given: list[object] = ["--registry", "none", "--output", home / "reports", "--recipe", home / "recipe.yaml"]
            if data:
                np.savez(home / "data.npz", **drawn(shared, manifest, case, FEWER.get(case, DATA), seed=0))
                given += ["--calibration", home / "data.npz"]
            done[key] = compress("run", shared / "cases" / case, "--sla", "1s", "--all", "--threads", 1, *given, *words)
        return done[key]

    return go
