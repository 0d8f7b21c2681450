"""One model measured as it stands: every kind of source, the points, the verdicts, and what is refused."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pipeline_broken as broken
import pytest
import small
from finished import finish

from compressor import formats, isolation, recipe, registry
from compressor.errors import InputError
from compressor.pipeline import Asked, Request, Result, bench, prepare, run, timing
from compressor.plan import Job
from compressor.records import Benched, Registration

SHORT = "limits: {measure: 1s}"
GATES = "gates: [{latency: {p99: 10s}}]"

# mlflow 3.17 reads registered models with an option that SQLAlchemy 2.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:sqlalchemy.exc.SADeprecationWarning")


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


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Give a run with one spinning thread; small as the model is, either of its trials may be chosen."""
    folder = tmp_path_factory.mktemp("done")
    path = small.classifier(folder / "net.onnx")
    small.data(folder / "d.npz", path, 80, seed=1)
    text = (
        "data: {calibration: {path: d.npz}}\nengine: {onnxruntime: {threads: 1, spinning: true}}\n"
        "rungs: [{name: int8, stages: [quantize]}]\ngates: [{size: {max: 1MB}}]\nregistry: {uri: none}\n"
        f"{SHORT}"
    )
    request = Request(Job(path, recipe.parse(text, "r"), folder / "reports", folder))
    return finish(run(finish(prepare(request)), request))


def measured(
    source: object, text: str = SHORT, *, folder: Path | None = None, batches: tuple[int, ...] = ()
) -> Benched:
    return finish(bench(Asked(str(source), recipe.parse(text, "r.yaml"), folder or Path.cwd(), batches=batches)))


def test_a_file_is_measured_warm_cold_and_paced(model: Path) -> None:
    found = measured(model)
    assert (found.verdict, found.verdicts) == (None, ())
    assert found.side.source == str(model)
    assert (found.side.model.name, found.side.model.size_bytes) == ("net", model.stat().st_size)
    latency, (paced,) = found.side.measurement.latency, found.side.measurement.others
    assert (latency.at, latency.shape, latency.load) == ("", {"x": "1x3x8x8"}, "closed loop, 1 worker")
    assert latency.load_ms is not None
    assert latency.cold_ms is not None
    assert found.side.measurement.memory_bytes is not None
    assert found.side.measurement.memory_bytes > 10**7
    assert paced.at == "paced"
    assert paced.offered_per_s is not None
    assert 0 < paced.offered_per_s <= 100, "at least 10 ms apart"
    assert any("made-up inputs" in warning for warning in found.warnings)


def test_an_open_loop_is_its_own_pace(model: Path) -> None:
    found = measured(model, f"load: {{poisson: {{rate: 300/s}}}}\n{SHORT}")
    assert found.side.measurement.others == ()
    assert found.side.measurement.latency.load.startswith("Poisson arrivals 300/s")


def test_a_trace_beside_the_recipe_sets_the_pace(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join(str(i / 200) for i in range(100)))
    found = measured(model, f"load: {{trace: {{path: t.csv}}}}\n{SHORT}", folder=tmp_path)
    assert found.side.measurement.latency.rounds[0] == 100, "all of it, and from its start again while time is left"
    assert found.side.measurement.latency.offered_per_s == pytest.approx(200, rel=0.05)


def test_the_latency_gate_is_judged_at_each_batch_and_the_first_is_the_main_point(model: Path) -> None:
    found = measured(model, f"{GATES}\nothers: [{{batch: 3}}]\nlimits: {{measure: 20s}}", batches=(2, 1))
    assert found.side.measurement.latency.shape == {"x": "2x3x8x8"}
    assert [other.at for other in found.side.measurement.others] == ["paced", "batch 3", "batch 1"]
    assert [(verdict.gate, verdict.met) for verdict in found.verdicts] == [
        ("latency p99", True),
        ("latency p99 at batch 1", True),
    ]
    assert found.verdict == "pass"


def test_a_limit_that_is_missed_fails(model: Path) -> None:
    found = measured(model, f"gates: [{{latency: {{p50: 1us}}}}, {{nodes: {{max: 8}}}}]\n{SHORT}")
    assert [(verdict.gate, verdict.met) for verdict in found.verdicts] == [("latency p50", False), ("nodes", True)]
    assert found.verdict == "fail"


def test_a_limit_just_where_the_model_lies_is_never_proved_by_chance(model: Path) -> None:
    middle_us = measured(model).side.measurement.latency.p50_ms * 1000
    # nine in ten calls are slower than half of the usual time, so a p90 below it would be a false proof
    found = measured(model, f"gates: [{{latency: {{p90: {middle_us / 2:.0f}us}}}}]\n{SHORT}")
    assert found.verdicts[0].met is not True


def test_too_little_time_is_inconclusive(model: Path) -> None:
    assert measured(model, "gates: [{latency: {p99.9: 10s}}]\nlimits: {measure: 1ms}").verdict == "inconclusive"


def test_startup_memory_and_cost_are_judged(model: Path) -> None:
    gates = (
        "gates: [{startup: {max: 60s}}, {memory: {max: 8GiB}}, {cost: {max: 0.50 USD/1M, per_hour: 0.526}}, "
        "{throughput: {min: 1/s}}, {macs: {max: 100k}}]"
    )
    found = measured(model, f"{gates}\n{SHORT}")
    measurement = found.side.measurement
    assert measurement.startup is not None
    assert measurement.startup.high_ms is not None, "five starts bound the median"
    assert measurement.cost_per_million == pytest.approx(0.526 / 3600 / measurement.throughput_per_s * 1e6)
    assert {verdict.gate: verdict.met for verdict in found.verdicts} == {
        "startup": True,
        "memory": True,
        "cost": True,
        "throughput": True,
        "macs": True,
    }


def test_gates_that_need_another_model_are_left_out_and_said(model: Path) -> None:
    found = measured(model, f"gates: [{{speedup: {{min: 1.2x}}}}, {{accuracy: {{max_drop: 2%}}}}]\n{SHORT}")
    assert found.verdict is None
    assert any(warning.startswith("not judged: speedup, accuracy") for warning in found.warnings)
    plain = measured(model, f"gates: [{{accuracy: {{max_drop: 1%}}}}]\n{SHORT}")
    assert not any("not judged" in warning for warning in plain.warnings), "nobody asked for the default gate"


def test_an_artifact_is_opened_with_the_options_beside_it(done: Result) -> None:
    folder = done.folder / "artifacts" / "int8"
    options = json.loads((folder / "session.json").read_text())
    assert (options["intra_op_num_threads"], options["session.intra_op.allow_spinning"]) == ("1", "1")
    for source in (folder, folder / "model.onnx"):
        found = measured(source)
        assert found.side.options == options
        assert (found.environment.threads, found.environment.spinning) == (1, True)


def test_an_engine_that_is_asked_for_comes_before_the_options_beside_the_model(done: Result) -> None:
    found = measured(done.folder / "artifacts" / "int8", f"engine: {{onnxruntime: {{threads: 2}}}}\n{SHORT}")
    assert (found.side.options["intra_op_num_threads"], found.environment.threads) == ("2", 2)


def test_a_report_stands_for_what_it_chose(done: Result, tmp_path: Path) -> None:
    chosen = {trial.rung: trial for trial in (done.report.baseline, *done.report.trials)}[done.report.chosen or ""]
    for source in (done.folder / "report.json", done.folder):
        found = measured(source)
        assert found.side.model.sha256 == chosen.artifacts[0].files[0].sha256
        assert found.side.options == chosen.artifacts[0].options
    nothing = replace(done, report=replace(done.report, verdict="fail", chosen=None), folder=tmp_path / "run")
    shutil.copytree(done.folder, nothing.folder)
    (nothing.folder / "report.json").write_text(formats.render(nothing.report, "json"))
    with pytest.raises(InputError, match=r"report\.json: its run chose nothing; name the folder of an artifact"):
        measured(nothing.folder / "report.json")


def test_a_registered_model_is_fetched_with_its_options(done: Result, tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/mlflow.db"
    recorded = registered(place, done)
    asked = Asked(f"models:/{recorded.model}@champion", recipe.parse(SHORT, "r"), tmp_path, place)
    found = finish(bench(asked))
    assert found.side.source == "models:/net@champion"
    assert found.side.options["intra_op_num_threads"] == "1"
    with pytest.raises(InputError, match=r"models:/net@next: 'net' has no such version; there is @champion, /1"):
        finish(bench(replace(asked, source="models:/net@next")))
    with pytest.raises(InputError, match="there is no registry to look in"):
        finish(bench(replace(asked, registry="none")))


def registered(place: str, done: Result) -> Registration:
    return finish(isolation.call(registry.record, place, done.report, done.folder, limits=isolation.Limits())).value


def test_more_threads_than_cpus_are_warned_about(model: Path) -> None:
    found = measured(model, f"engine: {{onnxruntime: {{threads: 64}}}}\n{SHORT}")
    assert any("64 threads on" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"session\.json: expected the session options of a model, found no JSON"),
        ("[1]", r"session\.json: expected session options as `compress run` writes them"),
        ('{"optimized_model_filepath": "stolen.onnx"}', "expected session options as"),
        ('{"intra_op_num_threads": "many"}', "expected session options as"),
        ('{"intra_op_num_threads": 1}', "expected session options as"),
    ],
)
def test_options_that_are_none_are_refused(model: Path, tmp_path: Path, content: str, message: str) -> None:
    shutil.copy(model, tmp_path / "net.onnx")
    (tmp_path / "session.json").write_text(content)
    with pytest.raises(InputError, match=message):
        measured(tmp_path / "net.onnx")


def test_a_folder_must_hold_one_model(model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a folder with one ONNX file, as an artifact has, found none"):
        measured(tmp_path)
    for name in ("a.onnx", "b.onnx"):
        shutil.copy(model, tmp_path / name)
    with pytest.raises(InputError, match=r"found a\.onnx, b\.onnx"):
        measured(tmp_path)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.onnx: no such file"):
        measured(tmp_path / "none.onnx")


def test_a_batch_that_is_fixed_is_refused_before_anything_is_measured(model: Path, tmp_path: Path) -> None:
    proto = onnx.load(model)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(proto, tmp_path / "fixed.onnx")
    with pytest.raises(InputError, match="batch 4: input 'x' is 1x3x8x8, its first axis fixed"):
        measured(tmp_path / "fixed.onnx", batches=(1, 4))


def test_samples_that_are_named_are_sent(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "wrong.npz", x=np.zeros((4, 5), np.float32))
    with pytest.raises(InputError, match=r"wrong\.npz"):
        measured(model, f"data: {{calibration: {{path: wrong.npz}}}}\n{SHORT}", folder=tmp_path)


def test_a_child_that_crashes_is_the_callers_to_know(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "measure", broken.crash)
    with pytest.raises(InputError, match=r"net\.onnx: measure failed: the process crashed \(killed by SIGSEGV\)"):
        measured(model)
