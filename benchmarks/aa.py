"""How often a comparison claims a difference that is not there, and finds one of 5 % that is.

    python benchmarks/aa.py [--model examples/digits.onnx] [--trials 60] [--loaded 20] [--budget 15]

Compares a model with itself in a quiet machine, with itself plus work of 5 %, and with itself beside two busy
processes. The added work is real, not a wait: behind each call, inside the time that is measured, a second session runs
a chain of small matrix products whose length is calibrated once, so it varies as work varies, with caches and clocks,
and not with the very call that it follows. What share it came to is printed. Beside each verdict stands what a naive
benchmark says in the same trial: 10 warm-ups and 20 runs of one model, then of the other, and a difference of the means
of more than 2 %. `by interval alone` counts the claims that would be made if a busy machine did not ask for more. The
last lines describe the machine.

Exit code 1 if a difference is claimed between a model and itself, in a quiet or a loaded machine, or if fewer than nine
in ten of the planted ones are found. At full size it takes at most 12 minutes with digits.onnx.
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
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, save
from onnx.numpy_helper import from_array

from compressor import gates, runtime
from compressor.bench.load import Closed
from compressor.bench.measure import Experiment, Measured, measure
from compressor.records import MINIMUM_EFFECT, Feeds, Outputs, Session, Speedup, Work

WARM_UPS, RUNS = 10, 20
SLOWER = 0.05
FOUND = 0.9
WIDTH = 96  # of a matrix
LINKS = (1, 200)  # matrices in a row
INPUT = {"x": np.ones((1, WIDTH), np.float32)}
CALIBRATION = 400  # calls
BUSY = 2


@dataclass(frozen=True)
class Slowed:
    """A session with more work behind each call."""

    session: Session
    more: Session
    input: Feeds

    def __call__(self, feeds: Feeds) -> Outputs:
        """Answer, and work."""
        outputs = self.session(feeds)
        self.more(self.input)
        return outputs

    def close(self) -> None:
        """Close both sessions."""
        self.session.close()
        self.more.close()


@dataclass(frozen=True)
class Trials:
    """Comparisons of one kind."""

    name: str
    found: tuple[Speedup, ...]
    naive: tuple[str, ...]
    seconds: tuple[float, ...]

    def relations(self) -> Counter[str]:
        """Count what was claimed."""
        return Counter(gates.relation(one) for one in self.found)

    def row(self) -> str:
        """Give a line of the table."""
        relations = self.relations()
        counts = " | ".join(str(relations[name]) for name in ("faster", "slower", "same", "undecided"))
        naive = Counter(self.naive)
        ratios = [one.ratio for one in self.found]
        alone = sum(one.low > MINIMUM_EFFECT or one.high * MINIMUM_EFFECT < 1 for one in self.found)
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
    parser.add_argument("--budget", type=float, default=15.0, help="most seconds of one comparison")
    given = parser.parse_args()
    feeds = inputs(given.model)

    def plain() -> Session:
        return runtime.load(given.model, runtime.options(threads(), spinning=False))

    print(
        "| trials | n | faster | slower | same | undecided | by interval alone | ratios | naive faster | naive slower ",
        end="",
    )
    print("| s: median, most | preempted: 10 %, 50 %, 90 % | stalled: the same |\n" + "| --- " * 13 + "|")
    with TemporaryDirectory() as folder:
        chain, share = calibrated(plain, feeds, Path(folder))
        slowed = partial(slow, plain, chain)
        quiet = trials("itself, quiet", (plain, plain), feeds, given.trials, given.budget)
        print(quiet.row(), flush=True)
        planted = trials(f"slower by {share:.1%}, quiet", (plain, slowed), feeds, given.trials, given.budget)
        print(planted.row(), flush=True)
    with busy():
        loaded = trials("itself, loaded", (plain, plain), feeds, given.loaded, given.budget)
        print(loaded.row())
    print(f"\n{machine(given.model)}")
    claims = sum(each.relations()[name] for each in (quiet, loaded) for name in ("faster", "slower"))
    found = planted.relations()["slower"]
    print(
        f"\n{claims} claims where there is nothing (0 permitted), {found} of {given.trials} planted found (nine in ten)"
    )
    sys.exit(claims > 0 or found < FOUND * given.trials)


def calibrated(plain: Callable[[], Session], feeds: Feeds, folder: Path) -> tuple[Path, float]:
    """Write the longest chain that takes no more than the share of a call that is to be added; gives its share too."""
    low, high = LINKS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if added(plain, feeds, chained(folder, middle)) <= SLOWER else (low, middle)
    path = chained(folder, low)
    return path, added(plain, feeds, path)


def added(plain: Callable[[], Session], feeds: Feeds, path: Path) -> float:
    """Give the share of a call that a chain behind it takes."""
    with closing(plain()) as session, closing(chain(path)) as more:
        taken = [(seconds(session, feeds), seconds(more, INPUT)) for _ in range(CALIBRATION)][WARM_UPS:]
    call_s, more_s = map(median, zip(*taken, strict=True))
    return more_s / call_s


def chained(folder: Path, links: int) -> Path:
    """Write a model of so many small matrix products in a row."""
    weight = from_array(np.eye(WIDTH, dtype=np.float32), "weight")
    nodes = [helper.make_node("MatMul", [f"x{i}" if i else "x", "weight"], [f"x{i + 1}"]) for i in range(links)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, WIDTH)) for name in ("x", f"x{links}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], [weight])
    path = folder / f"{links}.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def chain(path: Path) -> Session:
    """Open a model of matrix products."""
    return runtime.load(path, runtime.options(1, spinning=False))


def slow(plain: Callable[[], Session], path: Path) -> Session:
    """Open a session with a chain behind it."""
    return Slowed(plain(), chain(path), INPUT)


def seconds(session: Session, feeds: Feeds) -> float:
    """Give what a call took."""
    begin = time.perf_counter()
    session(feeds)
    return time.perf_counter() - begin


def trials(name: str, openers: tuple[Callable[[], Session], ...], feeds: Feeds, n: int, budget_s: float) -> Trials:
    """Compare as often as asked, with seeds from 0 on."""
    found, said, lasted = [], [], []
    for seed in range(n):
        said.append(naive(openers, feeds))
        begin = time.perf_counter()
        experiment = Experiment(Closed(), (), budget_s, seed, {}, ratios=gates.RATIOS_OF_COMPARISON)
        speedup = finish(measure(openers, (feeds,), experiment)).speedup
        lasted.append(time.perf_counter() - begin)
        if speedup is None:
            sys.exit(f"{budget_s:g} s are too short for three rounds: raise --budget")
        found.append(speedup)
    return Trials(name, tuple(found), tuple(said), tuple(lasted))


def naive(openers: tuple[Callable[[], Session], ...], feeds: Feeds) -> str:
    """Say what one model after the other, and a comparison of means, finds."""
    before, after = (fmean(runs(opener, feeds)) for opener in openers)
    if max(before, after) / min(before, after) <= MINIMUM_EFFECT:
        return "same"
    return "faster" if after < before else "slower"


def runs(opener: Callable[[], Session], feeds: Feeds) -> list[float]:
    """Give the seconds of some runs after a warm-up."""
    with closing(opener()) as session:
        return [seconds(session, feeds) for _ in range(WARM_UPS + RUNS)][WARM_UPS:]


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
