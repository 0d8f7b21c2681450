"""The stage: what it writes and says, and when it does nothing."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import small
from exact import EXACT, made_up
from finished import finish
from onnx import numpy_helper
from pydantic import ValidationError

from compressor import graph, machine, runtime, samples
from compressor.errors import RungError
from compressor.records import Did, Model
from compressor.stages.recover import Recover
from compressor.stages.recover.distil import Limit, _total
from compressor.stages.supply import Supply, divided

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="recovery needs torch")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small work is done sooner by one thread where other tests run beside it."""
    monkeypatch.setattr(machine, "cpus_usable", lambda: 1)


def written(path: Path) -> Model:
    """Normalise a model with noise in the weights of its middle layer."""
    graph.normalise(path, path.with_name("changed.onnx"))
    proto = onnx.load(path.with_name("changed.onnx"))
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype != np.float32:
            continue
        noise = np.random.default_rng(1).normal(scale=0.3 * array.std(), size=array.shape).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(array + noise, tensor.name))
    onnx.save(proto, path.with_name("changed.onnx"))
    return graph.open_model(path.with_name("changed.onnx"))


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return written(small.classifier(tmp_path / "original.onnx"))


@pytest.fixture
def supply(tmp_path: Path, model: Model) -> Supply:
    path = small.data(tmp_path / "data.npz", tmp_path / "original.onnx", 100, 0)
    given = samples.read(path, model.inputs, {"x": (1, 3, 8, 8)})
    return replace(divided(given, 0, tmp_path, steady=True), original=tmp_path / "original.onnx")


def applied(stage: Recover, model: Model, supply: Supply) -> Did:
    return finish(stage.resolve(model.path, EXACT).apply(model, supply, model.path.with_name("out.onnx")))


def answers(path: Path, x: np.ndarray) -> np.ndarray:
    return runtime.load(path, runtime.options(1, spinning=False))({"x": x})["logits"]


def unchanged(model: Model) -> bool:
    graph.save(graph.load(model.path), copy := model.path.with_name("copy.onnx"))
    return copy.read_bytes() == model.path.with_name("out.onnx").read_bytes()


def test_settings_have_defaults_and_bounds() -> None:
    assert Recover() == Recover(steps=600, minutes=5)
    assert Recover().resolve(Path("net.onnx"), EXACT) == Recover()
    for wrong in (
        {"steps": 0},
        {"steps": 100_001},
        {"minutes": 0},
        {"minutes": float("inf")},
        {"minutes": 1e5},
        {"rate": 1},
    ):
        with pytest.raises(ValidationError):
            Recover.model_validate(wrong)
    assert Recover.model_validate({"minutes": "2.5"}).minutes == 2.5
    with pytest.raises(ValidationError, match="expected a number of minutes such as 5"):
        Recover.model_validate({"minutes": "30s"})


def test_it_needs_data_that_show_what_came_of_it() -> None:
    assert Recover.needs_evaluation


@needs_torch
def test_what_is_written_answers_more_like_the_original(model: Model, supply: Supply) -> None:
    did = applied(Recover(steps=60), model, supply)
    fresh = np.load(small.data(model.path.with_name("fresh.npz"), supply.original, 200, 9))["x"]  # type: ignore[arg-type]
    before, after = (
        np.square(answers(path, fresh) - answers(model.path.with_name("original.onnx"), fresh)).mean()
        for path in (model.path, model.path.with_name("out.onnx"))
    )
    assert did.changed
    assert after < 0.8 * before
    assert "in 60 steps" in did.what
    assert "on 32 samples held out" in did.what  # a fifth of 84, and the 16 that are held out anyway


@needs_torch
def test_running_twice_writes_the_same_bytes(model: Model, supply: Supply) -> None:
    out, files = model.path.with_name("out.onnx"), []
    for _ in range(2):
        applied(Recover(steps=5), model, supply)
        files.append(out.read_bytes())
    assert files[0] == files[1]


@needs_torch
def test_nothing_is_kept_that_is_no_better(model: Model, supply: Supply) -> None:
    same = graph.open_model(supply.original) if supply.original else model
    graph.normalise(same.path, normal := model.path.with_name("normal.onnx"))
    did = applied(Recover(steps=3), graph.open_model(normal), supply)
    assert not did.changed
    assert "did not fall" in did.what
    assert unchanged(graph.open_model(normal))


def test_without_torch_the_model_stays_and_the_sentence_says_so(
    model: Model, supply: Supply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    did = applied(Recover(), model, supply)
    assert did == Did("recover did nothing: torch is not installed; pip install 'compressor[torch]'", changed=False)
    assert unchanged(model)


@needs_torch
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"steady": False}, "do not repeat"),
        ({"original": None}, "the original is not at hand"),
    ],
)
def test_where_nothing_can_be_learnt_the_model_stays(
    model: Model, supply: Supply, change: dict[str, Any], why: str
) -> None:
    did = applied(Recover(), model, replace(supply, **change))
    assert not did.changed
    assert did.what.startswith("recover did nothing: ")
    assert why in did.what
    assert unchanged(model)


@needs_torch
def test_made_up_inputs_teach_nothing(model: Model, supply: Supply) -> None:
    did = applied(Recover(), model, replace(supply, calibration=made_up(model, 30)))
    assert not did.changed
    assert "made-up inputs" in did.what


@needs_torch
def test_few_samples_are_too_few(model: Model, supply: Supply) -> None:
    few = supply.calibration.take(9, 0)
    did = applied(Recover(), model, replace(supply, calibration=few, held_out=few))
    assert not did.changed
    assert "of 9 samples too few are left" in did.what


@needs_torch
def test_samples_that_calibrate_and_check_are_held_out_once(model: Model, supply: Supply) -> None:
    few = supply.calibration.take(15, 0)
    did = applied(Recover(steps=2), model, replace(supply, calibration=few, held_out=few))
    assert "on 3 samples held out" in did.what


@needs_torch
def test_an_operator_that_cannot_be_trained_leaves_the_model_as_it_is(model: Model, supply: Supply) -> None:
    proto = onnx.load(model.path)
    proto.graph.node[-1].output[0] = "before"
    proto.graph.node.append(onnx.helper.make_node("TopK", ["before", "k"], ["logits", "places"], name="best"))
    proto.graph.initializer.append(numpy_helper.from_array(np.array([4], np.int64), "k"))
    onnx.save(proto, model.path)
    did = applied(Recover(), model, supply)
    assert not did.changed
    assert "node 'best' (TopK): this operator cannot be trained" in did.what
    assert unchanged(model)


def test_a_quantized_model_is_refused(model: Model, supply: Supply) -> None:
    proto = onnx.load(model.path)
    proto.graph.node[-1].output[0] = "before"
    for name, array in (("s", np.array(0.1, np.float32)), ("z", np.array(0, np.int8))):
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    for kind, one, two in (("QuantizeLinear", "before", "q"), ("DequantizeLinear", "q", "logits")):
        proto.graph.node.append(onnx.helper.make_node(kind, [one, "s", "z"], [two]))
    onnx.save(proto, model.path)
    with pytest.raises(RungError, match=r"the model is quantized already, .*: recover the float model"):
        applied(Recover(), model, supply)


@needs_torch
def test_training_that_the_clock_ends_is_mentioned(model: Model, supply: Supply) -> None:
    did = applied(Recover(steps=100_000, minutes=0.02), model, supply)
    assert did.changed
    (note,) = did.notes
    assert re.match(r"recover: stopped by `minutes` after \d+ of 100000 steps, ", note)
    assert note.endswith("so that another run ends with other weights; give more minutes")
    assert applied(Recover(steps=5), model, supply).notes == ()


@needs_torch
def test_the_clock_is_mentioned_where_nothing_was_gained_too(
    model: Model, supply: Supply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compressor.stages.recover.distil._HIGHEST_RATE", 0.0)
    did = applied(Recover(steps=100_000, minutes=0.01), model, supply)
    assert not did.changed
    assert "give more minutes" in did.notes[0]


def learning(folder: Path, text: str, x: np.ndarray, **shapes: tuple[int, ...]) -> tuple[Model, Supply]:
    """Give a model whose matrices are noisy, and what it learns from; `x`: its only input, `shapes`: its matrices."""
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    for name, shape in shapes.items():
        proto.graph.initializer.append(numpy_helper.from_array(rng.normal(0, 0.5, shape).astype(np.float32), name))
    onnx.save(proto, folder / "taught.onnx")
    model = written(folder / "taught.onnx")
    batch = model.inputs[0].shape[0] if model.inputs[0].shape else 1
    np.savez(folder / "x.npz", x=x.astype(np.float32))
    fed = (batch if isinstance(batch, int) else 1, *x.shape[1:])
    given = samples.read(folder / "x.npz", model.inputs, {"x": fed})
    return model, replace(divided(given, 0, folder, steady=True), original=folder / "taught.onnx")


LOG = """g (float[b,6] x) => (float[b,4] y) {
    five = Constant <value = float {5.0}> () h = MatMul (x, w)
    l = ReduceMin <axes = [1]> (x) k = Add (l, five) r = Log (k) y = Add (h, r) }"""


@needs_torch
def test_samples_without_a_finite_answer_are_counted_and_left_out(tmp_path: Path) -> None:
    """A fifth of 84 and 16 more are held out; NaN for one of them is no success, and keeps no other from teaching."""
    x = np.random.default_rng(0).normal(size=(100, 6))
    _, plain = learning(tmp_path, LOG, x, w=(6, 4))
    x[plain.held_out.indices[0], 0] = -9
    did = applied(Recover(steps=10), *learning(tmp_path, LOG, x, w=(6, 4)))
    assert did.changed
    assert re.search(r"on 31 samples held out fell from 0\.\d+ to 0\.\d+$", did.what)
    (note,) = did.notes
    assert "is not finite: 1 of those held out, 0 of those drawn in training" in note


@needs_torch
def test_nan_is_no_success(model: Model, supply: Supply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compressor.stages.recover._divergence", lambda *_: (float("nan"), 32))
    did = applied(Recover(steps=2), model, supply)
    assert not did.changed
    assert unchanged(model)


@needs_torch
def test_steps_that_were_skipped_are_counted(tmp_path: Path) -> None:
    """Every other sample is all zeros, where the derivative of the root is infinite."""
    text = """g (float[b,6] x) => (float[b,1] y) {
        h = MatMul (x, w) q = Mul (h, h) v = ReduceMean <axes = [1]> (q) y = Sqrt (v) }"""
    x = np.random.default_rng(0).normal(size=(40, 6))
    x[::2] = 0
    did = applied(Recover(steps=3), *learning(tmp_path, text, x, w=(6, 4)))
    assert "recover: 3 of 3 steps were skipped, their gradient was not finite" in did.notes


IMAGES = """g (float[1,3,8,8] x) => (float[1,4,8,8] y, float z) {
    a = Conv <pads = [1,1,1,1]> (x, w) r = Relu (a) y = Conv (r, v) z = ReduceMean <keepdims = 0> (y) }"""
COUNTED = """g (float[1,6] x) => (float[1,n] y) {
    none = Constant <value = int64[1] {0}> () one = Constant <value = int64[1] {1}> () h = MatMul (x, w)
    s = Sign (x) p = Relu (s) c = ReduceSum <keepdims = 0> (p) i = Cast <to = 7> (c) n = Reshape (i, one)
    y = Slice (h, none, n, one) }"""


@needs_torch
@pytest.mark.parametrize(
    ("text", "shape", "matrices"),
    [(IMAGES, (3, 8, 8), {"w": (6, 3, 3, 3), "v": (4, 6, 1, 1)}), (COUNTED, (6,), {"w": (6, 6)})],
)
def test_outputs_without_axes_or_of_sizes_that_data_decide_are_learnt(
    tmp_path: Path, text: str, shape: tuple[int, ...], matrices: dict[str, tuple[int, ...]]
) -> None:
    x = np.random.default_rng(0).normal(size=(40, *shape))
    did = applied(Recover(steps=3), *learning(tmp_path, text, x, **matrices))
    assert did.changed
    assert "in 3 steps" in did.what


@needs_torch
def test_filler_of_a_fixed_batch_does_not_count(tmp_path: Path) -> None:
    """Of 16 and 16 samples held out, 15 each fill feeds of 5."""
    x = np.random.default_rng(0).normal(size=(100, 6))
    did = applied(
        Recover(steps=3), *learning(tmp_path, "g (float[5,6] x) => (float[5,4] y) { y = MatMul (x, w) }", x, w=(6, 4))
    )
    assert "on 30 samples held out" in did.what


@pytest.mark.parametrize(("elapsed_s", "steps"), [(3.0, 600), (29.9, 600), (31.0, 49), (300.0, 5)])
def test_a_slow_start_does_not_change_the_plan(elapsed_s: float, steps: int) -> None:
    """5 steps done: before a tenth of the time is over, nothing follows from that."""
    assert _total(5, elapsed_s, Limit(600, 300)) == steps
