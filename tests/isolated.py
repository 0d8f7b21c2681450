"""Pieces of work for children, and what runs them to their end."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from compressor import isolation
from compressor.errors import InputError
from compressor.isolation import Limits, Returned
from compressor.records import Progress


def finish(*call: object, limits: Limits | None = None, **more: object) -> tuple[list[Progress], Returned[object]]:
    work = isolation.call(*call, limits=limits or Limits(), **more)  # type: ignore[arg-type, call-overload]
    seen = []
    while True:
        try:
            seen.append(next(work))
        except StopIteration as stop:
            return seen, stop.value


def add(a: int, b: int) -> int:
    print("noise that must not reach the parent's stdout")  # noqa: T201
    return a + b


def count(n: int) -> Iterator[Progress]:
    for done in range(n):
        yield Progress("count", done, n)
    return n


def crash() -> None:
    os.write(2, b"about to crash\n")
    ctypes.string_at(0)


def hang(pid_file: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeper:  # noqa: S607
        pid_file.write_text(str(sleeper.pid))


def eat() -> None:
    hoard = []
    while True:
        hoard.append(b"x" * 10_000_000)
        time.sleep(0.002)


def wrong_input() -> None:
    raise InputError("model.onnx: no such file")


def bug() -> None:
    raise KeyError("boom")


def full() -> None:
    raise OSError(28, "No space left on device", "out.onnx")


def leave() -> None:
    sys.exit(3)


def vendor_modules() -> set[str]:
    vendors = {"onnx", "onnxruntime", "onnxsim", "nncf", "mlflow", "torch", "typer", "rich"}
    return vendors & set(sys.modules)


def litter(hang_s: float) -> None:
    (Path(tempfile.mkdtemp()) / "big.onnx").write_text("half")
    time.sleep(hang_s)


def fork_and_die(pid_file: Path) -> None:
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    pid_file.write_text(str(child))
    os._exit(7)


def stall() -> None:
    for thread in range(3, 20):  # whichever is the pipe: a length of 1000 bytes, and then nothing
        with contextlib.suppress(OSError):
            os.write(thread, b"\x00\x00\x03\xe8half")
    time.sleep(600)


def steps(n: int) -> Iterator[Progress]:
    for step in ("one", "two"):
        for done in range(n):
            yield Progress(step, done, n)


def ends(pid: int) -> bool:
    """Tell whether a process that was killed is gone, or only waits to be buried, within ten seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def load_and_run() -> list[str]:
    import onnx
    import onnxruntime as ort

    text = '<ir_version: 8, opset_import: ["" : 13]> probe (float[1] x) => (float[1] y) { y = Relu(x) }'
    model = onnx.parser.parse_model(text)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [output.name for output in session.get_outputs()]


def hold(pid_file: Path, amount: int, wait_s: float) -> None:
    """Have a grandchild in a session of its own, whose parent is gone, hold memory."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            pid_file.write_text(str(os.getpid()))
            hoard = b"x" * amount
            pid_file.with_suffix(".ready").touch()
            time.sleep(600)
            del hoard
        os._exit(0)
    os.waitpid(child, 0)
    while not pid_file.with_suffix(".ready").exists():
        time.sleep(0.01)
    time.sleep(wait_s)


def hang_up() -> None:
    """Close whatever may be the connection, and live on."""
    os.closerange(3, 4096)
    time.sleep(600)


def process() -> int:
    return os.getpid()


def look_around(variable: str) -> tuple[str | None, str, str, list[str]]:
    return os.environ.get(variable), str(Path.cwd()), tempfile.gettempdir(), sys.path


def change(variable: str) -> None:
    os.environ[variable] = "leaked"
    sys.path.append("leaked")
    os.chdir("/")
    tempfile.tempdir = "/leaked"


def imported(name: str) -> None:
    importlib.import_module(name)
