"""One model measured as it stands: its points, its verdicts, and where its samples come from."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pipeline_broken as broken
import pytest
import small
from finished import finish
from found import REPORT

from compressor import formats, isolation, plan, recipe, records
from compressor.errors import InputError
from compressor.gates import At
from compressor.pipeline import Asked, bench, subject, timing
from compressor.pipeline.bench import _outcome, _pointed, _scene, _unjudged
from compressor.pipeline.steps import Steps
from compressor.records import Benched, Verdict

SHORT = "limits: {measure: 1s}"
OPTIONS = {"intra_op_num_threads": "1", "providers": "CPUExecutionProvider"}


@pytest.fixture(autouse=True)
def scratch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what is written for a moment in a folder of its own; whatever a test does, nothing of ours stays in it."""
    folder = tmp_path_factory.mktemp("scratch")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield
    assert list(folder.glob("compress-*")) == []


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.classifier(tmp_path_factory.mktemp("bench") / "net.onnx")


def asked(source: object, text: str = SHORT, **more: object) -> Asked:
    return Asked(str(source), recipe.parse(text, "r.yaml"), **{"folder": Path.cwd(), **more})  # type: ignore[arg-type]


def measured(source: object, text: str = SHORT, **more: object) -> Benched:
    return finish(bench(asked(source, text, **more)))


def planned(wanted: Asked, scratch: Path) -> plan.Plan:
    """Plan in this process what a bench plans in a child."""
    named = finish(subject.resolve(wanted.source, None, scratch, Steps(isolation.Limits(), verbose=False)))
    return plan.make(replace(wanted.job(named, scratch), scored=False))


def test_a_model_is_measured_at_every_point_cold_and_paced_and_judged(model: Path) -> None:
    text = """
        gates:
          - latency: {p99: 10s}
          - startup: {max: 60s}
          - memory: {max: 8GiB}
          - cost: {max: 100 USD/1M, per_hour: 0.526}
          - throughput: {min: 1/s}
          - macs: {max: 200k}
        others: [{batch: 3}]
        limits: {measure: 20s}"""
    found = measured(model, text, batches=(2, 1))
    assert found.side.source == str(model)
    assert (found.side.model.name, found.side.model.size_bytes) == ("net", model.stat().st_size)
    measurement = found.side.measurement
    assert (measurement.latency.at, measurement.latency.load) == ("", "closed loop, 1 worker")
    assert measurement.latency.shape == {"x": "2x3x8x8"}, "the first batch is the main one"
    assert measurement.latency.load_ms is not None
    assert measurement.latency.cold_ms is not None
    assert [other.at for other in measurement.others] == ["paced", "batch 3", "batch 1"]
    paced = measurement.others[0]
    assert paced.offered_per_s is not None
    assert 0 < paced.offered_per_s <= 101, "at least 10 ms apart"
    assert measurement.memory_bytes is not None
    assert measurement.memory_bytes > 10**7
    assert measurement.startup is not None
    assert measurement.startup.high_ms is not None, "five starts bound the median"
    assert measurement.cost_per_million == pytest.approx(0.526 / 3600 / measurement.throughput_per_s * 1e6)
    judged = [(verdict.gate, verdict.met) for verdict in found.verdicts]
    assert [gate for gate, _ in judged[:6]] == ["latency p99", "startup", "memory", "cost", "throughput", "macs"]
    assert judged[6][0].startswith("latency p99")
    assert found.verdicts[6].at == "batch 1"
    assert all(met for _, met in judged)
    assert found.verdict == "pass"
    assert any("made-up inputs" in warning for warning in found.warnings)


def test_a_trace_beside_the_recipe_sets_the_pace_and_is_played_once(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join(str(i / 200) for i in range(100)))
    text = "load: {trace: {path: t.csv}}\nlimits: {measure: 2s}"
    latency = measured(model, text, folder=tmp_path).side.measurement.latency
    assert latency.rounds == (100,), "all of it, although there is time for more"
    assert latency.offered_per_s == pytest.approx(200, rel=0.05)


def test_a_child_that_crashes_is_the_callers_to_know(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "timed", broken.crash)
    with pytest.raises(InputError, match=r"net\.onnx: measure failed: the process crashed \(killed by SIGSEGV\)"):
        measured(model)


def test_the_samples_of_the_original_are_found_from_anywhere(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "reports" / "digits" / "1"
    (run / "artifacts" / "int8").mkdir(parents=True)
    shutil.copy(model, run / "artifacts" / "int8" / "model.onnx")
    (run / "artifacts" / "int8" / "session.json").write_text(json.dumps(OPTIONS))
    file = records.File("artifacts/int8/model.onnx", hashlib.sha256(model.read_bytes()).hexdigest(), 1)
    artifact = records.Artifact("onnxruntime", "cpu", (file,), 0.0, OPTIONS)
    report = replace(
        REPORT,
        chosen="int8",
        model=replace(REPORT.model, name="digits"),
        data=replace(REPORT.data, preprocess=None),
        baseline=replace(REPORT.baseline, artifacts=()),
        trials=(records.Trial("int8", artifacts=(artifact,)),),
    )
    (run / "report.json").write_text(formats.render(report, "json"))
    (tmp_path / "calibration_data").mkdir()
    samples = small.data(tmp_path / "calibration_data" / "digits_calibration.npz", model, 20, seed=1)
    (tmp_path / "elsewhere").mkdir()
    for folder in (tmp_path, tmp_path / "elsewhere"):
        monkeypatch.chdir(folder)
        for source in (run / "report.json", run / "artifacts" / "int8"):
            assert planned(asked(source), tmp_path / "scratch").calibration.source.source == str(samples)


def test_an_open_loop_is_its_own_pace(model: Path, tmp_path: Path) -> None:
    for load, paced_s in (("{closed: {concurrency: 2}}", 0.7), ("{poisson: {rate: 300/s}}", None)):
        wanted = asked(model, f"load: {load}\nlimits: {{measure: 5s}}")
        settled = planned(wanted, tmp_path)
        assert _scene(settled, wanted, tmp_path).paced_s == paced_s
        judged = _scene(settled, replace(wanted, fill=True), tmp_path)
        assert (judged.paced_s, judged.fill) == (paced_s, True), "the time is for what a gate asks"
        unasked = replace(settled, recipe=settled.recipe.model_copy(update={"gates": ()}))
        assert _scene(unasked, replace(wanted, fill=True), tmp_path).paced_s == (paced_s and 5.0)


def test_the_latency_gate_is_asked_at_each_batch_and_no_other_gate_is() -> None:
    text = (
        "gates: [{latency: {p99: 10s}}, {latency: {p50: 1s, at: {batch: 8}}}, {nodes: {max: 8}}]\nothers: [{batch: 3}]"
    )
    pointed = _pointed(asked("m", text, batches=(2, 1, 8))).recipe
    assert pointed.others == (At(batch=3), At(batch=1), At(batch=8))
    again = recipe.parse(
        text.replace("}]\n", "}, {latency: {p99: 10s, at: {batch: 1}}}, {latency: {p99: 10s, at: {batch: 8}}}]\n"), "r"
    )
    assert pointed.gates == again.gates


def test_a_gate_that_is_asked_at_a_batch_already_is_asked_once() -> None:
    text = "gates: [{latency: {p99: 10s}}, {latency: {p99: 10s, at: {batch: 4}}}]"
    assert len(_pointed(asked("m", text, batches=(1, 4))).recipe.gates) == 2


def test_gates_that_need_another_model_are_left_out_and_said() -> None:
    both = asked("m", "gates: [{speedup: {min: 1.2x}}, {accuracy: {max_drop: 2%}}, {size: {max: 1MB}}]")
    assert [type(gate).__name__ for gate in _pointed(both).recipe.gates] == ["Size"]
    (warning,) = _unjudged(both.recipe.gates)
    assert warning.startswith("not judged: speedup, accuracy")
    assert _unjudged(recipe.default().gates) == (), "nobody asked for the default gate"


@pytest.mark.parametrize(
    ("met", "outcome"),
    [
        ((), None),
        ((True, True), "pass"),
        ((True, None), "inconclusive"),
        ((None, False, True), "fail"),
    ],
)
def test_the_outcome_is_that_of_the_worst_verdict(met: tuple[bool | None, ...], outcome: str | None) -> None:
    assert _outcome(tuple(Verdict("gate", one, None, None, None, None, "") for one in met)) == outcome
