"""Other tools beside ours: the same models, calibration feeds, interleaved timing and scored samples.

    python benchmarks/peers/compare.py --shared ../shared --envs DIR [--minilm FILE] [--all]

Each tool runs in a virtual environment of its own, made below `--envs` and used again when it is there, by the script
of its name beside this file. What it writes is timed and scored by `compress compare` against the float model, one
thread. Prints Markdown; RESULTS.md is what it printed once. A new tool goes into `tools.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
from tools import HERE, PEERS, Made, environment, installed_bytes, last_line, make, measured

from compressor import machine, plan, runtime
from compressor.recipe import read

sys.path.append(str(HERE.parent))

import int8  # a script of the folder above

OURS = "compressor"
SECONDS = "10s"  # of each timing
SCORED = 500  # samples
LARGE_DROP = 1.0  # points
TRANSFORMERS = ("minilm", "vit_tiny")
LEGEND = """\
Cells: time of float over the tool's, paired, with a 95 % interval; times smaller; points of score lost, bold above 1.
Random networks are not scored. A tool that makes nothing usable of a model leaves it float, which counts as 1 in its
means; a model that a tool is not meant for does not count. In the second mean a bold cell, whose model nobody would
use, counts as 1 too. CPU-s: of all models together; peak MB: of the largest process. Those of compressor include all
its timing and scoring, those of the others neither. installed MB: packages without pip."""


@dataclass(frozen=True)
class Subject:
    """A model that all tools get: its case, a folder of its own, the recipe by which results are compared."""

    name: str
    case: int8.Case
    folder: Path
    recipe: Path

    @property
    def feeds(self) -> Path:
        """The folder of calibration feeds."""
        return self.folder / "feeds"

    def out(self, tool: str) -> Path:
        """Give an empty folder for what a tool makes."""
        path = self.folder / "".join(filter(str.isalnum, tool))
        path.mkdir()
        return path


@dataclass(frozen=True)
class Result:
    """A cell of the table; no `ratio` where a tool is not meant for the model."""

    text: str
    ratio: float | None
    made: Made | None
    spoilt: bool = False  # it lost so much of its score that nobody would use it


@dataclass(frozen=True)
class Means:
    """Geometric means of a tool's ratios: as measured, and with float's 1 in place of what is spoilt."""

    measured: float
    usable: float

    def __str__(self) -> str:
        """Give two cells."""
        return f"{self.measured:.2f} | {self.usable:.2f}"


def main() -> None:
    """Run all tools on all models and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--envs", type=Path, required=True)
    parser.add_argument("--all", action="store_true", help="random networks too, for speed")
    parser.add_argument("--only", nargs="+", help="models")
    parser.add_argument("--tool", choices=[OURS, *PEERS])
    given = parser.parse_args()
    if not given.shared.is_dir():
        sys.exit(f"{given.shared}: no such folder; --shared names the folder of models and data")
    with tempfile.TemporaryDirectory() as folder:
        subjects = tuple(prepared(given, Path(folder)))
        print(f"# Other tools beside ours\n\n{heading(subjects)}", flush=True)
        tools = [tool for tool in (*PEERS, OURS) if given.tool in {None, tool}]
        means = {tool: line(tool, subjects, given.envs.absolute()) for tool in tools}
    print(f"\n{LEGEND}\n\n{beside_the_best(means)}\n\n{described()}")


def prepared(given: argparse.Namespace, folder: Path) -> Iterator[Subject]:
    """Write recipes and calibration feeds: those that a run of ours calibrates on."""
    cases = int8.cases(given.shared.resolve(), given.minilm, folder)
    if given.all:
        cases |= int8.networks(given.shared, folder)
    for name, case in cases.items():
        if not given.only or name in given.only:
            yield subject(name, case, folder / name)


def subject(name: str, case: int8.Case, folder: Path) -> Subject:
    """Prepare one model in a folder that is made."""
    scored = case.data["evaluation"] | {"samples": min(SCORED, case.data["evaluation"]["samples"] or SCORED)}
    fewer = replace(case, data=case.data | {"evaluation": scored})
    made = Subject(name, fewer, folder, folder / "recipe.yaml")
    made.feeds.mkdir(parents=True)
    int8.recipe(fewer, folder, [{"accuracy": {"max_drop": "90%"}}])
    job = plan.Job(case.model, read(made.recipe), folder, folder)
    for number, feeds in enumerate(plan.make(job).calibration):
        np.savez(made.feeds / f"{number:05}.npz", **feeds)  # type: ignore[arg-type] # arrays, no flag
    return made


def heading(subjects: tuple[Subject, ...]) -> str:
    """Give the head of the table."""
    models = (each.name for each in subjects)
    names = ["tool", *models, "geometric mean", "bold as 1", "CPU-s", "peak MB", "installed MB"]
    return f"| {' | '.join(names)} |\n" + "| --- " * len(names) + "|"


def line(tool: str, subjects: tuple[Subject, ...], envs: Path) -> Means | None:
    """Run a tool on all models, print its line of the table, and give its means; None where none is for it."""
    project = (str(HERE.parents[1]),)
    name, needs = (PEERS[tool].script, PEERS[tool].needs) if tool in PEERS else (tool, project)
    python = environment(envs, name, needs)
    found = [result(tool, python, each) for each in subjects]
    means = averaged(found)
    size_mb = (installed_bytes(python) - installed_bytes(environment(envs, "bare", ()))) / 1e6
    cells = [tool, *(each.text for each in found), str(means or " | "), *took(found), f"{size_mb:.0f}"]
    print(f"| {' | '.join(cells)} |", flush=True)
    return means


def averaged(found: list[Result]) -> Means | None:
    """Give the means of what a tool made."""
    meant = [(each.ratio, each.spoilt) for each in found if each.ratio is not None]
    if not meant:
        return None
    usable = geometric_mean(1.0 if spoilt else ratio for ratio, spoilt in meant)
    return Means(geometric_mean(ratio for ratio, _ in meant), usable)


def result(tool: str, python: Path, of: Subject) -> Result:
    """Let a tool make something of a model, and time and score that."""
    if tool in PEERS and PEERS[tool].transformers and of.name not in TRANSFORMERS:
        return Result("", None, None)
    model, folder = of.case.model, of.out(tool)
    made = ours(of, folder) if tool == OURS else make(PEERS[tool], python, model, of.feeds, folder)
    if made.path is None:
        return Result(f"makes nothing: {made.failure}", 1.0, made)
    words = (str(model), str(made.path), "--recipe", str(of.recipe), "--duration", SECONDS)
    ended = int8.compress("compare", *words)
    if not ended.stdout:
        return Result(f"does not serve: {last_line(ended.stderr)}", 1.0, made)
    return told(json.loads(ended.stdout), made, scored=of.case.scored)


def ours(of: Subject, folder: Path) -> Made:
    """Run our one rung; an exit code that is not 0 may only tell of a gate."""
    asked = int8.recipe(of.case, folder, int8.GATES)
    words = ["run", str(of.case.model), "--recipe", str(asked), "--output", f"{folder}/reports", "--quiet"]
    places = os.pathsep.join([str(HERE.parent), *filter(None, sys.path)])
    made = measured([sys.executable, "-m", "compressor", *words], folder, {"PYTHONPATH": places})
    return replace(made, path=next(folder.glob("reports/*/*/artifacts/int8/*.onnx"), None))


def told(compared: dict[str, Any], made: Made, *, scored: bool) -> Result:
    """Put what a comparison found into a cell."""
    found = compared["after"]["measurement"]
    speedup, points = found["speedup"], 100 * found["score"]["drop"]
    spoilt = scored and points > LARGE_DROP
    smaller = compared["before"]["measurement"]["size_bytes"] / found["size_bytes"]
    cells = [f"{speedup['ratio']:.2f} [{speedup['low']:.2f}, {speedup['high']:.2f}]", f"{smaller:.2f}x"]
    if scored:
        cells.append(f"**{points:+.2f}**" if spoilt else f"{points:+.2f}")
    return Result(", ".join(cells), speedup["ratio"], made, spoilt)


def took(found: list[Result]) -> tuple[str, str]:
    """Give the CPU seconds of all models and the most memory of one."""
    made = [each.made for each in found if each.made]
    return f"{sum(each.cpu_s for each in made):.0f}", f"{max((each.peak_bytes for each in made), default=0) / 1e6:.0f}"


def beside_the_best(means: dict[str, Means | None]) -> str:
    """Say how far ours is from the best tool that is meant for all models, by either mean."""
    peers = {tool: each for tool, each in means.items() if each and tool in PEERS and not PEERS[tool].transformers}
    mine = means.get(OURS)
    if not peers or not mine:
        return "Nothing to compare ours with."
    fastest, best = max(peers, key=lambda tool: peers[tool].measured), max(peers, key=lambda tool: peers[tool].usable)
    ahead, ahead_usable = mine.measured / peers[fastest].measured, mine.usable / peers[best].usable
    return f"{OURS} over the fastest peer ({fastest}): {ahead:.3f}; with bold as 1, over {best}: {ahead_usable:.3f}."


def described() -> str:
    """Give what the figures depend on."""
    found = machine.environment(1, spinning=False, saturates=runtime.saturates())
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    peers = ", ".join(dict.fromkeys(need.replace("==", " ") for peer in PEERS.values() for need in peer.needs))
    return (
        f"{found.machine}, {found.cpu}, {found.cpus_usable} usable CPUs, {' '.join(found.isa)}, 1 thread.\n\n"
        f"Ours: {versions}. Peers: {peers}."
    )


if __name__ == "__main__":
    main()
