"""Folders that go with their process: by itself, and by the next process where it was killed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from compressor.scratch import scratch, sweep

HOLD = """
    import sys, time
    from pathlib import Path
    from compressor.scratch import scratch
    with scratch(Path(sys.argv[1]), "run") as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text("x")
        print(folder, flush=True)
        time.sleep(60)
"""


@pytest.fixture
def held(tmp_path: Path) -> subprocess.Popen[str]:
    code = textwrap.dedent(HOLD)
    return subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)


def test_it_is_empty_and_vanishes_with_what_it_holds(tmp_path: Path) -> None:
    with scratch(tmp_path / "new", "run") as folder:
        assert list(folder.iterdir()) == []
        (folder / "a").mkdir()
        (folder / "a" / "b").write_text("x")
    assert list((tmp_path / "new").iterdir()) == []


def test_it_vanishes_when_something_goes_wrong(tmp_path: Path) -> None:
    with pytest.raises(KeyError), scratch(tmp_path, "run"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_one_in_use_stays_and_one_of_a_killed_process_goes(held: subprocess.Popen[str], tmp_path: Path) -> None:
    with held as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        with scratch(tmp_path, "run") as folder:
            assert theirs.is_dir()
            assert folder != theirs
        assert (began := sweep(tmp_path, "run")) is not None
        assert began <= (theirs / "deep").stat().st_mtime + 1
        process.kill()
        process.wait()
    assert theirs.is_dir(), "nobody was there to remove it"
    with scratch(tmp_path, "run") as folder:
        assert not theirs.exists()
    assert list(tmp_path.iterdir()) == []
    assert sweep(tmp_path, "run") is None


def test_the_oldest_in_use_tells_since_when(tmp_path: Path) -> None:
    with scratch(tmp_path, "run") as old:
        time.sleep(0.2)
        with scratch(tmp_path, "run") as young:
            began = sweep(tmp_path, "run")
            assert began is not None
            assert began <= old.stat().st_mtime + 0.05 < young.stat().st_mtime


def test_folders_of_other_names_stay(tmp_path: Path) -> None:
    (tmp_path / "running").mkdir()
    (tmp_path / "run-mine").mkdir()
    (tmp_path / "run-mine.lock").touch()
    (tmp_path / "build-00000000.lock").touch()
    with scratch(tmp_path, "run"):
        pass
    left = ["build-00000000.lock", "run-mine", "run-mine.lock", "running"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left


MANY = """
    import sys
    from pathlib import Path
    from compressor.scratch import scratch
    for n in range(150):
        with scratch(Path(sys.argv[1]), "run") as folder:
            (folder / "file").write_text(str(n))
            assert (folder / "file").read_text() == str(n)
"""


def test_processes_that_sweep_all_the_time_do_not_get_in_each_other_s_way(tmp_path: Path) -> None:
    words = [sys.executable, "-c", textwrap.dedent(MANY), str(tmp_path)]
    running = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [(one.communicate()[1], one.returncode) for one in running] == [("", 0)] * 3
    assert list(tmp_path.iterdir()) == []
