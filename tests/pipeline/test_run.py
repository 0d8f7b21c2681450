"""A whole run on a small real model: what is yielded, written, chosen, and what happens when a child goes wrong."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pipeline_broken as broken
import pytest
import small

from compressor import formats, gates, plan, recipe
from compressor.errors import InputError
from compressor.isolation import Limits
from compressor.pipeline import Request, Result, choose, prepare, run, search, timing, work
from compressor.pipeline.judge import Judge
from compressor.pipeline.making import Making, Place, home
from compressor.pipeline.steps import Steps
from compressor.plan import Job, Plan
from compressor.records import Progress, Report, Trial, Verdict

LIMITS = "limits: {measure: 1s}\nregistry: {uri: none}\n"
GATES = f"gates: [{{size: {{max: 1MB}}}}, {{accuracy: {{max_drop: 5%}}}}]\n{LIMITS}"
INT8 = "{quantize: {scheme: static}}"
ONE = f"rungs: [{{name: int8, stages: [{INT8}]}}]\n{GATES}"
SEVEN = "{quantize: {scheme: static, reduce_range: true}}"
SHORT = f"rungs: [{{name: int8, stages: [{INT8}]}}, {{name: fused, stages: [{SEVEN}, fuse]}}]\n{GATES}"


@pytest.fixture(scope="module", autouse=True)
def _speed_does_not_matter() -> Iterator[None]:
    """A model this small may be slower as INT8: whether it is belongs to the tests of the gates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gates, "regression", lambda _rival, _trial: None)
        yield


def go(model: Path, text: str = SHORT, *, every: bool = False) -> tuple[list[Progress | Trial], Result]:
    shutil.rmtree(home(model.parent / "reports"), ignore_errors=True)  # or what an earlier test made would be taken
    job = Job(model, recipe.parse(text, "r.yaml"), model.parent / "reports", model.parent)
    request = Request(job, every=every)
    events: list[Progress | Trial] = []
    settled = _finish(prepare(request), events)
    return events, _finish(run(settled, request), events)


def _making(settled: Plan, folder: Path) -> Making:
    return Making(settled, Place(folder, folder / "scratch", folder / "home"), Steps(Limits(), verbose=False))


def _finish(work_: object, events: list[Progress | Trial]) -> object:
    while True:
        try:
            events.append(next(work_))  # type: ignore[call-overload]
        except StopIteration as stop:
            return stop.value


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    path = small.classifier(folder / "net.onnx")
    (folder / "calibration_data").mkdir()
    small.data(folder / "calibration_data" / "net.npz", path, 200, seed=1)
    return path


@pytest.fixture(scope="module")
def climbed(model: Path) -> tuple[list[Progress | Trial], Result]:
    return go(model, SHORT.replace("{size: {max: 1MB}}", "{latency: {p99: 10s}}"), every=True)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Give a run whose model has metadata, whose first rung cannot be built and whose second is enough."""
    folder = tmp_path_factory.mktemp("stopped")
    proto = onnx.load(small.classifier(folder / "net.onnx"))
    onnx.helper.set_model_props(proto, {"names": "a,b,c,d"})
    proto.doc_string, proto.model_version, proto.domain = "what it is", 7, "org.example"
    onnx.save(proto, folder / "net.onnx")
    small.data(folder / "d.npz", folder / "net.onnx", 200, seed=1)
    text = """
        data: {calibration: {path: d.npz}}
        rungs:
          - {name: cut, stages: [{prune: {ratio: 20%}}]}
          - {name: int8, stages: [{quantize: {scheme: static}}, fuse]}
          - {name: never, stages: [quantize]}
        others: [{shapes: {x: 2x3x8x8}}]
        gates:
          - latency: {p99: 10s}
          - latency: {p99: 10s, at: {batch: 4}}
          - cost: {max: 1000 USD/1M, per_hour: 0.5}
          - size: {max: 1MB}
        limits: {measure: 20s}
        registry: {uri: none}
        """
    return go(folder / "net.onnx", text)[1]


@pytest.fixture(scope="module")
def odd(model: Path) -> Report:
    """Give a run under an open load, of a rung that changes nothing and two that are the same."""
    text = f"""
rungs:
  - {{name: fused, stages: [fuse]}}
  - {{name: one, stages: [{INT8}]}}
  - {{name: two, stages: [{INT8}]}}
load: {{constant: {{rate: 400/s}}}}
{GATES}"""
    return go(model, text, every=True)[1].report


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Give a run without any samples."""
    model = small.classifier(tmp_path_factory.mktemp("alone") / "alone.onnx")
    text = f"rungs: [{{name: int8, stages: [{INT8}]}}, {{name: cut, stages: [{{prune: {{ratio: 20%}}}}]}}]\n{GATES}"
    return go(model, text, every=True)[1]


def test_trials_are_yielded_in_order_the_baseline_first(climbed: tuple[list[Progress | Trial], Result]) -> None:
    events, result = climbed
    trials = [event for event in events if isinstance(event, Trial)]
    assert [trial.rung for trial in trials] == ["baseline", "int8", "fused"]
    assert (result.report.baseline, *result.report.trials) == tuple(trials)
    steps = [event.step for event in events if isinstance(event, Progress)]
    assert {"plan", "normalise", "int8: quantize", "int8: measure", "fused: fuse"} <= set(steps)


def test_the_first_rung_that_meets_every_gate_is_chosen(climbed: tuple[list[Progress | Trial], Result]) -> None:
    report = climbed[1].report
    assert (report.verdict, report.chosen) == ("pass", "int8")
    verdicts = report.trials[0].verdicts
    assert [(verdict.gate, verdict.met) for verdict in verdicts] == [("latency p99", True), ("accuracy", True)]


def test_the_measurements_are_those_of_the_files(climbed: tuple[list[Progress | Trial], Result], model: Path) -> None:
    report, folder = climbed[1].report, climbed[1].folder
    for trial in (report.baseline, *report.trials):
        (artifact,) = trial.artifacts
        data = (folder / artifact.files[0].path).read_bytes()
        assert artifact.files[0].sha256 == hashlib.sha256(data).hexdigest()
        assert trial.measurement is not None
        assert trial.measurement.size_bytes == len(data)
        raw = np.load(folder / report.raw[trial.rung])
        assert trial.measurement.latency.n == raw.shape[1]
        assert trial.measurement.latency.mean_ms == pytest.approx(raw[-1].mean() / 1e6)
    assert (folder / report.baseline.artifacts[0].files[0].path).read_bytes() == model.read_bytes()


def test_the_score_is_what_the_labels_say(climbed: tuple[list[Progress | Trial], Result]) -> None:
    report = climbed[1].report
    assert report.baseline.measurement is not None
    score = report.baseline.measurement.score
    assert score is not None
    # labels are the model's own answers but for 20 of 200 samples, of which 100 are scored
    assert (score.metric, score.n, score.drop) == ("top1", 100, None)
    assert 0.8 <= score.value <= 1
    assert report.trials[0].measurement is not None
    assert report.trials[0].measurement.score is not None
    assert report.trials[0].measurement.score.drop == pytest.approx(
        score.value - report.trials[0].measurement.score.value
    )


def test_each_stage_says_what_it_did_and_how_far_the_outputs_moved(
    climbed: tuple[list[Progress | Trial], Result],
) -> None:
    stages = {stage.stage: stage for stage in climbed[1].report.trials[1].stages}
    assert list(stages) == ["normalise", "quantize", "fuse"]
    normalised, quantized = stages["normalise"].sqnr_db["logits"], stages["quantize"].sqnr_db["logits"]
    assert normalised is not None
    assert normalised > 100
    assert quantized is not None
    assert 15 < quantized < 60
    assert stages["quantize"].audit is not None
    assert stages["quantize"].audit.integer_nodes >= 3
    assert all(stage.peak_memory_bytes > 10**7 and stage.did for stage in stages.values())


def test_the_folder_holds_everything_a_server_needs(climbed: tuple[list[Progress | Trial], Result]) -> None:
    folder = climbed[1].folder
    beside = folder / "artifacts" / "int8"
    assert {path.name for path in beside.iterdir()} == {"model.onnx", "session.json", "load.py"}
    assert json.loads((beside / "session.json").read_text())["session.intra_op.allow_spinning"] == "0"
    said = subprocess.run([sys.executable, str(beside / "load.py")], check=True, capture_output=True, text=True)
    assert said.stdout.split()[0] == "x"
    assert [path.name for path in home(folder.parent.parent).iterdir()] == ["store"]


def test_the_written_report_is_the_returned_one(climbed: tuple[list[Progress | Trial], Result]) -> None:
    report, folder = climbed[1].report, climbed[1].folder
    assert formats.read(folder / "report.json") == report
    assert recipe.read(folder / "recipe.yaml") == recipe.Recipe.model_validate(report.recipe)
    assert report.model.name == "net"
    assert report.data.evaluation is not None
    assert report.data.evaluation.n == 100


def test_the_original_is_untouched_and_nothing_is_written_beside_it(
    climbed: tuple[list[Progress | Trial], Result], model: Path
) -> None:
    assert climbed[1].report.model.sha256 == hashlib.sha256(model.read_bytes()).hexdigest()
    assert {path.name for path in model.parent.iterdir()} == {"net.onnx", "calibration_data", "reports"}


def test_the_same_resolved_recipe_gives_the_same_bytes(
    climbed: tuple[list[Progress | Trial], Result], model: Path, tmp_path: Path
) -> None:
    report, folder = climbed[1].report, climbed[1].folder
    settled = plan.make(Job(model, recipe.read(folder / "recipe.yaml"), tmp_path, model.parent))
    again = _making(settled, tmp_path)
    for rung, trial in zip(settled.recipe.rungs, report.trials, strict=True):
        (file,) = trial.artifacts[0].files
        assert _finish(again.rung(rung), []).model.sha256 == file.sha256  # type: ignore[attr-defined]


def test_the_climb_stops_at_the_rung_that_is_enough(stopped: Result) -> None:
    assert [trial.rung for trial in stopped.report.trials] == ["cut", "int8"]
    assert (stopped.report.verdict, stopped.report.chosen) == ("pass", "int8")


def test_a_rung_that_is_slower_than_the_one_before_is_not_chosen(
    climbed: tuple[list[Progress | Trial], Result], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = plan.make(Job(model, recipe.parse(ONE, "r.yaml"), model.parent / "reports", model.parent))
    slower = Verdict("not slower", met=False, observed=None, limit=None, low=None, high=None, reason="it is slower")
    monkeypatch.setattr(gates, "regression", lambda _rival, _trial: slower)
    baseline = climbed[1].report.baseline
    trial = Judge.of(settled.recipe, settled.scheme).judged(climbed[1].report.trials[0], baseline, (baseline,))
    assert trial.verdicts[-1] == slower
    assert choose.outcome(baseline, [trial]) == ("pass", "baseline")


def test_a_rung_that_cannot_be_built_is_recorded_and_the_climb_goes_on(stopped: Result) -> None:
    failure = stopped.report.trials[0].failure
    assert failure is not None
    assert "20% of the MACs cannot be pruned: nothing goes when" in failure.reason  # its layers have 8 channels
    assert stopped.report.trials[1].measurement is not None


def test_a_child_that_goes_wrong_costs_its_rung_only(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "apply", broken.crash)
    result = go(model, ONE)[1]
    (trial,) = result.report.trials
    assert trial.failure is not None
    assert trial.failure.stage == "quantize"
    assert "SIGSEGV" in trial.failure.reason
    assert (result.report.verdict, result.report.chosen) == ("pass", "baseline")
    assert formats.read(result.folder / "report.json") == result.report


def test_a_baseline_that_cannot_be_measured_ends_in_a_report(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "timed", broken.crash)
    report = go(model)[1].report
    assert (report.verdict, report.chosen, report.trials) == ("inconclusive", None, ())
    assert report.unfinished is not None
    assert "SIGSEGV" in report.unfinished
    assert report.baseline.failure is not None
    assert report.baseline.failure.stage == "measure"


def test_without_evaluation_data_accuracy_is_undecided_and_nothing_is_pruned(alone: Result) -> None:
    report = alone.report
    assert [trial.rung for trial in report.trials] == ["int8"]
    assert (report.verdict, report.chosen) == ("inconclusive", None)
    assert any("not climbed: cut" in warning for warning in report.warnings)
    assert any("uncalibrated" in warning for warning in report.warnings)
    assert report.data.calibration is not None
    assert report.data.calibration.synthetic
    assert report.baseline.artifacts[0].notes == ()
    assert any("uncalibrated" in note for note in report.trials[0].artifacts[0].notes)
    assert "uncalibrated" in report.trials[0].stages[1].did
    made = onnx.load(alone.folder / report.trials[0].artifacts[0].files[0].path)
    assert {p.key: p.value for p in made.metadata_props} == {"compressor.calibration": "synthetic"}


def test_without_calibration_data_nothing_passes_whatever_the_gates(alone: Result) -> None:
    (trial,) = alone.report.trials
    assert [(v.gate, v.met) for v in trial.verdicts] == [("size", True), ("accuracy", None), ("calibration", None)]
    unjudged = [replace(one, verdicts=_without_accuracy(one)) for one in (alone.report.baseline, trial)]
    assert choose.outcome(unjudged[0], unjudged[1:]) == ("pass", "baseline")


def _without_accuracy(trial: Trial) -> tuple[Verdict, ...]:
    return tuple(verdict for verdict in trial.verdicts if verdict.gate != "accuracy")


def test_a_rung_that_changes_nothing_is_not_chosen(odd: Report) -> None:
    fused = odd.trials[0]
    assert fused.stages[1].did == "left as it is: nothing to simplify"
    assert [(verdict.gate, verdict.met) for verdict in fused.verdicts] == [
        ("size", True),
        ("accuracy", True),
        ("change", False),
    ]
    assert odd.chosen == "one"


def test_the_same_bytes_are_measured_once(odd: Report) -> None:
    _, one, two = odd.trials
    assert one.artifacts[0].files[0].sha256 == two.artifacts[0].files[0].sha256
    assert one.measurement == two.measurement
    assert two.artifacts[0].files[0].path == "artifacts/two/model.onnx"


def test_an_open_load_measures_the_candidate_and_pairs_give_its_speed(odd: Report) -> None:
    measurement = odd.trials[1].measurement
    assert measurement is not None
    assert measurement.latency.load.startswith("constant 400/s")
    assert measurement.speedup is not None


def test_a_normalised_model_that_differs_is_never_built_on(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "normalise", broken.normalise_wrongly)
    report = go(model, ONE)[1].report
    assert report.trials[0].failure is not None
    assert "differs from the original's" in report.trials[0].failure.reason
    assert report.chosen == "baseline"


def test_a_model_that_gives_nan_is_refused(tmp_path: Path) -> None:
    log = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]> g (float[batch,4] x) => (float[batch,4] y) { y = Log (x) }""")
    onnx.save(log, tmp_path / "log.onnx")
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).normal(0, 1, (80, 4)).astype(np.float32))
    with pytest.raises(InputError, match=r"output 'y' is NaN in \d+ of 40 samples"):
        go(tmp_path / "log.onnx", f"data: {{calibration: {{path: d.npz}}}}\n{ONE}")
    assert not list((tmp_path / "reports").glob("*/*")), "a refused run leaves no folder"


def test_a_metric_that_fails_on_a_rung_costs_that_rung(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with np.load(model.parent / "calibration_data" / "net.npz") as arrays:
        np.save(tmp_path / "known.npy", session.run(None, {"x": arrays["x"]})[0])
    (tmp_path / "picky.py").write_text(
        "import numpy as np\n"
        f"KNOWN = np.load({str(tmp_path / 'known.npy')!r})\n"
        "def score(outputs, labels):\n"
        "    if abs(KNOWN - outputs['logits'][0]).max(axis=1).min() > 1e-4: raise ValueError('not the original')\n"
        "    return outputs['logits'].argmax(1) == labels\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    report = go(model, f"data: {{metric: 'picky:score'}}\n{ONE}")[1].report
    assert report.trials[0].failure is not None
    assert report.trials[0].failure.stage == "score"
    assert "not the original" in report.trials[0].failure.reason


def test_a_baseline_near_chance_stops_the_run_with_a_hint(model: Path, tmp_path: Path) -> None:
    with np.load(model.parent / "calibration_data" / "net.npz") as arrays:
        x = arrays["x"]
    labels = np.random.default_rng(0).integers(0, small.CLASSES, len(x))
    np.savez(tmp_path / "wrong.npz", x=x, label=labels)
    with pytest.raises(InputError, match=r"preprocess"):
        go(small.classifier(tmp_path / "net.onnx"), f"data: {{calibration: {{path: wrong.npz}}}}\n{SHORT}")


def test_metadata_and_dimension_names_reach_the_artifact(stopped: Result) -> None:
    for trial in (stopped.report.baseline, stopped.report.trials[1]):
        made = onnx.load(stopped.folder / trial.artifacts[0].files[0].path)
        assert {"names": "a,b,c,d"}.items() <= {p.key: p.value for p in made.metadata_props}.items()
        assert (made.doc_string, made.model_version, made.domain) == ("what it is", 7, "org.example")
        assert made.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_further_points_are_measured_and_judged_on_every_rung(stopped: Result) -> None:
    report, trial = stopped.report, stopped.report.trials[1]
    for one in (report.baseline, trial):
        judged = [(verdict.gate.split(" at ")[0], verdict.at, verdict.met) for verdict in one.verdicts[:4]]
        assert judged == [
            ("latency p99", "", True),
            ("latency p99", "batch 4", True),
            ("cost", "", True),
            ("size", "", True),
        ]
        assert one.measurement is not None
        assert [(other.at, other.shape["x"]) for other in one.measurement.others] == [
            ("x 2x3x8x8", "2x3x8x8"),
            ("batch 4", "4x3x8x8"),
        ]
        for other, name in zip(one.measurement.others, ("x_2x3x8x8", "batch_4"), strict=True):
            raw = np.load(stopped.folder / report.raw[f"{one.rung}-{name}"])
            assert raw.shape == (1, other.n)
            assert other.mean_ms == pytest.approx(raw[0].mean() / 1e6)
        assert one.measurement.cost_per_million == pytest.approx(0.5 / 3600 / one.measurement.throughput_per_s * 1e6)
    assert trial.measurement is not None
    assert trial.measurement.errors["logits"].n == 100
    assert trial.measurement.errors["logits"].sqnr_db == pytest.approx(trial.stages[-1].sqnr_db["logits"], abs=5)


def test_the_way_that_a_search_takes_is_told_and_comes_out_again_without_a_search(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_gains", lambda _speedup, *, small: True)  # noqa: ARG005 - whether faster or not
    result = go(model, f"rungs: [{{name: int8, stages: [quantize]}}]\n{GATES}")[1]
    report, folder = result.report, result.folder
    (trial,) = report.trials
    stage = trial.stages[-1]
    assert [one.settings["scheme"] for one in stage.tried][:3] == ["static"] * 3
    assert sum(one.taken for one in stage.tried) == 1
    assert all(one.ratio and one.sqnr_db and one.size_bytes for one in stage.tried)
    taken = next(one for one in stage.tried if one.taken)
    assert taken.settings == stage.settings
    settled = plan.make(Job(model, recipe.read(folder / "recipe.yaml"), tmp_path, model.parent))
    (again,) = settled.recipe.rungs[0].stages
    assert not again.open
    made = _finish(_making(settled, tmp_path).rung(settled.recipe.rungs[0]), [])
    assert made.model.sha256 == trial.artifacts[0].files[0].sha256  # type: ignore[attr-defined]


def test_where_no_way_is_faster_the_model_stays_float_and_the_baseline_is_taken(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_gains", lambda _speedup, *, small: False)  # noqa: ARG005 - however fast it is here
    report = go(model, f"rungs: [{{name: int8, stages: [quantize]}}]\n{GATES}")[1].report
    (trial,) = report.trials
    assert trial.stages[-1].did.startswith("left float: the fastest of ")
    assert not any(one.taken for one in trial.stages[-1].tried)
    assert (report.verdict, report.chosen) == ("pass", "baseline")
    assert report.recipe["rungs"][0]["stages"][0]["quantize"]["scheme"] == "float"


@pytest.mark.parametrize(
    ("gate", "outcome"),
    [("{size: {max: 1MB}}", ("pass", "int8")), ("{latency: {p99: 10s}}", ("inconclusive", None))],
    ids=["size", "latency"],
)
def test_a_model_for_another_machine_is_not_judged_by_its_speed_on_this_one(
    model: Path, gate: str, outcome: tuple[str, str | None]
) -> None:
    text = f"target: arm-i8mm\nrungs: [{{name: int8, stages: [quantize]}}]\n{GATES}"
    report = go(model, text.replace("{size: {max: 1MB}}", gate))[1].report
    (trial,) = report.trials
    assert (report.verdict, report.chosen) == outcome
    assert trial.stages[-1].settings["activations"] == "s8"
    assert {one.ratio for one in trial.stages[-1].tried} == {None}
    assert trial.measurement is not None
    assert trial.measurement.score is not None
    assert trial.measurement.score.emulated == trial.measurement.score.value


def test_rungs_of_other_engines_search_for_themselves(model: Path, tmp_path: Path) -> None:
    text = f"""
rungs:
  - {{name: one, stages: [{INT8}], engine: {{onnxruntime: {{threads: 1}}}}}}
  - {{name: two, stages: [{INT8}], engine: {{onnxruntime: {{threads: 2}}}}}}
{GATES}"""
    settled = plan.make(Job(model, recipe.parse(text, "r.yaml"), model.parent / "reports", model.parent))
    making = _making(settled, tmp_path)
    one, two = (making._chains(rung) for rung in settled.recipe.rungs)
    assert one != two
