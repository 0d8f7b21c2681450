from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from finished import finish

from compressor.records import Array, Model
from compressor.samples import Samples, read
from compressor.stages.quantize.exclude import too_wide
from compressor.stages.quantize.statistics import Statistics, gather
from compressor.stages.supply import Supply

TEXT = (
    "g (float[N,2,6,5] x) => (float[N,4,6,5] y, float[N,4,6,5] z) "
    "{ c = Conv<pads=[1,1,1,1]>(x, w, b)\n y = Relu(c)\n z = Sub(c, c) }"
)
WEIGHTS = {"w": (4, 2, 3, 3), "b": (4,)}


@pytest.fixture
def model(make: Any) -> Model:
    made: Model = make(TEXT, WEIGHTS)
    return made


def samples(model: Model, folder: Path, x: Array, batch: int = 1) -> Samples:
    np.savez(folder / f"x{len(x)}.npz", x=x)
    return read(folder / f"x{len(x)}.npz", model.inputs, {"x": (batch, *x.shape[1:])})


def images(n: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(n, 2, 6, 5)).astype(np.float32)


def gathered(model: Model, one: Samples, other: Samples, kept: Path) -> Statistics:
    found: Statistics = finish(gather(model.path, Supply(one, other, kept)))
    return found


def plain(model: Model, x: Array) -> dict[str, Array]:
    """Run the model with its inner tensors as outputs, without graph optimisations."""
    proto = onnx.load(model.path)
    proto.graph.output.append(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return {"x": x, **dict(zip(["y", "z", "c"], session.run(None, {"x": x}), strict=True))}


@pytest.mark.parametrize("extreme", [0, 20, 40])
def test_extremes_are_those_of_all_samples_wherever_they_are(extreme: int, model: Model, tmp_path: Path) -> None:
    x = images(41)
    x[extreme, 0, 0, 0], x[extreme, 1, 3, 3] = 70, -50
    found = gathered(model, samples(model, tmp_path, x), samples(model, tmp_path, images(8, 1)), tmp_path / "kept")
    assert found.extremes["x"] == (-50, 70)
    wanted = plain(model, x)
    for name in ("c", "y"):
        np.testing.assert_allclose(found.extremes[name], (wanted[name].min(), wanted[name].max()), rtol=1e-5)


def test_picked_values_are_values_of_the_set_they_are_from(model: Model, tmp_path: Path) -> None:
    one, other = images(20), images(8, 1)
    found = gathered(model, samples(model, tmp_path, one), samples(model, tmp_path, other), tmp_path / "kept")
    assert np.isin(found.tensors["x"].values, one).all()
    assert np.isin(found.tensors["x"].held_out, other).all()
    # 1200 draws with replacement from 1200 values hit 1 - 1/e of them
    assert len(np.unique(found.tensors["x"].values)) == pytest.approx(0.632 * one.size, rel=0.05)


def test_as_many_values_are_kept_of_many_samples_as_of_few(make: Any, tmp_path: Path) -> None:
    model = make("g (float[N,3000] x) => (float[N,3000] y) { y = Relu(x) }", {})
    for n in (100, 1000):
        x = np.random.default_rng(n).normal(size=(n, 3000)).astype(np.float32)
        given = samples(model, tmp_path, x)
        found = gathered(model, given, given, tmp_path / "kept")
        assert 32_000 <= found.tensors["x"].values.size <= 32_768
        assert 16_000 <= found.tensors["y"].held_out.size <= 16_384
        assert np.median(found.tensors["x"].values) == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("batch", [1, 8])
def test_means_are_those_of_the_samples_whatever_the_batch(batch: int, model: Model, tmp_path: Path) -> None:
    x = images(20) + np.array([3, -1], np.float32).reshape(2, 1, 1)
    given = samples(model, tmp_path, x, batch)  # 20 are no multiple of 8: the last feed is filled up
    found = gathered(model, given, given, tmp_path / "kept")
    assert found.means.keys() == {("x", 1)}
    np.testing.assert_allclose(found.means["x", 1], x.astype(np.float64).mean(axis=(0, 2, 3)), rtol=1e-5)
    assert found.extremes["x"] == (x.min(), x.max())


def test_layers_that_count_channels_last_get_means_of_the_last_axis(make: Any, tmp_path: Path) -> None:
    text = (
        "g (float[N,3,4] x) => (float[N,3,5] m, float[N,2] y) "
        "{ m = MatMul(x, w)\n f = Flatten(x)\n y = Gemm<transB=1>(f, v, b) }"
    )
    model = make(text, {"w": (4, 5), "v": (2, 12), "b": (2,)})
    x = np.random.default_rng(0).normal(1, 1, (9, 3, 4)).astype(np.float32)
    given = samples(model, tmp_path, x)
    found = gathered(model, given, given, tmp_path / "kept")
    np.testing.assert_allclose(found.means["x", -1], x.mean(axis=(0, 1)), rtol=1e-5)
    np.testing.assert_allclose(found.means["f", -1], x.mean(axis=0).reshape(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [17, 18])
def test_zero_constant_and_empty_tensors_are_told_apart(opset: int, make: Any, tmp_path: Path) -> None:
    text = (
        "g (float[N,4] x) => (float[N,4] z, float[N,4] e, float[N,1] none) "
        "{ z = Sub(x, x)\n e = Exp(z)\n empty = Slice(x, four, nine, one)\n none = ReduceSum(empty, one) }"
    )
    numbers = {"four": np.array([4]), "nine": np.array([9]), "one": np.array([1])}
    model = make(text, numbers, opset=opset)
    given = samples(model, tmp_path, np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32))
    found = gathered(model, given, given, tmp_path / "kept")
    assert set(found.zero) == {"z", "none"}
    assert found.constant == ("e",)
    assert "empty" not in found.tensors


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_tensor_that_is_not_finite_somewhere_is_endless(value: float, make: Any, tmp_path: Path) -> None:
    model = make("g (float[N,4] x) => (float[N,4] y) { l = Add(x, b)\n y = Relu(l) }", {"b": np.zeros(4, np.float32)})
    x = np.ones((20, 4), np.float32)
    x[[3, 7], 2] = value
    given = samples(model, tmp_path, x)
    found = gathered(model, given, given, tmp_path / "kept")
    assert found.tensors["x"].unclean == 2
    assert found.extremes["x"] == (-np.inf, np.inf)
    add = next(node.name for node in onnx.load(model.path).graph.node if node.op_type == "Add")
    assert add in too_wide(model.path, found.extremes)


def test_what_was_gathered_is_read_back_and_only_for_the_same_content(model: Model, tmp_path: Path) -> None:
    given = samples(model, tmp_path, images(20))
    first = gathered(model, given, given, tmp_path / "kept")
    (file,) = (tmp_path / "kept").iterdir()
    before = file.stat().st_mtime_ns
    second = gathered(model, given, given, tmp_path / "kept")
    assert file.stat().st_mtime_ns == before
    assert first.extremes == second.extremes
    for name, seen in first.tensors.items():
        np.testing.assert_array_equal(seen.values, second.tensors[name].values)
    gathered(model, replace(given, indices=range(10)), given, tmp_path / "kept")
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_a_second_pass_gives_the_same_bytes(model: Model, tmp_path: Path) -> None:
    given = samples(model, tmp_path, images(20))
    for kept in ("a", "b"):
        gathered(model, given, given, tmp_path / kept)
    (one,), (other,) = (tmp_path / "a").glob("*/statistics"), (tmp_path / "b").glob("*/statistics")
    with np.load(one) as left, np.load(other) as right:
        assert all(np.array_equal(left[key], right[key]) for key in left)


def test_progress_counts_feeds_and_no_more_than_16_held_out_samples(model: Model, tmp_path: Path) -> None:
    given = samples(model, tmp_path, images(20), batch=8)
    steps = list(gather(model.path, Supply(given, given, tmp_path / "kept")))
    assert [step.total for step in steps] == [3, 3, 3, 3, 2, 2]
