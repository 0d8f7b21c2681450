"""How the light models of the onnx package end: famous networks, whose weights are all one and the same number.

    python benchmarks/light_models.py [--only squeezenet,shufflenet] [--measure 2s] [--keep DIR]

Runs `compress run MODEL --sla 1s` with one rung, INT8, on each, as anybody would. The files are a few kB, because their
weights are made by ConstantOfShape; what comes of them is as large as the network. Their outputs are all but the same
for every input, so that neither a metric nor an SQNR can tell a right artifact from a wrong one: no such rung may pass.

Exit code 1 if a run ends with a traceback, or in anything but a verdict or a refusal, or if such a rung passes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx.backend.test

MODELS = Path(onnx.backend.test.__file__).parent / "data" / "light"
ENDS = (0, 2, 3, 4)
RECIPE = "rungs: [{{name: int8, stages: [quantize]}}]\nlimits: {{measure: {measure}}}\n"


@dataclass(frozen=True)
class End:
    """How a run ended; `rung`: what became of INT8."""

    model: str
    code: int
    seconds: float
    peak_gb: float
    sizes: str
    rung: str
    said: str

    @property
    def fine(self) -> bool:
        """Whether it is an end that a user can act on."""
        return self.code in ENDS and not self.rung.startswith("pass")


def main() -> int:
    """Run, print a row a model, give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, with commas between")
    parser.add_argument("--measure", default="2s", help="longest time of one measurement")
    parser.add_argument("--keep", type=Path, help="where the reports go; else they go nowhere")
    given = parser.parse_args()
    wanted = [path for path in sorted(MODELS.glob("*.onnx")) if any(n in path.stem for n in given.only.split(","))]
    with tempfile.TemporaryDirectory() as scratch:
        ends = [_run(path, given.keep or Path(scratch), given.measure) for path in wanted]
    return 0 if ends and all(end.fine for end in ends) else 1


def _run(model: Path, folder: Path, measure: str) -> End:
    folder.mkdir(parents=True, exist_ok=True)
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(measure=measure), encoding="utf-8")
    words = [sys.executable, "-m", "compressor", "run", model, "--sla", "1s", "--recipe", recipe]
    started = time.monotonic()
    done = subprocess.run(
        [*words, "--registry", "none", "--output", folder / model.stem, "--json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    report = json.loads(done.stdout) if done.stdout else None
    sizes, rung = _told(report) if report else ("", "")
    said = done.stderr.strip().splitlines()[-1]
    peak_gb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6  # of all so far: it only grows
    end = End(model.stem, done.returncode, seconds, peak_gb, sizes, rung, said)
    row = f"{end.model:22} exit {end.code}  {end.seconds:4.0f} s  {end.peak_gb:.1f} GB  {end.sizes:22} "
    print(row + (end.rung or end.said), flush=True)
    return end


def _told(report: dict[str, Any]) -> tuple[str, str]:
    """Give the sizes before and after, and what became of the rung."""
    trial = report["trials"][0] if report["trials"] else report["baseline"]
    sizes = [report["model"]["size_bytes"], (trial.get("model") or {}).get("size_bytes")]
    told = " → ".join("-" if size is None else f"{size / 1e6:.2f} MB" for size in sizes)
    if trial["failure"]:
        return told, f"not built: {trial['failure']['reason']}"
    passed = "pass" if report["chosen"] == trial["rung"] else "no pass"
    return told, f"{passed}: " + "; ".join(f"{v['gate']} {v['met']} ({v['reason']})" for v in trial["verdicts"])


if __name__ == "__main__":
    sys.exit(main())
