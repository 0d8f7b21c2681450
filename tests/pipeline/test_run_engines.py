"""Runs whose engine is TensorRT, on a machine without a GPU: real builds, scores of their graphs, and no latency."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import finished
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import small

from compressor import formats, gates, machine, recipe
from compressor.engines.tensorrt import record
from compressor.errors import InputError
from compressor.pipeline import Request, prepare, run
from compressor.plan import Job
from compressor.records import Report
from compressor.registry import entry

pytestmark = [
    pytest.mark.skipif(find_spec("tensorrt_rtx_bindings") is None, reason="TensorRT-RTX is not installed"),
    pytest.mark.skipif(machine.gpu() is not None, reason="what is unknown without a GPU is measured with one"),
]
ENGINE = "{tensorrt: {devices: [a10g, l4]}}"
ACCURACY = "{accuracy: {max_drop: 5%}}"
INT8 = "{name: int8, stages: [{quantize: {scheme: static}}]}"
HALF = "{name: half, stages: [fuse]}"


@pytest.fixture(scope="module", autouse=True)
def _speed_does_not_matter() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gates, "regression", lambda _rival, _trial: None)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engines")
    path = small.classifier(folder / "net.onnx")
    (folder / "calibration_data").mkdir()
    small.data(folder / "calibration_data" / "net.npz", path, 200, seed=1)
    return path


def go(model: Path, rungs: str, asked: str, engine: str = ENGINE) -> tuple[Report, Path]:
    text = f"engine: {engine}\nrungs: [{rungs}]\ngates: [{asked}]\nlimits: {{measure: 1s}}\nregistry: {{uri: none}}\n"
    request = Request(Job(model, recipe.parse(text, "r.yaml"), model.parent / "reports", model.parent), every=True)
    done = finished.finish(run(finished.finish(prepare(request)), request))
    return done.report, done.folder


@pytest.fixture(scope="module")
def climbed(model: Path) -> tuple[Report, Path]:
    return go(model, f"{INT8}, {HALF}", f"{{latency: {{p99: 10s}}}}, {ACCURACY}, {{size: {{max: 100MB}}}}")


def test_what_cannot_be_run_here_is_built_and_scored_and_its_latency_stays_open(climbed: tuple[Report, Path]) -> None:
    report, _ = climbed
    assert (report.verdict, report.chosen) == ("inconclusive", None)
    for trial in (report.baseline, *report.trials):
        assert trial.measurement is None
        assert {verdict.gate: verdict.met for verdict in trial.verdicts} == {
            "latency p99": None,
            "accuracy": True,
            "size": True,
        }
        assert "no such device is here" in trial.verdicts[0].reason
    assert any("no GPU is here for a10g, l4" in warning for warning in report.warnings)
    assert any("derived: x 1x3x8x8/8x3x8x8/32x3x8x8" in warning for warning in report.warnings)


def test_the_score_is_that_of_the_graph_that_was_compiled(model: Path, climbed: tuple[Report, Path]) -> None:
    report, folder = climbed
    samples = np.load(model.parent / "calibration_data" / "net.npz")
    evaluated = report.data.evaluation
    assert evaluated
    for trial in report.trials:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        graph = folder / "artifacts" / trial.rung / "model.onnx"
        session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        given = np.concatenate([session.run(None, {"x": x[None]})[0] for x in samples["x"]]).argmax(1)
        right = given == samples["label"]
        assert trial.score
        # which half of the samples is evaluated is the splitter's business: no half can be further off than this
        assert trial.score.n == evaluated.n
        assert trial.score.value * evaluated.n <= right.sum()
        assert (1 - trial.score.value) * evaluated.n <= (~right).sum()


def test_an_engine_is_told_of_in_the_report_and_beside_itself(climbed: tuple[Report, Path]) -> None:
    report, folder = climbed
    for trial, precision in zip(report.trials, ("INT8", "FP16"), strict=True):
        (artifact,) = trial.artifacts
        assert (artifact.engine, artifact.device) == ("tensorrt-rtx", "a10g+l4")
        assert [Path(file.path).name for file in artifact.files] == [
            "model.a10g+l4.rtx.engine",
            "engine.json",
            "model.onnx",
        ]
        for file in artifact.files:
            assert hashlib.sha256((folder / file.path).read_bytes()).hexdigest() == file.sha256
        (one,) = record.read(folder / artifact.files[1].path).engines
        assert (one.sha256, one.capabilities) == (artifact.files[0].sha256, ("8.6", "8.9"))
        assert one.profiles == ({"x": ((1, 3, 8, 8), (8, 3, 8, 8), (32, 3, 8, 8))},)
        assert one.computes.startswith(precision)
        assert trial.model
        assert trial.model.size_bytes == artifact.files[0].size_bytes
    written = (folder / "report.md").read_text()
    assert "| int8 | model.a10g+l4.rtx.engine | a10g, l4 |" in written
    assert not list(folder.glob("artifacts/int8/session.json"))


def test_int8_stands_in_the_graph_as_signed_symmetric_pairs_without_quantized_biases(
    climbed: tuple[Report, Path],
) -> None:
    _, folder = climbed
    graph = onnx.load(folder / "artifacts/int8/model.onnx").graph
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    pairs = [node for node in graph.node if node.op_type in {"QuantizeLinear", "DequantizeLinear"}]
    assert pairs
    for node in pairs:
        if len(node.input) > 2:
            assert constants[node.input[2]].dtype == np.int8
            assert not constants[node.input[2]].any()
    held = [constants[node.input[0]] for node in pairs if node.input[0] in constants]
    assert {array.dtype for array in held} == {np.dtype(np.int8)}


def test_without_a_gate_on_time_an_engine_is_chosen(model: Path) -> None:
    report, _ = go(model, HALF, f"{ACCURACY}, {{size: {{max: 100MB}}}}")
    assert (report.verdict, report.chosen) == ("pass", "half")


def test_a_size_gate_judges_the_engine_and_not_its_graph(model: Path) -> None:
    report, folder = go(model, HALF, "{size: {max: 20kB}}")
    (trial,) = report.trials
    engine, graph = (folder / trial.artifacts[0].files[i].path for i in (0, 2))
    assert graph.stat().st_size < 20_000 < engine.stat().st_size
    assert [verdict.met for verdict in trial.verdicts] == [False]
    assert report.chosen == "baseline"


def test_a_proxy_is_measured_on_the_cpu_and_called_so_wherever_it_stands(model: Path) -> None:
    engine = "{tensorrt: {devices: [a10g], measure: cpu-proxy}}"
    report, folder = go(model, HALF, f"{{latency: {{p99: 10s}}}}, {ACCURACY}", engine)
    (trial,) = report.trials
    assert report.verdict == "pass"
    assert trial.measurement
    assert trial.measurement.proxy == "the graph on the CPU, not a10g"
    for one in (report.baseline, trial):
        assert one.measurement
        assert one.measurement.proxy == "the graph on the CPU, not a10g"
        assert one.verdicts[0].reason.endswith("(the graph on the CPU, not a10g)")
    assert "half meets every gate, as far as the graph on the CPU, not a10g can show" in formats.sentence(report)
    assert entry.tags(report)["compressor.measured"] == "cpu-proxy"
    assert trial.measurement.size_bytes == trial.artifacts[0].files[0].size_bytes
    assert "cpu-proxy" in (folder / "report.md").read_text()
    assert json.loads((folder / "report.json").read_text())["trials"][0]["measurement"]["proxy"]


@pytest.mark.parametrize("order", [("device", "cpu-proxy"), ("cpu-proxy", "device")])
def test_a_rung_is_measured_as_it_asks_whatever_another_with_the_same_graph_was(
    model: Path, order: tuple[str, str]
) -> None:
    rungs = ", ".join(
        f"{{name: {name}, stages: [fuse], engine: {{tensorrt: {{devices: [{device}], measure: {how}}}}}}}"
        for name, device, how in zip("ab", ("l4", "a10g"), order, strict=True)
    )
    report, _ = go(model, rungs, "{latency: {p99: 10s}}", "{tensorrt: {devices: [l4], measure: cpu-proxy}}")
    found = dict(zip(order, report.trials, strict=True))
    assert found["device"].measurement is None
    assert [verdict.met for verdict in found["device"].verdicts] == [None]
    assert found["cpu-proxy"].measurement
    assert found["cpu-proxy"].verdicts[0].met


def test_values_that_fp16_cannot_hold_on_other_samples_cost_the_score(tmp_path: Path) -> None:
    """The samples that settle types stay below the range of FP16, those that are scored go beyond it."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 2] x) => (float[batch, 2] y) {
        s = Mul (x, x) t = ReduceSum <keepdims = 1> (s, one) y = Div (s, t) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "one"))
    onnx.save(proto, path := tmp_path / "net.onnx")
    rng = np.random.default_rng(0)
    for part, scale in (("calibration", 10), ("evaluation", 1000)):
        (tmp_path / "calibration_data").mkdir(exist_ok=True)
        x = (scale * rng.uniform(0.5, 1, (64, 2))).astype(np.float32)
        np.savez(tmp_path / "calibration_data" / f"net_{part}.npz", x=x, label=x.argmax(1))
    report, _ = go(path, HALF, ACCURACY, "{tensorrt: {devices: [l4], precision: fp16}}")
    (trial,) = report.trials
    assert report.baseline.score
    assert report.baseline.score.value == 1
    assert [verdict.met for verdict in trial.verdicts] == [False]


def test_fp16_settled_by_made_up_inputs_is_not_met(tmp_path: Path) -> None:
    report, _ = go(small.classifier(tmp_path / "net.onnx"), HALF, "{size: {max: 100MB}}")
    (trial,) = report.trials
    assert [(verdict.gate, verdict.met) for verdict in trial.verdicts] == [("size", True), ("calibration", None)]


def test_pruning_is_not_climbed_for_a_time_that_nobody_knows(model: Path) -> None:
    text = f"engine: {ENGINE}\ngates: [{{latency: {{p99: 10s}}}}, {ACCURACY}]\nregistry: {{uri: none}}\n"
    request = Request(Job(model, recipe.parse(text, "r.yaml"), model.parent / "reports", model.parent))
    report = finished.finish(run(finished.finish(prepare(request)), request)).report
    assert [trial.rung for trial in report.trials] == ["fp16", "int8", "int8-fused"]
    assert any("not climbed: prune20-int8-fused, prune40-int8-fused; no time" in warning for warning in report.warnings)


def test_what_the_builder_refuses_ends_the_rung_with_its_reason_and_not_the_climb(model: Path) -> None:
    turing = "{name: turing, stages: [fuse], engine: {tensorrt: {devices: [t4], precision: fp32}}}"
    report, folder = go(model, f"{turing}, {HALF}", ACCURACY)
    first, second = report.trials
    assert first.failure
    assert first.failure.stage == "build"
    assert "for t4" in first.failure.reason
    assert "FP32 GEMM is not supported" in first.failure.reason
    assert not list((folder / "artifacts" / "turing").glob("*.engine"))
    assert (second.rung, report.chosen) == ("half", "half")


def test_int8_without_anything_quantized_costs_the_rung(model: Path) -> None:
    engine = "{tensorrt: {devices: [a10g], precision: int8}}"
    report, _ = go(model, HALF, ACCURACY, engine)
    assert report.trials[0].failure
    assert "nothing in the graph is quantized" in report.trials[0].failure.reason


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("engine: {tensorrt: {devices: [a10g]}}\ntarget: x86-avx2\n", "target: expected tensorrt beside an engine"),
        ("engine: {tensorrt: {devices: [a10g], profiles: [{n: 1/8/32}]}}\n", "no open dimension or input 'n'"),
        (
            "engine: {tensorrt: {devices: [a10g], profiles: [{batch: 2/8/32}]}}\n",
            "profiles: none takes what is measured, x 1x3x8x8",
        ),
        ("engine: {tensorrt: {devices: [a10g], refit: true}}\n", "engine.tensorrt.refit"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(model: Path, text: str, message: str) -> None:
    job = Job(model, recipe.parse(f"{text}registry: {{uri: none}}\n", "r.yaml"), model.parent / "no", model.parent)
    with pytest.raises(InputError, match=message):
        finished.finish(prepare(Request(job)))


def test_a_trial_without_a_measurement_is_read_back(climbed: tuple[Report, Path]) -> None:
    report, folder = climbed
    found = formats.read(folder / "report.json")
    assert found.trials == report.trials
