"""Whom a command tells what in CI, and that it changes nothing else."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

import found
import junitparser
import pytest
import whole_run
import yaml

from compressor.cli import ci
from compressor.recipe import places
from compressor.records import Report

Command = Callable[..., int]
DOCS = Path(__file__).parents[2] / "docs" / "ci.md"
FORGED = "x\nverdict=forged\nname<<E"


def left(report: Report, folder: Path) -> ci.Left:
    return ci.Left(report, folder, folder / "report.xml")


@pytest.fixture
def recipe(model: Path) -> Path:
    """Give a recipe that the model fails, and that is quickly climbed."""
    (model.parent / "recipes").mkdir()
    path = model.parent / "recipes" / "model.yaml"
    path.write_text(
        "version: 1\nrungs:\n  - {name: fused, stages: [fuse]}\ngates:\n  - macs: {max: 1G}\n  - size: {max: 1kB}\n"
        "limits: {measure: 200ms}\n"
    )
    return path


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Path]:
    """Set what GitHub sets, and give the files that it reads."""
    files = {name: tmp_path / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    for name, path in files.items():
        monkeypatch.setenv(name, str(path))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("CI", "true")
    return files


def outputs(text: str) -> dict[str, str]:
    """Read what a step wrote as GitHub's runner does. Source: actions/runner, EnvFileKeyValuePairs."""
    lines, read = iter(text.split("\n")[:-1]), {}
    for line in lines:
        equals, fence = line.find("="), line.find("<<")
        if equals >= 0 and (fence < 0 or equals < fence):
            read[line[:equals]] = line[equals + 1 :]
        else:
            name, _, delimiter = line.partition("<<")
            read[name] = "\n".join(iter(lambda lines=lines: next(lines), delimiter))
    return read


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "none"),
        ({"CI": "true"}, "plain"),
        ({"CI": "1"}, "plain"),
        ({"CI": "false"}, "none"),
        ({"CI": "true", "GITHUB_ACTIONS": "true"}, "github"),
        ({"CI": "true", "GITLAB_CI": "true"}, "gitlab"),
        ({"GITHUB_ACTIONS": ""}, "none"),
    ],
)
def test_the_system_is_known_by_its_variables(
    monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], expected: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ci.detected() == expected


def test_github_gets_annotations_a_summary_and_outputs(
    recipe: Path, github: Mapping[str, Path], tmp_path: Path
) -> None:
    ended = whole_run.compress("run", "net.onnx", "--recipe", recipe, "--output", "out", "--json")
    assert ended.code == 3
    line = places(recipe)["size"].line
    assert recipe.read_text().splitlines()[line - 1].strip() == "- size: {max: 1kB}"
    (told,) = [told for told in ended.err.splitlines() if told.startswith("::")]
    assert told.startswith(f"::error file=recipes/model.yaml,line={line},title=size not met (baseline)::")
    assert json.loads(ended.out)["verdict"] == "fail"  # stdout holds the report alone
    assert github["GITHUB_STEP_SUMMARY"].read_text().startswith("## net: fail\n\n**Fail:** ")
    found = outputs(github["GITHUB_OUTPUT"].read_text())
    assert found["verdict"] == "fail"
    assert found["chosen"] == found["artifact"] == ""
    assert ended.folder is not None
    assert found["report"] == str(tmp_path / ended.folder / "report.json")
    assert Path(found["folder"], "report.xml").is_file()


def test_a_second_run_in_a_step_appends(recipe: Path, github: Mapping[str, Path]) -> None:
    github["GITHUB_STEP_SUMMARY"].write_text("before\n")
    recipe.write_text(recipe.read_text().replace("1kB", "1MB"))
    ended = whole_run.compress("run", "net.onnx", "--recipe", recipe, "--output", "out", "--quiet")
    assert (ended.code, ended.err) == (0, "")
    assert github["GITHUB_STEP_SUMMARY"].read_text().startswith("before\n## net: pass")
    found = outputs(github["GITHUB_OUTPUT"].read_text())
    assert found["chosen"] == "baseline"
    assert Path(found["artifact"]).is_file()


def test_what_cannot_be_written_is_a_warning_and_no_other_exit_code(recipe: Path, github: Mapping[str, Path]) -> None:
    for path in github.values():
        path.mkdir()
    ended = whole_run.compress("run", "net.onnx", "--recipe", recipe, "--output", "out")
    assert ended.code == 3
    assert all(f"warning: {name}: {path} cannot be written" in ended.err for name, path in github.items())


def test_the_step_s_summary_stays_below_its_limit(github: Mapping[str, Path], tmp_path: Path) -> None:
    path = github["GITHUB_STEP_SUMMARY"]
    path.write_text("x" * (2**20 - 600))
    ci.tell(left(found.REPORT, tmp_path), None, "github")
    assert path.stat().st_size <= 2**20
    assert path.read_text().endswith("The rest stands in the report.)\n")
    path.write_text("x" * 2**20)
    ci.tell(left(found.REPORT, tmp_path), None, None)
    assert path.stat().st_size == 2**20


def test_no_name_forges_an_output(github: Mapping[str, Path], tmp_path: Path) -> None:
    ci.tell(left(found.REPORT, tmp_path / FORGED), None, "github")
    read = outputs(github["GITHUB_OUTPUT"].read_text())
    assert read["verdict"] == "pass"
    assert read["folder"] == str(tmp_path / FORGED)
    assert read["artifact"] == f"{tmp_path / FORGED}/int8/net.onnx"
    assert len(read) == 10


def test_a_recipe_that_is_gone_or_elsewhere_does_no_harm(
    github: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    report = replace(found.REPORT, verdict="fail", chosen=None, trials=())
    ci.tell(left(report, tmp_path), tmp_path / "gone.yaml", "github")
    assert capsys.readouterr().err.startswith("::error title=latency p99 not met (baseline)::")
    recipe = tmp_path / "r.yaml"
    recipe.write_text("version: 1\ngates:\n  - latency: {p99: 50ms}\n")
    ci.tell(left(report, tmp_path), recipe, "github")
    assert capsys.readouterr().err.startswith("::error file=r.yaml,line=3,")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "elsewhere"))
    ci.tell(left(report, tmp_path), recipe, "github")
    assert capsys.readouterr().err.startswith(f"::error file={recipe},line=3,")
    monkeypatch.delenv("GITHUB_WORKSPACE")
    for name in github:
        monkeypatch.delenv(name)
    ci.tell(left(report, tmp_path), recipe, "github")
    assert capsys.readouterr().err.count("\n") == 1


def test_plain_says_a_line_a_gate_and_where_the_test_report_lies(recipe: Path) -> None:
    ended = whole_run.compress("run", "net.onnx", "--recipe", recipe, "--output", "out", "--ci", "plain")
    assert ended.code == 3
    assert ended.folder is not None
    *_, first, second, third = ended.err.splitlines()
    assert first.startswith("gate      baseline, macs: met; observed ")
    assert second.startswith("gate      baseline, size: not met; observed ")
    assert third.removeprefix("junit     ") == str(Path.cwd() / ended.folder / "report.xml")
    suite = junitparser.JUnitXml.fromfile(third.removeprefix("junit     "))
    assert (suite.tests, suite.failures, suite.errors) == (2, 1, 0)


def test_gitlab_folds_the_gates(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITLAB_CI", "true")
    ended = whole_run.compress("run", "net.onnx", "--recipe", recipe, "--output", "out")
    assert ended.code == 3
    # Source: GitLab's documentation of collapsible sections in job logs
    marks = re.findall(r"\x1b\[0Ksection_(start|end):\d{10}:(\w+)(\[collapsed=true\])?\r\x1b\[0K(.*)\n", ended.err)
    assert marks == [("start", "compressor_gates", "", "gates"), ("end", "compressor_gates", "", "")]
    inside = ended.err.partition("section_start")[2].partition("section_end")[0]
    assert inside.count("\ngate      ") == 2
    assert "report.xml" in inside


def test_quiet_and_none_leave_out_what_people_read(recipe: Path) -> None:
    for words in (("--ci", "none"), ("--ci", "plain", "--quiet"), ("--ci=gitlab", "--quiet"), ()):
        ended = whole_run.compress("run", "net.onnx", "--recipe", recipe, "--output", "out", *words)
        assert ended.code == 3
        assert "report.xml" not in ended.err
        assert "section_" not in ended.err
        assert "::" not in ended.err


def test_a_recipe_that_is_wrong_is_annotated_at_its_line(
    command: Command, recipe: Path, github: Mapping[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe.write_text("version: 1\ngates:\n  - sizes: {max: 1kB}\nlimit: {}\n")
    assert command("run", "net.onnx", "--recipe", recipe) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("::")]
    assert [re.match(r"::error file=([^,]+),line=(\d+),title=compress::recipe\.", line) is None for line in lines] == [
        False,
        False,
    ]
    assert [line.split(",")[:2] for line in lines] == [
        ["::error file=recipes/model.yaml", "line=3"],
        ["::error file=recipes/model.yaml", "line=4"],
    ]
    recipe.write_text("version: 1\ngates: [\n")
    assert command("recipe", "check", recipe) == 2
    assert "::error file=recipes/model.yaml,line=3,title=compress::not readable" in capsys.readouterr().err
    assert not github["GITHUB_OUTPUT"].exists()


def test_other_refusals_are_annotated_without_a_place(
    command: Command, model: Path, github: Mapping[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("run", "gone.onnx", "--sla", "50ms") == 2
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith(f"::error title=compress::{Path.cwd()}/gone.onnx: ")
    assert command("run", "nosuch:7: x", "--sla", "50ms") == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"::error title=compress::{Path.cwd()}/nosuch:7: x: ")
    assert command("run", model, "--sla", "50ms", "--output", model) == 5
    assert capsys.readouterr().err.splitlines()[-1].startswith("::error title=compress::")
    for words in (("--ci", "none"), ("--ci=plain",)):
        assert command("run", "gone.onnx", "--sla", "50ms", *words) == 2
        assert "::" not in capsys.readouterr().err
    assert github.keys()


def test_an_unknown_system_is_refused_before_any_work(command: Command, recipe: Path) -> None:
    assert command("run", "net.onnx", "--recipe", recipe, "--ci", "travis") == 2
    assert not Path("reports").exists()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)


def run_as_typed(line: str, folder: Path) -> None:
    """Run a command of the documentation, with the run that there is in the place of RUN."""
    words, target = shlex.split(line), None
    if ">" in words:
        *words, _, target = words
    assert words[0] == "compress"
    there = next(iter(sorted(folder.glob("reports/model/*"))), Path("none"))
    extra = ["--output", "reports"] if words[1] == "run" else []
    ended = whole_run.compress(*(word.replace("RUN", there.name) for word in words[1:]), *extra)
    assert ended.code == 0, ended.err
    if target:
        Path(target).write_text(ended.out)


def test_the_commands_of_the_documentation_run(model: Path, recipe: Path) -> None:
    shutil.move(model, "model.onnx")
    recipe.write_text(recipe.read_text().replace("1kB", "1MB"))
    github, gitlab, _, local = map(yaml.safe_load, blocks("yaml"))
    (line,) = [line for line in gitlab["gate"]["script"] if line.startswith("compress ")]
    run_as_typed(line, Path.cwd())
    for line in "".join(blocks("bash")).splitlines():
        run_as_typed(line, Path.cwd())
    suite = ET.parse("report.xml").getroot()  # noqa: S314 - made here
    assert suite.attrib["failures"] == "0"
    assert all(json.loads(Path(f"{name}.json").read_text()) for name in ("benchmark", "bencher"))
    (reports,) = [gitlab["gate"]["artifacts"]["reports"]["junit"]]
    assert len(list(Path.cwd().glob(reports))) == 1
    action = yaml.safe_load((DOCS.parents[1] / "action.yml").read_text())
    step = github["jobs"]["gate"]["steps"][1]
    assert step["with"].keys() <= action["inputs"].keys()
    used = set(re.findall(r"steps\.compress\.outputs\.([\w-]+)", DOCS.read_text()))
    assert used <= action["outputs"].keys()
    (hook,) = yaml.safe_load((DOCS.parents[1] / ".pre-commit-hooks.yaml").read_text())
    (shown,) = local["repos"][0]["hooks"]
    assert {**shown, "language": "python"}.items() <= hook.items()
