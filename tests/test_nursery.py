"""Children that are forked from interpreters that have imported: what they share, and what they must not."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import isolated as pieces
import psutil
import pytest

from compressor import isolation
from compressor.errors import RungError
from compressor.isolation import Limits, Nursery
from compressor.isolation.watch import _LOOK_S

STRANGERS: set[psutil.Process] = set()
"""What other tests of this process have not let go yet."""


@pytest.fixture(autouse=True)
def _strangers() -> None:
    gc.collect()
    STRANGERS.clear()
    STRANGERS.update(psutil.Process().children(recursive=True))


def family() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if one not in STRANGERS]


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a file that grows by a letter whenever the module `counted_a` or `counted_b` is imported."""
    for letter in "ab":
        text = f"open({str(tmp_path / 'count')!r}, 'a').write({letter!r})"
        (tmp_path / f"counted_{letter}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "count"


def test_modules_are_imported_once_and_are_there_in_every_child(counted: Path) -> None:
    with Nursery("counted_a") as nursery:
        for _ in range(3):
            pieces.finish(pieces.imported, "counted_a", nursery=nursery)
    assert counted.read_text() == "a"
    pieces.finish(pieces.imported, "counted_a")
    assert counted.read_text() == "aa", "a fresh child imports for itself"


def test_further_modules_are_imported_on_top_and_only_where_they_are_wanted(counted: Path) -> None:
    with Nursery("counted_a") as nursery:
        more = nursery.having("counted_b")
        for one in (more, nursery, nursery.having("counted_b")):
            pieces.finish(pieces.imported, "counted_a", nursery=one)
        assert counted.read_text() == "ab"
        pieces.finish(pieces.imported, "counted_b", nursery=nursery)
        assert counted.read_text() == "abb"
        pieces.finish(pieces.imported, "counted_b", nursery=more)
        assert counted.read_text() == "abb"
    assert family() == []


def test_nothing_more_is_no_other_nursery() -> None:
    nursery = Nursery()
    assert nursery.having() is nursery


@pytest.mark.parametrize(
    "text", ["raise RuntimeError", "import os; os._exit(4)", "import no_such_module", "raise SystemExit"]
)
def test_a_module_that_cannot_be_imported_costs_no_work(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with Nursery("not_installed", "broken_module") as nursery:
        assert pieces.finish(pieces.add, 2, 3, nursery=nursery)[1].value == 5
        assert pieces.finish(pieces.add, 2, 3, nursery=nursery.having("json"))[1].value == 5
    with Nursery() as nursery:
        assert pieces.finish(pieces.add, 2, 3, nursery=nursery.having("broken_module"))[1].value == 5
    assert family() == []


def test_two_calls_may_interleave_and_their_zygotes_serve_again() -> None:
    with Nursery() as nursery:
        calls = [isolation.call(pieces.count, n, limits=Limits(), nursery=nursery) for n in (2, 3)]
        values = {}
        for call in calls:
            next(call)
        while calls:
            for call in list(calls):
                try:
                    next(call)
                except StopIteration as stop:
                    calls.remove(call)
                    values[len(values)] = stop.value.value
        assert sorted(values.values()) == [2, 3]
        assert len(family()) == 2
        pieces.finish(pieces.add, 1, 1, nursery=nursery)
        assert len(family()) == 2


def test_a_dead_zygote_is_replaced() -> None:
    with Nursery() as nursery:
        more = nursery.having("json")
        pieces.finish(pieces.add, 1, 1, nursery=more)
        for nth in (0, 1):  # the first and, forked from it, the other
            family()[nth].kill()
            time.sleep(0.1)
            assert pieces.finish(pieces.add, 2, 3, nursery=more)[1].value == 5
            assert pieces.finish(pieces.add, 2, 3, nursery=nursery)[1].value == 5
    assert family() == []


def test_a_zygote_that_dies_takes_its_child_along_and_harms_no_later_one(tmp_path: Path) -> None:
    with Nursery() as nursery:
        call = isolation.call(pieces.hold, tmp_path / "pid", 1000, 600, limits=Limits(seconds=60), nursery=nursery)
        failed: list[str] = []

        def work() -> None:
            try:
                list(call)
            except RungError as error:
                failed.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        while not (tmp_path / "pid.ready").exists():
            time.sleep(0.05)
        time.sleep(4 * _LOOK_S)  # a descendant that left its session is known once it was looked for
        next(one for one in psutil.Process().children() if one not in STRANGERS).kill()
        thread.join(30)
        assert "SIGKILL" in failed[0]
        assert pieces.ends(int((tmp_path / "pid").read_text()))
        assert pieces.finish(pieces.add, 2, 3, nursery=nursery)[1].value == 5


def test_a_crash_harms_no_later_child_and_a_child_is_always_a_new_one() -> None:
    with Nursery() as nursery:
        first = pieces.finish(pieces.process, nursery=nursery)[1].value
        with pytest.raises(RungError, match="SIGSEGV"):
            pieces.finish(pieces.crash, nursery=nursery)
        with pytest.raises(RungError, match=r"limits\.memory"):
            pieces.finish(pieces.eat, limits=Limits(memory="200MiB", seconds=60), nursery=nursery)
        assert pieces.finish(pieces.process, nursery=nursery)[1].value != first
        assert len(family()) == 1


def test_many_calls_leave_neither_descriptors_nor_processes() -> None:
    with Nursery() as nursery:
        pieces.finish(pieces.add, 1, 1, nursery=nursery)
        (zygote,) = family()
        before = [one.num_fds() for one in (psutil.Process(), zygote)]
        for _ in range(200):
            pieces.finish(pieces.add, 1, 1, nursery=nursery)
        deadline = time.monotonic() + 10
        while [one.num_fds() for one in (psutil.Process(), zygote)] != before and time.monotonic() < deadline:
            time.sleep(0.05)  # the last connection is closed by a thread of its own
        assert [one.num_fds() for one in (psutil.Process(), zygote)] == before
        assert family() == [zygote]
    assert family() == []


def test_a_call_that_is_given_up_leaves_no_child() -> None:
    with Nursery() as nursery:
        call = isolation.call(pieces.count, 10**9, limits=Limits(), nursery=nursery)
        next(call)
        assert len(family()) == 2
        call.close()
        assert len(family()) == 1
        call = isolation.call(pieces.count, 10**9, limits=Limits(), nursery=nursery)
        next(call)
    assert family() == []
    call.close()


def test_zygotes_go_with_their_nursery() -> None:
    nursery = Nursery()
    pieces.finish(pieces.add, 1, 1, nursery=nursery.having("json"))
    assert len(family()) == 2
    del nursery
    gc.collect()
    assert family() == []


def test_zygotes_go_at_exit_without_a_word(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
        import psutil
        from pathlib import Path
        from compressor.isolation import Nursery
        from isolated import add, finish
        nursery = Nursery()
        nursery.itself = nursery  # so that it is there until the end
        finish(add, 1, 1, nursery=nursery.having("json"))
        family = psutil.Process().children(recursive=True)
        Path({str(tmp_path / "pids")!r}).write_text(" ".join(str(one.pid) for one in family))
    """)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], env=env, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    assert all(pieces.ends(pid) for pid in pids)
