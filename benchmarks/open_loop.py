"""What the rhythm of requests does to a model's latency, and whether an independent clock finds the same.

    python benchmarks/open_loop.py [--model examples/digits.onnx] [--threads 1] [--seconds 5]

Prints the median of the hot loop, of requests 10 ms apart and of Poisson arrivals at half the capacity, as ratios of
one run, then what waiting for the right moment itself adds. Then a plain loop that calls ONNX Runtime directly, in
turn with the hot loop in many short rounds: exit code 1 if the two medians differ by more than 3 %. Unknown dimensions
are 1, inputs are random.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from compressor import graph, machine, runtime
from compressor.bench.clock import SYSTEM
from compressor.bench.load import Closed, Constant, Poisson, Trace, Window
from compressor.engines.onnxruntime import Onnxruntime
from compressor.records import Environment, Feeds, Outputs, Progress, Session, Timing
from compressor.samples.synthetic import Synthetic, drawn

T = TypeVar("T")
Floats = npt.NDArray[np.float64]
WARM_UP_CALLS = 100
OPENINGS = 10
ROUNDS = 20  # of each opening
CALLS = 20  # of each round
AGREES = 0.03


class Nothing:
    """A session that answers at once, so that only what the load adds is left."""

    def __call__(self, feeds: Feeds) -> Outputs:
        """Give nothing."""
        del feeds
        return {}

    def close(self) -> None:
        """Do nothing."""


def main() -> None:
    """Measure and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("examples/digits.onnx"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    words = parser.parse_args()
    engine = Onnxruntime(threads=words.threads)
    options = runtime.options(words.threads, spinning=engine.spinning)
    feeds = random_feeds(words.model)
    rhythms(runtime.load(words.model, options), feeds, words.seconds)
    ratio = direct_over_ours(words.model, options, feeds)
    agrees = abs(ratio - 1) <= AGREES
    print(f"\nindependent loop over hot loop, p50: {ratio:.4f} ({'within' if agrees else 'NOT within'} {AGREES:.0%})\n")
    describe(machine.environment(words.threads, spinning=engine.spinning, saturates=runtime.saturates()))
    sys.exit(not agrees)


def random_feeds(model: Path) -> Feeds:
    """Draw one value for each input."""
    limits = graph.index_limits(model)
    inputs = [
        drawn(each, tuple(dim if isinstance(dim, int) else 1 for dim in each.shape), limits.get(each.name, 2))
        for each in graph.open_model(model).inputs
    ]
    return next(iter(Synthetic(tuple(inputs), 1, seed=0).rows([0])))


def rhythms(session: Session, feeds: Feeds, seconds: float) -> None:
    """Print the medians of one session under several loads."""
    for _ in range(WARM_UP_CALLS):
        session(feeds)
    hot = driven(Closed(), session, feeds, seconds)
    capacity = len(hot.latencies_ns) / hot.seconds
    paced = driven(Constant(rate="100/s"), session, feeds, seconds)
    random = driven(Poisson(rate=f"{capacity / 2:.0f}/s"), session, feeds, seconds)
    print("| load | p50 over hot loop | p99 over hot loop's p50 | requests | stalled |")
    print("| --- | --- | --- | --- | --- |")
    base_ms = median_ms(hot)
    for name, timing in (("hot loop", hot), ("10 ms apart", paced), ("Poisson, half the capacity", random)):
        p99 = np.percentile(timing.latencies_ns, 99) / 1e6 / base_ms
        stalled = "unknown" if timing.stalled is None else f"{timing.stalled:.0%}"
        n = len(timing.latencies_ns)
        print(f"| {name} | {median_ms(timing) / base_ms:.2f} | {p99:.2f} | {n} | {stalled} |")
    added_us = driven(Constant(rate="100/s"), Nothing(), feeds, seconds).latencies_ns / 1e3
    p50, p90 = np.percentile(added_us, [50, 90])
    print(f"\nhot loop p50 {base_ms:.3f} ms; waiting adds {p50:.1f} µs (p50), {p90:.1f} µs (p90)")


def driven(load: Closed | Constant | Poisson | Trace, session: Session, feeds: Feeds, seconds: float) -> Timing:
    """Drive a session for a time."""
    window = Window(sys.maxsize, SYSTEM.now_ns() + int(seconds * 1e9), np.random.default_rng(0))
    return finished(load.drive([session], [feeds], window, SYSTEM))


def direct_over_ours(model: Path, options: dict[str, str], feeds: Feeds) -> float:
    """Give the median of a plain loop over that of the hot loop, their rounds alternating which is first.

    Both sessions are opened anew several times, for where a session lies in memory makes a difference of its own.
    """
    ours_ms: list[float] = []
    direct_ms: list[float] = []
    for _ in range(OPENINGS):
        mine, theirs = runtime.load(model, options), plain(model, int(options["intra_op_num_threads"]))
        direct(theirs, feeds, WARM_UP_CALLS)
        hot(mine, feeds, WARM_UP_CALLS)
        for number in range(ROUNDS):
            if number % 2:
                ours_ms += hot(mine, feeds, CALLS)
                direct_ms += direct(theirs, feeds, CALLS)
            else:
                direct_ms += direct(theirs, feeds, CALLS)
                ours_ms += hot(mine, feeds, CALLS)
    return float(np.median(direct_ms) / np.median(ours_ms))


def hot(session: Session, feeds: Feeds, calls: int) -> list[float]:
    """Give the latencies of our closed loop in milliseconds."""
    window = Window(calls, SYSTEM.now_ns() + 600 * 10**9, np.random.default_rng(0))
    timing = finished(Closed().drive([session], [feeds], window, SYSTEM))
    return list(timing.latencies_ns / 1e6)


def plain(model: Path, threads: int) -> ort.InferenceSession:
    """Open a session as ONNX Runtime's own documentation does, with the same threads."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def direct(session: ort.InferenceSession, feeds: Feeds, calls: int) -> list[float]:
    """Give the latencies of a loop without any of our code in milliseconds."""
    latencies_ms, inputs = [], dict(feeds)
    for _ in range(calls):
        begin = time.perf_counter()
        session.run(None, inputs)
        latencies_ms.append((time.perf_counter() - begin) * 1e3)
    return latencies_ms


def describe(environment: Environment) -> None:
    """Print what the numbers depend on."""
    versions = ", ".join(f"{name} {version}" for name, version in environment.versions.items())
    print(f"{environment.machine}, {environment.cpu}, {environment.cpus_usable} usable CPUs, ISA {environment.isa}")
    print(
        f"{environment.threads} threads, spinning {environment.spinning}, load average {environment.load}; {versions}"
    )


def median_ms(timing: Timing) -> float:
    """Give the median latency."""
    return float(np.median(timing.latencies_ns)) / 1e6


def finished(work: Generator[Progress, None, T]) -> T:
    """Give the result of a piece of work."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


if __name__ == "__main__":
    main()
