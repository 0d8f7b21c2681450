"""Work in a child, fresh or warm: results, progress, and every way of going wrong."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import isolated as pieces
import psutil
import pytest

from compressor import isolation
from compressor.errors import InputError, MachineError, RungError
from compressor.isolation import Limits, Nursery
from compressor.isolation.watch import Tree


@pytest.fixture(params=["fresh", "warm"])
def nursery(request: pytest.FixtureRequest) -> Iterator[Nursery | None]:
    if request.param == "fresh":
        yield None
        return
    with Nursery() as warm:
        yield warm


def test_the_result_and_its_cost_come_back(nursery: Nursery | None, capfd: pytest.CaptureFixture[str]) -> None:
    _, returned = pieces.finish(pieces.add, 2, 3, nursery=nursery)
    assert returned.value == 5
    assert returned.peak_memory_bytes > 5_000_000
    assert capfd.readouterr() == ("", "")


def test_progress_is_passed_on_in_order(nursery: Nursery | None) -> None:
    seen, returned = pieces.finish(pieces.count, 3, nursery=nursery)
    assert (seen[0].step, seen[0].done, seen[0].total) == ("count", 0, 3)
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert returned.value == 3


def test_a_crash_is_a_rung_error_with_the_signal_and_the_last_line(nursery: Nursery | None) -> None:
    with pytest.raises(RungError, match=r"SIGSEGV.*about to crash"):
        pieces.finish(pieces.crash, nursery=nursery)


def test_a_hang_is_stopped_with_all_its_descendants(nursery: Nursery | None, tmp_path: Path) -> None:
    with pytest.raises(RungError, match=r"limits\.seconds"):
        pieces.finish(pieces.hang, tmp_path / "pid", limits=Limits(seconds=2), nursery=nursery)
    sleeper = int((tmp_path / "pid").read_text())
    assert pieces.ends(sleeper)


@pytest.mark.parametrize("hang_s", [0, 60], ids=["ended", "killed"])
def test_what_a_child_leaves_in_its_temporary_folder_goes_with_it(
    nursery: Nursery | None, hang_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with contextlib.suppress(RungError):
        pieces.finish(pieces.litter, hang_s, limits=Limits(seconds=2), nursery=nursery)
    assert list(tmp_path.iterdir()) == []


def test_eating_memory_is_stopped(nursery: Nursery | None) -> None:
    with pytest.raises(RungError, match=r"limits\.memory"):
        pieces.finish(pieces.eat, limits=Limits(memory="200MiB", seconds=60), nursery=nursery)


def test_our_errors_come_back_as_they_were(nursery: Nursery | None) -> None:
    with pytest.raises(InputError, match=r"^model.onnx: no such file$"):
        pieces.finish(pieces.wrong_input, nursery=nursery)


def test_a_bug_comes_back_with_its_traceback(nursery: Nursery | None) -> None:
    with pytest.raises(isolation.WorkError, match=r"def bug|in bug[\s\S]*KeyError: 'boom'"):
        pieces.finish(pieces.bug, nursery=nursery)


def test_a_full_disk_is_the_machines_fault(nursery: Nursery | None) -> None:
    with pytest.raises(MachineError, match=r"out.onnx: no space left"):
        pieces.finish(pieces.full, nursery=nursery)


def test_a_child_imports_no_vendor_package_by_itself(nursery: Nursery | None) -> None:
    assert pieces.finish(pieces.vendor_modules, nursery=nursery)[1].value == set()


def test_a_module_in_the_working_folder_cannot_stand_in_for_ours(
    nursery: Nursery | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "psutil.py").write_text("raise SystemExit(9)")
    (tmp_path / "numpy.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert pieces.finish(pieces.add, 1, 1, nursery=nursery)[1].value == 2


@pytest.mark.parametrize("nursery", ["None", "isolation.Nursery()"])
def test_the_child_dies_with_its_parent(nursery: str, tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from compressor import isolation
        from isolated import finish, hang
        finish(hang, Path({str(tmp_path / "pid")!r}), nursery={nursery})
    """)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", script], env=env) as parent:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.05)
        family = psutil.Process(parent.pid).children(recursive=True)
        sleeper = psutil.Process(int((tmp_path / "pid").read_text()))
        assert sleeper in family
        parent.kill()
    if nursery == "None":  # what a fresh child has started is tied to it only while somebody watches
        family.remove(sleeper)
        sleeper.kill()
    assert family
    assert all(pieces.ends(one.pid) for one in family)


def test_a_child_that_dies_is_seen_although_its_own_child_lives_on(nursery: Nursery | None, tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(RungError, match="exit code 7"):
        pieces.finish(pieces.fork_and_die, tmp_path / "pid", limits=Limits(seconds=60), nursery=nursery)
    assert time.monotonic() - begin < 30, "not at the limit"


def test_a_child_that_hangs_inside_a_message_is_stopped_at_its_limit(nursery: Nursery | None) -> None:
    with pytest.raises(RungError, match=r"limits\.seconds"):
        pieces.finish(pieces.stall, limits=Limits(seconds=2), nursery=nursery)


def test_progress_is_thinned_but_every_step_is_told(nursery: Nursery | None) -> None:
    seen, _ = pieces.finish(pieces.steps, 20_000, nursery=nursery)
    assert {progress.step for progress in seen} == {"one", "two"}
    assert len(seen) < 1000


def test_a_child_that_loads_a_model_leaves_no_telemetry_behind(
    nursery: Nursery | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    _, returned = pieces.finish(pieces.load_and_run, nursery=nursery)
    assert returned.value == ["y"]
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_an_interpreter_is_told(nursery: Nursery | None) -> None:
    with pytest.raises(RungError, match="exit code 3"):
        pieces.finish(pieces.leave, nursery=nursery)


def test_a_child_that_closes_its_connection_is_not_waited_for(nursery: Nursery | None) -> None:
    begin = time.monotonic()
    with pytest.raises(RungError, match="closed its connection"):
        pieces.finish(pieces.hang_up, limits=Limits(seconds=60), nursery=nursery)
    assert time.monotonic() - begin < 30, "not at the limit"


def test_memory_of_a_grandchild_that_left_the_session_counts(nursery: Nursery | None, tmp_path: Path) -> None:
    with pytest.raises(RungError, match=r"limits\.memory"):
        pieces.finish(
            pieces.hold, tmp_path / "pid", 400_000_000, 60, limits=Limits(memory="300MiB", seconds=60), nursery=nursery
        )
    assert pieces.ends(int((tmp_path / "pid").read_text()))


def test_a_piece_that_ends_well_leaves_no_grandchild_and_its_peak_is_that_of_all(
    nursery: Nursery | None, tmp_path: Path
) -> None:
    _, returned = pieces.finish(pieces.hold, tmp_path / "pid", 200_000_000, 0, nursery=nursery)
    assert returned.peak_memory_bytes > 200_000_000
    assert pieces.ends(int((tmp_path / "pid").read_text()))


def test_what_a_child_changes_is_not_there_for_the_next(
    nursery: Nursery | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces.finish(pieces.change, "CHANGED", nursery=nursery)
    given = pieces.finish(pieces.look_around, "CHANGED", environment={"CHANGED": "given"}, nursery=nursery)[1].value
    assert isinstance(given, tuple)
    assert given[0] == "given"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "later")
    monkeypatch.setenv("LATER", "set")
    found = pieces.finish(pieces.look_around, "CHANGED", nursery=nursery)[1].value
    assert isinstance(found, tuple)
    value, folder, temporary, path = found
    assert (value, folder) == (None, str(tmp_path))
    assert temporary not in {"/leaked", given[2], tempfile.gettempdir()}, "a folder of its own"
    assert str(tmp_path / "later") in path
    assert "leaked" not in path
    assert pieces.finish(pieces.look_around, "LATER", nursery=nursery)[1].value[0] == "set"  # type: ignore[index]


def test_what_vendors_print_is_let_through_on_request(
    nursery: Nursery | None, capfd: pytest.CaptureFixture[str]
) -> None:
    pieces.finish(pieces.add, 1, 1, verbose=True, nursery=nursery)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "noise that must not reach the parent's stdout\n")


def test_a_number_that_another_process_has_now_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as first:
        tree = Tree(first.pid)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        monkeypatch.setattr(tree, "_pid", other.pid)  # as if the number had come round
        tree.kill()
        assert tree.memory_bytes() == 0
        time.sleep(0.1)
        assert other.poll() is None
        other.kill()
