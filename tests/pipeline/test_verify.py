"""What a report chose elsewhere, measured again here: figures, link, tag, alias; and what is refused and why."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import planted
import pytest
import registered
import small
import whole_run
from onnx import external_data_helper
from whole_run import Ended

from compressor import formats, gates, machine, registry, workspace
from compressor.gates import speed
from compressor.pipeline import first
from compressor.records import Artifact, File, Report

pytestmark = registered.NOISE
INT8 = "rungs: [{name: int8, stages: [{quantize: {scheme: static}}]}]\nlimits: {measure: 3s}\n"
PLAIN = f"{INT8}gates: [{{latency: {{p50: 10s}}}}, {{accuracy: {{max_drop: 8%}}}}]\n"
ELSEWHERE = f"{PLAIN}proved_on: 'A Server*'\n"
Command = Callable[..., Ended]


@pytest.fixture
def uri(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gates, "regression", lambda _before, _now: None)  # INT8 of a small model is no faster
    monkeypatch.setattr(speed, "busy", lambda _moment: False)
    yield from registered.empty(tmp_path_factory, tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = small.classifier(tmp_path / "net.onnx")
    (tmp_path / "calibration_data").mkdir()
    small.data(tmp_path / "calibration_data" / "net.npz", path, 400, seed=1)
    return path


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Give a function that says on which CPU everything runs from now on."""
    return lambda cpu: monkeypatch.setattr(machine, "cpu_name", lambda: cpu)


@pytest.fixture
def go(uri: str, model: Path, on: Callable[[str], None]) -> Command:
    """Give a function that runs on a laptop."""
    outputs = iter(range(100))

    def go(text: str = ELSEWHERE, *words: object) -> Ended:
        on("A Laptop")
        (model.parent / "r.yaml").write_text(text)
        output = model.parent / f"runs{next(outputs)}"
        place = () if "--registry" in words else ("--registry", uri)
        return whole_run.compress("run", model, "--recipe", model.parent / "r.yaml", "--output", output, *place, *words)

    return go


@pytest.fixture
def prove(uri: str, tmp_path: Path, on: Callable[[str], None]) -> Command:
    """Give a function that verifies on a server."""
    outputs = iter(range(100))

    def prove(source: object, *words: object, cpu: str = "A Server (R) 7") -> Ended:
        on(cpu)
        place = () if "--registry" in words else ("--registry", uri)
        return whole_run.compress("verify", source, "--output", tmp_path / f"proofs{next(outputs)}", *place, *words)

    return prove


def report_of(ended: Ended) -> Path:
    assert ended.folder, ended.err
    return ended.folder / "report.json"


def edited(path: Path, change: Callable[[Report], Report]) -> Path:
    path.write_text(formats.render(change(formats.read(path)), "json"))
    return path


def left(folder: Path) -> list[Path]:
    """Give the files in the folders of proofs."""
    return [path for each in folder.glob("proofs*") for path in each.rglob("*") if path.is_file()]


def measured(ended: Ended, rung: str = "int8") -> dict[str, Any]:
    found: dict[str, Any] = ended.trials[rung]["measurement"]
    return found


def test_a_report_from_another_cpu_is_proved_here(go: Command, prove: Command, uri: str, model: Path) -> None:
    run = go()
    assert registered.aliases(uri) == {"candidate": "1"}
    before = report_of(run).read_bytes()
    proof = prove(report_of(run))
    assert proof.code == 0, proof.err
    assert report_of(run).read_bytes() == before
    assert proof.report["verifies"] == {
        "source": str(report_of(run)),
        "identity": f"{formats.read(report_of(run)).started.isoformat()} {workspace.sha256(model)}",
        "cpu": "A Laptop",
        "verdict": "pass",
        "rung": "int8",
        "model": "net",
        "version": "1",
    }
    assert (proof.report["environment"]["cpu"], proof.report["chosen"]) == ("A Server (R) 7", "int8")
    assert proof.report["started"] > run.report["started"]
    assert measured(proof)["latency"] != measured(run)["latency"]
    assert measured(proof)["score"] == measured(run)["score"], "the same samples, split in the same way"
    assert proof.artifacts()["int8"].read_bytes() == run.artifacts()["int8"].read_bytes()
    assert proof.artifacts(baseline=True)["baseline"].read_bytes() == model.read_bytes()
    options = [each.trials["int8"]["artifacts"][0]["options"] for each in (run, proof)]
    assert options[0] == options[1]
    assert registered.aliases(uri) == {"champion": "1"}
    tag = registered.tags(uri, "1")["verified.A_Server_R_7"]
    p99 = measured(proof)["latency"]["p99_ms"]
    assert tag == f"pass on {proof.report['started'][:10]}, p99 {p99:.4g} ms"
    assert proof.report["registry"]["alias"] == "champion"
    assert list(registered.versions(uri)) == ["1"]
    assert proof.folder
    told = (proof.folder / "report.md").read_text()
    assert "measured again on A Server" in told
    assert "version 1 of net" in told
    recorded = registered.client(uri).get_run(proof.report["registry"]["run_id"])
    assert recorded.data.tags["compressor.cpu"] == "A Server (R) 7"


@pytest.mark.parametrize("name", ["models:/net@candidate", "models:/net/1", "models:/net/latest"])
def test_a_version_is_proved_where_nothing_of_its_run_is(
    go: Command, prove: Command, uri: str, tmp_path: Path, name: str
) -> None:
    run = go()
    bytes_ = run.artifacts()["int8"].read_bytes()
    kept = shutil.copytree(tmp_path / "calibration_data", tmp_path / "elsewhere")
    for path in (*tmp_path.glob("runs*"), tmp_path / "calibration_data"):
        shutil.rmtree(path)
    (tmp_path / "net.onnx").unlink()
    proof = prove(name, "--evaluation", kept / "net.npz")
    assert proof.code == 0, proof.err
    assert (proof.report["verifies"]["model"], proof.report["verifies"]["version"]) == ("net", "1")
    assert proof.report["verifies"]["cpu"] == "A Laptop"
    assert proof.artifacts()["int8"].read_bytes() == bytes_
    assert registered.aliases(uri) == {"champion": "1"}
    assert list(registered.versions(uri)) == ["1"]


def test_what_does_not_meet_the_gates_here_stays_a_candidate(go: Command, prove: Command, uri: str) -> None:
    run = go()
    proof = prove(report_of(run), "--sla", "p50=1us")
    assert proof.code == 3
    assert (proof.report["verdict"], proof.report["chosen"]) == ("fail", None)
    assert "latency p50 not met" in proof.err
    tags = registered.tags(uri, "1")
    assert tags["verified.A_Server_R_7"].startswith("fail on ")
    assert tags["compressor.verdict"] == "pass"
    assert registered.aliases(uri) == {"candidate": "1"}
    assert (proof.report["registry"]["version"], proof.report["registry"]["alias"]) == ("1", "candidate")
    again = prove(report_of(run))
    assert again.code == 0
    assert registered.tags(uri, "1")["verified.A_Server_R_7"].startswith("pass on ")
    assert registered.aliases(uri) == {"champion": "1"}


def test_every_machine_has_a_tag_of_its_own_and_only_the_right_one_makes_a_champion(
    go: Command, prove: Command, uri: str
) -> None:
    run = go()
    first = prove(report_of(run), cpu="Another / Machine")
    assert first.code == 0
    assert first.report["registry"]["alias"] == "candidate"
    assert "measured on Another / Machine: prove it on A Server*" in first.report["registry"]["note"]
    assert registered.aliases(uri) == {"candidate": "1"}
    prove(report_of(run))
    verified = {key for key in registered.tags(uri, "1") if key.startswith("verified.")}
    assert verified == {"verified.Another_Machine", "verified.A_Server_R_7"}
    assert registered.aliases(uri) == {"champion": "1"}
    (past,) = registry.history(uri, "net")
    assert set(past.verified) == {"Another_Machine", "A_Server_R_7"}


def test_the_original_does_not_decide_a_proof(go: Command, prove: Command) -> None:
    run = go()
    proof = prove(report_of(run), "--sla", "p50=10s", "--max-drop", "0%")
    drop = measured(proof)["score"]["drop"]
    assert proof.code == (3 if drop > 0 else 0)
    baseline = proof.trials["baseline"]["verdicts"]
    assert all(verdict["met"] for verdict in baseline)


def test_without_the_data_accuracy_is_undecided_and_what_would_help_is_said(
    go: Command, prove: Command, uri: str, tmp_path: Path
) -> None:
    run = go()
    shutil.rmtree(tmp_path / "calibration_data")
    proof = prove(report_of(run))
    assert (proof.code, proof.report["verdict"]) == (4, "inconclusive")
    (accuracy,) = [v for v in proof.trials["int8"]["verdicts"] if v["gate"] == "accuracy"]
    assert (accuracy["met"], accuracy["reason"].startswith("no evaluation data: give --evaluation")) == (None, True)
    assert registered.tags(uri, "1")["verified.A_Server_R_7"].startswith("inconclusive on ")
    assert registered.aliases(uri) == {"candidate": "1"}


def test_a_run_without_a_registry_is_proved_without_one(go: Command, prove: Command, tmp_path: Path) -> None:
    run = go(ELSEWHERE, "--registry", "none")
    proof = prove(report_of(run), "--registry", "none")
    assert proof.code == 0
    assert proof.report["registry"] is None
    assert proof.report["verifies"]["version"] is None
    assert not (tmp_path / "proofs0" / "mlflow.db").exists()


def test_a_server_that_only_a_report_names_is_not_asked(
    go: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, away = report_of(go()), "https://registry.example.org"

    def moved(report: Report) -> Report:
        assert report.registry
        return replace(report, registry=replace(report.registry, uri=away))

    edited(path, moved)
    found = first._reported(str(path), first.Wanted(registry="none"))
    assert found.registry == "none"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"https://me:secret@{away.removeprefix('https://')}")
    assert first._reported(str(path), first.Wanted()).registry == f"https://me:secret@{away.removeprefix('https://')}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    ended = whole_run.compress("verify", path, "--output", tmp_path / "proofs")
    assert ended.code == 2
    assert f"is recorded at {away}, which is not this machine's registry: give --registry" in ended.err


def test_a_database_that_only_a_report_names_is_not_written(
    go: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = report_of(go())
    run = tmp_path / "there" / "reports" / "net" / "run"
    shutil.copytree(path.parent, run)
    linked = tmp_path / "linked"
    linked.symlink_to(tmp_path / "there" / "reports")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    for place, taken in ((tmp_path / "there" / "mlflow.db", True), (tmp_path / "victim.db", False)):
        edited(run / "report.json", lambda report, place=place: _recorded_at(report, f"sqlite:///{place}"))  # type: ignore[misc]
        if taken:
            for way in (
                run / "report.json",
                linked / "net" / "run" / "report.json",
                Path(os.path.relpath(run)) / "report.json",
            ):
                assert first._reported(str(way), first.Wanted()).registry == f"sqlite:///{place}"
            continue
        ended = whole_run.compress("verify", run / "report.json", "--output", tmp_path / "proofs")
        assert ended.code == 2
        assert f"is recorded at sqlite:///{place}, which is not this machine's registry" in ended.err
        assert not place.exists()


def _recorded_at(report: Report, uri: str) -> Report:
    assert report.registry
    return replace(report, registry=replace(report.registry, uri=uri))


AGAINST = "baseline: {{model: 'models:/net{}', tolerance: {{speed: 100%}}}}\n"


def test_the_alias_that_was_asked_for_is_followed(go: Command, prove: Command, uri: str, model: Path) -> None:
    go(PLAIN)
    client = registered.client(uri)
    client.set_registered_model_alias("net", "production", "1")
    planted.worse(model, 0.05)
    run = go(ELSEWHERE + AGAINST.format("@production"))
    assert run.report["champion"]["asked"] == "models:/net@production"
    planted.worse(model, 0.05)
    go(PLAIN)  # version 3 is the champion now, and not what is held against
    proof = prove(report_of(run))
    assert proof.report["champion"]["version"] == "1"
    client.set_registered_model_alias("net", "production", "3")
    assert prove(report_of(run)).report["champion"]["version"] == "3"
    client.delete_registered_model_alias("net", "production")
    gone = prove(report_of(run))
    assert gone.code == 2
    assert "models:/net@production: there is no such version" in gone.err
    assert prove(report_of(run), "--against", "models:/net/1").report["champion"]["version"] == "1"


def test_a_champion_that_is_gone_is_no_reason_to_ask_for_none(
    go: Command, prove: Command, uri: str, model: Path
) -> None:
    go(PLAIN)
    planted.worse(model, 0.05)
    run = go(ELSEWHERE + AGAINST.format("@champion"))
    registered.client(uri).delete_registered_model_alias("net", "champion")
    gone = prove(report_of(run))
    assert gone.code == 2
    assert (
        "was held against models:/net/1, asked for as models:/net@champion, and nothing has that alias now" in gone.err
    )


def test_a_version_that_was_asked_for_by_its_number_stays_it(go: Command, prove: Command, model: Path) -> None:
    go(PLAIN)
    planted.worse(model, 0.05)
    run = go(ELSEWHERE + AGAINST.format("/1"))
    planted.worse(model, 0.05)
    go(PLAIN)
    assert prove(report_of(run)).report["champion"]["version"] == "1"


def test_what_was_not_registered_yet_is_registered_once_it_is_proved(go: Command, prove: Command, uri: str) -> None:
    run = go(ELSEWHERE, "--registry", "none", "--name", "net")
    proof = prove(report_of(run))
    assert proof.code == 0
    assert registered.aliases(uri) == {"champion": "1"}
    assert registered.tags(uri, "1")["verified.A_Server_R_7"].startswith("pass on ")


def test_a_version_that_holds_something_else_by_now_gets_no_tag_and_no_alias(
    go: Command, prove: Command, uri: str, model: Path
) -> None:
    run = go()
    client = registered.client(uri)
    client.delete_registered_model("net")
    planted.worse(model, 0.8)
    go()  # another version 1
    proof = prove(report_of(run), "--original", run.artifacts(baseline=True)["baseline"])
    assert proof.code == 0
    assert "verified.A_Server_R_7" not in registered.tags(uri, "1")
    assert registered.aliases(uri) == {"candidate": "1", "champion": "2"}
    failed = prove(report_of(run), "--sla", "p50=1us")
    assert failed.code == 3
    assert "verified.A_Server_R_7" not in registered.tags(uri, "1")


def test_the_champion_of_now_is_measured_beside_it(go: Command, prove: Command, uri: str, model: Path) -> None:
    go(PLAIN)
    assert registered.aliases(uri) == {"champion": "1"}
    against = "baseline: {model: 'models:/net@champion', tolerance: {speed: 100%}}\n"
    planted.worse(model, 0.05)
    run = go(ELSEWHERE + against)
    assert (run.code, registered.aliases(uri)) == (0, {"champion": "1", "candidate": "2"})
    proof = prove(report_of(run))
    assert proof.code == 0, proof.err
    met = {v["gate"]: v["met"] for v in proof.trials["int8"]["verdicts"]}
    assert (met["champion speed"], met["champion accuracy"]) == (True, True)
    assert proof.report["champion"]["version"] == "1"
    assert registered.aliases(uri) == {"champion": "2"}
    assert proof.folder
    assert "## Beside the champion" in (proof.folder / "report.md").read_text()


def test_what_is_worse_than_the_champion_here_stays_a_candidate(
    go: Command, prove: Command, uri: str, model: Path
) -> None:
    against = "baseline: {model: 'models:/net@champion', tolerance: {speed: 100%}}\n"
    kept = shutil.copy(model, model.with_name("kept"))
    run_slow = go(ELSEWHERE + against) if planted.slower(model) else None
    assert run_slow
    shutil.copy(kept, model)
    go(PLAIN)
    assert registered.aliases(uri) == {"candidate": "1", "champion": "2"}
    proof = prove(report_of(run_slow))
    assert proof.code == 3
    met = {v["gate"]: v["met"] for v in proof.trials["int8"]["verdicts"]}
    assert met["champion speed"] is False
    assert registered.aliases(uri) == {"candidate": "1", "champion": "2"}


def test_a_baseline_that_was_chosen_is_proved_too(go: Command, prove: Command, uri: str) -> None:
    run = go(f"{INT8}gates: [{{size: {{max: 5MB}}}}, {{nodes: {{max: 8}}}}]\nproved_on: 'A Server*'\n")
    assert (run.code, run.report["chosen"]) == (0, "baseline")
    proof = prove(report_of(run))
    assert (proof.code, proof.report["chosen"], proof.report["trials"]) == (0, "baseline", [])
    assert registered.aliases(uri) == {"champion": "1"}
    p99 = proof.report["baseline"]["measurement"]["latency"]["p99_ms"]
    assert registered.tags(uri, "1")["verified.A_Server_R_7"].endswith(f"p99 {p99:.4g} ms")


TWO = INT8.replace("}]}]", "}]}, {name: fused, stages: [{quantize: {scheme: static}}, fuse]}]")


def test_another_rung_is_proved_where_it_is_named(go: Command, prove: Command, uri: str) -> None:
    run = go(TWO + PLAIN.removeprefix(INT8), "--all")
    assert run.report["chosen"] == "int8"
    proof = prove(report_of(run), "--rung", "fused")
    assert proof.code == 0, proof.err
    assert (proof.report["verifies"]["rung"], proof.report["verifies"]["version"]) == ("fused", None)
    assert [trial["rung"] for trial in proof.report["trials"]] == ["fused"]
    wrong = prove(report_of(run), "--rung", "none")
    assert wrong.code == 2
    assert "expected a rung that was built, found 'none'; give --rung, one of baseline, int8, fused" in wrong.err
    registered_one = prove("models:/net/1", "--rung", "fused")
    assert registered_one.code == 2
    assert "models:/net/1: holds int8 and no other rung: leave out --rung, or name a report.json" in registered_one.err
    assert uri


def test_an_inconclusive_report_is_decided_here(go: Command, prove: Command, uri: str) -> None:
    one = go(PLAIN)
    path = edited(
        report_of(one),
        lambda report: replace(
            report,
            verdict="inconclusive",
            chosen=None,
            registry=None,
            trials=tuple(
                replace(trial, verdicts=(replace(trial.verdicts[0], met=None), *trial.verdicts[1:]))
                for trial in report.trials
            ),
        ),
    )
    proof = prove(path)
    assert (proof.code, proof.report["verifies"]["verdict"], proof.report["chosen"]) == (0, "inconclusive", "int8")
    nothing = edited(
        path,
        lambda report: replace(
            report,
            verdict="fail",
            trials=tuple(replace(t, verdicts=(replace(t.verdicts[0], met=False),)) for t in report.trials),
        ),
    )
    refused = prove(nothing)
    assert refused.code == 2
    assert "expected a rung that was built, found None; give --rung, one of baseline, int8" in refused.err
    assert uri


def external(model: Path) -> None:
    """Write the weights of a model beside it."""
    proto = onnx.load(model)
    external_data_helper.convert_model_to_external_data(proto, location="weights.bin", size_threshold=0)
    onnx.save(proto, model)


def test_a_model_with_its_weights_beside_it_is_proved(
    go: Command, prove: Command, uri: str, model: Path, tmp_path: Path
) -> None:
    external(model)
    run = go(f"{INT8}gates: [{{size: {{max: 5MB}}}}, {{nodes: {{max: 8}}}}]\nproved_on: 'A Server*'\n")
    assert (run.code, run.report["chosen"]) == (0, "baseline")
    assert len(run.report["baseline"]["artifacts"][0]["files"]) == 2
    proof = prove(report_of(run))
    assert proof.code == 0, proof.err
    for path in tmp_path.glob("runs*"):
        shutil.rmtree(path)
    for path in (model, tmp_path / "weights.bin"):
        path.unlink()
    again = prove("models:/net/1")
    assert again.code == 0, again.err
    assert registered.aliases(uri) == {"champion": "1"}


def test_a_model_with_its_weights_beside_it_is_the_champion_itself(go: Command, model: Path) -> None:
    external(model)
    text = f"{INT8}gates: [{{size: {{max: 5MB}}}}, {{nodes: {{max: 8}}}}]\n"
    assert go(text).report["chosen"] == "baseline"
    ended = go(text, "--against", "models:/net@champion")
    assert ended.code == 0, ended.err
    assert ended.trials["baseline"]["beside"]["same"] is True


@pytest.mark.parametrize("what", ["artifact", "original"])
def test_what_was_tampered_with_is_refused(go: Command, prove: Command, tmp_path: Path, what: str) -> None:
    run = go(ELSEWHERE, "--registry", "none")
    path = run.artifacts(baseline=True)["int8" if what == "artifact" else "baseline"]
    proto = onnx.load(path)
    proto.doc_string = "tampered"
    onnx.save(proto, path)
    proof = prove(report_of(run), "--registry", "none")
    assert (proof.code, left(tmp_path)) == (2, [])
    assert ("is not what was measured (sha256" if what == "artifact" else "is not the model that") in proof.err


@pytest.mark.parametrize("what", ["artifact", "original"])
def test_what_is_gone_is_named(go: Command, prove: Command, tmp_path: Path, what: str) -> None:
    run = go(ELSEWHERE, "--registry", "none")
    path = run.artifacts(baseline=True)["int8" if what == "artifact" else "baseline"]
    path.unlink()
    proof = prove(report_of(run), "--registry", "none")
    assert (proof.code, left(tmp_path)) == (2, [])
    assert "name it with --original" in proof.err or "which was measured, is not at" in proof.err


def test_another_original_is_refused(go: Command, prove: Command, tmp_path: Path) -> None:
    run = go(ELSEWHERE, "--registry", "none")
    other = small.classifier(tmp_path / "other.onnx", seed=5)
    proof = prove(report_of(run), "--registry", "none", "--original", other)
    assert (proof.code, left(tmp_path)) == (2, [])
    assert "is not the model that" in proof.err
    assert "name that one with --original" in proof.err


def block(report: Report, **changes: Any) -> Report:
    return replace(report, recipe={**report.recipe, **changes})


def data(report: Report, **changes: Any) -> Report:
    return block(report, data={**report.recipe["data"], **changes})


def stolen(name: str) -> Callable[[Report], Report]:
    """Let an artifact be a file of that name."""

    def change(report: Report) -> Report:
        first = report.trials[0]
        file = replace(first.artifacts[0].files[0], path=name)
        if "baseline" in name:
            file = report.baseline.artifacts[0].files[0]
        artifact = replace(first.artifacts[0], files=(file,))
        return replace(report, trials=(replace(first, artifacts=(artifact,)), *report.trials[1:]))

    return change


def optioned(**options: str) -> Callable[[Report], Report]:
    def change(report: Report) -> Report:
        first = report.trials[0]
        artifact = replace(first.artifacts[0], options={**first.artifacts[0].options, **options})
        return replace(report, trials=(replace(first, artifacts=(artifact,)), *report.trials[1:]))

    return change


HOSTILE = {
    "metric": (lambda r: data(r, metric="os:getcwd"), "data.metric is os:getcwd, code that is never run unasked"),
    "data": (lambda r: data(r, evaluation={"path": "evil:run"}), "data.evaluation is evil:run, code that is never run"),
    "outside": (stolen("../../../net.onnx"), "lies outside the run's folder"),
    "absolute": (stolen("/etc/passwd"), "lies outside the run's folder"),
    "baseline's": (
        stolen("artifacts/baseline/model.onnx"),
        "artifacts/baseline/model.onnx: is a file of the baseline too",
    ),
    "options": (optioned(**{"session.save_model_format": "x"}), "expected session options as `compress run` writes"),
    "library": (
        optioned(custom_ops="evil.so"),
        "needs the custom operators of 'evil.so', code that is never run unasked",
    ),
    "recipe": (lambda r: block(r, rungs="none"), "recipe.rungs"),
    "include": (lambda r: block(r, **{"$include": "/etc/passwd"}), "recipe"),
    "preprocess": (lambda r: replace(r, data=replace(r.data, preprocess={"crop": "x"})), "preprocess"),
    "alphabet": (lambda r: data(r, alphabet="/no/such", metric="cer"), "/no/such"),
    "target": (lambda r: block(r, target="no machine"), "recipe.target"),
    "trace": (lambda r: block(r, load={"trace": {"path": "/no/such.csv"}}), "/no/such.csv"),
}


@pytest.mark.parametrize("kind", list(HOSTILE))
def test_a_report_that_nobody_here_wrote_does_no_harm(go: Command, prove: Command, tmp_path: Path, kind: str) -> None:
    run = go(ELSEWHERE, "--registry", "none")
    change, told = HOSTILE[kind]
    path = edited(report_of(run), change)  # type: ignore[arg-type]
    (tmp_path / "evil.py").write_text("raise SystemExit(99)\ndef run(): pass\n")
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    proof = prove(path, "--registry", "none")
    assert (proof.code, left(tmp_path)) == (2, []), proof.err
    assert told in proof.err
    assert "Traceback" not in proof.err
    assert {path: path.read_bytes() for path in files} == files


@pytest.mark.parametrize("place", ["x" * 5000, "/root/\0", "/proc/self/root/no", "no/such.npz", "\x1b[2J.npz"])
def test_data_that_lies_nowhere_here_is_left_out(go: Command, prove: Command, tmp_path: Path, place: str) -> None:
    run = go(ELSEWHERE, "--registry", "none")
    shutil.rmtree(tmp_path / "calibration_data")
    path = edited(report_of(run), lambda r: data(r, evaluation={"path": place}, calibration={"path": place}))
    proof = prove(path, "--registry", "none")
    assert proof.code == 4, proof.err
    assert "give --evaluation" in proof.err
    assert "\x1b" not in proof.err


def test_names_are_shown_as_text_and_used_as_no_path(go: Command, prove: Command, tmp_path: Path) -> None:
    run = go(ELSEWHERE, "--registry", "none")
    name = "../../<b>\x1b[31m|net"

    def renamed(report: Report) -> Report:
        return replace(
            report,
            model=replace(report.model, name=name),
            environment=replace(report.environment, cpu="<script>\x1b[2J|cpu"),
        )

    proof = prove(edited(report_of(run), renamed), "--registry", "none")
    assert proof.code == 0, proof.err
    assert proof.folder
    assert proof.folder.is_relative_to(tmp_path / "proofs0")
    assert "\x1b" not in proof.err
    told = (proof.folder / "report.md").read_text()
    assert "\x1b" not in told
    assert "<script>" not in told


def test_what_was_made_for_another_kind_of_machine_is_refused(
    go: Command, prove: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "isa", lambda *_: ("avx2", "fma"))
    run = go(f"{ELSEWHERE}target: arm-dotprod\n", "--all")
    assert run.folder, run.err
    proof = prove(report_of(run), "--registry", "none", "--rung", "int8")
    assert (proof.code, left(tmp_path)) == (5, [])
    assert "int8 was made for arm-dotprod, and this machine is x86-avx2: verify it where it will serve" in proof.err


def compiled(report: Report, run: Path) -> Report:
    """Give a report whose first rung is an engine for two GPUs."""
    engine = run / "artifacts" / "int8" / "a10g.engine"
    engine.write_bytes(b"an engine")
    file = File("artifacts/int8/a10g.engine", workspace.sha256(engine), 9)
    artifact = Artifact("tensorrt", "a10g+l4", (file,), 1.0, {"capabilities": "8.6,8.9"})
    return replace(report, trials=(replace(report.trials[0], artifacts=(artifact,)), *report.trials[1:]))


@pytest.mark.parametrize(("capability", "here"), [(None, "no GPU"), ((9, 0), "an H200 (compute capability 9.0)")])
def test_an_engine_for_another_device_is_refused(
    go: Command, prove: Command, monkeypatch: pytest.MonkeyPatch, capability: Any, here: str
) -> None:
    path = report_of(go(ELSEWHERE, "--registry", "none"))
    monkeypatch.setattr(machine, "gpu_capability", lambda: capability)
    monkeypatch.setattr(machine, "gpu", lambda: "an H200")
    proof = prove(edited(path, lambda report: compiled(report, path.parent)), "--registry", "none")
    assert (proof.code, left(Path.cwd())) == (5, [])
    told = f"int8 is an engine for a10g, l4, and here is {here}: verify it where such a device is"
    assert told in proof.err


def test_what_is_interrupted_leaves_nothing(
    go: Command, prove: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from compressor.pipeline import trying

    run = go(ELSEWHERE, "--registry", "none")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trying.Trying, "rung", interrupted)
    proof = prove(report_of(run), "--registry", "none")
    assert proof.code == 130
    assert left(tmp_path) == []
    assert not list((tmp_path / "proofs0" / "net").glob("*"))


def test_what_is_not_there_is_refused_with_what_is(go: Command, prove: Command, tmp_path: Path) -> None:
    go()
    for source, told in {
        "models:/net@champion": "models:/net@champion: 'net' has no such version; there is @candidate, /1",
        "models:/net/7": "there is @candidate, /1",
        "models:/other@candidate": "no model of that name has a version; there is net",
        "models:/net": "expected models:/NAME@ALIAS or models:/NAME/VERSION",
        str(tmp_path / "none.json"): "expected a report.json, but it cannot be read",
        str(tmp_path): "expected a report.json, but it cannot be read",
    }.items():
        proof = prove(source)
        assert (proof.code, left(tmp_path)) == (2, []), source
        assert told in proof.err
    gone = prove("models:/net/1", "--registry", "none")
    assert gone.code == 2
    assert "give --registry URI" in gone.err


def test_a_registry_that_refuses_takes_nothing_from_the_proof(
    go: Command, prove: Command, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from compressor.errors import PublishError

    run = go()

    def refusing(*_: object) -> None:
        raise PublishError("registry: no")

    monkeypatch.setattr(registry, "record", refusing)
    proof = prove(report_of(run))
    assert proof.code == 6
    assert proof.report["chosen"] == "int8"
    monkeypatch.undo()
    later = whole_run.compress("publish", report_of(proof), "--registry", uri)
    assert later.code == 0, later.err
    assert registered.aliases(uri) == {"champion": "1"}


def test_what_is_given_is_put_over_what_the_report_says(go: Command, prove: Command, tmp_path: Path) -> None:
    run = go()
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "mine.npz",
        x=rng.normal(0, 1, (50, 3, small.SIDE, small.SIDE)).astype(np.float32),
    )
    proof = prove(
        report_of(run), "--evaluation", "mine.npz", "--metric", "agreement", "--sla", "p95=9s", "--max-drop", "99%"
    )
    assert proof.code == 0, proof.err
    assert (proof.report["data"]["metric"], proof.report["data"]["evaluation"]["n"]) == ("agreement", 50)
    assert proof.report["recipe"]["gates"][0]["latency"].keys() >= {"p95"}
    assert json.loads((report_of(proof)).read_text())["verifies"]["verdict"] == "pass"
