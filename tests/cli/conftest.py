"""A command line to call, and a model with data to call it on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import small

from compressor import cli, gates

Command = Callable[..., int]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Give a function that runs a command line in this process and gives its exit code."""
    monkeypatch.setattr(gates, "regression", lambda _before, _now: None)
    terminate = signal.getsignal(signal.SIGTERM)
    path = list(sys.path)

    def call(*words: object) -> int:
        monkeypatch.setattr(sys, "argv", ["compress", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return int(stopped.value.code or 0)

    yield call
    signal.signal(signal.SIGTERM, terminate)
    sys.path[:] = path


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    path = small.classifier(tmp_path / "net.onnx")
    (tmp_path / "calibration_data").mkdir()
    small.data(tmp_path / "calibration_data" / "net.npz", path, 200, seed=1)
    return path
