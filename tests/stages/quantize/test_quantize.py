from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from exact import EXACT
from pydantic import ValidationError

from compressor import graph, isolation
from compressor.errors import InputError, RungError
from compressor.records import Model
from compressor.samples import read
from compressor.stages import Quantize, Supply

STATIC, DYNAMIC = Quantize(scheme="static"), Quantize(scheme="dynamic")
NNCF, WEIGHTS = Quantize(scheme="static", backend="nncf"), Quantize(scheme="weights")
NETWORK = """
g (float[batch,3,8,8] image, float[1,2] unread) => (float[batch,10] logits) {
  [stem] a = Conv<pads=[1,1,1,1]>(image, W1, B1)
  ra = Relu(a)
  [depthwise] b = Conv<pads=[1,1,1,1], group=8>(ra, W2)
  rb = Relu(b)
  [pointwise] c = Conv(rb, W3, B3)
  d = Add(c, ra)
  rd = Relu(d)
  p = GlobalAveragePool(rd)
  f = Flatten(p)
  [head] logits = Gemm(f, W4, B4)
}"""
NETWORK_WEIGHTS = {
    "W1": (8, 3, 3, 3),
    "B1": (8,),
    "W2": (8, 1, 3, 3),
    "W3": (8, 8, 1, 1),
    "B3": (8,),
    "W4": (8, 10),
    "B4": (10,),
}
ATTENTION = """
g (float[1,6,16] x, float[1,1,6] mask) => (float[1,6,4] y) {
  [q] q = MatMul(x, Wq)
  [k] k = MatMul(x, Wk)
  [v] v = MatMul(x, Wv)
  kt = Transpose<perm=[0,2,1]>(k)
  s = MatMul(q, kt)
  one = Constant<value_float=1.0>()
  least = Constant<value_float=-3.4e38>()
  hidden = Sub(one, mask)
  [huge] m = Mul(hidden, least)
  [masked] sm = Add(s, m)
  [soft] p = Softmax<axis=-1>(sm)
  a = MatMul(p, v)
  af = Reshape(a, rows)
  [head] h = Gemm(af, W, B)
  y = Reshape(h, back)
}"""
ATTENTION_WEIGHTS = {
    **dict.fromkeys(("Wq", "Wk", "Wv"), (16, 16)),
    "W": (16, 4),
    "B": (4,),
    "rows": np.array([6, 16]),
    "back": np.array([1, 6, 4]),
}


@pytest.fixture
def network(make: Callable[..., Model]) -> Model:
    return make(NETWORK, NETWORK_WEIGHTS)


@pytest.fixture
def attention(make: Callable[..., Model]) -> Model:
    return make(ATTENTION, ATTENTION_WEIGHTS)


@pytest.fixture
def half_masked(attention: Model, tmp_path: Path) -> Any:
    x = np.random.default_rng(0).normal(size=(16, 6, 16)).astype(np.float32)
    mask = np.tile(np.float32([[1, 1, 1, 0, 0, 0]]), (16, 1, 1))
    np.savez(tmp_path / "data.npz", x=x, mask=mask)
    return read(tmp_path / "data.npz", attention.inputs, {"x": (1, 6, 16), "mask": (1, 1, 6)})


@pytest.mark.parametrize("stage", [STATIC, DYNAMIC, NNCF, WEIGHTS], ids=["static", "dynamic", "nncf", "weights"])
def test_every_scheme_stays_close_to_the_float_model(stage: Quantize, network: Model, apply: Any, db: Any) -> None:
    made = apply(stage, network)
    assert made.did.changed
    assert db(network, made.path) > 20


def test_static_leaves_nothing_between_the_ends_for_float_kernels(network: Model, apply: Any, fused: Any) -> None:
    kinds = fused(apply(STATIC, network).path)
    assert kinds.count("QLinearConv") == 3
    assert {"QLinearAdd", "QLinearGlobalAveragePool", "QGemm"} <= set(kinds)
    assert not {"Conv", "Add", "Gemm"} & set(kinds)


def test_weights_are_signed_per_channel_and_activations_unsigned_per_tensor(network: Model, apply: Any) -> None:
    made = onnx.load(apply(STATIC, network).path)
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in made.graph.initializer}
    for node in made.graph.node:
        if node.op_type == "QuantizeLinear":
            assert tensors[node.input[2]].dtype == np.uint8
            assert tensors[node.input[2]].ndim == 0
    weights = [t for t in tensors.values() if t.dtype == np.int8 and t.ndim > 1]
    assert sorted(w.shape for w in weights) == sorted(s for s in NETWORK_WEIGHTS.values() if len(s) > 1)


@pytest.mark.parametrize("scheme", ["static", "dynamic"])
def test_reduce_range_keeps_weights_within_seven_bits(scheme: Any, network: Model, apply: Any) -> None:
    largest = {}
    for reduced in (False, True):
        made = onnx.load(apply(Quantize(scheme=scheme, reduce_range=reduced), network).path)
        weights = [
            onnx.numpy_helper.to_array(t) for t in made.graph.initializer if t.data_type == onnx.TensorProto.INT8
        ]
        largest[reduced] = max(int(np.abs(w.astype(int)).max()) for w in weights)
    assert largest == {False: 127, True: 64}


@pytest.mark.parametrize("scheme", ["dynamic", "weights"])
def test_nncf_is_static_alone(scheme: Any) -> None:
    with pytest.raises(ValidationError, match="nncf is static"):
        Quantize(backend="nncf", scheme=scheme)


def test_float_leaves_the_model_as_it_is_and_says_so(network: Model, apply: Any) -> None:
    made = apply(Quantize(scheme="float"), network)
    assert (made.did.changed, made.did.what) == (False, "left as it is: the recipe says so")
    assert onnx.load(made.path).graph.node == onnx.load(network.path).graph.node


def test_dynamic_quantizes_the_products_with_weights(attention: Model, apply: Any, db: Any, half_masked: Any) -> None:
    made = apply(DYNAMIC, attention, half_masked)
    assert made.kinds.count("MatMulInteger") == 4
    assert db(attention, made.path, half_masked) > 25


@pytest.mark.parametrize("stage", [STATIC, NNCF], ids=["static", "nncf"])
def test_a_mask_of_the_least_float_does_not_flatten_the_scores(
    stage: Quantize, attention: Model, apply: Any, db: Any, half_masked: Any
) -> None:
    made = apply(stage, attention, half_masked)
    assert {"huge", "masked", "soft"} <= set(made.did.excluded)
    assert "3.4e+38" in made.did.excluded["soft"]
    assert db(attention, made.path, half_masked) > 20


def test_an_excluded_node_keeps_its_float_weight(network: Model, apply: Any) -> None:
    made = apply(Quantize(scheme="static", exclude=("head",)), network)
    floats = [t.name for t in onnx.load(made.path).graph.initializer if list(t.dims) == [8, 10]]
    assert floats == ["W4"]
    assert made.did.excluded == {"head": "the recipe says so"}
    assert "1 node left float" in made.did.what


def test_an_excluded_gemm_stays_float_in_the_dynamic_scheme(attention: Model, apply: Any) -> None:
    made = apply(Quantize(scheme="dynamic", exclude=("head",)), attention)
    assert made.kinds.count("MatMulInteger") == 3


def test_an_unknown_name_to_exclude_is_refused_before_anything_is_applied(network: Model) -> None:
    with pytest.raises(InputError, match=r"^quantize\.exclude: no node is named 'haed'; the closest are 'head', '"):
        Quantize(exclude=("head", "haed")).check(network.path)


@pytest.mark.parametrize("stage", [STATIC, NNCF], ids=["static", "nncf"])
def test_a_quantized_model_is_left_alone(stage: Quantize, network: Model, apply: Any) -> None:
    once = apply(STATIC, network, name="once.onnx")
    twice = apply(stage, graph.open_model(once.path), name="twice.onnx")
    assert (twice.did.changed, twice.did.what) == (False, "left as it is: it is quantized already")
    assert onnx.load(twice.path).graph.node == onnx.load(once.path).graph.node


def test_a_model_without_weights_is_left_as_it_is(make: Any, apply: Any) -> None:
    model = make("g (float[1,4] x) => (float[1,4] y) { y = Relu(x) }", {})
    did = apply(STATIC, model).did
    assert (did.changed, did.what.partition(",")[0]) == (False, "left as it is: nothing to quantize")
    assert "found: Relu" in did.what


def test_convolutions_alone_are_none_for_the_dynamic_scheme(make: Any, apply: Any) -> None:
    model = make("g (float[1,3,8,8] x) => (float[1,4,6,6] y) { y = Conv(x, W) }", {"W": (4, 3, 3, 3)})
    with pytest.raises(RungError, match="onnxruntime quantized no weight of the model: dynamic takes none of its kind"):
        apply(DYNAMIC, model)


@pytest.mark.parametrize("stage", [STATIC, DYNAMIC, NNCF], ids=["static", "dynamic", "nncf"])
def test_the_input_file_stays_and_what_describes_the_model_survives(
    stage: Quantize, network: Model, apply: Any
) -> None:
    before = network.path.read_bytes()
    made = apply(stage, network)
    assert network.path.read_bytes() == before
    old, new = onnx.load(network.path), onnx.load(made.path)
    assert (new.graph.input, new.graph.output) == (old.graph.input, old.graph.output)
    assert (new.model_version, new.domain, new.doc_string) == (42, "org.example", "what it is for")
    own = {} if stage is DYNAMIC else {"compressor.calibration": "synthetic"}
    assert metadata(made.path) == {"classes": "cat,dog", "stride": "32", **own}
    onnx.checker.check_model(new, full_check=True)


@pytest.mark.parametrize("stage", [STATIC, NNCF, DYNAMIC], ids=["static", "nncf", "dynamic"])
def test_ranges_from_made_up_inputs_are_called_uncalibrated(stage: Quantize, attention: Model, apply: Any) -> None:
    made = apply(stage, attention)
    assert made.did.uncalibrated is (stage is not DYNAMIC)
    assert ("; uncalibrated: its ranges come from made-up inputs" in made.did.what) is made.did.uncalibrated
    assert ("compressor.calibration" in metadata(made.path)) is made.did.uncalibrated


@pytest.mark.parametrize("stage", [STATIC, NNCF], ids=["static", "nncf"])
def test_ranges_from_real_inputs_are_calibrated(
    stage: Quantize, attention: Model, apply: Any, half_masked: Any
) -> None:
    made = apply(stage, attention, half_masked)
    assert not made.did.uncalibrated
    assert "uncalibrated" not in made.did.what
    assert "compressor.calibration" not in metadata(made.path)


HASHES = """
import sys, logging
from pathlib import Path
from dataclasses import replace
from compressor import graph, schemes
from compressor.samples import synthetic
from compressor.stages import Fuse, Quantize, Supply
logging.disable()
path, out = map(Path, sys.argv[1:3])
model = graph.open_model(path)
samples = synthetic(model.inputs, {"image": (1, 3, 8, 8), "unread": (1, 2)}, 8, 0, {})
supply = Supply(samples, samples, out.parent / f"{out.name}-kept")
for name, settings in (("static", {}), ("dynamic", {"scheme": "dynamic"}), ("nncf", {"backend": "nncf"})):
    stage = Quantize(**{"scheme": "static", **settings}).resolve(path, replace(schemes.SCHEMES[0], here=True))
    list(stage.apply(model, supply, out / f"{name}.onnx"))
    list(Fuse().apply(graph.open_model(out / f"{name}.onnx"), supply, out / f"{name}-fused.onnx"))
"""


def test_two_processes_write_the_same_bytes_whatever_their_hash_seed(network: Model, tmp_path: Path) -> None:
    found = []
    for seed in ("1", "2"):
        out = tmp_path / seed
        out.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", HASHES, str(network.path), str(out)]
        subprocess.run(command, check=True, env=environment, capture_output=True)
        found.append({file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in out.iterdir()})
    assert len(found[0]) == 6
    assert found[0] == found[1]


def test_memory_does_not_grow_with_the_number_of_samples(make: Any, tmp_path: Path) -> None:
    model = make(
        "g (float[1,3,32,32] x) => (float[1,16,30,30] y) { a = Conv(x, W) \n y = Relu(a) }", {"W": (16, 3, 3, 3)}
    )
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(size=(1000, 3, 32, 32)).astype(np.float32))
    samples = read(tmp_path / "data.npz", model.inputs, {"x": (1, 3, 32, 32)})
    stage = STATIC.resolve(model.path, EXACT)
    peaks = []
    for n in (100, 1000):
        supply = Supply(samples.take(n, 0), samples.take(16, 1), tmp_path / "kept")
        work = isolation.call(stage.apply, model, supply, tmp_path / "out.onnx", limits=isolation.Limits())
        peaks.append(returned(work).peak_memory_bytes)
    assert peaks[1] < 1.1 * peaks[0]


def returned(work: Any) -> Any:
    while True:
        try:
            next(work)
        except StopIteration as stop:
            return stop.value


def metadata(path: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}
