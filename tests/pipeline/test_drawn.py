"""What a report that is final has besides its text, and what a run has that cannot draw it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import found
import pytest
from finished import finish
from whole_run import call_here

from compressor import cli, formats, isolation
from compressor.errors import MachineError
from compressor.pipeline import Result, publish
from compressor.pipeline.run import write


@pytest.fixture
def result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setattr(isolation, "call", call_here)
    report = replace(found.REPORT, recipe={})
    written = Result(report, tmp_path)
    write(written)
    return written


def test_a_page_and_pictures_are_drawn_once_a_report_is_final(result: Result) -> None:
    assert not (result.folder / "report.html").exists()
    done = finish(publish(result))
    assert done.report == result.report
    assert "<!doctype html>" in (result.folder / "report.html").read_text(encoding="utf-8")
    named = re.findall(r"!\[.+\]\((.+)\)", (result.folder / "report.md").read_text(encoding="utf-8"))
    assert named
    for picture in named:
        assert (result.folder / picture).read_bytes().startswith(b"\x89PNG")
    assert sorted(named) == sorted(
        f"report-figures/{path.name}" for path in (result.folder / "report-figures").iterdir()
    )
    write(done)  # as after it is recorded
    assert re.findall(r"!\[.+\]\((.+)\)", (result.folder / "report.md").read_text(encoding="utf-8")) == named


@pytest.mark.parametrize("error", [MachineError("no room"), isolation.WorkError("Traceback\n  at\nValueError: no V8")])
def test_a_report_that_cannot_be_drawn_says_so_and_stays(
    result: Result, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(formats, "draw", refuse)
    done = finish(publish(result))
    reason = "no room" if isinstance(error, MachineError) else "ValueError: no V8"
    assert done.report.warnings[-1].startswith(f"report.html was not drawn: {reason}; `compress report ")
    assert json.loads((result.folder / "report.json").read_text())["warnings"][-1] == done.report.warnings[-1]
    assert "![" not in (result.folder / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("drawn", [False, True], ids=str)
def test_report_prints_the_page_and_text_with_the_pictures_that_are_there(
    result: Result, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, drawn: bool
) -> None:
    if drawn:
        formats.draw(result.report, result.folder)
    said = {}
    for suffix in ("md", "html"):
        words = ["compress", "report", str(result.folder / "report.json"), "--format", suffix]
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert not stopped.value.code
        said[suffix] = capsys.readouterr().out
    assert ("](report-figures/" in said["md"]) == drawn
    assert said["html"] == formats.render(result.report, "html")
