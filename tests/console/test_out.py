"""The two streams: what goes where, and how."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
from found import BENCHED

from compressor import console
from compressor.console import out


def test_no_color_is_honoured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    console.say("text", style="red")
    assert "\x1b[31m" not in capsys.readouterr().err


def test_a_result_ends_its_line_and_goes_to_stdout_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    out.result("[red]a")
    out.result("b\n")
    assert capsys.readouterr() == ("[red]a\nb\n", "")


def test_a_reader_that_has_seen_enough_takes_nothing_from_the_command() -> None:
    script = "from compressor.console import out\nfor _ in range(3): out.result('x' * 100_000)\nraise SystemExit(3)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 3)


def test_a_stdout_that_was_closed_takes_nothing_from_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    out.result("a")
    out.table(("b",), [("c",)])


def test_json_is_valid_whatever_the_numbers_are(capsys: pytest.CaptureFixture[str]) -> None:
    out.json(replace(BENCHED, duration_s=math.nan))
    tree = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (tree["schema_version"], tree["duration_s"], tree["side"]["source"]) == (1, None, "net.onnx")


def test_warnings_are_messages(capsys: pytest.CaptureFixture[str]) -> None:
    out.warn(["one", "[b]two"])
    assert capsys.readouterr() == ("", "warning: one\nwarning: [b]two\n")


def test_no_cell_is_folded_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    out.table(("what", "found"), [("path", "/a" * 200), ("x", "[i]y")])
    assert capsys.readouterr().out == f"what  found\npath  {'/a' * 200}\nx     [i]y\n"
