"""Folders that go with their process: by itself, and by the next process where it was killed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
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


def test_folders_of_other_names_stay(tmp_path: Path) -> None:
    (tmp_path / "running").mkdir()
    (tmp_path / "run-mine").mkdir()
    (tmp_path / "build-1.lock").touch()
    with scratch(tmp_path, "run"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["build-1.lock", "run-mine", "running"]
