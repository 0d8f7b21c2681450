"""Two models side by side: worse, not worse or undecided, and when neither may be said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import small
from finished import finish
from onnx import numpy_helper

from compressor import recipe
from compressor.errors import InputError
from compressor.pipeline import Asked, compare
from compressor.pipeline.compare import Pair, agree
from compressor.plan import Job
from compressor.records import Compared

SHORT = "limits: {measure: 2s}\nregistry: {uri: none}\n"
RANDOM = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[batch,4] x) => (float[batch,4] y) { r = RandomNormalLike (x)  y = Add (x, r) }"""
STEADY = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[batch,4] x) => (float[batch,4] y) { y = Abs (x) }"""
COUNTS = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[batch,4] x) => (int64[batch] y) { y = ArgMax <axis: int = 1, keepdims: int = 0> (x) }"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return small.classifier(tmp_path / "net.onnx")


def changed(model: Path, name: str, change: Callable[[onnx.ModelProto], None]) -> Path:
    proto = onnx.load(model)
    change(proto)
    onnx.save(proto, model.parent / name)
    return model.parent / name


def damaged(model: Path) -> Path:
    """Turn the classes round: the last layer's weights change their sign."""

    def negate(proto: onnx.ModelProto) -> None:
        weight = next(tensor for tensor in proto.graph.initializer if tensor.name == "w3")
        weight.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(weight), "w3"))

    return changed(model, "damaged.onnx", negate)


def written(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def compared(one: Path, two: Path, text: str = SHORT) -> Compared:
    return finish(compare(Asked(str(one), recipe.parse(text, "r.yaml"), one.parent), str(two)))


def met(found: Compared) -> dict[str, bool | None]:
    return {verdict.gate: verdict.met for verdict in found.verdicts}


def agreed(one: Path, two: Path) -> Pair:
    return agree(Job(one, recipe.parse(SHORT, "r"), one.parent, one.parent, compressed=False), two)


def test_a_model_is_as_good_as_itself_and_never_worse(model: Path) -> None:
    small.data(model.parent / "e.npz", model, 120, seed=1)
    found = compared(model, model, f"data: {{evaluation: {{path: e.npz}}}}\n{SHORT}")
    assert met(found)["accuracy"] is True
    assert met(found)["speed"] is not False
    assert found.verdict in ("not worse", "undecided")
    assert any("both are the same file" in warning for warning in found.warnings)
    before, after = found.before.measurement, found.after.measurement
    assert before.score is not None
    assert before.score.n == 120, "nothing has to be kept back for calibration"
    assert before.score.value == pytest.approx(0.9), "a tenth of the labels are wrong"
    assert after.score is not None
    assert (before.score.drop, after.score.drop) == (None, 0)
    assert after.speedup is not None
    assert after.speedup.low <= 1.05
    assert after.errors["logits"].max_abs == 0


def test_a_damaged_copy_is_worse(model: Path) -> None:
    small.data(model.parent / "e.npz", model, 120, seed=1)
    found = compared(model, damaged(model), f"data: {{evaluation: {{path: e.npz}}, metric: top1}}\n{SHORT}")
    assert (found.verdict, met(found)["accuracy"]) == ("worse", False)
    assert found.after.measurement.score is not None
    assert found.after.measurement.score.worst is not None
    assert found.after.measurement.errors["logits"].p95 > 1
    assert not any("same file" in warning for warning in found.warnings)


def test_other_gates_of_the_recipe_are_judged_too(model: Path) -> None:
    found = compared(model, model, f"gates: [{{speedup: {{min: 100x}}}}, {{size: {{max: 1MB}}}}]\n{SHORT}")
    assert (met(found)["speedup"], met(found)["size"]) == (False, True)
    assert found.verdict == "worse"


def test_without_samples_equal_outputs_are_enough_and_others_are_not_decided(model: Path) -> None:
    same = changed(model, "same.onnx", lambda proto: setattr(proto, "doc_string", "a word"))
    found = compared(model, same, f"gates: [{{accuracy: {{max_drop: 1%}}}}]\n{SHORT}")
    verdict = next(verdict for verdict in found.verdicts if verdict.gate == "accuracy")
    assert (verdict.met, verdict.reason) == (True, "equal to rounding on 32 inputs")
    assert found.after.measurement.score is None
    assert found.data.evaluation is None
    assert any("made-up inputs" in warning for warning in found.warnings)

    found = compared(model, damaged(model))
    verdict = next(verdict for verdict in found.verdicts if verdict.gate == "accuracy")
    assert verdict.met is None
    assert verdict.reason.startswith("output 'logits' differs by up to ")
    assert "give --evaluation" in verdict.reason


def test_equal_outputs_are_no_least_score(model: Path) -> None:
    found = compared(model, model, f"gates: [{{accuracy: {{min: 0.5}}}}]\n{SHORT}")
    assert met(found)["accuracy"] is None


def test_a_model_that_disagrees_with_itself_is_named_and_not_approved(model: Path) -> None:
    one, two = written(model.parent / "one.onnx", STEADY), written(model.parent / "two.onnx", RANDOM)
    np.savez(model.parent / "e.npz", x=np.random.default_rng(0).normal(0, 1, (60, 4)).astype(np.float32))
    found = compared(one, two, f"data: {{evaluation: {{path: e.npz}}}}\n{SHORT}")
    assert met(found)["accuracy"] is None
    assert found.after.measurement.errors == {}
    assert found.after.measurement.score is None, "agreement with the other would be elementwise too"
    assert any(f"{two} gives other outputs when it is run again" in warning for warning in found.warnings)


def test_whole_numbers_that_differ_are_not_equal_to_rounding(model: Path) -> None:
    one = written(model.parent / "one.onnx", COUNTS)
    two = written(model.parent / "two.onnx", COUNTS.replace("ArgMax", "ArgMin"))
    found = compared(one, two)
    verdict = next(verdict for verdict in found.verdicts if verdict.gate == "accuracy")
    assert verdict.met is None
    assert verdict.reason.startswith("output 'y' is not the same")


def test_two_models_are_planned_together(model: Path) -> None:
    pair = agreed(model, damaged(model))
    assert pair.steady
    assert (pair.plan.model.path.name, pair.after.path.name) == ("net.onnx", "damaged.onnx")
    assert pair.after.macs == pair.plan.model.macs
    assert not agreed(written(model.parent / "1.onnx", STEADY), written(model.parent / "2.onnx", RANDOM)).steady


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STEADY.replace(" x)", " a)").replace("(x)", "(a)"), "expected the inputs x, found a"),
        (STEADY.replace("4] x", "5] x").replace("4] y", "5] y"), r"input 'x' is float32 \('batch', 4\) in one and"),
        (STEADY.replace("batch,4] x", "batch,4,1] x").replace("batch,4] y", "batch,4,1] y"), "input 'x' is"),
        (STEADY.replace("float[", "double["), r"input 'x' is .* and float64"),
        (STEADY.replace(" y)", " z)").replace("y =", "z ="), "expected the output 'y', found z"),
    ],
)
def test_models_that_do_not_fit_are_refused_with_the_difference(model: Path, text: str, message: str) -> None:
    one, two = written(model.parent / "one.onnx", STEADY), written(model.parent / "two.onnx", text)
    with pytest.raises(InputError, match=rf"two\.onnx: not comparable with .*one\.onnx: {message}"):
        agreed(one, two)


def test_a_load_without_pairs_is_refused(model: Path) -> None:
    with pytest.raises(InputError, match=r"recipe\.load: .* expected closed with concurrency 1, found constant 9/s"):
        compared(model, model, "load: {constant: {rate: 9/s}}")
