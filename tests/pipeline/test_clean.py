"""What runs keep: shown, and removed by age and size, but never under a run that is going on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import whole_run

from compressor.errors import InputError
from compressor.pipeline import Wanted, clean
from compressor.pipeline.making import home, store

DAY_S = 86400
KEYS = {letter: letter * 32 for letter in "abcd"}


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Give a folder of reports with entries a to d that were last used 1, 3, 5 and 7 days ago, of 1, 2, 3 and 4 MB."""
    folder = tmp_path / "reports"
    (folder / "net").mkdir(parents=True)
    (folder / "net" / "report.json").write_text("{}")
    kept = store(home(folder))
    for number, (letter, key) in enumerate(KEYS.items()):
        made = tmp_path / letter
        made.mkdir()
        (made / "model.onnx").write_bytes(bytes((number + 1) * 1_000_000))
        used = time.time() - (2 * number + 1) * DAY_S
        assert kept.put(key, made, f"rung: stage {letter}", {})
        os.utime(kept.folder / key / "entry.json", (used, used))
    return folder


def left(reports: Path) -> list[str]:
    return sorted(path.name[0] for path in (home(reports) / "store").iterdir() if path.name != "locks")


def test_nothing_goes_unasked(reports: Path) -> None:
    found = clean(reports, None)
    assert [entry.key[0] for entry in found.stays] == ["a", "b", "c", "d"]
    assert (found.gone, found.in_use, left(reports)) == ((), 0, ["a", "b", "c", "d"])


@pytest.mark.parametrize(
    ("wanted", "stays"),
    [
        (Wanted(older_than_s=4 * DAY_S), "ab"),
        (Wanted(older_than_s=8 * DAY_S), "abcd"),
        (Wanted(keep_bytes=0), ""),
        (Wanted(keep_bytes=3_100_000), "ab"),
        (Wanted(keep_bytes=2_500_000), "a"),
        (Wanted(keep_bytes=99_000_000), "abcd"),
        (Wanted(older_than_s=4 * DAY_S, keep_bytes=1_100_000), "a"),
    ],
)
def test_what_is_old_goes_and_then_what_was_used_longest_ago(reports: Path, wanted: Wanted, stays: str) -> None:
    found = clean(reports, wanted)
    assert [entry.key[0] for entry in found.stays] == [*stays] == left(reports)
    assert {entry.key[0] for entry in found.gone} == {*"abcd"} - {*stays}
    assert (reports / "net" / "report.json").exists()


RUN = """
    import sys, time
    from pathlib import Path
    from compressor.scratch import scratch
    with scratch(Path(sys.argv[1]), "run"):
        print("going on", flush=True)
        time.sleep(60)
"""


def test_what_a_run_that_is_going_on_has_used_stays(reports: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(RUN), str(home(reports))], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "going on\n"
        time.sleep(0.05)
        assert store(home(reports)).take(KEYS["c"]) is not None
        found = clean(reports, Wanted(keep_bytes=0))
        assert (left(reports), found.in_use) == (["c"], 1)
        run.kill()
    assert [path.name for path in home(reports).glob("run-*") if path.is_dir()] != []
    assert clean(reports, Wanted(keep_bytes=0)).in_use == 0
    assert left(reports) == []
    assert [path.name for path in home(reports).iterdir()] == ["store"], "what the killed run worked in is gone"


def test_a_folder_that_is_not_there_is_refused_and_an_empty_one_is_empty(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere: expected a folder of reports; give --output DIR"):
        clean(tmp_path / "nowhere", None)
    assert clean(tmp_path, None).stays == ()


def test_the_command_shows_and_removes(reports: Path) -> None:
    shown = whole_run.compress("clean", "--output", reports)
    assert shown.code == 0
    rows = [line.split() for line in shown.out.splitlines()]
    assert [row[:3] for row in rows[1:]] == [["rung:", "stage", key] for key in "abcd"]
    assert [row[-1] for row in rows[1:]] == ["no"] * 4
    assert "10 MB in" in shown.err
    removed = whole_run.compress("clean", "--output", reports, "--older-than", "2d", "--json")
    assert [entry["key"][0] for entry in json.loads(removed.out)["gone"]] == ["b", "c", "d"]
    assert whole_run.compress("clean", "--output", reports, "--all").code == 0
    assert left(reports) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--older-than", "7"), "--older-than: expected a time such as 7d, found '7'"),
        (("--keep", "x"), "--keep: expected"),
    ],
)
def test_what_cannot_be_read_is_refused(reports: Path, words: tuple[str, ...], told: str) -> None:
    refused = whole_run.compress("clean", "--output", reports, *words)
    assert refused.code == 2
    assert told in refused.err
    assert left(reports) == [*"abcd"]


def test_what_cannot_be_read_goes_with_the_rest(reports: Path) -> None:
    (home(reports) / "store" / KEYS["b"] / "entry.json").write_text("{")
    assert [entry.key[0] for entry in clean(reports, None).stays] == ["a", "c", "d"]
    assert left(reports) == [*"abcd"], "nothing goes unasked"
    assert clean(reports, Wanted(older_than_s=99 * DAY_S)).gone == ()
    assert left(reports) == [*"acd"]


def test_everything_and_a_part_contradict_each_other(reports: Path) -> None:
    refused = whole_run.compress("clean", "--output", reports, "--all", "--older-than", "7d")
    assert (refused.code, left(reports)) == (2, [*"abcd"])
    assert "give it alone" in refused.err
