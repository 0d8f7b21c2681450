"""What share of a run's CPU time it costs to do each piece of work in a child of its own.

    python benchmarks/isolation.py [--model examples/digits.onnx] [--repeat 3]

Runs the default ladder twice, with a budget that the first rung meets and, over all rungs, with one that none meets: as
always, and with every piece of work in the one process of the command. The two alternate. Ways of quantizing are chosen
once, in a first run whose resolved recipe the others are given, or they would not do the same. CPU time is user and
system time of the command and of all its descendants. The share is what the children cost more, of the whole. Starts of
artifacts are in fresh interpreters both times, as such a start is what is measured there.

Exit code 1 if the share of either is 15 % or more.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

LADDERS = {"--sla 50ms": ("--sla", "50ms"), "--sla 50us --all": ("--sla", "50us", "--all")}
MOST = 0.15
HERE = "--in-one-process"
ENDS = (0, 3, 4)  # a verdict


def main() -> int:
    """Print a table, a row a ladder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("examples/digits.onnx"))
    parser.add_argument("--repeat", type=int, default=3)
    words = parser.parse_args()
    if words.repeat < 1:
        parser.error("--repeat: expected 1 or more")
    print("| run | in children | in one process | share of isolation |")
    print("| --- | --- | --- | --- |")
    shares = [row(name, flags, words.model.resolve(), words.repeat) for name, flags in LADDERS.items()]
    print(f"\n{platform.machine()}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}, ", end="")
    print(f"Python {platform.python_version()}, onnxruntime {version('onnxruntime')}, median of {words.repeat}")
    return int(max(shares) >= MOST)


def row(name: str, flags: Sequence[str], model: Path, repeat: int) -> float:
    """Print the CPU seconds of a ladder both ways, and give the share that isolation costs."""
    with tempfile.TemporaryDirectory() as folder:
        recipe, every = Path(folder) / "recipe.yaml", tuple(flag for flag in flags if flag == "--all")
        cpu_s((str(model), *flags), Path(folder))
        shutil.copy(next((Path(folder) / "reports").glob("*/*/recipe.yaml")), recipe)
        asked = (str(model), "--recipe", str(recipe), *every)
        pairs = [(cpu_s(asked, Path(folder)), cpu_s(asked, Path(folder), HERE)) for _ in range(repeat)]
    share = median((apart - here) / apart for apart, here in pairs)
    apart_s, here_s = (median(side) for side in zip(*pairs, strict=True))
    print(f"| {name} | {apart_s:.1f} s | {here_s:.1f} s | {share:.1%} |", flush=True)
    return share


def cpu_s(asked: Sequence[str], folder: Path, *how: str) -> float:
    """Give the CPU seconds of a run that finds nothing of an earlier one."""
    shutil.rmtree(folder / "reports", ignore_errors=True)
    command = [sys.executable, str(Path(__file__).resolve()), *how] if how else [sys.executable, "-m", "compressor"]
    command += ["run", *asked, "--output", str(folder / "reports"), "--quiet"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = subprocess.run(
        command, check=False, capture_output=True, env={**os.environ, "MLFLOW_TRACKING_URI": "none"}
    ).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code not in ENDS:
        sys.exit(f"{' '.join(command)}: exit code {code}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def in_one_process() -> None:
    """Be the command that does every piece of work itself."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # as in a child
    from compressor import cli, isolation

    isolation.call = partial(call_here, isolation.call)  # type: ignore[assignment]
    sys.argv.remove(HERE)
    cli.main()


def call_here(apart: Callable[..., Any], work: Callable[..., Any], *args: object, **how: Any) -> Any:
    """Do a piece of work in this process, unless a fresh one is what it is about."""
    from compressor import isolation

    if how.get("nursery") is None:
        return (yield from apart(work, *args, **how))
    started = time.monotonic()
    value = work(*args)
    value = (yield from value) if isinstance(value, Iterator) else value
    return isolation.Returned(value, time.monotonic() - started, 1)


if __name__ == "__main__":
    sys.exit(in_one_process() if HERE in sys.argv else main())
