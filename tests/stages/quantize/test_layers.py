from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from finished import finish as finished
from onnxruntime import quantization as q

from compressor import graph, runtime
from compressor.records import Array, Feeds, Model
from compressor.stages.quantize import layers as module
from compressor.stages.quantize.layers import Layer, effects, layers

CHAIN = """g (float[4,8] x) => (float[4,8] y) {
  [one] h = MatMul(x, A) \n [act] r = Relu(h) \n [two] y = MatMul(r, B) }"""
PAIR_APART = """<ir_version: 8, opset_import: ["": 17]> g (float[4,8] x) => (float[4,8] r) {
  i = QuantizeLinear(x, s, z) \n d = DequantizeLinear(i, s, z) \n w = DequantizeLinear(W, t, k)
  [one] h = MatMul(d, w) \n [act] r0 = Relu(h) \n j = QuantizeLinear(r0, s, k8) \n r = DequantizeLinear(j, s, k8) }"""


def test_a_layer_has_the_error_of_its_own_pairs_and_weights(make: Any, tmp_path: Path) -> None:
    scale, step = 0.03, 0.004
    weight = np.random.default_rng(1).integers(-128, 128, (8, 8)).astype(np.int8)
    exact = weight.astype(np.float32) * np.float32(step)
    model = make(
        "g (float[4,8] x) => (float[4,8] r) { [one] h = MatMul(x, W) \n [act] r = Relu(h) }", {"W": exact + 0.001}
    )
    made = onnx.parser.parse_model(PAIR_APART)
    constants = {"s": np.float32(scale), "z": np.uint8(128), "k8": np.uint8(0), "t": np.float32(step), "k": np.int8(0)}
    for name, value in {**constants, "W": weight}.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    onnx.save(made, tmp_path / "int8.onnx")
    x = drawn((4, 8))
    codes = np.clip(np.rint(x / scale) + 128, 0, 255) - 128
    product = (codes * scale) @ exact
    found = np.clip(np.rint(np.maximum(product, 0) / scale), 0, 255) * scale
    wanted = np.maximum(x @ (exact + 0.001), 0)
    expected = 10 * np.log10(np.square(wanted).sum() / np.square(found - wanted).sum())
    (one,) = finished(
        layers(model.path, tmp_path / "int8.onnx", [{"x": x}], real=False)
    )  # Relu reads nothing quantized
    assert one == Layer("one", pytest.approx(expected, abs=0.05), None)


def test_the_range_of_a_folded_relu_is_compared_with_its_output(make: Any, tmp_path: Path) -> None:
    model = make(CHAIN, {"A": (8, 8), "B": (8, 8)})
    path = int8(model, feeds(), tmp_path)
    assert "Relu" not in {node.op_type for node in onnx.load(path).graph.node}
    found = finished(layers(model.path, path, feeds(), real=False))
    assert [layer.name for layer in found] == ["one", "two"]
    assert all(30 < layer.exact_db < 60 for layer in found)  # against the values before the Relu it would be some 3 dB


def test_a_layer_is_not_blamed_for_the_one_before_it(make: Any, tmp_path: Path) -> None:
    model = make(CHAIN, {"A": ruined(), "B": (8, 8)})
    one, two = finished(layers(model.path, int8(model, feeds(), tmp_path), feeds(), real=False))
    assert one.exact_db < 15
    assert two.exact_db > 30


def test_layers_come_in_order_whatever_is_looked_at_together(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = " ".join(f"[n{i}] h{i + 1} = MatMul(h{i}, A)" for i in range(5))
    model = make(f"g (float[4,8] h0) => (float[4,8] h5) {{ {body} }}", {"A": (8, 8)})
    given = [{"h0": each["x"]} for each in feeds()]
    path = int8(model, given, tmp_path)
    together = finished(layers(model.path, path, given, real=False))
    monkeypatch.setattr(module, "_AT_ONCE", 2)
    work = layers(model.path, path, given, real=False)
    steps = [next(work) for _ in range(3)]
    assert [(step.done, step.total) for step in steps] == [(0, 5), (2, 5), (4, 5)]
    assert finished(layers(model.path, path, given, real=False)) == together
    assert [layer.name for layer in together] == [f"n{i}" for i in range(5)]


def test_only_the_activations_around_a_few_layers_are_held(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = " ".join(f"[n{i}] h{i + 1} = MatMul(h{i}, A)" for i in range(6))
    model = make(f"g (float[4,8] h0) => (float[4,8] h6) {{ {body} }}", {"A": (8, 8)})
    given = [{"h0": each["x"]} for each in feeds()]
    path, tapped, held = int8(model, given, tmp_path), module._tapped, []

    def watched(original: Any, names: Iterable[str], folder: Path) -> Any:
        held.append(set(names))
        return tapped(original, names, folder)

    monkeypatch.setattr(module, "_tapped", watched)
    monkeypatch.setattr(module, "_AT_ONCE", 2)
    finished(layers(model.path, path, given, real=False))
    assert held == [{"h0", "h1", "h2"}, {"h2", "h3", "h4"}, {"h4", "h5", "h6"}]


def test_the_effect_of_a_layer_is_that_of_its_int8_alone_on_the_outputs(make: Any, tmp_path: Path) -> None:
    """The first half of what `one` gives is great, so that it is good by itself, but `two` reads the other half."""
    gentle = drawn((8, 8))
    gentle[:4] = 0
    weights = drawn((8, 8), 5)
    weights[:, :4] *= 100
    model = make(CHAIN, {"A": weights, "B": gentle})
    path, given = int8(model, feeds(), tmp_path), feeds()
    found = finished(effects(model.path, path, given))
    own = {layer.name: layer.exact_db for layer in finished(layers(model.path, path, given, real=False))}
    assert found.keys() == own.keys() == {"one", "two"}
    assert found["two"] == pytest.approx(own["two"], abs=0.01)  # it makes the output
    made = onnx.load(path)
    steps = {t.name: onnx.numpy_helper.to_array(t) for t in made.graph.initializer}
    wanted, noise = 0.0, 0.0
    for each in given:
        x = fake(each["x"], steps["x_scale"], steps["x_zero_point"])
        weight = steps["A_quantized"].astype(np.float32) * steps["A_scale"]
        r = fake(np.maximum(x @ weight, 0), steps["r_scale"], steps["r_zero_point"])
        y = np.maximum(each["x"] @ weights, 0) @ gentle
        wanted, noise = wanted + np.square(y).sum(), noise + np.square(r @ gentle - y).sum()
    assert found["one"] == pytest.approx(10 * np.log10(wanted / noise), abs=0.05)
    assert own["one"] > found["one"] + 10


SIZED = """g (float[4,8] x) => (float[n] y) {
  [one] h = MatMul(x, A) \n [act] r = Relu(h) \n [two] m = MatMul(r, B) \n [above] c = Greater(m, zero)
  [flat] f = Reshape(c, all) \n [those] y = Compress(m, f) }"""


def test_a_layer_that_changes_how_many_values_come_out_is_the_worst_there_is(make: Any, tmp_path: Path) -> None:
    model = make(SIZED, {"A": ruined(), "B": (8, 8), "zero": np.float32([0.0]), "all": np.array([-1])})
    found = finished(effects(model.path, int8(model, feeds(), tmp_path), feeds()))
    assert found["one"] == -200


def test_no_session_stays_open(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(CHAIN, {"A": (8, 8), "B": (8, 8)})
    path, states = int8(model, feeds(), tmp_path), []
    load = runtime.load

    def watched(*given: Any) -> Any:
        session, state = load(*given), ["open"]
        close = session.close
        monkeypatch.setattr(session, "close", lambda: (state.append("closed"), close()))
        states.append(state)
        return session

    monkeypatch.setattr(runtime, "load", watched)
    finished(layers(model.path, path, feeds(), real=True))
    finished(effects(model.path, path, feeds()))
    assert states == [["open", "closed"]] * (1 + 2 * 2 + 1 + 2)


def test_nodes_without_weights_are_layers_too(make: Any, tmp_path: Path) -> None:
    text = "g (float[4,8] x) => (float[4,8] y) { [m] h = MatMul(x, A) \n [s] p = Softmax(h) \n [a] y = Add(p, x) }"
    model = make(text, {"A": (8, 8)})
    found = finished(layers(model.path, int8(model, feeds(), tmp_path), feeds(), real=False))
    assert [layer.name for layer in found] == ["m", "s", "a"]


def test_the_kernels_of_this_machine_are_looked_at_only_when_asked(make: Any, tmp_path: Path) -> None:
    """Where they are exact they agree; where they saturate, the layer that was made for it shows."""
    model = make(CHAIN, {"A": np.full((8, 8), 0.5, np.float32), "B": (8, 8)})
    given = [{"x": np.abs(each["x"]) + 2} for each in feeds()]
    path = int8(model, given, tmp_path)
    assert all(layer.real_db is None for layer in finished(layers(model.path, path, given, real=False)))
    one, two = finished(layers(model.path, path, given, real=True))
    if runtime.saturates():
        assert one.real_db < one.exact_db - 3
    else:
        assert (one.real_db, two.real_db) == pytest.approx((one.exact_db, two.exact_db), abs=0.5)


def test_what_a_quantizer_gave_new_names_is_left_out(make: Any, tmp_path: Path) -> None:
    model = make(CHAIN, {"A": (8, 8), "B": (8, 8)})
    path = int8(model, feeds(), tmp_path)
    made = onnx.load(path)
    for node in made.graph.node:
        for names in (node.input, node.output):
            names[:] = ["renamed" if name == "r" else name for name in names]
    onnx.save(made, path)
    assert finished(layers(model.path, path, feeds(), real=False)) == ()


def test_the_file_of_a_dynamic_scheme_has_no_layers(make: Any, tmp_path: Path) -> None:
    model = make(CHAIN, {"A": (8, 8), "B": (8, 8)})
    q.quantize_dynamic(model.path, tmp_path / "dynamic.onnx")
    assert finished(layers(model.path, tmp_path / "dynamic.onnx", feeds(), real=True)) == ()


@pytest.mark.shared
def test_every_layer_of_a_real_network_is_found(shared: Path, tmp_path: Path) -> None:
    path = shared / "models" / "mlperf_tiny_resnet8_cifar10.onnx"
    model = graph.open_model(path)
    (first,) = model.inputs
    given = [{first.name: drawn((1, *first.shape[1:]), seed)} for seed in range(2)]
    found = finished(layers(path, int8(model, given, tmp_path), given, real=True))
    weighted = {node.name for node in onnx.load(path).graph.node if node.op_type in {"Conv", "Gemm", "MatMul"}}
    assert {layer.name for layer in found} >= weighted


def int8(model: Model, given: Iterable[Feeds], folder: Path) -> Path:
    """Quantize with ONNX Runtime: unsigned activations, signed weights per channel."""
    q.quantize_static(
        model.path,
        folder / "int8.onnx",
        SimpleNamespace(get_next=iter([*given, None]).__next__),
        per_channel=True,
        activation_type=q.QuantType.QUInt8,
    )
    return folder / "int8.onnx"


def fake(x: Array, scale: Array, zero: Array) -> Array:
    codes = np.clip(np.rint(x / scale) + zero.astype(np.float32), 0, 255)
    return (codes - zero.astype(np.float32)) * scale


def ruined() -> Array:
    """Give weights in each of whose columns one, of an input that is nearly always 0, leaves no step for the others."""
    weight = drawn((8, 8))
    weight[0] = 1000
    return weight


def feeds() -> list[Feeds]:
    """Give inputs whose first feature is 0."""
    return [{"x": drawn((4, 8), seed) * np.float32([0, 1, 1, 1, 1, 1, 1, 1])} for seed in range(3)]


def drawn(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)
