"""How often a comparison claims a difference that is not there, and finds one of 5 % that is.

    python benchmarks/aa.py [--model examples/digits.onnx] [--trials 60] [--loaded 20] [--budget 20]

Compares a model with itself in a quiet machine, with itself plus a wait of 5 % of every call, and with itself beside
two busy processes. Beside each verdict stands what a naive benchmark says in the same trial: 10 warm-ups and 20 runs of
one model, then of the other, and a difference of the means of more than 2 %. `by interval alone` counts the claims
that would be made if a busy machine did not ask for more. The last lines describe the machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median

import numpy as np
import onnxruntime as ort

from compressor import gates, runtime
from compressor.bench.load import Closed
from compressor.bench.measure import Experiment, Measured, measure
from compressor.records import Feeds, Outputs, Session, Speedup, Work

WARM_UPS, RUNS = 10, 20
SLOWER = 0.05
BUSY = 2


@dataclass(frozen=True)
class Slowed:
    """A session that keeps its caller waiting longer by a share of what each call took."""

    session: Session
    share: float

    def __call__(self, feeds: Feeds) -> Outputs:
        """Answer, and then wait busily."""
        begin_ns = time.perf_counter_ns()
        outputs = self.session(feeds)
        end_ns = time.perf_counter_ns()
        until_ns = end_ns + int((end_ns - begin_ns) * self.share)
        while time.perf_counter_ns() < until_ns:
            pass
        return outputs

    def close(self) -> None:
        """Close the session."""
        self.session.close()


@dataclass(frozen=True)
class Trials:
    """Comparisons of one kind."""

    name: str
    found: tuple[Speedup, ...]
    naive: tuple[str, ...]
    seconds: tuple[float, ...]

    def row(self) -> str:
        """Give a line of the table."""
        relations = Counter(gates.relation(one) for one in self.found)
        counts = " | ".join(str(relations[name]) for name in ("faster", "slower", "same", "undecided"))
        naive = Counter(self.naive)
        ratios = [one.ratio for one in self.found]
        alone = sum(one.low > gates.MINIMUM_EFFECT or one.high * gates.MINIMUM_EFFECT < 1 for one in self.found)
        stalled = [one.stalled for one in self.found if one.stalled is not None]
        return (
            f"| {self.name} | {len(self.found)} | {counts} | {alone} | {min(ratios):.3f} to {max(ratios):.3f} "
            f"| {naive['faster']} | {naive['slower']} | {median(self.seconds):.1f}, {max(self.seconds):.1f} "
            f"| {spread([one.preempted for one in self.found])} | {spread(stalled)} |"
        )


def main() -> None:
    """Run all trials and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("examples/digits.onnx"))
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--loaded", type=int, default=20)
    parser.add_argument("--budget", type=float, default=20.0, help="most seconds of one comparison")
    given = parser.parse_args()
    feeds = inputs(given.model)

    def plain() -> Session:
        return runtime.load(given.model, runtime.options(threads(), spinning=False))

    def slowed() -> Session:
        return Slowed(plain(), SLOWER)

    print(
        "| trials | n | faster | slower | same | undecided | by interval alone | ratios | naive faster | naive slower ",
        end="",
    )
    print("| s: median, most | preempted: 10 %, 50 %, 90 % | stalled: the same |\n" + "| --- " * 13 + "|")
    print(trials("itself, quiet", (plain, plain), feeds, given.trials, given.budget).row(), flush=True)
    print(trials("slower by 5 %, quiet", (plain, slowed), feeds, given.trials, given.budget).row(), flush=True)
    with busy():
        print(trials("itself, loaded", (plain, plain), feeds, given.loaded, given.budget).row())
    print(f"\n{machine(given.model)}")


def trials(name: str, openers: tuple[Callable[[], Session], ...], feeds: Feeds, n: int, budget_s: float) -> Trials:
    """Compare as often as asked, with seeds from 0 on."""
    found, said, seconds = [], [], []
    for seed in range(n):
        said.append(naive(openers, feeds))
        begin = time.perf_counter()
        experiment = Experiment(Closed(), (), budget_s, seed, {}, ratios=gates.RATIOS_OF_COMPARISON)
        speedup = finish(measure(openers, (feeds,), experiment)).speedup
        seconds.append(time.perf_counter() - begin)
        if speedup is None:
            sys.exit(f"{budget_s:g} s are too short for three rounds: raise --budget")
        found.append(speedup)
    return Trials(name, tuple(found), tuple(said), tuple(seconds))


def naive(openers: tuple[Callable[[], Session], ...], feeds: Feeds) -> str:
    """Say what one model after the other, and a comparison of means, finds."""
    before, after = (fmean(runs(opener, feeds)) for opener in openers)
    if max(before, after) / min(before, after) <= gates.MINIMUM_EFFECT:
        return "same"
    return "faster" if after < before else "slower"


def runs(opener: Callable[[], Session], feeds: Feeds) -> list[float]:
    """Give the seconds of some runs after a warm-up."""
    taken = []
    with closing(opener()) as session:
        for _ in range(WARM_UPS + RUNS):
            begin = time.perf_counter()
            session(feeds)
            taken.append(time.perf_counter() - begin)
    return taken[WARM_UPS:]


def finish(work: Work[Measured]) -> Measured:
    """Run work to its end."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            measured: Measured = end.value
            return measured


@contextmanager
def busy() -> Iterator[None]:
    """Keep as many processes busy as are asked for."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def inputs(model: Path) -> Feeds:
    """Give random floats and zeros of other types, in shapes whose open dimensions are 1."""
    rng, session = np.random.default_rng(0), ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    feeds = {}
    for one in session.get_inputs():
        shape = [size if isinstance(size, int) else 1 for size in one.shape]
        is_float = one.type == "tensor(float)"
        feeds[one.name] = rng.normal(size=shape).astype(np.float32) if is_float else np.zeros(shape, np.int64)
    return feeds


def threads() -> int:
    """Give the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(shares: list[float]) -> str:
    """Give three quantiles of some shares."""
    return ", ".join(f"{share:.1%}" for share in np.quantile(shares, (0.1, 0.5, 0.9))) if shares else "unknown"


def machine(model: Path) -> str:
    """Describe what the figures depend on; the load is that of the last minute, the loaded trials."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("onnxruntime", "numpy"))
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"
    return f"{model.name}, {threads()} threads, {platform.platform()}, {os.cpu_count()} CPUs, {load}, {versions}"


if __name__ == "__main__":
    main()
