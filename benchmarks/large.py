"""A model above 2 GB from file to verdict: peak memory and seconds of each step, and the size of what comes of it.

    python benchmarks/large.py [--data] [--scheme dynamic] [--layers 8] [--sla 5s] [--folder DIR]

The model is a table, matrix products and a Gemm whose weights lie in a sparse file, of which a few rows are written: it
takes next to nothing on disk, what is made of it all that it has. Samples are made up, or with `--data` of an npz file.
Without `--scheme` every way of quantizing is made and timed.
Everything is written to a folder in DIR and deleted. Exit code 1 if a step takes more than twice the model, the parent
more than 500 MB, or what was chosen is more than 0.3 of the model.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import psutil

from compressor import machine, pipeline, units
from compressor.plan import Job
from compressor.recipe import Overrides, Recipe, Rung, default, override
from compressor.records import Progress
from compressor.stages import Fuse, Quantize

ROWS, WIDTH, MIDDLE, CLASSES, TOKENS = 1 << 17, 1024, 8192, 16, 4
WRITTEN = 64
"""Rows of each weight that are no zeros."""
MOST_TIMES, PARENT_BYTES, SMALL = 2.0, 500_000_000, 0.3


@dataclass
class Peaks:
    """What each step took at its most: resident memory of all children together, and seconds."""

    step: str = "start"
    parent: int = 0
    bytes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def main() -> None:
    """Run, and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="store_true")
    parser.add_argument("--layers", type=int, default=8, help="products of 256 MiB")
    parser.add_argument("--scheme", choices=["static", "dynamic", "weights"])
    parser.add_argument("--sla", default="5s")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        os.environ["TMPDIR"] = folder
        tempfile.tempdir = None
        model = written(Path(folder) / "model" / "large.onnx", asked.layers)
        data = sampled(Path(folder) / "samples.npz") if asked.data else None
        given = Overrides(sla=asked.sla, registry=f"sqlite:///{folder}/mlflow.db", calibration=data, evaluation=data)
        sys.exit(told(model, Path(folder), recipe(given, asked.scheme)))


def written(path: Path, layers: int) -> Path:
    """Write the model, and its weights into a file that is mostly a hole."""
    shapes = {"table": (ROWS, WIDTH), "w0": (WIDTH, MIDDLE)}
    shapes |= {f"w{i}": (MIDDLE, MIDDLE) for i in range(1, layers + 1)} | {"last": (MIDDLE, CLASSES)}
    path.parent.mkdir()
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> '
        f"large (int64[batch,{TOKENS}] ids) => (float[batch,{CLASSES}] logits) {{"
        " e = Gather (table, ids)  x0 = ReduceMean <axes = [1], keepdims = 0> (e) "
        + " ".join(f"y{i} = MatMul (x{i}, w{i})  x{i + 1} = Tanh (y{i})" for i in range(layers + 1))
        + f" logits = Gemm (x{layers + 1}, last) }}"
    )
    offset, rng = 0, np.random.default_rng(0)
    with path.with_name("weights.bin").open("wb") as file:
        for name, shape in shapes.items():
            model.graph.initializer.append(external(name, shape, offset))
            file.seek(offset)
            rows = shape[0] if name == "last" else WRITTEN
            file.write(rng.normal(0, WRITTEN**-0.5, (rows, shape[1])).astype(np.float32).tobytes())
            offset += 4 * shape[0] * shape[1]
        file.truncate(offset)
    onnx.save(model, path)
    return path


def external(name: str, shape: tuple[int, int], offset: int) -> onnx.TensorProto:
    """Describe a tensor that lies in `weights.bin`."""
    tensor = onnx.TensorProto(name=name, dims=shape, data_type=onnx.TensorProto.FLOAT)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    place = {"location": "weights.bin", "offset": offset, "length": 4 * shape[0] * shape[1]}
    tensor.external_data.extend(onnx.StringStringEntryProto(key=key, value=str(place[key])) for key in place)
    return tensor


def sampled(path: Path) -> Path:
    """Write inputs that read what is written of the table."""
    np.savez(path, ids=np.random.default_rng(1).integers(0, WRITTEN, (64, TOKENS)))
    return path


def recipe(given: Overrides, scheme: str | None) -> Recipe:
    """Give the default recipe, or with a scheme a rung of that alone; nothing is stopped for its time."""
    asked = override(default(), given)
    asked = asked.model_copy(update={"limits": asked.limits.model_copy(update={"seconds": 3600})})
    rung = Rung(name="int8-fused", stages=(Quantize(scheme=scheme), Fuse())) if scheme else None
    return asked.model_copy(update={"rungs": (rung,)}) if rung else asked


def told(model: Path, folder: Path, asked: Recipe) -> int:
    """Compress the model, print what it took, and give the exit code."""
    size = sum(file.stat().st_size for file in model.parent.iterdir())
    request = pipeline.Request(Job(model, asked, folder / "reports", folder))
    peaks = Peaks()
    with watched(peaks):
        settled = yielded(pipeline.prepare(request), peaks)
        done = yielded(pipeline.run(settled, request), peaks)
        done = yielded(pipeline.publish(done), peaks)
    print(f"model: {size / 1e9:.2f} GB\n\n| step | peak memory | of the model | seconds |\n| --- | --- | --- | --- |")
    for step, peak in peaks.bytes.items():
        print(f"| {step} | {peak / 1e9:.2f} GB | {peak / size:.2f} | {peaks.seconds[step]:.0f} |")
    report = done.report
    tried = {trial.rung: trial for trial in (report.baseline, *report.trials)}
    chosen = sum(file.size_bytes for file in tried[report.chosen or "baseline"].artifacts[0].files)
    print(f"\nverdict {report.verdict}, chosen {report.chosen}, {units.human_bytes(chosen)}, {chosen / size:.3f} of it")
    for trial in tried.values():
        print(trial.rung, trial.failure or "", *(f"{stage.stage}: {stage.did}" for stage in trial.stages), sep="; ")
        for stage in trial.stages:
            print(*(f"  {way.settings}: {way.why}" for way in stage.tried), *stage.notes, sep="\n")
    print(f"parent {peaks.parent / 1e6:.0f} MB; {machine.cpu_name()}, load {machine.load_average()}")
    held = max(peaks.bytes.values()) <= MOST_TIMES * size and peaks.parent <= PARENT_BYTES
    return 0 if held and chosen <= SMALL * size else 1


def yielded(work: object, peaks: Peaks) -> object:
    """Run some work to its end, noting at which step it is."""
    while True:
        try:
            value = next(work)
        except StopIteration as stop:
            return stop.value
        if isinstance(value, Progress):
            if (step := ", ".join(value.step.split(", ")[:3])) != peaks.step:
                said = f"{peaks.bytes.get(peaks.step, 0) / 1e9:.2f} GB, {peaks.seconds.get(peaks.step, 0):.0f} s"
                print(f"{peaks.step}: {said}", file=sys.stderr, flush=True)
            peaks.step = step
        else:
            print(f"{value.rung}: {value.failure or 'done'}", file=sys.stderr)


@contextmanager
def watched(peaks: Peaks) -> Iterator[None]:
    """Look at the memory of this process and its children until the end."""
    end = threading.Event()

    def look() -> None:
        own, then = psutil.Process(), time.monotonic()
        while not end.wait(0.1):
            children = sum(map(resident, own.children(recursive=True)))
            peaks.bytes[peaks.step] = max(children, peaks.bytes.get(peaks.step, 0))
            now = time.monotonic()
            peaks.seconds[peaks.step] = peaks.seconds.get(peaks.step, 0.0) + now - then
            peaks.parent, then = max(peaks.parent, own.memory_info().rss), now

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def resident(process: psutil.Process) -> int:
    """Give the resident bytes of a process; none of one that ended."""
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


if __name__ == "__main__":
    main()
