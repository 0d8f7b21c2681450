"""The plan: everything settled, every avoidable error raised before any work."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
import onnx
import pytest
import small

from compressor import plan, recipe, schemes
from compressor.engines import Onnxruntime
from compressor.errors import InputError, MachineError
from compressor.plan import Job, Plan
from compressor.recipe import Recipe
from compressor.stages import Fuse, Quantize


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    path = small.classifier(tmp_path / "net.onnx")
    (tmp_path / "calibration_data").mkdir()
    small.data(tmp_path / "calibration_data" / "net.npz", path, 60, seed=1)
    return path


def make(model: Path, text: str = "{}") -> Plan:
    return plan.make(Job(model, recipe.parse(text, "r.yaml"), model.parent / "reports", model.parent))


def test_every_choice_is_written_into_the_resolved_recipe(model: Path) -> None:
    made = make(model)
    assert made.shapes == {"x": (1, 3, 8, 8)}
    assert made.metric == "top1"
    settled = recipe.parse(recipe.write(made.recipe), "resolved")
    assert settled == made.recipe
    assert settled.engine == Onnxruntime(threads=made.environment.cpus_usable, spinning=False)
    assert settled.rungs[1].stages == (
        Quantize(activations=made.scheme.activations, symmetric=False, unsigned=None if made.scheme.saturates else ()),
        Fuse(transformer=False),
    )
    assert settled.data.metric == "top1"
    assert settled.data.calibration is not None
    assert settled.data.calibration.path == model.parent / "calibration_data" / "net.npz"
    assert settled.registry.uri == f"sqlite:///{model.parent}/mlflow.db"
    assert settled.registry.name == "net"
    assert settled.target == schemes.of(made.environment.isa).name


def test_another_machine_is_planned_for_by_its_name(model: Path) -> None:
    made = make(model, "target: tensorrt")
    assert (made.scheme.name, made.scheme.here, made.recipe.target) == ("tensorrt", False, "tensorrt")
    first = made.recipe.rungs[0].stages[0]
    assert isinstance(first, Quantize)
    assert (first.activations, first.symmetric) == ("s8", True)


def test_a_resolved_recipe_resolves_to_itself(model: Path) -> None:
    made = make(model)
    again = plan.make(Job(model, made.recipe, model.parent / "reports", model.parent))
    assert (again.recipe, again.calibration, again.evaluation) == (made.recipe, made.calibration, made.evaluation)


def test_macs_are_counted_at_the_measured_shapes(model: Path) -> None:
    # Conv 3->8 and 8->8, 3x3 over 8x8 positions, Gemm 8->4
    assert make(model).model.macs == 64 * 9 * (3 * 8 + 8 * 8) + 8 * 4
    twice = make(model, "shapes: {x: 2x3x8x8}")
    assert twice.model.macs == 2 * (64 * 9 * (3 * 8 + 8 * 8) + 8 * 4)


def test_the_plan_leaves_no_trace(model: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in model.parent.rglob("*")}
    make(model)
    assert {path: path.stat().st_mtime_ns for path in model.parent.rglob("*")} == before


def test_a_model_that_disagrees_with_itself_is_named(model: Path) -> None:
    random = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[batch,4] x) => (float[batch,4] y) { r = RandomNormalLike (x)  y = Add (x, r) }""")
    onnx.save(random, model.parent / "random.onnx")
    made = make(model.parent / "random.onnx")
    assert any("run again on the same input (RandomNormalLike)" in warning for warning in made.warnings)
    assert not made.steady


def test_lossy_rungs_that_no_accuracy_gate_judges_are_warned_about(model: Path) -> None:
    lossy = "rungs: [{name: small, stages: [{prune: {ratio: 20%}}, quantize]}, {name: int8, stages: [quantize]}]\n"
    found = make(model, f"{lossy}gates: [{{latency: {{p99: 50ms}}}}]").warnings
    assert any(warning.startswith("no gate asks for accuracy, so small can pass") for warning in found)
    for judged in ("gates: [{accuracy: {max_drop: 2%}}]", ""):
        assert not any("accuracy" in warning for warning in make(model, f"{lossy}{judged}").warnings)


def test_more_threads_than_cpus_are_warned_about(model: Path) -> None:
    assert any("64 threads on" in warning for warning in make(model, "engine: {onnxruntime: {threads: 64}}").warnings)
    sessions = make(model, "engine: {onnxruntime: {threads: 2}}\nload: {closed: {concurrency: 64, sessions: own}}")
    assert any(warning.startswith("128 threads (64 sessions of 2) on") for warning in sessions.warnings)
    assert not any(" threads " in warning for warning in make(model, "engine: {onnxruntime: {threads: 1}}").warnings)


def test_a_rung_with_too_many_threads_of_its_own_is_warned_about_by_name(model: Path) -> None:
    text = """
        engine: {onnxruntime: {threads: 1}}
        rungs:
          - {name: few, stages: [quantize], engine: {onnxruntime: {threads: 1}}}
          - {name: many, stages: [quantize], engine: {onnxruntime: {threads: 65}}}
        """
    (warning,) = (warning for warning in make(model, text).warnings if " threads " in warning)
    assert warning.startswith("many: 65 threads on ")


def test_a_password_of_the_registry_reaches_no_recipe(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compressor.registry.place._check_driver", lambda _uri: None)  # no driver is installed here
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"postgresql://bob:s3cret@127.0.0.1:{server.getsockname()[1]}/mlflow"
        made = make(model, f"registry: {{uri: '{uri}'}}")
    assert made.registry == uri
    assert "s3cret" not in recipe.write(made.recipe)


def test_labels_that_no_output_can_be_scored_by_are_said(model: Path) -> None:
    with np.load(model.parent / "calibration_data" / "net.npz") as arrays:
        np.savez(model.parent / "odd.npz", x=arrays["x"], label=arrays["label"] + 999)
    made = make(model, "data: {calibration: {path: odd.npz}, evaluation: {path: odd.npz}}")
    assert made.metric == "agreement"
    assert any("are no indices of classes" in warning for warning in made.warnings)


def test_a_model_without_numbers_to_score_has_no_metric(model: Path) -> None:
    text = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 2]>
        g (int64[batch] x) => (string[batch] y) {
            y = ai.onnx.ml.LabelEncoder <keys_int64s: ints = [0, 1], values_strings: strings = ["a", "b"]> (x) }""")
    onnx.save(text, model.parent / "text.onnx")
    np.savez(model.parent / "t.npz", x=np.arange(40))
    made = make(model.parent / "text.onnx", "data: {calibration: {path: t.npz}}")
    assert (made.metric, made.evaluation) == (None, None)
    assert any("no output of the model holds numbers" in warning for warning in made.warnings)


def test_batch_normalization_in_training_mode_is_warned_about(model: Path) -> None:
    proto = onnx.load(model)
    (node,) = (node for node in proto.graph.node if node.op_type == "BatchNormalization")
    node.name = "bn"
    node.attribute.append(onnx.helper.make_attribute("training_mode", 1))
    node.output.extend(["running_mean", "running_var"])
    onnx.save(proto, model.parent / "train.onnx")
    made = make(
        model.parent / "train.onnx", f"data: {{calibration: {{path: {model.parent}/calibration_data/net.npz}}}}"
    )
    assert any(warning.startswith("bn was exported in training mode") for warning in made.warnings)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("shapes: {y: 1x3}", InputError, "no input 'y'"),
        ("shapes: {x: 1x5x8x8}", InputError, "expected a shape that fits batchx3x8x8, found 1x5x8x8"),
        ("data: {calibration: {path: none.npz}}", InputError, "none.npz: no such file"),
        ("registry: {uri: 'file:./mlruns'}", InputError, "sqlite"),
        ("registry: {uri: 'http://127.0.0.1:9'}", MachineError, "--registry none"),
        ("data: {metric: nonsense}", InputError, "nonsense"),
        ("data: {metric: sqnr}\ngates: [{accuracy: {max_drop: 1%}}]", InputError, "recipe.gates: sqnr is in dB"),
        ("rungs: [{name: a, stages: [{quantize: {exclude: [nosuch]}}]}]", InputError, "no node is named 'nosuch'"),
        ("shapes: {x: 0x3x8x8}", InputError, "expected a first axis of at least 1, found 0x3x8x8"),
        ("registry: {uri: 'ftp://x'}", InputError, "expected one that starts with sqlite:///, http://"),
        ("registry: {uri: 'postgresql://127.0.0.1:9/x'}", MachineError, "--registry none"),
    ],
)
def test_what_cannot_work_is_refused(model: Path, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        make(model, text)
    assert message in str(caught.value)


def test_a_model_that_does_not_run_is_refused(model: Path) -> None:
    broken = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2,3] x) => (float[2,4] y) <int64[2] s = {5, 5}> { y = Reshape (x, s) }""")
    onnx.save(broken, model.parent / "broken.onnx")
    with pytest.raises(InputError, match=r"broken\.onnx"):
        make(model.parent / "broken.onnx")


def test_default_recipe_needs_no_gate_on_latency() -> None:
    assert [type(gate).__name__ for gate in Recipe().gates] == ["Accuracy"]
