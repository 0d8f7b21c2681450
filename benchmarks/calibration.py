"""CPU time and peak memory of gathering statistics, beside ONNX Runtime's own min-max calibrator.

    python benchmarks/calibration.py --shared ../shared

Prints a Markdown table for efficientnet_lite0: each row is one child process that decodes the same images, with one
thread; for 100 samples the two take turns. `gather` also looks at held-out samples; its last row is of all images that
are left. Ratios are of one run on this machine, which the last lines describe.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from compressor import graph, machine, samples
from compressor.stages.quantize.statistics import gather
from compressor.stages.supply import Supply

ROUNDS = 3
HELD_OUT = 32
ALL = 1000 - HELD_OUT
PREPROCESS = samples.Preprocess(crop=224, mean=(127, 127, 127), std=(128, 128, 128))


def main() -> None:
    """Measure, each in a child process, and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--child", nargs=2, metavar=("WAY", "SAMPLES"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if not asked.shared.is_dir():
        sys.exit(f"{asked.shared}: no such folder; --shared names the folder of models and data")
    if asked.child:
        way, n = asked.child
        print(json.dumps(measured(asked.shared, way, int(n))))
        return
    print("| way | samples | CPU time | peak memory |\n| --- | --- | --- | --- |")
    found = [(way, 100, child(asked.shared, way, 100)) for _ in range(ROUNDS) for way in ("minmax", "gather")]
    found.append(("gather", ALL, child(asked.shared, "gather", ALL)))
    for way, n, result in found:
        print(f"| {way} | {n} | {result['cpu_s']:.1f} s | {result['peak_bytes'] / 1e9:.2f} GB |")
    times = {key: [r["cpu_s"] for way, n, r in found if (way, n) == (key, 100)] for key in ("minmax", "gather")}
    print(
        f"\nratio of CPU times, median: {statistics.median(times['gather']) / statistics.median(times['minmax']):.2f}"
    )
    print(f"{machine.cpu_name()}, {machine.cpus_usable()} CPUs, load {machine.load_average()}")
    print(", ".join(f"{name} {version}" for name, version in machine.versions().items()))


def child(shared: Path, way: str, n: int) -> dict[str, float]:
    """Measure in a process of its own."""
    words = [sys.executable, __file__, "--shared", str(shared), "--child", way, str(n)]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    result: dict[str, float] = json.loads(done.stdout)
    return result


def measured(shared: Path, way: str, n: int) -> dict[str, float]:
    """Give the CPU seconds of the work alone, and the peak resident bytes of this whole process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph.normalise(shared / "models" / "efficientnet_lite0.onnx", folder / "model.onnx")
        calibration, held_out = sets(shared, folder / "model.onnx", n)
        before = resource.getrusage(resource.RUSAGE_SELF)
        if way == "minmax":
            minmax(folder, calibration)
        else:
            drain(gather(folder / "model.onnx", Supply(calibration, held_out, folder)))
        after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_s": used, "peak_bytes": after.ru_maxrss * 1024}


def sets(shared: Path, model: Path, n: int) -> tuple[samples.Samples, samples.Samples]:
    """Give n calibration samples, and the held-out ones."""
    tensors = graph.open_model(model).inputs
    shapes = {t.name: (1, 3, 224, 224) for t in tensors}
    read = samples.read(shared / "data" / "imagenet1000_256.zip", tensors, shapes, PREPROCESS)
    calibration, held_out = read.split(n, seed=0)
    return calibration, held_out.take(HELD_OUT, seed=0)


def minmax(folder: Path, calibration: samples.Samples) -> None:
    """Calibrate as onnxruntime does by itself, one sample after another so that its memory stays flat."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationMethod, create_calibrator

    calibrator: Any = create_calibrator(
        folder / "model.onnx",
        augmented_model_path=str(folder / "augmented.onnx"),
        calibrate_method=CalibrationMethod.MinMax,
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # as it does
    options.intra_op_num_threads = 1
    calibrator.infer_session = onnxruntime.InferenceSession(
        str(folder / "augmented.onnx"), options, providers=["CPUExecutionProvider"]
    )
    for feed in calibration:
        calibrator.collect_data(SimpleNamespace(get_next=iter([feed, None]).__next__))
    calibrator.compute_data()


def drain(work: Any) -> None:
    """Do all of the work."""
    for _ in work:
        pass


if __name__ == "__main__":
    main()
