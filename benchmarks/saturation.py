"""Which layers this CPU's integer kernels compute wrongly, and what switching their weights to unsigned is worth.

    python benchmarks/saturation.py model.onnx [--samples data.npz] [--n 8]

Quantizes the model with ONNX Runtime (unsigned activations, signed weights per channel, ranges by min-max) on samples,
an .npz file with an array for each input in the model's own layout or made up ones, and prints a line for each layer:
its SQNR in dB with exact arithmetic and on this machine's kernels. Then the whole model's, before and after. To see
another CPU: `qemu-x86_64 -cpu Haswell $(which python) benchmarks/saturation.py …`, with a small model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TypeVar

import numpy as np
import onnx
from onnxruntime import quantization as q

from compressor import graph, machine, runtime
from compressor.records import Feeds, Work
from compressor.samples import synthetic
from compressor.stages.quantize.layers import layers
from compressor.stages.quantize.unsigned import saturating, unsigned

T = TypeVar("T")
SIDE, SIDES = 32, (2, 3)  # of an image, and its axes


def main() -> None:
    """Print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--samples", type=Path)
    parser.add_argument("--n", type=int, default=8)
    given = parser.parse_args()
    feeds = read(given.samples, given.n) if given.samples else made_up(given.model, given.n)
    print(f"{machine.cpu_name()}: {' '.join(machine.isa())}; the probe says saturates: {runtime.saturates()}\n")
    with TemporaryDirectory() as folder:
        look(given.model, feeds, Path(folder))


def look(model: Path, feeds: Sequence[Feeds], folder: Path) -> None:
    """Print the layers of a model, and what the switch does to its outputs."""
    reference, quantized, switched = (folder / f"{name}.onnx" for name in ("float", "int8", "switched"))
    graph.normalise(model, reference)
    quantize(reference, feeds, quantized)
    begin = time.perf_counter()
    found = finish(layers(reference, quantized, feeds, real=True))
    took_s = time.perf_counter() - begin
    wrong = saturating(found)
    print("| layer | operator | exact dB | real dB | |\n| --- | --- | --- | --- | --- |")
    for layer in found:
        mark = "saturates" if layer.name in wrong else ""
        print(f"| {layer.name} | {layer.operator} | {layer.exact_db:.2f} | {layer.real_db:.2f} | {mark} |")
    graph.save(unsigned(onnx.load(quantized), wrong), switched)
    print(f"\n{len(found)} layers in {took_s:.1f} s, {len(wrong)} switched to unsigned weights: {', '.join(wrong)}\n")
    print("| | real dB | exact dB |\n| --- | --- | --- |")
    for label, path in (("before", quantized), ("after", switched)):
        real, exact = (worst(reference, path, feeds, exact=exact) for exact in (False, True))
        print(f"| {label} | {real:.2f} | {exact:.2f} |")


def read(path: Path, n: int) -> list[Feeds]:
    """Give batches of one from an .npz file whose arrays are named as the inputs are."""
    with np.load(path) as arrays:
        columns = {name: arrays[name][:n] for name in arrays}
    return [{name: column[[i]] for name, column in columns.items()} for i in range(n)]


def made_up(path: Path, n: int) -> list[Feeds]:
    """Give samples drawn from a seed; a dimension that the model leaves open is 1, that of an image 32."""
    inputs = graph.open_model(path).inputs
    shapes = {t.name: tuple(map(size, t.shape or (), count())) for t in inputs}
    return list(synthetic(inputs, shapes, n, 0, graph.index_limits(path)))


def size(given: int | str | None, axis: int) -> int:
    """Give a dimension that can be made up."""
    if isinstance(given, int):
        return given
    return SIDE if axis in SIDES else 1


def quantize(reference: Path, feeds: Sequence[Feeds], out: Path) -> None:
    """Write a Q/DQ file."""
    remaining = iter(feeds)
    q.quantize_static(
        reference,
        out,
        SimpleNamespace(get_next=lambda: next(remaining, None)),
        quant_format=q.QuantFormat.QDQ,
        per_channel=True,
        activation_type=q.QuantType.QUInt8,
        weight_type=q.QuantType.QInt8,
    )


def worst(reference: Path, candidate: Path, feeds: Sequence[Feeds], *, exact: bool) -> float:
    """Give the SQNR in dB of the worst output."""
    return min(finish(runtime.compare(reference, candidate, feeds, exact=exact)).values())


def finish(work: Work[T]) -> T:
    """Run work to its end."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            done: T = end.value
            return done


if __name__ == "__main__":
    main()
