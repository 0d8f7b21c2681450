"""Work in a child: results, progress, and every way of going wrong."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from compressor import isolation
from compressor.errors import InputError, MachineError, RungError
from compressor.isolation import Limits, Returned
from compressor.records import Progress


def finish(*call: object, limits: Limits | None = None) -> tuple[list[Progress], Returned[object]]:
    work = isolation.call(*call, limits=limits or Limits())  # type: ignore[arg-type]
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


def vendor_modules() -> set[str]:
    vendors = {"onnx", "onnxruntime", "onnxsim", "nncf", "mlflow", "torch", "typer", "rich"}
    return vendors & set(sys.modules)


def test_the_result_and_its_cost_come_back(capfd: pytest.CaptureFixture[str]) -> None:
    _, returned = finish(add, 2, 3)
    assert returned.value == 5
    assert returned.peak_memory_bytes > 5_000_000
    assert capfd.readouterr() == ("", "")


def test_progress_is_passed_on_in_order() -> None:
    seen, returned = finish(count, 3)
    assert (seen[0].step, seen[0].done, seen[0].total) == ("count", 0, 3)
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert returned.value == 3


def test_a_crash_is_a_rung_error_with_the_signal_and_the_last_line() -> None:
    with pytest.raises(RungError, match=r"SIGSEGV.*about to crash"):
        finish(crash)


def test_a_hang_is_stopped_with_all_its_descendants(tmp_path: Path) -> None:
    with pytest.raises(RungError, match=r"limits\.seconds"):
        finish(hang, tmp_path / "pid", limits=Limits(seconds=2))
    sleeper = int((tmp_path / "pid").read_text())
    assert _ends(sleeper)


def litter(hang_s: float) -> None:
    (Path(tempfile.mkdtemp()) / "big.onnx").write_text("half")
    time.sleep(hang_s)


@pytest.mark.parametrize("hang_s", [0, 60], ids=["ended", "killed"])
def test_what_a_child_leaves_in_its_temporary_folder_goes_with_it(
    hang_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with contextlib.suppress(RungError):
        finish(litter, hang_s, limits=Limits(seconds=2))
    assert list(tmp_path.iterdir()) == []


def test_eating_memory_is_stopped() -> None:
    with pytest.raises(RungError, match=r"limits\.memory"):
        finish(eat, limits=Limits(memory="200MiB", seconds=60))


def test_our_errors_come_back_as_they_were() -> None:
    with pytest.raises(InputError, match=r"^model.onnx: no such file$"):
        finish(wrong_input)


def test_a_bug_comes_back_with_its_traceback() -> None:
    with pytest.raises(isolation.WorkError, match=r"def bug|in bug[\s\S]*KeyError: 'boom'"):
        finish(bug)


def test_a_full_disk_is_the_machines_fault() -> None:
    with pytest.raises(MachineError, match=r"out.onnx: no space left"):
        finish(full)


def test_a_child_imports_no_vendor_package_by_itself() -> None:
    assert finish(vendor_modules)[1].value == set()


def test_a_module_in_the_working_folder_cannot_stand_in_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "psutil.py").write_text("raise SystemExit(9)")
    (tmp_path / "numpy.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert finish(add, 1, 1)[1].value == 2


def test_the_child_dies_with_its_parent(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from test_isolation import finish, hang
        finish(hang, Path({str(tmp_path / "pid")!r}))
    """)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", script], env=env) as parent:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.05)
        sleeper = psutil.Process(int((tmp_path / "pid").read_text()))
        child = sleeper.parent()
        parent.kill()
    sleeper.kill()
    assert child is not None
    assert child.pid == parent.pid or child.wait(timeout=10) is None


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


def test_a_child_that_dies_is_seen_although_its_own_child_lives_on(tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(RungError, match="exit code 7"):
        finish(fork_and_die, tmp_path / "pid", limits=Limits(seconds=60))
    assert time.monotonic() - begin < 30, "not at the limit"


def test_a_child_that_hangs_inside_a_message_is_stopped_at_its_limit() -> None:
    with pytest.raises(RungError, match=r"limits\.seconds"):
        finish(stall, limits=Limits(seconds=2))


def test_progress_is_thinned_but_every_step_is_told() -> None:
    seen, _ = finish(steps, 20_000)
    assert {progress.step for progress in seen} == {"one", "two"}
    assert len(seen) < 1000


def steps(n: int) -> Iterator[Progress]:
    for step in ("one", "two"):
        for done in range(n):
            yield Progress(step, done, n)


def _ends(pid: int) -> bool:
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


def test_a_child_that_loads_a_model_leaves_no_telemetry_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    _, returned = finish(load_and_run)
    assert returned.value == ["y"]
    assert list(tmp_path.iterdir()) == []
