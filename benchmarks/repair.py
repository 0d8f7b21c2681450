"""What pruning costs in score: as it is cut, repaired, and recovered by distillation; then what it gains in speed.

    python benchmarks/repair.py --shared ../shared [--minilm paraphrase-MiniLM-L3-v2.onnx] [--only NAME ...] [--recover]

By multiply-accumulates, channels as they come, float: what is lost. By latency, in multiples that kernels like, float:
what is gained for that. One thread; speed-ups are of one run, on this machine, which the last lines describe. Drops are
in points, a hundredth of the score. `--recover` needs torch. The models and data are those of `int8.py`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from int8 import Case, cases, compress
from PIL import Image

RATIOS = ("20%", "40%")
SECONDS = 3600  # for a stage
EXPORTED = Path(__file__).parents[1] / "tests/data/exported"
PHOTOGRAPHS, SEQUENCES, SEQUENCE = 200, 300, (5, 6)
DECIBELS = "sqnr"
REASON = 200  # characters of a message
ALL = (1000, 10_000)  # samples for calibration and evaluation
SAMPLES = {"efficientnet_lite0": (600, 400), "kws": (200, 800), "crepe_tiny": (200, 300), "minilm": (200, 1379)}


def main() -> None:
    """Run all and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--ratios", nargs="+", default=RATIOS)
    parser.add_argument("--recover", action="store_true", help="distil too")
    given = parser.parse_args()
    if not given.shared.is_dir():
        sys.exit(f"{given.shared}: no such folder; --shared names the folder of models and data")
    columns = ("model", "rung", "MACs left", "score", "drop, points", "speed-up", "stage, s", "peak, MB")
    print(f"| {' | '.join(columns)} |\n{'| --- ' * len(columns)}|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, case in wanted(given.shared.resolve(), given.minilm, Path(folder)).items():
            if not given.only or name in given.only:
                for line in rows(name, run(case, Path(folder) / name, rungs(given.ratios, recover=given.recover))):
                    print(line, flush=True)
    print(flush=True)
    subprocess.run([sys.executable, "-m", "compressor", "doctor"], check=True)


def wanted(shared: Path, minilm: Path | None, folder: Path) -> dict[str, Case]:
    """Give the models."""
    found = {name: Case(case.model, _sized(name, case.data)) for name, case in cases(shared, minilm, folder).items()}
    found |= {"resnet8": Case(shared / "models/mlperf_tiny_resnet8_cifar10.onnx", _raw(found["resnet20"].data))}
    found["ultraface"] = Case(shared / "models/ultraface_rfb320.onnx", _held(_faces(shared, folder)))
    found["lstm"] = Case(EXPORTED / "lstm_stacked_script.onnx", _held(_sequences(folder)))
    return found


def _sized(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """Learn from as many samples as there are, and score all others."""
    calibration, evaluation = SAMPLES.get(name, ALL)
    parts = {"calibration": calibration, "evaluation": evaluation}
    return data | {part: data[part] | ({"samples": n} if n else {}) for part, n in parts.items()}


def _raw(data: dict[str, Any]) -> dict[str, Any]:
    """Give the data block of a model that reads pixels as they are."""
    return data | {"preprocess": data["preprocess"] | {"mean": [0, 0, 0], "std": [1, 1, 1]}}


def _held(samples: Path) -> dict[str, Any]:
    """Give the data block of a model that is held against its own outputs."""
    return {"calibration": {"path": str(samples)}, "evaluation": {"path": str(samples)}, "metric": DECIBELS}


def _faces(shared: Path, folder: Path) -> Path:
    """Write photographs as the detector reads them."""
    with zipfile.ZipFile(shared / "data/imagenet1000_256.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.lower().endswith((".jpg", ".jpeg", ".png")))
        images = [Image.open(archive.open(name)).convert("RGB").resize((320, 240)) for name in names[:PHOTOGRAPHS]]
    pixels = np.stack([np.asarray(image, np.float32) for image in images]).transpose(0, 3, 1, 2)
    np.savez(folder / "faces.npz", input=(pixels - 127) / 128)
    return folder / "faces.npz"


def _sequences(folder: Path) -> Path:
    """Write sequences that wander."""
    steps = np.random.default_rng(0).normal(size=(SEQUENCES, *SEQUENCE))
    np.savez(folder / "sequences.npz", x=(steps.cumsum(1) / 3).astype(np.float32))
    return folder / "sequences.npz"


def rungs(ratios: list[str], *, recover: bool) -> Iterator[dict[str, Any]]:
    """Give the rungs of each ratio."""
    for ratio in ratios:
        whole, share = {"ratio": ratio, "multiple": 1}, ratio.rstrip("%")
        yield {"name": f"cut-{share}", "stages": [{"prune": whole | {"repair": False}}]}
        yield {"name": f"repaired-{share}", "stages": [{"prune": whole}]}
        if recover:
            yield {"name": f"recovered-{share}", "stages": [{"prune": whole}, {"recover": {"minutes": 15}}]}
        yield {"name": f"by-latency-{share}", "stages": [{"prune": {"ratio": ratio, "of": "latency"}}]}


def run(case: Case, folder: Path, wanted: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """Climb all rungs, and give the report."""
    folder.mkdir()
    asked = {
        "data": case.data,
        "gates": [{"latency": {"p99": "60s"}}, {"accuracy": {"min": 0}}],
        "engine": {"onnxruntime": {"threads": 1}},
        "rungs": list(wanted),
        "registry": {"uri": "none"},
        "limits": {"seconds": SECONDS},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(asked))
    words = ("run", str(case.model), "--recipe", f"{folder}/recipe.yaml", "--output", f"{folder}/reports", "--all")
    ended = compress(*words)
    if not ended.stdout:
        sys.exit(ended.stderr)
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def rows(name: str, report: dict[str, Any]) -> Iterator[str]:
    """Give a line for each rung, after one for the original."""
    before = report["baseline"]["measurement"]["score"]
    yield f"| {name} | original | 100.0% | {_score(before)} | | | | |"
    for trial in report["trials"]:
        measured, macs = trial["measurement"], report["model"]["macs"]
        if measured is None:
            yield f"| {name} | {trial['rung']} | {trial['failure']['reason'][:REASON]} | | | | | |"
            continue
        speedup, stages = measured["speedup"], trial["stages"][1:]
        cells = (
            *(name, trial["rung"], f"{trial['model']['macs'] / macs:.1%}", _score(measured["score"])),
            _drop(measured["score"]),
            f"{speedup['ratio']:.2f} [{speedup['low']:.2f}, {speedup['high']:.2f}]",
            f"{sum(stage['seconds'] for stage in stages):.0f}",
            f"{max(stage['peak_memory_bytes'] for stage in stages) / 1e6:.0f}",
        )
        yield f"| {' | '.join(cells)} |"


def _score(score: dict[str, Any]) -> str:
    return f"{score['value']:.1f} dB" if score["metric"] == DECIBELS else f"{100 * score['value']:.2f}"


def _drop(score: dict[str, Any]) -> str:
    """Give the drop in points; against its own outputs a model has none to lose."""
    if score["metric"] == DECIBELS:
        return ""
    low, drop, high = (100 * score[key] for key in ("drop_low", "drop", "drop_high"))
    return f"{drop:+.2f} [{low:+.2f}, {high:+.2f}]"


if __name__ == "__main__":
    main()
