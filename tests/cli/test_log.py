"""The log of a command: its lines, what stands in none of them, and where it goes after a bug."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pipeline_broken as broken
import pytest
import yaml

from compressor import pipeline
from compressor.cli import log
from compressor.errors import InputError
from compressor.pipeline import work

Command = Callable[..., int]
LINE = re.compile(r"(\S+)Z (INFO|WARNING|ERROR) (\d+) (\w+): (.*)")
URI = "postgresql+psycopg2://anna:hunt'er2@db.example:1/runs?sslpassword=opensesame"
SECRETS = ("anna", "hunt", "er2", "opensesame")


def lines(path: Path) -> list[tuple[str, ...]]:
    """Give level, kind and rest of every line, all of which are of this process and of now."""
    found = [LINE.fullmatch(line) for line in path.read_text().splitlines()]
    assert all(found), path.read_text()
    parts = [match.groups() for match in found if match]
    assert {int(pid) for _, _, pid, *_ in parts} == {os.getpid()}
    times = [datetime.fromisoformat(time).replace(tzinfo=UTC) for time, *_ in parts]
    assert times == sorted(times)
    assert 0 <= (datetime.now(UTC) - times[0]).total_seconds() < 600
    assert all(len(time) == len("2026-01-31T12:00:00.123") for time, *_ in parts)
    return [(level, kind, rest) for _, level, _, kind, rest in parts]


def fail(error: Exception) -> Callable[..., object]:
    """Give what stands in for a command's work and raises."""

    def call(*_: object, **__: object) -> object:
        raise error

    return call


@pytest.fixture
def fused(model: Path) -> Path:
    """Give a recipe with a rung that is quickly climbed."""
    asked = {
        "rungs": [{"name": "fused", "stages": ["fuse"]}],
        "gates": [{"size": {"max": "1MB"}}],
        "limits": {"measure": "200ms"},
    }
    path = model.with_name("recipe.yaml")
    path.write_text(yaml.safe_dump(asked))
    return path


def test_a_run_leaves_a_line_a_step_and_a_trial_between_how_it_began_and_ended(
    command: Command, model: Path, fused: Path
) -> None:
    file = model.with_name("log")
    file.write_text("2026-01-01T00:00:00.000Z INFO 1 end: exit code 0\n")
    assert command("run", model, "--recipe", fused, "--log-file", file, "--quiet") == 0
    before, _, rest = file.read_text().partition("\n")
    file.write_text(rest)
    found = lines(file)
    assert before.endswith("end: exit code 0")
    assert [kind for _, kind, _ in found][:3] == ["start", "start", "start"]
    assert str(Path.cwd()) in found[1][2]
    assert found[2][2] == f"compress run {model} --recipe {fused} --log-file {file} --quiet"
    assert found[-1] == ("INFO", "end", "exit code 0")
    steps = [rest for _, kind, rest in found if kind == "step"]
    named = [re.fullmatch(r"(.+): done in (\d+\.\d{3}) s, peak memory ([\d.]+) MB", step) for step in steps]
    assert all(named), steps
    assert [match[1] for match in named if match and not match[1].startswith(("plan", "publish"))] == [
        *("baseline: build", "baseline: score", "baseline: start", "baseline: measure"),
        *("normalise", "fused: fuse", "fused: build", "fused: score", "fused: start", "fused: measure"),
        "draw",
    ]
    assert all(0 < float(match[2]) < 600 and 5 < float(match[3]) < 8000 for match in named if match)
    assert [rest for _, kind, rest in found if kind == "trial"] == ["baseline: met", "fused: not met: change"]
    file.unlink()
    assert command("run", model, "--recipe", fused, "--log-file", file, "--quiet") == 0
    assert [rest for _, _, rest in lines(file) if "reused" in rest] == ["normalise: reused", "fused: fuse: reused"]


def test_a_step_that_fails_is_a_warning_with_its_reason_and_its_time(
    command: Command, model: Path, fused: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "apply", broken.crash)
    file = model.with_name("log")
    command("run", model, "--recipe", fused, "--log-file", file, "--quiet")
    found = lines(file)
    (failed,) = [rest for level, kind, rest in found if (level, kind) == ("WARNING", "step")]
    assert re.fullmatch(r"fused: fuse: failed \(the process crashed .*SIGSEGV.*\) after \d+\.\d{3} s", failed)
    (_, trial) = [rest for _, kind, rest in found if kind == "trial"]
    assert trial.startswith("fused: not built: fuse: the process crashed")


def test_what_is_refused_stands_in_the_log(command: Command, model: Path) -> None:
    assert command("run", "absent.onnx", "--sla", "50ms", "--log-file", model.with_name("log")) == 2
    assert [line for line in lines(model.with_name("log")) if line[0] == "ERROR"] == [
        ("ERROR", "refused", f"{model.with_name('absent.onnx')}: no such file; expected an ONNX model")
    ]


@pytest.mark.parametrize("option", [["--registry", URI], [f"--registry={URI}"], []])
def test_nothing_that_logs_in_to_a_registry_stands_in_a_log(
    command: Command, model: Path, monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    if not option:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", URI)
    said = f"password hunt'er2 of {URI} is wrong, as is anna:hunt'er2@db.example and {URI.partition('?')[0]}"
    monkeypatch.setattr(pipeline, "bench", fail(ZeroDivisionError(said)))
    assert command("bench", model, *option, "--log-file", model.with_name("log")) == 1
    text = model.with_name("log").read_text()
    assert "password *** of postgresql+psycopg2://db.example:1/runs is wrong" in text
    assert not [secret for secret in SECRETS if secret in text]


def test_a_registry_that_a_recipe_names_gives_nothing_away_either(
    command: Command, model: Path, fused: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused.write_text(fused.read_text() + f'registry: {{uri: "{URI}"}}\n')
    monkeypatch.setattr(pipeline, "bench", fail(ZeroDivisionError("hunt'er2 is wrong")))
    assert command("bench", model, "--recipe", fused, "--log-file", model.with_name("log")) == 1
    assert "hunt" not in model.with_name("log").read_text()


@pytest.mark.parametrize("file", ["/dev/full", "absent/log", "calibration_data", "/proc/log", "fifo"])
@pytest.mark.parametrize("words", [["run", "--sla", "1s"], ["bench"], ["export"], ["build"], ["publish"]])
def test_a_log_that_cannot_be_written_is_refused_before_any_work(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str], file: str, words: list[str]
) -> None:
    os.mkfifo(model.with_name("fifo"))  # which nobody reads
    assert command(words[0], model, *words[1:], "--log-file", file) == 5
    assert re.fullmatch(rf"compress: --log-file: {file} cannot be written \(.+\); name .+\n", capsys.readouterr().err)
    assert not list(model.parent.glob("reports*"))


def test_a_log_that_takes_no_more_ends_and_the_command_does_not(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = model.with_name("pipe")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def stop_reading(*_: object, **__: object) -> object:
        os.close(reader)
        for _n in range(2):
            logging.getLogger("compressor").info("step: %s", "lost")
        raise InputError("the work went on")

    monkeypatch.setattr(pipeline, "bench", stop_reading)
    assert command("bench", model, "--log-file", pipe) == 2
    assert capsys.readouterr().err == (f"compress: the log {pipe} ends here: Broken pipe\ncompress: the work went on\n")


def test_runs_that_share_a_log_leave_whole_lines(tmp_path: Path) -> None:
    script = (
        "import logging, sys\nfrom pathlib import Path\nfrom compressor.cli import log\nlog.begin()\n"
        "log.to(Path(sys.argv[1]))\n"
        "for n in range(400): logging.getLogger('compressor').info('step: %s', f'{n} ' + sys.argv[2] * 1500)\n"
        "log.end(0)"
    )
    words = [[sys.executable, "-c", script, str(tmp_path / "log"), letter] for letter in "abc"]
    runs = [subprocess.Popen(each, cwd=Path(__file__).parents[2]) for each in words]
    assert [run.wait() for run in runs] == [0, 0, 0]
    found = [LINE.fullmatch(line) for line in (tmp_path / "log").read_text().splitlines()]
    steps = [match.groups()[2:] for match in found if match and match[4] == "step"]
    for run, letter in zip(runs, "abc", strict=True):
        mine = [rest for pid, _, rest in steps if int(pid) == run.pid]
        assert mine == [f"{n} {letter * 1500}" for n in range(400)]
    assert all(found)


def test_a_bug_without_a_log_leaves_one_with_the_lines_before_it_and_says_what_to_attach(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "bench", fail(ZeroDivisionError(f"no zero\nat {URI}")))
    assert command("bench", model, "--registry", URI) == 1
    (file,) = model.parent.glob("compressor-bug-*.log")
    assert file.stat().st_mode & 0o777 == 0o600
    found = lines(file)
    assert found[2][2].startswith(f"compress bench {model}")
    assert ("ERROR", "bug", "Traceback (most recent call last):") in found
    assert found[-2] == ("ERROR", "bug", "at postgresql+psycopg2://db.example:1/runs")
    assert found[-1] == ("INFO", "end", "exit code 1")
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 2
    assert "Traceback" not in told
    assert "bug" in told
    assert all(word in told for word in (str(file), "report.json", "model", "open an issue"))
    assert not [secret for secret in SECRETS if secret in told + file.read_text()]


def test_a_bug_with_a_log_goes_there_and_to_stderr_whole_if_vendors_may_print(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "bench", fail(ZeroDivisionError("no zero")))
    assert command("bench", model, "--log-file", "log", "--verbose") == 1
    told = capsys.readouterr().err
    assert told.startswith("Traceback")
    assert "this is a bug, no mistake of yours: ZeroDivisionError: no zero\n" in told
    assert "attach log," in told
    bug = [rest for _, kind, rest in lines(Path("log")) if kind == "bug"]
    assert "\n".join(bug) in told
    assert bug[-1] == "ZeroDivisionError: no zero"
    assert not list(model.parent.glob("compressor-bug-*"))


def test_a_bug_where_the_working_folder_cannot_be_written_goes_to_the_one_for_temporary_files_or_to_stderr(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "bench", fail(ZeroDivisionError("no zero")))
    monkeypatch.chdir("/proc")
    monkeypatch.setattr(tempfile, "tempdir", str(model.parent))
    assert command("bench", model) == 1
    (file,) = model.parent.glob("compressor-bug-*")
    assert str(file) in capsys.readouterr().err
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    assert command("bench", model) == 1
    told = capsys.readouterr().err
    assert told.startswith("Traceback")
    assert "attach the lines above" in told


def test_a_command_that_ended_leaves_no_log_open(command: Command, model: Path) -> None:
    file = model.with_name("log")
    assert command("bench", "absent.onnx", "--log-file", file) == 2
    assert file.resolve() not in {path.resolve() for path in Path("/proc/self/fd").iterdir()}
    assert log._logs() == []


@pytest.mark.parametrize("content", [b"not a log", b"\x08\x08\x12", b"2026"])
def test_a_file_that_is_no_log_is_left_as_it_is(
    command: Command, model: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    file = model.parent / "precious"
    file.write_bytes(content)
    assert command("bench", model, "--log-file", file) == 2
    assert "precious is there and is no log" in capsys.readouterr().err
    assert file.read_bytes() == content


def test_a_model_is_no_log(command: Command, model: Path) -> None:
    before = model.read_bytes()
    assert command("run", model, "--sla", "1s", "--log-file", model) == 2
    assert model.read_bytes() == before


def test_a_log_is_appended_to(command: Command, model: Path) -> None:
    (file := model.parent / "log.txt").touch()
    for _ in range(2):
        assert command("run", model, "--sla", "1s", "--dry-run", "--log-file", file) == 0
    assert sum(kind == "end" for _, kind, _ in lines(file)) == 2
