from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from finished import finish as finished
from onnx import numpy_helper
from onnxruntime import quantization as q

from compressor import runtime
from compressor.records import Array, Feeds, Model, Outputs
from compressor.stages.quantize import layers as one_by_one
from compressor.stages.quantize.layers import Layer, layers
from compressor.stages.quantize.unsigned import saturating, unsaturated, unsigned

TWO = "g (float[4,8] x) => (float[4,8] y) { [loud] h = MatMul(x, A) \n [mild] y = MatMul(h, B) }"
SHARED = "g (float[4,8] x) => (float[4,8] y) { [one] h = MatMul(x, A) \n [two] y = MatMul(h, A) }"
CONVS = """g (float[1,8,6,6] x) => (float[1,4] y) {
  [conv] h = Conv(x, A) \n [act] r = Relu(h) \n [pool] p = GlobalAveragePool(r) \n [flat] f = Flatten(p)
  [fc] y = Gemm(f, B, C) }"""


class Pairs:
    """A MatMul of unsigned by signed bytes as vpmaddubsw has it: two products each are added in 16 bits, saturating."""

    def __init__(self, path: Path) -> None:
        model = onnx.load(path)
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        makers = {node.output[0]: node for node in model.graph.node}
        (product,) = (node for node in model.graph.node if node.op_type == "MatMul")
        left, right = (makers[name] for name in product.input)
        (self.x_scale, self.x_zero), (self.w_scale, self.w_zero) = (
            (constants[node.input[1]], constants[node.input[2]]) for node in (left, right)
        )
        self.weight = constants[right.input[0]]
        self.output = model.graph.output[0].name
        after = makers[self.output]
        self.y_scale, self.y_zero = constants[after.input[1]], constants[after.input[2]]

    def __call__(self, feeds: Feeds) -> Outputs:
        (x,) = feeds.values()
        codes = np.clip(np.rint(x / self.x_scale) + self.x_zero, 0, 255).astype(np.int64)
        weight = self.weight.astype(np.int64)
        products = codes[:, :, None] * weight
        pairs = products[:, 0::2] + products[:, 1::2]
        if self.weight.dtype == np.int8:
            pairs = np.clip(pairs, -(2**15), 2**15 - 1)
        zeros = self.x_zero.astype(np.int64) * weight.sum(0) + codes.sum(1)[:, None] * self.w_zero.astype(np.int64)
        total = pairs.sum(1) - zeros + len(weight) * self.x_zero.astype(np.int64) * self.w_zero.astype(np.int64)
        y = np.clip(np.rint(total * (self.x_scale * self.w_scale) / self.y_scale) + self.y_zero, 0, 255)
        return {self.output: ((y - self.y_zero) * self.y_scale).astype(np.float32)}

    def close(self) -> None:
        pass


@pytest.fixture
def old_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run single layers on a CPU whose kernels saturate."""
    opened = one_by_one._opened
    monkeypatch.setattr(
        one_by_one, "_opened", lambda path, *, exact: opened(path, exact=True) if exact else Pairs(path)
    )


@pytest.mark.usefixtures("old_cpu")
def test_only_the_layer_that_saturates_is_switched(make: Any, tmp_path: Path) -> None:
    model, given = make(TWO, loud_and_mild()), feeds()
    path, out = int8(model, given, tmp_path), tmp_path / "out.onnx"
    loud, mild = finished(layers(model.path, path, given, real=True))
    assert loud.real_db < loud.exact_db - 10
    assert mild.real_db == pytest.approx(mild.exact_db, abs=0.1)
    names = finished(unsaturated(model.path, path, given))
    assert names == ("loud",)
    onnx.save(unsigned(onnx.load(path), names), out)
    assert [kind(out, name) for name in ("loud", "mild")] == [np.uint8, np.int8]
    for layer in finished(layers(model.path, out, given, real=True)):
        assert layer.real_db == pytest.approx(layer.exact_db, abs=0.1)


def test_where_kernels_are_exact_nothing_is_switched_and_where_they_are_not_the_outputs_get_right(
    make: Any, tmp_path: Path
) -> None:
    model, given = make(TWO, loud_and_mild()), feeds()
    path, out = int8(model, given, tmp_path), tmp_path / "out.onnx"
    before = path.read_bytes()
    names = finished(unsaturated(model.path, path, given))
    assert names == (("loud",) if runtime.saturates() else ())
    assert path.read_bytes() == before
    onnx.save(unsigned(onnx.load(path), names), out)
    (real,) = finished(runtime.compare(model.path, out, given)).values()
    (exact,) = finished(runtime.compare(model.path, path, given, exact=True)).values()
    assert real == pytest.approx(exact, abs=1)


def test_saturating_are_those_clearly_below_exact_arithmetic() -> None:
    found = (Layer("same", 30, 30), Layer("rounded", 30, 29.95), Layer("wrong", 30, 29.5))
    assert saturating((*found, Layer("better", 30, 31), Layer("unasked", 30))) == ("wrong",)


def test_unsigned_weights_give_the_same_numbers(make: Any, tmp_path: Path) -> None:
    model = make(CONVS, {"A": (8, 8, 3, 3), "B": (8, 4), "C": (4,)})
    given = [{"x": drawn((1, 8, 6, 6), seed)} for seed in range(3)]
    path, out = int8(model, given, tmp_path), tmp_path / "out.onnx"
    onnx.save(unsigned(onnx.load(path), {"conv", "fc"}), out)
    assert [kind(out, name) for name in ("conv", "fc")] == [np.uint8, np.uint8]
    assert_same_numbers(path, out, given)
    settings = runtime.options(1, spinning=False)
    assert runtime.audit(out, settings, {}).integer_nodes == runtime.audit(path, settings, {}).integer_nodes > 0


def test_weights_that_are_shared_stay_shared(make: Any, tmp_path: Path) -> None:
    model, given = make(SHARED, {"A": (8, 8)}), feeds()
    path, out = int8(model, given, tmp_path), tmp_path / "out.onnx"
    before = onnx.load(path)
    bytes_before = before.SerializeToString()
    onnx.save(unsigned(before, {"one"}), out)
    assert before.SerializeToString() == bytes_before
    assert [kind(out, name) for name in ("one", "two")] == [np.uint8, np.uint8]
    matrices = [tensor for tensor in onnx.load(out).graph.initializer if len(tensor.dims) > 1]
    assert len(matrices) == 1
    assert_same_numbers(path, out, given)


def test_weights_without_a_zero_point_get_one(make: Any, tmp_path: Path) -> None:
    model, given = make(TWO, loud_and_mild()), feeds()
    path, out = int8(model, given, tmp_path), tmp_path / "out.onnx"
    compact = onnx.load(path)
    for node in compact.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] == "A_quantized":
            del node.input[2]
    onnx.save(unsigned(compact, {"loud"}), out)
    assert kind(out, "loud") == np.uint8
    assert_same_numbers(path, out, given)


def test_no_node_no_change(make: Any, tmp_path: Path) -> None:
    model = make(TWO, loud_and_mild())
    made = onnx.load(int8(model, feeds(), tmp_path))
    assert unsigned(made, ()).graph.initializer == made.graph.initializer
    assert unsigned(made, ()).graph.node == made.graph.node


def assert_same_numbers(one: Path, two: Path, given: Iterable[Feeds]) -> None:
    """With exact arithmetic; with this machine's kernels too, where they are exact."""
    settings = runtime.options(1, spinning=False)
    for each in [runtime.emulated(settings), *([] if runtime.saturates() else [settings])]:
        sessions = [runtime.load(path, each) for path in (one, two)]
        for feed in given:
            np.testing.assert_array_equal(*(session(feed)["y"] for session in sessions))


def loud_and_mild() -> dict[str, Array]:
    """Give weights of which two in a row have one sign, and overflow with great activations, and others of two."""
    signs = np.where(np.arange(8) % 2, -1, 1).astype(np.float32)[:, None]
    return {"A": np.full((8, 8), 0.5, np.float32), "B": signs * np.abs(drawn((8, 8)))}


def feeds() -> list[Feeds]:
    return [{"x": np.abs(drawn((4, 8), seed)) + 1} for seed in range(3)]


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


def kind(path: Path, name: str) -> Any:
    """Give the type of the codes of a node's weights."""
    model = onnx.load(path)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    (node,) = (node for node in model.graph.node if node.name == name)
    (pair,) = (each for each in model.graph.node if each.output[0] == node.input[1])
    return numpy_helper.to_array(constants[pair.input[0]]).dtype


def drawn(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)
