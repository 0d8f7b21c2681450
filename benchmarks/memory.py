"""Peak memory and CPU time of a run at 100 and at 1000 calibration samples: both must not grow with the samples.

    python benchmarks/memory.py --shared ../shared

Prints the peak resident memory of the parent and of the largest child, and their ratio, on resnet20.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import yaml
from real_models import GATES, recipes


def main() -> None:
    """Run twice and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    shared = parser.parse_args().shared
    if not shared.is_dir():
        sys.exit(f"{shared}: no such folder; --shared names the folder of models and data")
    print("| calibration samples | parent, peak | largest child, peak |")
    print("| --- | --- | --- |")
    peaks = {samples: peak(shared.resolve(), samples) for samples in (100, 1000)}
    for samples, (parent, child) in peaks.items():
        print(f"| {samples} | {parent / 1e6:.0f} MB | {child / 1e6:.0f} MB |")
    few, many = peaks[100], peaks[1000]
    print(f"| ratio | {many[0] / few[0]:.2f} | {many[1] / few[1]:.2f} |")


def peak(shared: Path, samples: int) -> tuple[int, int]:
    """Run the ladder on resnet20 and give the peak resident bytes of the parent and of its largest child."""
    with tempfile.TemporaryDirectory() as folder:
        model, data = recipes(shared, None, Path(folder))["resnet20"]
        data["calibration"]["samples"] = samples
        recipe = Path(folder) / "recipe.yaml"
        recipe.write_text(yaml.safe_dump({"data": data, "gates": GATES}))
        words = [sys.executable, "-m", "compressor", "run", str(model), "--recipe", str(recipe), "--all", "--quiet"]
        with subprocess.Popen([*words, "--output", f"{folder}/reports"]) as process:
            return watched(psutil.Process(process.pid))


def watched(process: psutil.Process) -> tuple[int, int]:
    """Sample resident memory until the process ends."""
    parent = child = 0
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        try:
            parent = max(parent, process.memory_info().rss)
            child = max([child, *(one.memory_info().rss for one in process.children(recursive=True))])
        except psutil.NoSuchProcess:
            continue
        time.sleep(0.01)
    return parent, child


if __name__ == "__main__":
    main()
