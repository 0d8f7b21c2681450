"""What GitHub reads: commands as its runner parses them, Markdown as CommonMark, outputs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import found
from markdown_it import MarkdownIt

from compressor import records as r
from compressor.formats import github

UNMET = r.Verdict("size", met=False, observed=2e6, limit=1e6, low=None, high=None, reason="too large", unit="B")
OPEN = r.Verdict("latency p99", met=None, observed=None, limit=50.0, low=None, high=9.5, reason="too few", unit="ms")
HOSTILE = "a,b:c%d\r\n::error::x ##[error]y <img src=x> | `x` \x1b[31m"


@dataclass(frozen=True)
class Place:
    file: Path
    line: int


@dataclass(frozen=True)
class Command:
    level: str
    properties: Mapping[str, str]
    message: str


def parsed(line: str) -> Command:
    """Read a command as GitHub's runner does. Source: actions/runner, ActionCommand.TryParseV2."""
    assert "\n" not in line
    assert "\r" not in line
    assert line.startswith("::")
    head, _, data = line[2:].partition("::")
    level, _, rest = head.partition(" ")
    pairs = dict(pair.partition("=")[::2] for pair in rest.strip().split(","))
    return Command(level, {name: unescaped(value) for name, value in pairs.items()}, unescaped(data))


def unescaped(value: str) -> str:
    for escape, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        value = value.replace(escape, character)
    return value


def failed(report: r.Report, *verdicts: r.Verdict, verdict: r.Outcome = "fail") -> r.Report:
    rung = replace(found.INT8, verdicts=verdicts)
    worse = replace(found.BASELINE, verdicts=tuple(replace(UNMET, gate=f"g{i}") for i in range(99)))
    return replace(report, verdict=verdict, chosen=None, trials=(rung,), baseline=worse)


def test_a_run_that_passes_annotates_nothing(report: r.Report) -> None:
    assert github.commands(report, {"latency p99": Place(Path("r.yaml"), 3)}) == ()


def test_each_gate_that_is_not_met_is_an_error_at_its_line(report: r.Report) -> None:
    places = {"size": Place(Path("recipes/a, b.yaml"), 7), "latency p99": Place(Path("r.yaml"), 8)}
    (line,) = github.commands(failed(report, UNMET, OPEN), places)
    assert parsed(line) == Command(
        "error", {"file": "recipes/a, b.yaml", "line": "7", "title": "size not met (int8)"}, "too large (limit 1 MB)"
    )


def test_undecided_gates_are_warnings_where_the_run_is_inconclusive(report: r.Report) -> None:
    met = found.INT8.verdicts[1]
    (line,) = github.commands(
        failed(report, OPEN, met, verdict="inconclusive"), {"latency p99": Place(Path("r.yaml"), 8)}
    )
    assert parsed(line) == Command(
        "warning", {"file": "r.yaml", "line": "8", "title": "latency p99 undecided (int8)"}, "too few (limit 50 ms)"
    )


def test_the_champion_s_verdicts_stand_where_it_is_named_and_what_nobody_asked_for_nowhere(report: r.Report) -> None:
    verdicts = [replace(UNMET, gate=gate) for gate in ("champion speed", "speed")]
    lines = github.commands(failed(report, *verdicts), {"baseline": Place(Path("r.yaml"), 2)})
    assert [parsed(line).properties.get("line") for line in lines] == ["2", None]
    lines = github.commands(failed(report, *verdicts), {})
    assert [parsed(line).properties.keys() for line in lines] == [{"title"}, {"title"}]


def test_there_are_never_more_than_ten_and_the_last_names_the_rest(report: r.Report) -> None:
    lines = github.commands(failed(report, *(replace(UNMET, gate=f"gate {i}") for i in range(13))), {})
    assert len(lines) == 10
    last = parsed(lines[-1])
    assert last.properties["title"] == "4 more gates"
    assert last.message == "gate 9, gate 10, gate 11, gate 12"
    assert len(github.commands(failed(report, *(replace(UNMET, gate=f"gate {i}") for i in range(10))), {})) == 10


def test_a_run_in_which_nothing_was_judged_says_so_once(report: r.Report) -> None:
    nothing = replace(failed(report), baseline=r.Trial("baseline"), trials=(found.BROKEN,))
    (line,) = github.commands(nothing, {})
    assert parsed(line).level == "error"
    assert "int8-fused was not built" in parsed(line).message
    cut = replace(report, verdict="inconclusive", chosen=None, unfinished="limits.run is over")
    (line,) = github.commands(cut, {})
    assert parsed(line).level == "warning"
    assert "limits.run is over" in parsed(line).message


def test_nothing_in_a_command_is_read_as_another(report: r.Report) -> None:
    verdict = replace(UNMET, gate=f"size {HOSTILE}", reason=HOSTILE * 100)
    (line,) = github.commands(failed(report, verdict), {verdict.gate: Place(Path(HOSTILE), 1)})
    command = parsed(line)
    assert command.properties.keys() == {"file", "line", "title"}
    assert command.properties["line"] == "1"
    assert command.properties["title"].startswith("size a,b:c%d ::error::x")
    assert command.message.startswith("a,b:c%d ::error::x ##[error]y <img")
    assert len(line) < 2000
    assert line.isprintable()


def test_the_summary_leads_with_the_verdict_and_shows_gates_and_rungs(report: r.Report) -> None:
    text = github.summary(report, "reports/net/run/report.md")
    lines = text.splitlines()
    assert lines[0] == "## net: pass"
    assert lines[2].startswith("**Pass:** int8 meets every gate")
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    cells = [token.children[0].content for token in tokens if token.type == "inline" and token.children]
    rows = sum(token.type == "tr_open" for token in tokens)
    assert rows == 1 + 2 + 1 + 3  # gates of the chosen rung, then three rungs, each with a head
    assert {"latency p99", "met", "31.5 [31, 33.25] ms", "50 ms", "33.25 is within 50"} <= set(cells)
    assert {"6.4 MB", "1 ms", "33.2 ms", "2.50 (95 % interval 2.25 to 2.75)"} <= set(cells)
    assert "not built (fuse): the simplifier refused it" in cells
    assert any("reports/net/run/report.md" in cell for cell in cells)
    assert any("the machine was busy" in cell for cell in cells)


def test_nothing_in_the_summary_is_read_as_markup(report: r.Report) -> None:
    verdict = replace(UNMET, gate=HOSTILE, reason=HOSTILE, unit=HOSTILE)
    hostile = replace(failed(report, verdict), warnings=(HOSTILE,), model=replace(report.model, name=HOSTILE))
    hostile = replace(hostile, environment=replace(report.environment, cpu=HOSTILE))
    honest, made = (
        MarkdownIt("commonmark").enable("table").parse(github.summary(one, where))
        for one, where in ((failed(report, UNMET), "r"), (hostile, HOSTILE))
    )
    assert not {"html_inline", "html_block", "image", "code_inline"} & {
        token.type for block in made for token in (block, *(block.children or ()))
    }
    assert sum(token.type == "tr_open" for token in made) == sum(token.type == "tr_open" for token in honest)


def test_the_summary_is_never_larger_than_the_room_for_it(report: r.Report) -> None:
    large = replace(report, warnings=tuple(f"{i} µ {'w' * 1900}" for i in range(1000)))
    text = github.summary(large, "report.md")
    assert 2**19 < len(text.encode()) <= 2**20
    assert text.endswith("The rest stands in the report.)\n")
    assert text.startswith("## net: pass")
    assert all(len(github.summary(report, "r", room).encode()) <= max(room, 0) for room in range(-10, 2000, 7))
    whole = github.summary(report, "r")
    assert github.summary(report, "r", len(whole.encode())) == whole


def test_the_outputs_are_those_that_the_action_declares(report: r.Report) -> None:
    outputs = github.outputs(report, Path("/runs/1"))
    assert outputs == {
        "verdict": "pass",
        "chosen": "int8",
        "artifact": "/runs/1/int8/net.onnx",
        "report": "/runs/1/report.json",
        "folder": "/runs/1",
        "size-bytes": "6400000",
        "ratio": "4",
        "speedup": "2.5",
        "score": "0.745",
        "model-version": "3",
    }
    action = (Path(__file__).parents[2] / "action.yml").read_text()
    assert set(re.findall(r"steps\.run\.outputs\.([\w-]+)", action)) == outputs.keys()
    nothing = github.outputs(replace(failed(report, UNMET), registry=None), Path("/runs/1"))
    assert {name for name, value in nothing.items() if value} == {"verdict", "report", "folder"}
