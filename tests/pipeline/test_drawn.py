"""What a report that is final has besides its text, and what a run has that cannot draw it."""

from __future__ import annotations

import errno
import json
import re
import signal
from dataclasses import replace
from pathlib import Path

import found
import pytest
from finished import finish
from whole_run import call_here

from compressor import cli, formats, isolation, registry, workspace
from compressor.errors import MachineError, Stopped
from compressor.pipeline import Result, publish
from compressor.pipeline.run import write
from compressor.records import Registration, Report


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
    assert done.report.warnings[-1].startswith(f"report.html was not drawn: {reason}; `compress publish ")
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


def test_a_full_disk_costs_neither_the_record_nor_the_verdict(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report stands there already."""
    before = (result.folder / "report.json").read_text()
    full = OSError(errno.ENOSPC, "No space left on device")
    written = workspace.write_text

    def refuse(*_: object) -> None:
        raise full

    def record(*_: object) -> Registration:
        monkeypatch.setattr(workspace, "write_text", written)  # there is room again
        return RECORDED

    monkeypatch.setattr(formats, "draw", refuse)
    monkeypatch.setattr(workspace, "write_text", refuse)
    assert finish(publish(result)).report.verdict == result.report.verdict
    assert (result.folder / "report.json").read_text() == before
    monkeypatch.setattr(registry, "record", record)
    done = finish(publish(replace(result, registry="sqlite:///x.db")))
    assert done.report.registry == RECORDED
    assert json.loads((result.folder / "report.json").read_text())["registry"]["version"] == "7"


RECORDED = Registration("sqlite:///x.db", "r", "<b>net</b>", "7", "champion")


def test_the_page_says_as_what_it_was_recorded(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "record", lambda *_: RECORDED)
    for _ in range(2):  # once more does no harm
        done = finish(publish(replace(result, registry="sqlite:///x.db")))
        page = (result.folder / "report.html").read_text(encoding="utf-8")
        assert page.count("Registered as <bdi>&lt;b&gt;net&lt;/b&gt;</bdi> version 7, champion.</p>") == 1
    assert page == formats.render(done.report, "html")


def test_what_could_not_be_drawn_once_is_told_once_and_not_for_ever(
    result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise MachineError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(formats, "draw", refuse)
        again = finish(publish(finish(publish(result))))
    assert [one for one in again.report.warnings if "was not drawn" in one] == [again.report.warnings[-1]]
    assert not (result.folder / "report.html").exists()
    assert finish(publish(again)).report.warnings == result.report.warnings
    assert "was not drawn" not in (result.folder / "report.html").read_text(encoding="utf-8")


def test_a_figure_that_cannot_be_drawn_is_told_of_and_costs_no_other(
    result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_report: Report) -> None:
        raise ValueError("no such colour")

    refuse.__module__ = "figures.speed"
    names = ("speed", "size")
    with monkeypatch.context() as patch:
        patch.setattr(formats.figures, "_FIGURES", (refuse, formats.figures.sizes.figure))
        done = finish(publish(result))
    told = "report.html was not drawn whole: the figure of speed cannot be drawn: no such colour"
    assert done.report.warnings == (*result.report.warnings, told)
    assert json.loads((result.folder / "report.json").read_text())["warnings"][-1] == told
    assert f"](report-figures/{names[1]}.png)" in (result.folder / "report.md").read_text(encoding="utf-8")
    assert [path.stem for path in (result.folder / "report-figures").iterdir()] == [names[1]]
    again = finish(publish(done))
    assert again.report.warnings == result.report.warnings
    assert {*names} <= {path.stem for path in (result.folder / "report-figures").iterdir()}


def test_what_was_killed_while_it_was_drawn_is_drawn_by_publish_without_a_registry(
    result: Result, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise Stopped(signal.SIGTERM)

    result = replace(result, report=replace(result.report, registry=None))
    write(result)
    with monkeypatch.context() as patch:
        patch.setattr(formats, "draw", stop)
        with pytest.raises(Stopped) as stopped:
            finish(publish(result))
    (told,) = stopped.value.__notes__
    command = re.search(r"`compress (publish \S+ --registry none)` draws its page", told)
    assert command
    assert not (result.folder / "report.html").exists()
    monkeypatch.setattr("sys.argv", ["compress", *command[1].split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert capsys.readouterr().out == ""
    assert (result.folder / "report.html").exists()
    assert list((result.folder / "report-figures").iterdir())
    assert formats.read(result.folder / "report.json").registry is None
