from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import finished
import numpy as np
import onnx
import pytest
from exact import EXACT, made_up

from compressor import runtime
from compressor.errors import RungError
from compressor.records import Did, Model
from compressor.samples import Samples, read
from compressor.stages import Quantize, Supply
from compressor.stages.quantize import making

STATIC = Quantize(scheme="static", operators="all")
DENSE = """g (float[4,8] x) => (float[4,4] y) {
  [one] h = MatMul(x, A) \n [act] r = Relu(h) \n [two] y = MatMul(r, B) }"""
DENSE_WEIGHTS = {"A": (8, 16), "B": (16, 4)}
CHOOSING = """g (float[4,8] x) => (float[n] y) {
  [one] h = MatMul(x, A) \n [act] r = Relu(h) \n [two] m = MatMul(r, B) \n [above] c = Greater(m, zero)
  [all] f = Reshape(c, flat) \n [those] y = Compress(m, f) }"""
PLACES = """g (float[4,8] x) => (int64[2,n] places) {
  [one] h = MatMul(x, A) \n [act] r = Relu(h) \n [two] m = MatMul(r, B) \n [above] c = Greater(m, zero)
  [where] places = NonZero(c) }"""
SQUARED = """g (double[1,1] t) => (double[1,4] y) {
  [square] s = Mul(t, t) \n [rest] r = Sub(s, most) \n [dense] y = MatMul(r, W) }"""
ARRAYS = {"zero": np.float32([0.0]), "flat": np.array([-1])}

Make = Callable[..., Did]


@pytest.fixture
def quantize(tmp_path: Path) -> Make:
    """Apply a stage to a model whose outputs mean something, unless said."""

    def _quantize(stage: Quantize, model: Model, samples: Samples | None = None, *, steady: bool = True) -> Did:
        given = samples or made_up(model, 16)
        supply = Supply(given, given, tmp_path / "kept", steady)
        stage = stage.resolve(model.path, EXACT)
        return finished.finish(stage.apply(model, supply, tmp_path / "out.onnx"))

    return _quantize


@pytest.mark.parametrize("text", [CHOOSING, PLACES], ids=["Compress", "NonZero"])
def test_how_many_values_come_out_may_depend_on_the_data(text: str, make: Any, quantize: Make, tmp_path: Path) -> None:
    """Great weights for a feature that is always 0 leave the others no step: INT8 ruins `one`, and it is searched."""
    ruined = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    ruined[0] = 1000
    model = make(text, {**DENSE_WEIGHTS, **ARRAYS, "A": ruined})
    x = np.random.default_rng(1).normal(size=(16, 4, 8)).astype(np.float32)
    x[..., 0] = 0
    samples = given(model, tmp_path, x=x)
    assert "one" in quantize(STATIC.model_copy(update={"backend": "nncf"}), model, samples).excluded
    with pytest.raises(RungError, match=r"quantized no weight of the model: .* the worst output has -200"):
        quantize(STATIC, model, samples)  # which leaves the other one no INT8 either


def test_a_model_that_counts_beyond_float32_is_not_rewritten_in_silence(
    make: Any, quantize: Make, tmp_path: Path
) -> None:
    model = make(SQUARED, {"W": np.ones((1, 4)), "most": np.array(400040000.0)})
    samples = given(model, tmp_path, t=np.full((16, 1, 1), 20001.0))
    with pytest.raises(RungError, match=r"computes something else .* dB; made every float64 inside float32"):
        quantize(STATIC, model, samples)


def test_what_preparing_did_is_held_against_the_model_only_if_that_means_something(
    make: Any, quantize: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    worst = runtime.worst_db

    def watched(reference: Path, *rest: Any, **settings: Any) -> Any:
        compared.append(reference)
        return worst(reference, *rest, **settings)

    monkeypatch.setattr(runtime, "worst_db", watched)
    turned = make("g (float[4,8] x) => (float[4,4] y) { W = Transpose(B) \n y = MatMul(x, W) }", {"B": (4, 8)})
    quantize(STATIC, turned)
    assert turned.path in compared
    compared.clear()
    quantize(STATIC, turned, steady=False)
    assert not compared
    plain = make(DENSE, DENSE_WEIGHTS)
    quantize(STATIC, plain)
    assert plain.path not in compared


def test_a_model_that_differs_from_run_to_run_takes_what_was_seen_and_says_so(make: Any, quantize: Make) -> None:
    did = quantize(STATIC, make(DENSE, DENSE_WEIGHTS), steady=False)
    assert did.settled["ranges"] == "minmax"
    assert any("other outputs when it is run again" in note for note in did.notes)


@pytest.mark.parametrize(("gain_db", "taken"), [(0.6, "tensor"), (0.4, "minmax"), (-3.0, "minmax")])
def test_ranges_are_chosen_tensor_by_tensor_if_the_whole_model_gains(
    gain_db: float, taken: str, make: Any, quantize: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([30.0, 30.0 + gain_db])

    def measured(*_: Any) -> Any:
        yield from ()
        return next(found)

    monkeypatch.setattr(making._Making, "_db", measured)
    assert quantize(STATIC, make(DENSE, DENSE_WEIGHTS)).settled["ranges"] == taken


def test_what_was_settled_makes_the_same_file_without_a_search(
    make: Any, quantize: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(DENSE, DENSE_WEIGHTS)
    quantize(STATIC.model_copy(update={"ranges": "tensor"}), model)
    once = (tmp_path / "out.onnx").read_bytes()
    monkeypatch.setattr(making._Making, "_db", None)  # nothing to choose, nothing to measure
    did = quantize(STATIC.model_copy(update={"ranges": "tensor"}), model)
    assert did.settled["ranges"] == "tensor"
    assert (tmp_path / "out.onnx").read_bytes() == once


def test_the_report_names_what_its_range_keeps_float(make: Any, quantize: Make, tmp_path: Path) -> None:
    text = """g (float[4,8] x) => (float[4,4] y) {
      [one] h = MatMul(x, A) \n [cut] r = Clip(h, half, six) \n [two] y = MatMul(r, B) }"""
    bounds = {"half": np.array(0.5, np.float32), "six": np.array(6, np.float32)}
    did = quantize(STATIC, make(text, {**DENSE_WEIGHTS, **bounds}))
    assert did.excluded.keys() == {"cut"}
    assert "cuts off" in did.excluded["cut"]
    assert "1 node left float" in did.what
    assert "Clip" in [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node]


def test_a_name_that_is_not_there_once_the_model_is_prepared_is_refused(make: Any, quantize: Make) -> None:
    with pytest.raises(RungError, match=r"quantize\.exclude: no node is named 'tow'; the closest are 'two'"):
        quantize(STATIC.model_copy(update={"exclude": ("tow",)}), make(DENSE, DENSE_WEIGHTS))


def test_float64_beside_the_layers_stays_exact(make: Any, quantize: Make, tmp_path: Path) -> None:
    text = """g (float[4,8] x, double[1] t) => (float[4,4] y, float[1] rest) {
      [square] s = Mul(t, t) \n [less] d = Sub(s, most) \n rest = Cast<to=1>(d)
      [one] h = MatMul(x, A) \n [act] r = Relu(h) \n [two] y = MatMul(r, B) }"""
    model = make(text, {**DENSE_WEIGHTS, "most": np.array(400040000.0)})
    x = np.random.default_rng(0).normal(size=(16, 4, 8)).astype(np.float32)
    samples = given(model, tmp_path, x=x, t=np.full((16, 1), 20001.0))
    for backend in ("onnxruntime", "nncf"):
        did = quantize(STATIC.model_copy(update={"backend": backend}), model, samples)
        assert did.excluded.keys() == {"square", "less"}
        session = runtime.load(tmp_path / "out.onnx", runtime.options(1, spinning=False))
        assert session(next(iter(samples)))["rest"].tolist() == [1.0]


def given(model: Model, folder: Path, **arrays: np.ndarray) -> Samples:
    np.savez(folder / "data.npz", **arrays)
    return read(folder / "data.npz", model.inputs, {name: array.shape[1:] for name, array in arrays.items()})
