"""Layers as matrix products, against what ONNX Runtime computes for the same nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from pruned import feeds, run

from compressor import graph
from compressor.graph import shapes
from compressor.records import Model
from compressor.stages.prune.layers import Layer, bias_of, layers, sampled, weights_of, write

Make = Callable[..., Model]
Array = NDArray[Any]


def conv(attributes: str, kernel: list[int], image: str = "2,6,9,8", bias: str = ", b") -> tuple[str, dict[str, Any]]:
    ranks = len(kernel) - 2
    text = f"g (float[{image}] x) => (float[n,o{''.join(f',d{i}' for i in range(ranks))}] y) {{"
    text += f"y = Conv <{attributes}> (x, w{bias}) }}"
    return text, {"w": kernel, **({"b": kernel[:1]} if bias else {})}


def product(body: str, given: str = "3,6", **weights: list[int]) -> tuple[str, dict[str, Any]]:
    ranks = given.count(",") + 1
    return f"g (float[{given}] x) => (float[{','.join('abc'[:ranks])}] y) {{ {body} }}", dict(weights)


LAYERS = {
    "pointwise": conv("kernel_shape = [1,1]", [5, 6, 1, 1]),
    "strided pointwise": conv("strides = [2,3]", [5, 6, 1, 1]),
    "padded pointwise": conv("pads = [1,0,2,1]", [5, 6, 1, 1]),
    "no padding": conv("kernel_shape = [3,2]", [5, 6, 3, 2]),
    "asymmetric padding": conv("pads = [2,0,1,3], strides = [2,1]", [4, 6, 3, 3]),
    "dilated": conv("pads = [2,2,2,2], dilations = [2,3]", [4, 6, 3, 3]),
    "same upper": conv('auto_pad = "SAME_UPPER", strides = [2,2]', [4, 6, 3, 2]),
    "same lower": conv('auto_pad = "SAME_LOWER", strides = [2,3]', [4, 6, 2, 4]),
    "valid": conv('auto_pad = "VALID"', [4, 6, 3, 3]),
    "groups": conv("group = 3, pads = [1,1,1,1]", [9, 2, 3, 3]),
    "depthwise": conv("group = 6, pads = [1,1,1,1]", [6, 1, 3, 3]),
    "depthwise with a multiplier": conv("group = 6", [12, 1, 3, 3]),
    "one axis": conv("pads = [1,2], strides = [2]", [4, 6, 3], image="2,6,11"),
    "three axes": conv("pads = [0,1,0,1,0,0]", [4, 6, 2, 3, 1], image="2,6,4,5,3"),
    "no bias": conv("kernel_shape = [3,3]", [4, 6, 3, 3], bias=""),
    "Gemm": product("y = Gemm (x, w, b)", w=[6, 4], b=[4]),
    "Gemm turned": product("y = Gemm <transB = 1> (x, w, b)", w=[4, 6], b=[4]),
    "Gemm scaled": product("y = Gemm <transB = 1, alpha = 0.5, beta = 3.0> (x, w, b)", w=[4, 6], b=[1, 4]),
    "Gemm without bias": product("y = Gemm <alpha = 2.0> (x, w)", w=[6, 4]),
    "MatMul": product("y = MatMul (x, w)", w=[6, 4]),
    "MatMul of sequences": product("y = MatMul (x, w)", given="2,3,6", w=[6, 4]),
    "MatMul and Add": product("a = MatMul (x, w) y = Add (a, b)", given="2,3,6", w=[6, 4], b=[4]),
    "Add and MatMul": product("a = MatMul (x, w) y = Add (b, a)", given="2,3,6", w=[6, 4], b=[4]),
}


def only(path: Path) -> tuple[Any, Layer]:
    model = shapes.settled(graph.load(path), None)
    (layer,) = layers(model)
    return model, layer


@pytest.mark.parametrize("name", LAYERS)
def test_features_times_weights_are_what_the_layer_gives(name: str, make: Make) -> None:
    model, layer = only(path := make(*LAYERS[name]).path)
    given = feeds(path)
    (y,) = run(path, given)
    assert (layer.x, layer.y) == ("x", "y")
    places = np.arange(layer.places(y))
    features = layer.features(given["x"], places).astype(np.float64)
    weights = weights_of(model, layer)
    assert features.shape[2] == layer.n_features == weights.shape[2]
    found = features @ weights.transpose(0, 2, 1) + bias_of(model, layer).reshape(weights.shape[0], 1, -1)
    assert np.abs(found - layer.rows(y, places)).max() < 1e-4
    some = places[[0, len(places) // 2, -1]]
    assert np.array_equal(layer.rows(y, some)[:, :3], layer.rows(y, places)[:, some]) or y.shape[0] == 2


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_written_is_what_the_layer_computes_then(name: str, make: Make, tmp_path: Path) -> None:
    model, layer = only(path := make(*LAYERS[name]).path)
    rng = np.random.default_rng(5)
    weights = rng.normal(size=weights_of(model, layer).shape)
    bias = rng.normal(size=weights.shape[0] * weights.shape[1]) * layer.biased
    write(model, layer, weights, bias)
    graph.save(model, out := tmp_path / "written.onnx")
    onnx.checker.check_model(str(out), full_check=True)
    given = feeds(path)
    (y,) = run(out, given)
    places = np.arange(layer.places(y))
    wanted = layer.features(given["x"], places) @ weights.transpose(0, 2, 1) + bias.reshape(weights.shape[0], 1, -1)
    assert np.abs(wanted - layer.rows(y, places)).max() < 1e-4
    assert layer.biased or name in {"MatMul", "MatMul of sequences"}


@pytest.mark.parametrize(
    "body",
    [
        "a = MatMul (x, w) y = MatMul (a, w)",  # tied
        "y = Gemm <transA = 1> (x, w)",
        "y = MatMul (w, x)",
        "y = MatMul (x, x)",
        "y = Gemm (x, w, c)",  # another bias for each row
    ],
)
def test_what_is_no_such_layer_is_left_out(body: str, make: Make) -> None:
    path = make(*product(body, given="6,6", w=[6, 6], **({"c": [6, 6]} if "c)" in body else {}))).path
    assert not list(layers(shapes.settled(graph.load(path), None)))


def test_a_shared_bias_stays_with_the_others(make: Make, tmp_path: Path) -> None:
    text = "g (float[3,6] x) => (float[3,6] y, float[3,6] z) { y = Gemm (x, w, b) z = Gemm (x, v, b) }"
    path = make(text, {"w": [6, 6], "v": [6, 6], "b": [6]}).path
    model = shapes.settled(graph.load(path), None)
    first, _ = layers(model)
    write(model, first, weights_of(model, first), np.arange(6.0))
    graph.save(model, tmp_path / "written.onnx")
    given = feeds(path)
    for wanted, found, moved in zip(
        run(path, given), run(tmp_path / "written.onnx", given), (True, False), strict=True
    ):
        assert np.allclose(wanted, found, atol=1e-6) != moved


def test_rows_are_drawn_for_all_feeds_together(make: Make) -> None:
    _, layer = only(make(*LAYERS["no padding"]).path)
    y = np.zeros((1, 5, 400, 700), np.float32)
    few = sampled(layer, y, feeds=10, feed=0)
    assert len(few) == len(set(few.tolist())) == 2000
    assert few.max() < 280_000
    assert (few[1:] > few[:-1]).all()
    assert not np.array_equal(few, sampled(layer, y, feeds=10, feed=1))
    assert np.array_equal(few, sampled(layer, y, feeds=10, feed=0))
    assert len(sampled(layer, y[:, :, :3, :3], feeds=10, feed=0)) == 9


def test_weights_of_other_types_keep_them(make: Make, tmp_path: Path) -> None:
    text = "g (float16[3,6] x) => (float16[3,4] y) { y = Gemm (x, w, b) }"
    arrays: Mapping[str, Array] = {"w": np.ones((6, 4), np.float16), "b": np.ones(4, np.float16)}
    model, layer = only(make(text, arrays).path)
    write(model, layer, weights_of(model, layer) * 2, np.zeros(4))
    graph.save(model, tmp_path / "written.onnx")
    for tensor in onnx.load(tmp_path / "written.onnx").graph.initializer:
        assert tensor.data_type == onnx.TensorProto.FLOAT16
