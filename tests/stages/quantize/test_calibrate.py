from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compressor.samples import read
from compressor.stages.quantize.calibrate import calibrate
from compressor.stages.quantize.job import Job


@pytest.mark.parametrize("extreme", [0, 20, 40])
def test_ranges_are_those_of_all_samples_wherever_the_extreme_is(extreme: int, make: Any, tmp_path: Path) -> None:
    model = make("g (float[1,4] x) => (float[1,4] y) { r = Relu(x) \n y = Add(r, b) }", {"b": np.ones(4, np.float32)})
    x = np.random.default_rng(0).uniform(-1, 1, (41, 4)).astype(np.float32)
    x[extreme, 0], x[extreme, 1] = 7, -5
    np.savez(tmp_path / "data.npz", x=x)
    samples = read(tmp_path / "data.npz", model.inputs, {"x": (1, 4)})
    job = Job(model.path, tmp_path / "out.onnx", samples, reduce_range=False, excluded={})
    work = calibrate(job, tmp_path / "ranges.json")
    steps, ranges = drained(work)
    assert ranges["x"] == (-5, 7)
    assert ranges["y"] == (1, 8)
    assert [step.total for step in steps] == [41] * len(steps)


def test_a_batch_counts_as_one_feed(make: Any, tmp_path: Path) -> None:
    model = make("g (float[8,4] x) => (float[8,4] y) { y = Relu(x) }", {})
    np.savez(tmp_path / "data.npz", x=np.ones((20, 4), np.float32))
    samples = read(tmp_path / "data.npz", model.inputs, {"x": (8, 4)})
    assert Job(model.path, tmp_path / "out.onnx", samples, reduce_range=False, excluded={}).feeds == 3


def drained(work: Any) -> tuple[list[Any], Any]:
    steps = []
    while True:
        try:
            steps.append(next(work))
        except StopIteration as stop:
            return steps, stop.value
