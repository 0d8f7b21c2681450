"""Two models side by side: worse, not worse or undecided, and when neither may be said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import small
from finished import finish
from onnx import numpy_helper
from test_choose import LATENCY

from compressor import gates, recipe, runtime
from compressor.engines import Onnxruntime
from compressor.errors import InputError
from compressor.isolation import Returned
from compressor.pipeline import Asked, compare
from compressor.pipeline.compare import (
    Pair,
    _doubts,
    _outcome,
    _quality,
    _scene,
    _Seen,
    _verdicts,
    agree,
)
from compressor.pipeline.quality import Quality
from compressor.pipeline.subject import Subject
from compressor.plan import Job
from compressor.records import Compared, Measurement, Speedup, Verdict, Work

SHORT = "limits: {measure: 2s}\nregistry: {uri: none}\n"
RANDOM = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[batch,4] x) => (float[batch,4] y) { r = RandomNormalLike (x)  y = Add (x, r) }"""
TEXT = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[batch,4] x) => (string[batch,4] y) { y = Cast <to: int = 8> (x) }"""
STEADY = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[batch,4] x) => (float[batch,4] y) { y = Abs (x) }"""
COUNTS = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[batch,4] x) => (int64[batch] y) { y = ArgMax <axis: int = 1, keepdims: int = 0> (x) }"""
SAME = Speedup(1.0, 0.995, 1.005, rounds=8, lowest=0.99, highest=1.01)


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


def agreed(one: Path, two: Path, text: str = SHORT) -> Pair:
    return agree(Job(one, recipe.parse(text, "r"), one.parent, one.parent, compressed=False), two)


class Here:
    """Steps that run in this process."""

    def call(self, _step: str, piece: Callable[..., Work[object]], *arguments: object) -> Work[Returned[object]]:
        return Returned((yield from piece(*arguments)), 0.0, 0)


@dataclass(frozen=True)
class Judged:
    """What a comparison knows once everything but speed was measured; the speed is told."""

    pair: Pair
    quality: tuple[Quality, Quality]
    sides: tuple[_Seen, _Seen]

    def verdicts(self) -> tuple[Verdict, ...]:
        return _verdicts(self.pair, self.sides, self.quality)

    def accuracy(self) -> Verdict:
        return next(verdict for verdict in self.verdicts() if verdict.gate == "accuracy")


def judged(one: Path, two: Path, text: str = SHORT, *, speedup: Speedup | None = SAME) -> Judged:
    """Plan and score two models as a comparison does, without timing them."""
    pair = agreed(one, two, text)
    named, models = (Subject(str(one), one), Subject(str(two), two)), (pair.plan.model, pair.after)
    built = tuple(subject.built(model, pair.plan.recipe, 2) for subject, model in zip(named, models, strict=True))
    quality = finish(_quality(Here(), pair, built, one.parent / f"scratch-{two.stem}"))  # type: ignore[arg-type]
    measured = [Measurement(1000, LATENCY, 1.0, 1, each.score, errors=each.errors) for each in quality]
    measured[1] = replace(measured[1], speedup=speedup)
    sides = tuple(map(_Seen, named, models, built, measured))
    return Judged(pair, quality, sides)  # type: ignore[arg-type]


def test_a_model_is_as_good_as_itself_and_never_worse(model: Path) -> None:
    small.data(model.parent / "e.npz", model, 120, seed=1)
    text = (
        f"data: {{evaluation: {{path: e.npz}}}}\ngates: [{{speedup: {{min: 100x}}}}, {{size: {{max: 1MB}}}}]\n{SHORT}"
    )
    found = compared(model, model, text)
    met = {verdict.gate: verdict.met for verdict in found.verdicts}
    assert met["accuracy"] is True
    assert met["speed"] is not False
    assert (met["speedup"], met["size"]) == (False, True), "other gates of the recipe are judged too"
    assert found.verdict == "worse"
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


def test_a_damaged_copy_loses_accuracy(model: Path) -> None:
    small.data(model.parent / "e.npz", model, 120, seed=1)
    found = judged(model, damaged(model), f"data: {{evaluation: {{path: e.npz}}, metric: top1}}\n{SHORT}")
    assert found.accuracy().met is False
    assert _outcome(found.verdicts()) == "worse"
    score, errors = found.quality[1].score, found.quality[1].errors
    assert score is not None
    assert score.worst is not None
    assert errors["logits"].p95 > 1


def test_without_samples_equal_outputs_are_enough(model: Path) -> None:
    same = changed(model, "same.onnx", lambda proto: setattr(proto, "doc_string", "a word"))
    found = judged(model, same, f"gates: [{{accuracy: {{max_drop: 1%}}}}]\n{SHORT}")
    assert (found.accuracy().met, found.accuracy().reason) == (True, "equal to rounding on 32 inputs")
    assert _outcome(found.verdicts()) == "not worse"
    assert found.quality[1].score is None
    assert found.pair.plan.evaluation is None
    assert any("made-up inputs" in warning for warning in found.pair.plan.warnings)


def test_without_samples_other_outputs_are_not_decided(model: Path) -> None:
    found = judged(model, damaged(model))
    assert found.accuracy().met is None
    assert found.accuracy().reason.startswith("output 'logits' differs by up to ")
    assert "give --evaluation" in found.accuracy().reason


def test_outputs_of_text_are_not_decided(model: Path) -> None:
    text = written(model.parent / "text.onnx", TEXT)
    found = judged(text, text)
    assert (found.accuracy().met, _outcome(found.verdicts())) == (None, "undecided")
    assert found.accuracy().reason.startswith("output 'y' is not compared: it holds no numbers")


def test_a_metric_that_is_no_number_for_the_first_model_says_nothing_about_the_second(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.data(model.parent / "e.npz", model, 120, seed=1)
    (model.parent / "nothing.py").write_text("def nan(outputs, labels): return float('nan')\n")
    monkeypatch.syspath_prepend(model.parent)
    with pytest.raises(InputError, match="nothing:nan of the original model is nan"):
        judged(model, model, f"data: {{evaluation: {{path: e.npz}}, metric: 'nothing:nan'}}\n{SHORT}")


def test_equal_outputs_are_no_least_score(model: Path) -> None:
    assert judged(model, model, f"gates: [{{accuracy: {{min: 0.5}}}}]\n{SHORT}").accuracy().met is None


def test_a_model_that_disagrees_with_itself_is_named_and_not_approved(model: Path) -> None:
    one, two = written(model.parent / "one.onnx", STEADY), written(model.parent / "two.onnx", RANDOM)
    np.savez(model.parent / "e.npz", x=np.random.default_rng(0).normal(0, 1, (60, 4)).astype(np.float32))
    found = judged(one, two, f"data: {{evaluation: {{path: e.npz}}}}\n{SHORT}")
    assert found.accuracy().met is None
    assert found.quality[1].errors == {}
    assert found.quality[1].score is None, "agreement with the other would be elementwise too"
    assert any(f"{two} gives other outputs when it is run again" in doubt for doubt in _doubts(found.pair, found.sides))


def test_whole_numbers_that_differ_are_not_equal_to_rounding(model: Path) -> None:
    one = written(model.parent / "one.onnx", COUNTS)
    two = written(model.parent / "two.onnx", COUNTS.replace("ArgMax", "ArgMin"))
    verdict = judged(one, two).accuracy()
    assert verdict.met is None
    assert verdict.reason.startswith("output 'y' is not the same")


def test_too_few_pairs_decide_nothing_about_speed(model: Path) -> None:
    speed = judged(model, model, speedup=None).verdicts()[0]
    assert (speed.gate, speed.met) == (gates.REGRESSION, None)
    assert "raise limits.measure" in speed.reason


@pytest.mark.parametrize(
    ("met", "outcome"),
    [((True, True), "not worse"), ((True, None), "undecided"), ((None, False, True), "worse")],
)
def test_the_outcome_is_that_of_the_worst_verdict(met: tuple[bool | None, ...], outcome: str) -> None:
    assert _outcome(tuple(Verdict("gate", one, None, None, None, None, "") for one in met)) == outcome


def test_sides_with_options_of_their_own_are_warned_about_and_each_ones_threads_are_counted(model: Path) -> None:
    found = judged(model, damaged(model))
    assert not list(_doubts(found.pair, found.sides))
    first, second = found.sides
    engine = Onnxruntime(threads=64)
    artifact = replace(second.built.artifact, options={"intra_op_num_threads": "64"})
    crowded = replace(second, built=replace(second.built, engine=engine, artifact=artifact))
    doubts = list(_doubts(found.pair, (first, crowded)))
    cpus = found.pair.plan.environment.cpus_usable
    assert doubts[0].startswith("the two are run with other session options")
    assert doubts[1].startswith(f"{second.named.source}: 64 threads on {cpus} usable CPUs")


def test_a_comparison_wants_the_faster_one_known_and_goes_on_as_long_as_it_is_told(model: Path) -> None:
    pair = agreed(model, model, f"gates: [{{speedup: {{min: 3x}}}}]\n{SHORT}")
    asked = Asked(str(model), pair.plan.recipe, model.parent)
    scene = _scene(pair.plan, asked, model.parent)
    assert (scene.ratios, scene.fill) == ((3.0, *gates.RATIOS_OF_COMPARISON), False)
    assert _scene(pair.plan, replace(asked, fill=True), model.parent).fill


def test_two_models_are_planned_together(model: Path) -> None:
    pair = agreed(model, damaged(model))
    assert pair.steady
    assert (pair.plan.model.path.name, pair.after.path.name) == ("net.onnx", "damaged.onnx")
    assert pair.after.macs == pair.plan.model.macs
    assert not agreed(written(model.parent / "1.onnx", STEADY), written(model.parent / "2.onnx", RANDOM)).steady


def test_sessions_that_are_opened_to_plan_are_closed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[runtime.Loaded] = []
    close = runtime.Loaded.close

    def closing(session: runtime.Loaded) -> None:
        closed.append(session)
        close(session)

    monkeypatch.setattr(runtime.Loaded, "close", closing)
    agreed(model, damaged(model), f"others: [{{batch: 2}}]\n{SHORT}")
    assert len(closed) == 4, "one for the points, one that is timed, and one of each model that must agree with itself"


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
