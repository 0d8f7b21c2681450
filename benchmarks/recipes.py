"""The checked-in recipes on real models: does each still give the figures that its head comment states?

    python benchmarks/recipes.py --shared ../shared [--minilm paraphrase-MiniLM-L3-v2.onnx] [--only NAME ...] [--write]

Prints of each whether it agrees or what differs, and a line a rung; exit 1 where anything differs, or a recipe does not
run. Sizes may differ by 1 %, a score must lie in the interval that is stated, the interval of a speed-up must meet the
stated one, widened by 15 %. `--write` puts what was found into a recipe, as soon as its run ends with every rung built.
Everything lies in `--work`: a second call goes on from the stages that the first one made. A recipe for another family
is a line in `CASES`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import recipe_data
from recipe_data import Arrays

RECIPES = Path(__file__).parents[1] / "recipes"
SIZE_SHARE, SPEED_SHARE = 0.01, 0.15
TIMED = ("latency", "throughput", "speedup", "startup", "cost")
NUMBER = r"-?\d+\.\d+"
PROVED = re.compile(
    r"# proved: (?P<model>[\w.-]+)"
    rf" \| size (?P<size_before>{NUMBER}) MB -> (?P<size_after>{NUMBER}) MB"
    rf" \| speed (?:(?P<ratio>{NUMBER})x \[(?P<slowest>{NUMBER}), (?P<fastest>{NUMBER})\]|not judged)"
    rf" \| (?P<metric>[\w.]+) (?P<score_before>{NUMBER}) -> (?P<score_after>{NUMBER})"
    rf" \[(?P<score_low>{NUMBER}), (?P<score_high>{NUMBER})\] n = (?P<n>\d+)"
    r" \| (?P<verdict>pass|fail|inconclusive) (?P<rung>[a-z0-9][a-z0-9._-]*)"
)
HEAD = ("# proved: ", "# machine: ")

Samples = Callable[[Path, int], tuple[Arrays, Arrays]]


@dataclass(frozen=True)
class Case:
    """What proves a recipe: the name of a model, a function that gives samples, how many, and more words of the run."""

    model: str
    samples: Samples
    scored: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class Speed:
    """How many times as fast as the original, with its 95 % interval."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Proof:
    """The figures of a rung; no `speed` where no gate asks for time, or none could be measured."""

    model: str
    sizes_mb: tuple[float, float]
    speed: Speed | None
    metric: str
    scores: tuple[float, float]
    interval: tuple[float, float]
    n: int
    verdict: str
    rung: str

    def __str__(self) -> str:
        """Give the line that stands in a recipe."""
        speed = f"{self.speed.ratio:.2f}x [{self.speed.low:.2f}, {self.speed.high:.2f}]" if self.speed else "not judged"
        sizes, scores = (" -> ".join(f"{one:.4f}{unit}" for one in pair) for pair, unit in self._pairs())
        low, high = self.interval
        return (
            f"# proved: {self.model} | size {sizes} | speed {speed} | {self.metric} {scores} [{low:.4f}, {high:.4f}] "
            f"n = {self.n} | {self.verdict} {self.rung}"
        )

    def _pairs(self) -> tuple[tuple[tuple[float, float], str], ...]:
        return (self.sizes_mb, " MB"), (self.scores, "")


def main() -> None:
    """Run the recipes that are asked for, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--write", action="store_true", help="put the figures into the recipes")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "compressor-recipes")
    given = parser.parse_args()
    if not given.shared.is_dir():
        sys.exit(f"{given.shared}: no such folder; --shared names the folder of models and data")
    agreed = True
    for name in given.only:
        model = path(CASES[name], given.shared.resolve(), given.minilm)
        if model is None:
            print(f"{name}: left out; --minilm names the file of its model", flush=True)
        else:
            agreed &= shown(name, run(name, model, given.shared.resolve(), given.work), write=given.write)
    sys.exit(0 if agreed else 1)


def path(case: Case, shared: Path, minilm: Path | None) -> Path | None:
    """Give the file of a recipe's model; None if it is nowhere."""
    if case.model == MINILM:
        return minilm and minilm.resolve()
    return shared / "models" / f"{case.model}.onnx"


def data(case: Case, shared: Path, folder: Path) -> tuple[Path, Path]:
    """Write the samples that calibrate a case's model and those that score it, unless they are there."""
    files = folder / "calibration.npz", folder / "evaluation.npz"
    if not files[1].exists():
        folder.mkdir(parents=True, exist_ok=True)
        for file, arrays in zip(files, case.samples(shared, case.scored), strict=True):
            np.savez(half := folder / "half.npz", **dict(arrays))  # type: ignore[arg-type]
            half.replace(file)
    return files


def run(name: str, model: Path, shared: Path, work: Path) -> subprocess.CompletedProcess[str]:
    """Run a recipe on its model."""
    case = CASES[name]
    calibration, evaluation = data(case, shared, work / "data" / f"{case.samples.__name__}-{case.scored}")
    words = ("run", model, "--recipe", RECIPES / f"{name}.yaml", "--calibration", calibration)
    more = ("--evaluation", evaluation, "--registry", "none", "--output", work / "reports", *case.words)
    places = [str(Path(__file__).parent), *filter(None, sys.path)]
    return subprocess.run(
        [sys.executable, "-m", "compressor", *map(str, (*words, *more)), "--json", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
    )


def shown(name: str, ended: subprocess.CompletedProcess[str], *, write: bool) -> bool:
    """Print what a run gave beside what the recipe states, and say whether they agree."""
    if not ended.stdout:
        print(f"{name}: fails with exit {ended.returncode}: {ended.stderr.strip()}", flush=True)
        return False
    report, file = json.loads(ended.stdout), RECIPES / f"{name}.yaml"
    found, stated = tuple(proofs(report)), tuple(read(file.read_text(encoding="utf-8")))
    wrong = tuple(differences(stated, found))
    chosen = f"{report['verdict']} {report['chosen']}, exit {ended.returncode}, {report['duration_s']:.0f} s"
    print(f"{name}: {chosen}: {'differs: ' + '; '.join(wrong) if wrong else 'agrees'}", flush=True)
    unbuilt = tuple(failures(report))
    print("\n".join(f"  {one}" for one in (*found, machine(report), *unbuilt)), flush=True)
    if write and found and not unbuilt:
        file.write_text(written(file.read_text(encoding="utf-8"), found, machine(report)), encoding="utf-8")
    return not wrong


def proofs(report: Mapping[str, Any]) -> Iterator[Proof]:
    """Give the figures of every rung that was built."""
    for trial in report["trials"]:
        if trial["failure"] is None:
            yield proof(report, trial)


def proof(report: Mapping[str, Any], trial: Mapping[str, Any]) -> Proof:
    """Give the figures of a rung."""
    before, after = _score(report["baseline"]), _score(trial)
    timed = any(one["gate"].startswith(TIMED) for one in trial["verdicts"])
    speed = trial["measurement"]["speedup"] if trial["measurement"] and timed else None
    return Proof(
        model=report["model"]["name"],
        sizes_mb=(report["model"]["size_bytes"] / 1e6, trial["model"]["size_bytes"] / 1e6),
        speed=speed and Speed(speed["ratio"], speed["low"], speed["high"]),
        metric=after["metric"].rpartition(":")[2],
        scores=(before["value"], after["value"]),
        interval=(after["low"], after["high"]),
        n=after["n"],
        verdict=_verdict(trial),
        rung=trial["rung"],
    )


def read(text: str) -> Iterator[Proof]:
    """Give the figures that a recipe states."""
    for found in map(PROVED.fullmatch, text.splitlines()):
        if found:
            number = {key: float(value) for key, value in found.groupdict().items() if key in NUMBERS and value}
            yield Proof(
                model=found["model"],
                sizes_mb=(number["size_before"], number["size_after"]),
                speed=Speed(number["ratio"], number["slowest"], number["fastest"]) if found["ratio"] else None,
                metric=found["metric"],
                scores=(number["score_before"], number["score_after"]),
                interval=(number["score_low"], number["score_high"]),
                n=int(found["n"]),
                verdict=found["verdict"],
                rung=found["rung"],
            )


def differences(stated: tuple[Proof, ...], found: tuple[Proof, ...]) -> Iterator[str]:
    """Say in which figures a run differs from what is stated."""
    if [one.rung for one in stated] != [one.rung for one in found]:
        yield f"rungs stated: {[one.rung for one in stated]}, found: {[one.rung for one in found]}"
        return
    for one, other in zip(stated, found, strict=True):
        yield from (f"{one.rung}: {what}" for what in _different(one, other))


def written(text: str, found: tuple[Proof, ...], machine_: str) -> str:
    """Give the text of a recipe with these figures in the place of those that it states."""
    lines = text.splitlines()
    head = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    at = next((number for number, line in enumerate(lines) if line.startswith(HEAD)), head)
    kept = [line for line in lines if not line.startswith(HEAD)]
    return "\n".join([*kept[:at], *map(str, found), machine_, *kept[at:]]) + "\n"


def machine(report: Mapping[str, Any]) -> str:
    """Give the line that says where figures come from."""
    around = report["environment"]
    cpus = f"{around['cpus_usable']} CPUs of {around['cpu']}, {' '.join(around['isa'])}"
    return f"# machine: {cpus} | onnxruntime {around['versions']['onnxruntime']} | {report['started'][:10]}"


def failures(report: Mapping[str, Any]) -> Iterator[str]:
    """Say which rungs were not built, and why."""
    for trial in report["trials"]:
        if trial["failure"]:
            yield f"{trial['rung']} not built: {trial['failure']['reason']}"


def _score(trial: Mapping[str, Any]) -> Mapping[str, Any]:
    """Find the score, which a trial that was not measured has itself."""
    found: Mapping[str, Any] = (trial["measurement"] or trial)["score"]
    return found


def _verdict(trial: Mapping[str, Any]) -> str:
    met = [one["met"] for one in trial["verdicts"]]
    return "fail" if False in met else "inconclusive" if None in met else "pass"


def _different(stated: Proof, found: Proof) -> Iterator[str]:
    if (stated.model, stated.metric, stated.n) != (found.model, found.metric, found.n):
        yield f"another model, metric or number of samples: {found.model}, {found.metric}, {found.n}"
    for one, other in zip(stated.sizes_mb, found.sizes_mb, strict=True):
        if abs(one - other) > SIZE_SHARE * one:
            yield f"size {other:.4f} MB for {one:.4f} MB"
    if not stated.interval[0] <= round(found.scores[1], 4) <= stated.interval[1]:
        yield f"{found.metric} {found.scores[1]:.4f} outside {list(stated.interval)}"
    if (stated.speed is None) != (found.speed is None):
        yield f"speed {found.speed} for {stated.speed}"
    elif stated.speed and found.speed and not _meet(stated.speed, found.speed):
        yield f"speed {found.speed.ratio:.2f}x [{found.speed.low:.2f}, {found.speed.high:.2f}] beside what is stated"
    if stated.verdict != found.verdict:
        yield f"{found.verdict} for {stated.verdict}"


def _meet(stated: Speed, found: Speed) -> bool:
    return found.low <= stated.high * (1 + SPEED_SHARE) and found.high >= stated.low * (1 - SPEED_SHARE)


PITCH = ("--metric", "tones:raw_pitch_accuracy")
MINILM = "paraphrase-MiniLM-L3-v2"
NUMBERS = [name for name in PROVED.groupindex if name not in {"model", "metric", "n", "verdict", "rung"}]
CASES = {
    "ci-fast": Case("resnet20_cifar10", recipe_data.cifar, 1000, ()),
    "default": Case("crepe_tiny", recipe_data.tones, 300, ("--sla", "50ms", *PITCH)),
    "audio": Case("crepe_tiny", recipe_data.tones, 300, ("--sla", "10ms", *PITCH, "--all")),
    "detector": Case("ultraface_rfb320", recipe_data.scenes, 200, ("--sla", "50ms", "--all")),
    "tensorrt-edge": Case("efficientnet_lite0", recipe_data.imagenet, 300, ()),
    "transformer-encoder": Case(MINILM, recipe_data.sentences, 1379, ("--sla", "100ms", "--metric", "sts:spearman")),
    "cnn-classifier": Case("resnet56_cifar10", recipe_data.cifar, 4000, ("--sla", "50ms", "--all")),
    "mobile": Case("efficientnet_lite0", recipe_data.imagenet, 600, ("--sla", "100ms", "--all")),
}


if __name__ == "__main__":
    main()
