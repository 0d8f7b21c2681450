"""What `quantize` chooses on real and on random models, and what that gains and costs.

    python benchmarks/int8.py --shared ../shared [--minilm paraphrase-MiniLM-L3-v2.onnx] [--only NAME ...]

One rung, one thread. Ratios are of one run on this machine, which the last lines describe; where float is kept the
speed-up counts as 1. Random networks (see `models.py`) are timed on images and not scored. Drops are in points, a
hundredth of the score. The models and data are those of `real_models.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import models
import yaml
from real_models import recipes

GATES = [{"latency": {"p99": "60s"}}, {"accuracy": {"max_drop": "90%"}}, {"speedup": {"min": "1x"}}]
IMAGES = {"crop": 224, "mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
CALIBRATION = 100  # samples
SCORED = {"efficientnet_lite0": 800}  # samples, of the others all
NAMING = ("scheme", "backend", "operators")  # the settings that tell ways apart
REASON = 120  # characters of a message
UNSCORED = 32  # images on which random networks are compared with themselves


@dataclass(frozen=True)
class Case:
    """A model and the data block of its recipe; `scored` tells whether its score means anything."""

    model: Path
    data: dict[str, Any]
    scored: bool = True


@dataclass(frozen=True)
class Row:
    """What was found for a model; no `drop` where nothing was scored."""

    cells: tuple[str, ...]
    ratio: float
    drop: float | None

    def __str__(self) -> str:
        """Give a line of the table."""
        return f"| {' | '.join(self.cells)} |"


def main() -> None:
    """Run all and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--only", nargs="+")
    given = parser.parse_args()
    if not given.shared.is_dir():
        sys.exit(f"{given.shared}: no such folder; --shared names the folder of models and data")
    print("| model | chosen | speed-up | size | before | after | drop, points | tried |\n" + "| --- " * 8 + "|")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        wanted = cases(given.shared.resolve(), given.minilm, Path(folder)) | networks(given.shared, Path(folder))
        for name, case in wanted.items():
            if not given.only or name in given.only:
                rows.append(row(name, case, run(case, Path(folder) / name)))
                print(rows[-1], flush=True)
    print(f"\n{summary(rows)}\n", flush=True)
    subprocess.run([sys.executable, "-m", "compressor", "doctor"], check=True)


def cases(shared: Path, minilm: Path | None, folder: Path) -> dict[str, Case]:
    """Give the trained models by name, calibrated on few samples and scored on many."""
    found = recipes(shared, minilm and minilm.resolve(), folder)
    found["resnet56"] = (shared / "models/resnet56_cifar10.onnx", found["resnet20"][1])
    tones = {"path": str(shared / "data/tones500.npz")}
    pitch = {"calibration": tones, "evaluation": tones, "metric": "tones:raw_pitch_accuracy"}
    found["crepe_tiny"] = (shared / "models/crepe_tiny.onnx", pitch)
    return {name: Case(model, _sized(data, SCORED.get(name))) for name, (model, data) in found.items()}


def networks(shared: Path, folder: Path) -> dict[str, Case]:
    """Write the random networks into a folder and give them by name."""
    images = {"path": str(shared.resolve() / "data/imagenet1000_256.zip")}
    blocks = {"calibration": images, "evaluation": images, "preprocess": IMAGES, "metric": "cosine"}
    data = _sized(blocks, UNSCORED)
    return {name: Case(models.write(name, folder), data, scored=False) for name in models.NETWORKS}


def run(case: Case, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one rung of `quantize`, in a folder that is made."""
    folder.mkdir()
    asked = str(recipe(case, folder, GATES))
    return compress("run", str(case.model), "--recipe", asked, "--output", f"{folder}/reports")


def recipe(case: Case, folder: Path, gates: list[dict[str, Any]]) -> Path:
    """Write a recipe of one rung into a folder."""
    path = folder / "recipe.yaml"
    asked = {
        "data": case.data,
        "gates": gates,
        "engine": {"onnxruntime": {"threads": 1}},
        "rungs": [{"name": "int8", "stages": [{"quantize": {}}]}],
        "registry": {"uri": "none"},
    }
    path.write_text(yaml.safe_dump(asked))
    return path


def compress(*words: str) -> subprocess.CompletedProcess[str]:
    """Call the command line, which finds the metrics of this folder."""
    places = [str(Path(__file__).parent), *filter(None, sys.path)]
    return subprocess.run(
        [sys.executable, "-m", "compressor", *words, "--json", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
    )


def row(name: str, case: Case, ended: subprocess.CompletedProcess[str]) -> Row:
    """Sum up the only trial of a run; what was not built leaves the model float."""
    if not ended.stdout:
        return _failed(name, ended.stderr)
    report = json.loads(ended.stdout)
    (trial,) = report["trials"]
    measured = trial["measurement"]
    if measured is None:
        return _failed(name, trial["failure"]["reason"])
    stage, speedup = _stage(trial), measured["speedup"]
    before, after = report["baseline"]["measurement"]["score"], measured["score"]
    cells = (
        name,
        _named(stage["settings"]) if stage["changed"] else "float",
        f"{speedup['ratio']:.2f} [{speedup['low']:.2f}, {speedup['high']:.2f}]",
        f"{report['model']['size_bytes'] / measured['size_bytes']:.2f}",
        *(_scores(before, after) if case.scored else [""] * 3),
        "; ".join(map(_tried, stage["tried"])),
    )
    ratio = speedup["ratio"] if stage["changed"] else 1.0
    return Row(cells, ratio, 100 * after["drop"] if case.scored else None)


def summary(rows: list[Row]) -> str:
    """Give the figures over all models."""
    ratios, drops = [one.ratio for one in rows], [one.drop for one in rows if one.drop is not None]
    found = f"geometric mean of {len(ratios)} speed-ups {geometric_mean(ratios):.2f}, least {min(ratios):.2f}"
    return found + (f"; drop: median {median(drops):+.2f}, largest {max(drops):+.2f} points" if drops else "")


def _sized(data: dict[str, Any], scored: int | None) -> dict[str, Any]:
    calibration = {**data["calibration"], "samples": CALIBRATION}
    return {**data, "calibration": calibration, "evaluation": {**data["evaluation"], "samples": scored}}


def _failed(name: str, message: str) -> Row:
    return Row((name, f"fails: {' '.join(message.split())[-REASON:]}", *[""] * 6), 1.0, None)


def _stage(trial: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(stage for stage in trial["stages"] if stage["stage"] == "quantize")
    return found


def _scores(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, str, str]:
    drop, low, high = (100 * after[key] for key in ("drop", "drop_low", "drop_high"))
    return f"{before['value']:.4f}", f"{after['value']:.4f}", f"{drop:+.2f} [{low:+.2f}, {high:+.2f}]"


def _tried(tried: dict[str, Any]) -> str:
    """Say what a way was worth, or why it was not looked at."""
    ratio, db = tried["ratio"], tried["sqnr_db"]
    if db is None:
        return f"{_named(tried['settings'])}: {tried['why'][:REASON]}"
    return f"{_named(tried['settings'])} {db:.0f} dB" + (f" x{ratio:.2f}" if ratio else "")


def _named(settings: dict[str, Any]) -> str:
    """Name a way of quantizing."""
    return " ".join(settings[key] for key in NAMING if settings.get(key))


if __name__ == "__main__":
    main()
