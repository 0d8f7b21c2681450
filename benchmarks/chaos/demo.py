"""Runs of the command on the demo model: short ones, whose artifacts depend on no timing and whose verdict is a pass.

What another disturbance needs to know of a run is added to `Run`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples" / "digits.onnx"
SAMPLES = ROOT / "calibration_data"
TEMPORARY = "temporary"
"""The folder for temporary files in a run's folder."""
_MARK = "COMPRESSOR_CHAOS"
"""An environment variable that all processes of a run inherit, whoever adopts them."""
_STEP = re.compile(r"\s*[\d.]+ s  ([^;]+)$")
"""A line about a step; one about a trial holds semicolons."""
_POLL_S = 0.05


def recipe(folder: Path, rungs: Sequence[str] = ("int8-fused", "prune20-int8-fused")) -> Path:
    """Write the recipe: a gate that all rungs meet, for every rung stages that leave no way open."""
    static = [{"quantize": {"scheme": "static", "ranges": "minmax"}}, "fuse"]
    stages = {"fused": ["fuse"], "int8-fused": static, "prune20-int8-fused": [{"prune": {"ratio": "20%"}}, *static]}
    asked = {
        "data": {
            "calibration": {"path": str(SAMPLES / "digits_calibration.npz"), "samples": 64},
            "evaluation": {"path": str(SAMPLES / "digits_evaluation.npz")},
        },
        "rungs": [{"name": name, "stages": stages[name]} for name in rungs],
        "gates": [{"size": {"max": "1MB"}}, {"accuracy": {"max_drop": "20%"}}],
        "limits": {"measure": "200ms"},
    }
    path = folder / "asked.yaml"
    path.write_text(yaml.safe_dump(asked))
    return path


@dataclass(frozen=True)
class Run:
    """A run in a folder of its own or of others: where reports go, where stderr does, and the mark of its processes."""

    folder: Path
    mark: str
    process: subprocess.Popen[bytes]
    begun_s: float

    @property
    def stderr(self) -> Path:
        """Give the file with what it said."""
        return self.folder / f"{self.mark}.txt"

    def step(self) -> str:
        """Give the step that it was at when it spoke last."""
        found = [match[1] for line in self.stderr.read_text().splitlines() if (match := _STEP.fullmatch(line))]
        return found[-1].split(",")[0].strip() if found else "start"

    def ended(self) -> tuple[int, float]:
        """Wait for its end; give the exit code and the seconds that it took."""
        code = self.process.wait()
        return code, time.monotonic() - self.begun_s

    def living(self) -> list[psutil.Process]:
        """Give all processes of the run that live, found by what they inherited."""
        return [one for one in psutil.process_iter() if _lives(one, f"{self.folder}/{self.mark}")]

    def left(self, seconds: float = 10) -> list[str]:
        """Wait until no process of it lives; name those that still do."""
        until = time.monotonic() + seconds
        while (living := self.living()) and time.monotonic() < until:
            time.sleep(_POLL_S)
        return [str(one) for one in living]

    def kill(self, *, alone: bool) -> None:
        """Kill the whole tree, or the command alone, as a system without memory may."""
        if self.process.poll() is not None:  # it has ended by itself
            return
        root = psutil.Process(self.process.pid)
        for one in [root] if alone else [root, *root.children(recursive=True)]:
            _kill(one)
        self.process.wait()


_HEEDFUL = """
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
from compressor.cli import main
main()
"""
"""The command, which heeds signals that whoever runs this may ignore, as a shell does for what is in the background."""


def start(folder: Path, asked: Path, mark: str = "run", before: Sequence[str] = ()) -> Run:
    """Start a run that keeps all that it writes in a folder.

    Args:
        folder: Gets `reports`, the registry `registry.db`, and `temporary`, the folder for temporary files.
        asked: The recipe.
        mark: Tells its processes from those of other runs in the folder, and names the file with what it says.
        before: Words of a command that sets a scene and then runs the words behind it.
    """
    for name in (TEMPORARY, "reports"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    words = ["run", str(MODEL), "--recipe", str(asked), "--all", "--output", str(folder / "reports")]
    call = [*before, sys.executable, "-c", _HEEDFUL, *words, "--registry", f"sqlite:///{folder}/registry.db"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW")}
    env = {**kept, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / TEMPORARY), _MARK: f"{folder}/{mark}"}
    with (folder / f"{mark}.txt").open("wb") as stderr:
        process = subprocess.Popen(call, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=stderr)
    return Run(folder, mark, process, time.monotonic())


def _lives(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(_MARK, "") == mark and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
