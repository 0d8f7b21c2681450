"""`compress gate`, `verify`, `history` and `promote` as their user meets them; what they find is tested elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import registered
import small
import whole_run

from compressor import pipeline
from compressor.errors import Stopped
from compressor.registry import Past

pytestmark = registered.NOISE
SIZED = """
rungs: [{name: int8, stages: [{quantize: {scheme: static}}]}]
gates: [{size: {max: 5MB}}, {nodes: {max: 8}}]
limits: {measure: 300ms}
"""


@pytest.fixture
def uri(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    yield from registered.empty(tmp_path_factory, tmp_path)


@pytest.fixture
def run(uri: str, tmp_path: Path) -> whole_run.Ended:
    """Register version 1 of `net`, the original itself."""
    model = small.classifier(tmp_path / "net.onnx")
    (tmp_path / "calibration_data").mkdir()
    small.data(tmp_path / "calibration_data" / "net.npz", model, 200, seed=1)
    (tmp_path / "r.yaml").write_text(SIZED)
    return whole_run.compress(
        "run", model, "--recipe", tmp_path / "r.yaml", "--output", tmp_path / "runs", "--registry", uri
    )


def report(run: whole_run.Ended) -> Path:
    assert run.folder, run.err
    return run.folder / "report.json"


def test_gate_shows_a_row_a_gate_and_the_sentence(run: whole_run.Ended) -> None:
    ended = whole_run.compress("gate", report(run))
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0].split()[:3] == ["gate", "of", "baseline"]
    assert [line.split()[:2] for line in lines[1:]] == [["size", "met"], ["nodes", "met"]]
    assert "pass: baseline meets every gate" in ended.err
    quiet = whole_run.compress("gate", report(run), "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_gate_prints_the_report_as_judged(run: whole_run.Ended) -> None:
    ended = whole_run.compress("gate", report(run), "--json", "--quiet", "--sla", "1us")
    found = json.loads(ended.out)
    assert (ended.code, found["verdict"]) in {(3, "fail"), (4, "inconclusive")}
    assert found["recipe"]["gates"][0] == {"latency": {"p99": "1us", "reserve": "0ms", "confidence": "95%"}}


def test_gate_tells_the_ci_system(run: whole_run.Ended, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    (tmp_path / "strict.yaml").write_text("gates:\n  - size: {max: 1B}\n")
    ended = whole_run.compress("gate", report(run), "--recipe", tmp_path / "strict.yaml", "--ci", "github")
    assert ended.code == 3
    assert "::error file=" in ended.err
    assert "line=2" in ended.err
    assert "size" in (tmp_path / "summary").read_text()


@pytest.mark.parametrize("words", [("gate",), ("verify",), ("history",), ("promote", "net")])
def test_what_is_missing_is_a_mistake_of_usage(words: tuple[str, ...]) -> None:
    ended = whole_run.compress(*words)
    assert ended.code == 2
    assert "Missing argument" in ended.err


def test_history_shows_a_row_a_version(run: whole_run.Ended, uri: str) -> None:
    assert run.code == 0
    ended = whole_run.compress("history", "net", "--registry", uri)
    assert ended.code == 0
    header, row = ended.out.splitlines()
    columns = ("version", "alias", "made (UTC)", "rung", "size", "p99", "score", "verdict", "recipe", "verified")
    assert [name for name in columns if name not in header] == []
    measured = run.report["baseline"]["measurement"]
    assert row.split()[:2] == ["1", "@champion"]
    assert f"top1 {measured['score']['value']:.4g}" in row
    assert "pass" in row
    (found,) = json.loads(whole_run.compress("history", "net", "--registry", uri, "--json").out)
    assert found["size_bytes"] == sum(file["size_bytes"] for file in run.report["baseline"]["artifacts"][0]["files"])
    assert found["p99_ms"] == pytest.approx(measured["latency"]["p99_ms"])
    assert found["p99_high_ms"] == pytest.approx(measured["latency"]["p99_high_ms"])
    assert found["score"] == pytest.approx(measured["score"]["value"])
    assert (found["version"], found["aliases"], found["rung"]) == ("1", ["champion"], "baseline")


@pytest.mark.usefixtures("uri")
def test_names_from_a_registry_are_printed_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = "\x1b[2J\n[bold]x"
    past = Past(
        odd, (odd,), datetime(2026, 3, 4, tzinfo=UTC), odd, 1, 1.0, None, None, odd, 0.5, odd, odd, odd, {odd: odd}
    )

    def history(*_: object) -> Any:
        yield from ()
        return (past,)

    monkeypatch.setattr(pipeline, "history", history)
    ended = whole_run.compress("history", "net")
    assert ended.code == 0
    assert "\x1b" not in ended.out
    assert len(ended.out.splitlines()) == 2
    assert "[bold]x" in ended.out


def test_promote_moves_the_alias_and_says_what_was_before(run: whole_run.Ended, uri: str, tmp_path: Path) -> None:
    assert run.code == 0
    (tmp_path / "r.yaml").write_text(f"{SIZED}seed: 1\n")
    words = ("--recipe", tmp_path / "r.yaml", "--output", tmp_path / "again", "--registry", uri)
    assert whole_run.compress("run", tmp_path / "net.onnx", *words).code == 0
    assert registered.aliases(uri) == {"champion": "2"}
    ended = whole_run.compress("promote", "net", "1", "--registry", uri)
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.splitlines()[-1] == "net version 1 is the champion, in the place of version 2"
    assert registered.aliases(uri) == {"champion": "1"}
    again = whole_run.compress("promote", "net", "1", "--registry", uri)
    assert again.err.splitlines()[-1] == "net version 1 is the champion"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("history", "other"), "other: no model of that name has a version; there is net"),
        (("history", "\x1b[2J"), "no model of that name has a version; there is net"),
        (("promote", "net", "9"), "net: has no version '9'; there is 1"),
        (("promote", "other", "1"), "other: has no version '1'; there is none"),
        (("promote", "net", "1", "--registry", "none"), "there is no registry to look in; give --registry URI"),
        (("history", "net", "--registry", "none"), "there is no registry to look in; give --registry URI"),
        (("history", "net", "--registry", "x.txt"), "registry.uri"),
    ],
)
@pytest.mark.usefixtures("run")
def test_what_is_not_there_is_told_in_a_sentence(uri: str, words: tuple[str, ...], told: str) -> None:
    place = () if "--registry" in words else ("--registry", uri)
    ended = whole_run.compress(*words, *place)
    assert ended.code == 2
    assert told in ended.err
    assert "\x1b" not in ended.err


def test_verify_says_what_it_proves_and_prints_the_report(run: whole_run.Ended, uri: str, tmp_path: Path) -> None:
    ended = whole_run.compress("verify", report(run), "--output", tmp_path / "proofs", "--registry", uri, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["verifies"]["rung"] == "baseline"
    assert f"verifies  baseline of {report(run)}, pass on" in ended.err
    assert "registry  net version 1 @champion" in ended.err
    quiet = whole_run.compress("verify", report(run), "--output", tmp_path / "quiet", "--registry", uri, "--quiet")
    assert (quiet.code, quiet.out) == (0, "")


def test_a_signal_ends_a_proof(run: whole_run.Ended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> Any:
        raise Stopped(15)

    monkeypatch.setattr(pipeline, "verify", stopped)
    assert whole_run.compress("verify", report(run), "--output", tmp_path / "proofs").code == 143


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        (("--sla", "fast"), "--sla: p99: expected a time such as 50ms, found 'fast'"),
        (("--max-drop", "2"), "--max-drop"),
        (("--reserve", "5ms"), "--reserve keeps part of a latency budget, but there is none: give --sla too"),
        (("--rate", "often"), "often: no such file or folder"),
    ],
)
def test_a_flag_that_cannot_be_read_is_named(run: whole_run.Ended, tmp_path: Path, flag: Any, told: str) -> None:
    ended = whole_run.compress("verify", report(run), "--output", tmp_path / "proofs", "--registry", "none", *flag)
    assert ended.code == 2
    assert told in ended.err
    assert not list((tmp_path / "proofs").glob("net/*"))
