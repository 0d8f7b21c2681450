"""Kills runs of the demo model at random moments, and looks whether anything is lost, half or doubled.

    python benchmarks/chaos/chaos.py --kills 100 --seed 0

Prints at which steps the kills fell and what the last run, which nobody kills, took beside the first; exit code 1 and
the number of the kill, with the folder that shows it, if anything is wrong. Half of the runs find the store empty, the
others what those before them made; a quarter of the kills meets the command alone, whose children must then end by
themselves.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import demo
import whole

ENDED = "ended before"


@dataclass(frozen=True)
class Calm:
    """What undisturbed runs came to: a recipe with nothing left open, artifacts, seconds without and with a store."""

    recipe: Path
    wanted: Mapping[str, str]
    chosen: str
    first_s: float
    again_s: float


@dataclass(frozen=True)
class Kill:
    """One kill: after how many seconds, with an empty store or not, of the command alone or of its whole tree."""

    number: int
    after_s: float
    emptied: bool
    alone: bool


def main() -> None:
    """Kill as often as asked, then let one run end, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="chaos-"))
    calm = undisturbed(home / "calm")
    found = faults(home / "killed", calm, asked.kills, asked.seed)
    for fault in found:
        print(f"wrong: {fault}")
    if found:
        sys.exit(f"{len(found)} faults with seed {asked.seed}; see {home}")
    shutil.rmtree(home)


def undisturbed(folder: Path) -> Calm:
    """Run twice in a folder: as asked, and once more by the recipe that this wrote, from its store."""
    folder.mkdir()
    first_s = passed(folder, demo.recipe(folder), "first")
    output = folder / "reports"
    (recipe,) = output.glob("*/*/recipe.yaml")
    wanted, chosen = whole.artifacts(output), whole.report(output)["chosen"]
    for model in output.glob("*/*/artifacts/*/model.onnx"):
        whole.usable(model)
    again_s = passed(folder, recipe, "again")
    if wrong := whole.faults(output, wanted) | whole.leftovers(output):
        sys.exit(f"undisturbed: {wrong}; see {folder}")
    return Calm(recipe, wanted, chosen, first_s, again_s)


def faults(folder: Path, calm: Calm, kills: int, seed: int) -> list[str]:
    """Kill, look, and at last run to the end; give what was wrong, each once, with the number of the kill."""
    rng = random.Random(seed)  # noqa: S311 - the same kills again, no secret
    found, steps = dict[str, str](), Counter[str]()
    for number in range(kills):
        kill = _drawn(rng, number, calm)
        step, wrong = killed(folder, calm, kill)
        print(f"{kill}: {step} {sorted(wrong) or ''}", file=sys.stderr, flush=True)
        steps[step] += 1
        for fault in sorted(wrong - found.keys()):
            found[fault] = f"{kill}, at {step}: {fault}"
    begun = time.monotonic()
    for fault in sorted(last(folder, calm) - found.keys()):
        found[fault] = f"the last run: {fault}"
    print("| killed at | kills |\n| --- | --- |")
    for step, times in steps.most_common():
        print(f"| {step} | {times} |")
    print(
        f"\n{kills} kills, {kills - steps[ENDED]} of them before the run ended; {len(found)} faults. First run "
        f"{calm.first_s:.1f} s, undisturbed second {calm.again_s:.1f} s, last {time.monotonic() - begun:.1f} s. "
        f"Left among temporary files: {len(list((folder / demo.TEMPORARY).iterdir()))}."
    )
    return list(found.values())


def killed(folder: Path, calm: Calm, kill: Kill) -> tuple[str, set[str]]:
    """Start a run and kill it; give the step at which that fell, and what is wrong then."""
    if kill.emptied:
        shutil.rmtree(folder / "reports" / whole.STORE, ignore_errors=True)
    run = demo.start(folder, calm.recipe, mark=f"kill{kill.number}")
    while time.monotonic() < run.begun_s + kill.after_s and run.process.poll() is None:
        time.sleep(0.01)
    step = ENDED if run.process.poll() is not None else run.step()
    wrong = set[str]()
    if step == ENDED and run.process.returncode != 0:
        wrong.add(f"ended by itself with exit code {run.process.returncode}; see {run.stderr}")
    run.kill(alone=kill.alone)
    wrong |= {f"still lives: {process}" for process in run.left()}
    return step, wrong | whole.faults(folder / "reports", calm.wanted)


def last(folder: Path, calm: Calm) -> set[str]:
    """Run to the end where all others were killed; give what is wrong."""
    passed(folder, calm.recipe, "last")
    output = folder / "reports"
    wrong = (
        whole.faults(output, calm.wanted) | whole.leftovers(output) | whole.registered(folder / "registry.db", "digits")
    )
    if whole.artifacts(output) != calm.wanted:
        wrong.add("the last run made other artifacts than an undisturbed one")
    if (chosen := whole.report(output)["chosen"]) != calm.chosen:
        wrong.add(f"the last run chose {chosen}, expected {calm.chosen}")
    return wrong


def passed(folder: Path, recipe: Path, mark: str) -> float:
    """Run to the end, which is a pass and leaves no process; give the seconds that it took."""
    run = demo.start(folder, recipe, mark=mark)
    code, seconds = run.ended()
    if code != 0 or run.left():
        sys.exit(f"exit code {code}, expected 0, and no process left, found {run.left(0)}; see {run.stderr}")
    return seconds


def _drawn(rng: random.Random, number: int, calm: Calm) -> Kill:
    emptied, alone = rng.random() < 1 / 2, rng.random() < 1 / 4
    return Kill(number, rng.uniform(0, calm.first_s if emptied else calm.again_s), emptied, alone)


if __name__ == "__main__":
    main()
