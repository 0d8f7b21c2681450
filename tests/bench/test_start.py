"""What a fresh process takes until an artifact answers."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from compressor.bench.start import start
from compressor.records import Feeds, Outputs, Session

FEEDS = [{"x": np.zeros((8, 2), np.float32)}]


class OnGpu:
    """A session whose calls take 1, 2, 3, ... ms of its device, copies not counted."""

    memory_bytes = 7_000_000

    def __init__(self) -> None:
        self.gpu_ms = 0.0

    def __call__(self, _feeds: Feeds) -> Outputs:
        self.gpu_ms += 1
        return {}

    def close(self) -> None:
        """Do nothing."""


def test_a_device_of_its_own_tells_its_time_and_its_memory() -> None:
    found = start(OnGpu, FEEDS)
    assert found.gpu_ms == pytest.approx(sum(range(2, 22)) / 20)  # the first call is the cold one
    assert found.gpu_bytes == 7_000_000


def test_a_session_on_the_cpu_has_neither() -> None:
    found = start(lambda: lambda _feeds: {}, FEEDS)  # type: ignore[arg-type, return-value]
    assert found.gpu_ms is None
    assert found.gpu_bytes is None


def test_loading_and_the_first_call_are_told_apart() -> None:
    def load() -> Session:
        time.sleep(0.2)
        return OnGpu()

    found = start(load, FEEDS)
    assert found.load_ms > 200 > found.cold_ms


def test_a_fresh_process_that_starts_imports_little() -> None:
    words = "import compressor.bench.start, compressor.engines, compressor.samples, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout.split()
    assert "compressor.runtime" in loaded
    assert not {"compressor.pipeline", "compressor.plan", "compressor.stages", "onnx_ir", "scipy"} & {*loaded}
