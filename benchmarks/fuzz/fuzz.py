"""Meet damaged models, recipes and samples, and let nothing end in a traceback, a hang or a wrong success.

    python benchmarks/fuzz/fuzz.py --minutes 10 --seed 0

Prints what came of each kind, and each failure with its number and the folder that reproduces it; exit code 1 if
there is any. `--only 17` meets one mutant again. Each file is met in a child that lives long, as a run would meet it in
one of its own; what kills the child or takes too long is met once more by the command itself, which must say so in a
sentence: a loop of 2^56 rounds is for its time limit to end.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import model_mutants
import recipe_mutants
import sample_mutants
import worker
from worker import Outcome

LIMIT_S = 30.0
"""How long one mutant may take."""


class Kind(NamedTuple):
    """A way to damage files, the trial that meets them, and how much of the time it gets."""

    make: Callable[[random.Random, Path], Path]
    trial: str
    share: int


KINDS: Mapping[str, Kind] = {
    "model bytes": Kind(model_mutants.noise, "model", 4),
    "model fields": Kind(model_mutants.fields, "model", 6),
    "model graphs": Kind(model_mutants.graphs, "model", 8),
    "model external data": Kind(model_mutants.places, "model", 3),
    "recipe text": Kind(recipe_mutants.text, "recipe", 3),
    "recipe values": Kind(recipe_mutants.values, "recipe", 5),
    "recipe hostile": Kind(recipe_mutants.hostile, "recipe", 2),
    "samples bytes": Kind(sample_mutants.noise, "samples", 2),
    "samples archives": Kind(sample_mutants.archives, "samples", 2),
    "samples arrays": Kind(sample_mutants.arrays, "samples", 4),
    "samples array": Kind(sample_mutants.array, "samples", 1),
    "samples tables": Kind(sample_mutants.tables, "samples", 3),
    "samples frames": Kind(sample_mutants.frames, "samples", 2),
}


class Child:
    """The child that meets mutants; a new one takes the place of one that died or hung."""

    def __init__(self) -> None:
        """Start it."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=worker.serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        if (sound := self._connection.recv()).what != "accepted":
            raise SystemExit(f"a sound model: {sound}")

    def meet(self, trial: str, path: Path) -> Outcome | None:
        """Give what came of a mutant; None where the child died of it or did not end."""
        self._connection.send((trial, path))
        if not self._connection.poll(LIMIT_S):
            return None
        try:
            outcome: Outcome = self._connection.recv()
        except EOFError:
            return None
        return outcome

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.join()


def main() -> None:
    """Meet mutants until the time is over, and print counts."""
    options = _options()
    order = [name for name, kind in KINDS.items() for _ in range(kind.share)]
    order = [name for name in order if options.kind in name]
    counts: dict[str, Counter[str]] = {name: Counter() for name in dict.fromkeys(order)}
    begin, number, child = time.monotonic(), options.only or 0, Child()
    while time.monotonic() - begin < 60 * options.minutes:
        rng = random.Random(f"{options.seed}/{number}")  # noqa: S311 - what is drawn must be drawn again
        name = rng.choice(order)
        outcome, child = _meet(KINDS[name], rng, child, f"{options.seed}-{number}", options.keep)
        counts[name][outcome.what] += 1
        if outcome.what == "failed":
            print(f"FAILED --seed {options.seed} --only {number} ({name}): {outcome.why}\n", flush=True)
        elif options.verbose or options.only is not None:
            print(f"{number} {name}: {outcome.what} {outcome.why}", flush=True)
        number += 1
        if options.only is not None:
            break
    child.stop()
    _tell(counts, time.monotonic() - begin, options.keep)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one mutant")
    parser.add_argument("--kind", default="", help="only kinds with this in their name; it changes the numbers")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "compressor-fuzz")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def _meet(kind: Kind, rng: random.Random, child: Child, number: str, keep: Path) -> tuple[Outcome, Child]:
    """Give what came of one mutant, and the child to go on with; a failure's files are kept."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = kind.make(rng, Path(folder))
        outcome = child.meet(kind.trial, path)
        if outcome is None:
            child.stop()
            child = Child()
            outcome = _commanded(kind.trial, path)
        if outcome.what == "failed":
            shutil.rmtree(keep / number, ignore_errors=True)
            shutil.copytree(folder, keep / number, symlinks=True, ignore=_unlike_files)
    return outcome, child


def _unlike_files(folder: str, names: list[str]) -> list[str]:
    """Name what cannot be copied."""
    return [name for name in names if not (path := Path(folder) / name).is_symlink() and path.is_fifo()]


def _commanded(trial: str, path: Path) -> Outcome:
    """Meet what killed or held up the child by the command itself: it must be told in one sentence."""
    limited = path.with_name("limits.yaml")
    limited.write_text(f"limits: {{seconds: {LIMIT_S:.0f}}}\n")
    if trial == "model":
        arguments = ["run", str(path), "--sla", "50ms", "--registry", "none", "--dry-run", "--quiet"]
    elif trial == "samples":
        arguments = ["run", str(path.with_name("net.onnx")), "--sla", "50ms", "--registry", "none", "--dry-run"]
        arguments += ["--quiet", "--calibration", str(path)]
    else:
        return Outcome("failed", "the child died")
    command = [sys.executable, "-m", "compressor", *arguments, "--recipe", str(limited)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=path.parent, timeout=4 * LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return Outcome("failed", "the command does not end either")
    told = done.stderr.strip().removeprefix("compress: ")
    if done.returncode != 2 or worker.unreadable(told, path):  # noqa: PLR2004 - the exit code of InputError
        return Outcome("failed", f"the child died or hung, and the command: exit {done.returncode}, {told}")
    return Outcome("told by the command", told)


def _tell(counts: Mapping[str, Counter[str]], seconds: float, keep: Path) -> None:
    for name, found in counts.items():
        print(f"{name:20}  " + "  ".join(f"{what} {found[what]}" for what in sorted(found)))
    total = Counter[str]()
    for found in counts.values():
        total.update(found)
    failed = total["failed"]
    where = f"; their files are in {keep}" if failed else ""
    print(f"{total.total()} mutants in {seconds:.0f} s, {failed} failed{where}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
