"""What share of a run's CPU time it costs to do each piece of work in a child of its own.

    python benchmarks/isolation.py [--model examples/digits.onnx] [--repeat 3]

Three runs, told apart within each of them by who spends the CPU time: the default ladder with a budget that the first
rung meets; the same again, which takes all that is made from the store; over all rungs, with a budget that none meets.
Every piece of work notes what it takes in its child. What all children, and the interpreters that they are forked from,
take besides is the cost of isolation: interpreters, imports, forks, pickles, less the packages that one process would
have to import, too, once, as timed in one. The leading process stands by itself: command line, progress, reports, and
watching its children.

Exit code 1 if the share of the first or last run is 15 % or more in the median.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from clocked import clocked, cpu_s

AGAIN = "the same again"
RUNS = {"--sla 50ms": ("--sla", "50ms"), AGAIN: ("--sla", "50ms"), "--sla 50us --all": ("--sla", "50us", "--all")}
MOST = 0.15
MEASURED = "--measured"
ENDS = (0, 3, 4)  # a verdict


def main() -> int:
    """Print a table, a row a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("examples/digits.onnx"))
    parser.add_argument("--repeat", type=int, default=3)
    words = parser.parse_args()
    found: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in RUNS}
    for _ in range(words.repeat):
        with tempfile.TemporaryDirectory() as folder:
            for name, flags in RUNS.items():
                where = Path(folder) / ("first" if flags == RUNS[AGAIN] else "all")
                found[name].append(spent(words.model.resolve(), flags, where))
    print("| run | pieces of work | leading process | imports | isolation | share of isolation |")
    print("| --- | --- | --- | --- | --- | --- |")
    shares = {name: row(name, times) for name, times in found.items()}
    print(f"\nCPU seconds. {platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, ", end="")
    print(f"Python {platform.python_version()}, onnxruntime {version('onnxruntime')}, median of {words.repeat}")
    return int(any(share >= MOST for name, share in shares.items() if name != AGAIN))


def row(name: str, times: Sequence[tuple[float, float, float, float]]) -> float:
    """Print what a run takes, and give the share that isolation costs."""
    shares = [each[-1] / sum(each) for each in times]
    cells = [f"{median(column):.1f}" for column in zip(*times, strict=True)]
    print(f"| {name} | {' | '.join(cells)} | {median(shares):.1%} ({min(shares):.1%} to {max(shares):.1%}) |")
    return median(shares)


def spent(model: Path, flags: Sequence[str], folder: Path) -> tuple[float, float, float, float]:
    """Give the CPU seconds of a run's pieces of work, its leading process, imports that it needs, and isolation."""
    folder.mkdir(exist_ok=True)
    noted, leading, modules = (folder / name for name in ("pieces.txt", "leading.txt", "modules.txt"))
    noted.unlink(missing_ok=True)
    command = [sys.executable, str(Path(__file__).resolve()), MEASURED, str(folder), "run", str(model), *flags]
    before_s = cpu_s()
    code = subprocess.run(
        [*command, "--output", str(folder / "reports"), "--quiet"],
        check=False,
        capture_output=True,
        env={**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"},
    ).returncode
    if code not in ENDS:
        sys.exit(f"{' '.join(command)}: exit code {code}")
    all_s, leading_s = cpu_s() - before_s, float(leading.read_text())
    pieces_s, imports_s = sum(map(float, noted.read_text().split())), needed_s(modules.read_text().split())
    return pieces_s, leading_s, imports_s, all_s - leading_s - pieces_s - imports_s


def needed_s(modules: Sequence[str]) -> float:
    """Give the CPU seconds that a process like the leading one takes to import some modules once."""
    before = "import time, compressor.console, compressor.pipeline; began = time.process_time()"
    code = f"{before}; import {', '.join(modules)}; print(time.process_time() - began)"
    env = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}  # as in a child
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=env).stdout)


def measured() -> None:
    """Be the command, each of whose pieces of work notes what it takes."""
    import atexit

    from compressor import cli, isolation

    folder = Path(sys.argv.pop(2))
    sys.argv.remove(MEASURED)
    having, modules = isolation.Nursery.having, dict.fromkeys(("onnx", "onnx_ir", "onnxruntime"))

    def noting(nursery: isolation.Nursery, *more: str) -> isolation.Nursery:
        modules.update(dict.fromkeys(more))
        return having(nursery, *more)

    isolation.Nursery.having = noting  # type: ignore[method-assign]
    isolation.call = partial(call, isolation.call, folder / "pieces.txt")  # type: ignore[assignment]

    def note() -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        (folder / "leading.txt").write_text(str(used.ru_utime + used.ru_stime))
        (folder / "modules.txt").write_text(" ".join(modules))

    atexit.register(note)
    cli.main()


def call(apart: Callable[..., Any], noted: Path, work: Callable[..., Any], *args: object, **how: Any) -> Any:
    """Do a piece of work in its child, as always, where it notes what it takes."""
    return apart(clocked, noted, work, *args, **how)


if __name__ == "__main__":
    sys.exit(measured() if MEASURED in sys.argv else main())
