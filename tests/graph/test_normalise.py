from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml

from compressor import graph
from compressor.errors import InputError

Make = Callable[..., Path]
Run = Callable[..., list[np.ndarray]]
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "normal.onnx"


def test_the_input_stays_and_the_same_input_gives_the_same_bytes_in_any_process(make: Make, out: Path) -> None:
    text = """<ir_version: 4, opset_import: ["": 9]> g (float[1,3] x) => (float[1,1] y) {
        y = Slice <axes = [1], starts = [0], ends = [1]> (x) }"""
    path = make(text)
    before = path.read_bytes()
    graph.normalise(path, out)
    code = "import sys, pathlib; from compressor import graph; graph.normalise(*map(pathlib.Path, sys.argv[1:]))"
    other = out.with_name("other.onnx")
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(graph.__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code, path, other], check=True, env=environment)
    assert path.read_bytes() == before
    assert other.read_bytes() == out.read_bytes()


def test_a_model_in_normal_form_stays_the_same(make: Make, out: Path) -> None:
    path = make("g (float[2,4] x) => (float[2,4] y) { y = MatMul(x, W) }", {"W": (4, 4)})
    graph.normalise(path, out)
    again = out.with_name("again.onnx")
    did = graph.normalise(out, again)
    assert (did.what, did.changed) == ("Nothing to do.", False)
    assert again.read_bytes() == out.read_bytes()


def test_local_functions_are_inlined(make: Make, out: Path, run: Run) -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "own": 1]>
    g (float[2,4] x) => (float[2,4] y) { h = own.twice(x) y = own.twice(h) }
    <domain: "own", opset_import: ["": 17]> twice (a) => (b) { b = Add(a, a) }"""
    path = make(text)
    did = graph.normalise(path, out)
    proto = onnx.load(out)
    assert not proto.functions
    assert [node.op_type for node in proto.graph.node] == ["Add", "Add"]
    assert did.what.startswith("Inlined 1 local function")
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(run(out, {"x": x})[0], 4 * x)


def test_weights_leave_the_inputs(make: Make, out: Path) -> None:
    text = """<ir_version: 3, opset_import: ["": 17]>
    g (float[2,4] x, float[4,4] W) => (float[2,4] y) { y = MatMul(x, W) }"""
    did = graph.normalise(make(text, {"W": (4, 4)}), out)
    assert [value.name for value in onnx.load(out).graph.input] == ["x"]
    assert did.what == "Took 1 weight out of the inputs; named 1 node."
    onnx.checker.check_model(str(out), full_check=True)


def test_constants_become_initializers_under_their_names(make: Make, out: Path, run: Run) -> None:
    text = """g (float[2] x) => (float[2] y, float[1] z) {
        a = Constant <value = float[2] {1.0, 2.0}> ()
        b = Constant <value_float = 3.0> ()
        z = Constant <value_floats = [4.0]> ()
        h = Mul(x, a) y = Add(h, b) }"""
    did = graph.normalise(make(text), out)
    proto = onnx.load(out)
    assert {tensor.name for tensor in proto.graph.initializer} == {"a", "b"}
    assert did.what.startswith("Made initializers of 2 Constant nodes")
    y, z = run(out, {"x": np.array([1, 1], np.float32)})
    assert (y.tolist(), z.tolist()) == ([4.0, 5.0], [4.0])


def test_constants_of_text_stay_nodes(make: Make, out: Path, run: Run) -> None:
    text = """g (float[2] x) => (float[2] y, string s) {
        a = Constant <value_float = 3.0> () t = Constant <value_string = "ä"> () s = Identity(t)
        c = Constant <value = float[2] {1.0, 2.0}> () h = Mul(x, a) y = Mul(h, c) }"""
    path = make(text)
    assert graph.open_model(path).parameters == 3
    graph.normalise(path, out)
    y, s = run(out, {"x": np.array([1, 1], np.float32)})
    assert (y.tolist(), str(s)) == ([3.0, 6.0], "ä")


def test_old_opsets_are_raised_by_the_converter(make: Make, out: Path, run: Run) -> None:
    text = """<ir_version: 4, opset_import: ["": 9]> g (float[1,3] x) => (float[1,2] y) {
        r = Relu(x) y = Slice <axes = [1], starts = [0], ends = [2]> (r) }"""
    did = graph.normalise(make(text), out)
    proto = onnx.load(out)
    assert [(entry.domain, entry.version) for entry in proto.opset_import] == [("", 17)]
    assert "aised opset 9 to 17" in did.what
    assert run(out, {"x": np.array([[1, -2, 3]], np.float32)})[0].tolist() == [[1.0, 0.0]]


def test_an_opset_below_13_that_cannot_be_raised_is_refused_with_the_operator(make: Make, out: Path) -> None:
    old = """<ir_version: 3, opset_import: ["": 5]> g (float[2,3] x, float n, float axis) => (float[A,B] y) {
        y = Tile(x, n, axis) }"""
    with pytest.raises(InputError, match=r"opset 5 cannot be raised to 17: No Adapter .* for Tile;"):
        graph.normalise(make(old), out)
    assert not out.exists()


def test_an_opset_from_13_that_cannot_be_raised_is_kept_and_said(
    make: Make, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("no adapter for Relu")

    monkeypatch.setattr(onnx.version_converter, "convert_version", refuse)
    text = '<ir_version: 7, opset_import: ["": 14]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    assert "ept opset 14, as it cannot be raised to 17: no adapter for Relu" in graph.normalise(make(text), out).what
    assert onnx.load(out).opset_import[0].version == 14


def test_nodes_get_unique_names_and_keep_those_they_have(make: Make, out: Path) -> None:
    path = make("g (float[2] x) => (float[2] d) { a = Relu(x) b = Neg(a) c = Abs(b) d = Neg(c) }")
    proto = onnx.load(path)
    for node, name in zip(proto.graph.node, ["mine", "", "mine", "Neg_b"], strict=True):
        node.name = name
    onnx.save(proto, path)
    did = graph.normalise(path, out)
    after = onnx.load(out).graph.node
    assert [node.name for node in after] == ["mine", "Neg_b_1", "mine_1", "Neg_b"]
    assert [list(node.output) for node in after] == [["a"], ["b"], ["c"], ["d"]]
    assert did.what == "Named 2 nodes."


def test_nodes_are_sorted_and_a_cycle_is_refused(make: Make, out: Path) -> None:
    path = make("g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }")
    proto = onnx.load(path)
    proto.graph.node.reverse()
    onnx.save(proto, path)
    assert "orted the nodes" in graph.normalise(path, out).what
    assert [node.op_type for node in onnx.load(out).graph.node] == ["Relu", "Neg"]
    proto.graph.node[1].input[0] = "y"
    onnx.save(proto, path)
    with pytest.raises(InputError, match="cycle"):
        graph.normalise(path, out)


def test_unread_tensors_are_dropped_and_unread_inputs_stay(make: Make, out: Path) -> None:
    path = make("g (float[2] x, float[3] unread) => (float[2] y) { y = Relu(x) }", {"dead": (256, 100)})
    did = graph.normalise(path, out)
    proto = onnx.load(out).graph
    assert [value.name for value in proto.input] == ["x", "unread"]
    assert not proto.initializer
    assert "ropped 1 unused tensor (102 kB)" in did.what


def test_a_missing_output_shape_is_filled_and_declared_ones_stay(make: Make, out: Path) -> None:
    path = make("g (float[batch,4] x) => (float[batch,classes] y, float[batch,4] z) { y = Relu(x) z = Neg(x) }")
    proto = onnx.load(path)
    proto.graph.output[1].type.tensor_type.ClearField("shape")
    onnx.save(proto, path)
    did = graph.normalise(path, out)
    assert [tensor.shape for tensor in graph.open_model(out).outputs] == [("batch", "classes"), ("batch", 4)]
    assert "nferred the shape of 1 output" in did.what


def test_no_stale_shape_survives(make: Make, out: Path) -> None:
    path = make("g (float[batch,4] x) => (float[batch,4] y) { h = Relu(x) y = Neg(h) }")
    proto = onnx.load(path)
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, [9, 9]))
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("gone", onnx.TensorProto.FLOAT, [9]))
    onnx.save(proto, path)
    graph.normalise(path, out)
    (info,) = onnx.load(out).graph.value_info
    assert info.name == "h"
    assert [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim] == ["batch", 4]


def test_description_and_names_survive_the_converter(make: Make, out: Path) -> None:
    path = make('<ir_version: 4, opset_import: ["": 9]> g (float[batch,4] x) => (float[batch,4] y) { y = Relu(x) }')
    proto = onnx.load(path)
    proto.model_version, proto.domain, proto.doc_string, proto.producer_name = 7, "org.example", "words", "me"
    onnx.helper.set_model_props(proto, {"names": "cat,dog", "stride": "32"})
    onnx.save(proto, path)
    graph.normalise(path, out)
    after = onnx.load(out)
    for field in ("model_version", "domain", "doc_string", "producer_name"):
        assert getattr(after, field) == getattr(proto, field)
    assert {p.key: p.value for p in after.metadata_props} == {"names": "cat,dog", "stride": "32"}
    assert (after.graph.input, after.graph.output) == (proto.graph.input, proto.graph.output)


def test_batch_normalization_in_training_mode_is_left_and_named(make: Make, out: Path) -> None:
    text = """g (float[2,3] x) => (float[2,3] y) { y, m, v = BatchNormalization <training_mode = 1> (x, s, s, s, s) }"""
    did = graph.normalise(make(text, {"s": (3,)}), out)
    assert list(did.excluded) == ["BatchNormalization_y"]
    assert "training mode" in did.excluded["BatchNormalization_y"]


def test_external_data_come_along(external: Path, out: Path, run: Run) -> None:
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 3, 4, 4)).astype(np.float32)}
    expected = run(external, feeds)[0]
    graph.normalise(external, out)
    for file in list(external.parent.iterdir()):
        file.unlink()
    np.testing.assert_array_equal(run(out, feeds)[0], expected)


STATIC = {
    "crepe_tiny": {"frames": (2, 1024)},
    "efficientnet_lite0": {"input": (1, 3, 224, 224)},
    "mlperf_tiny_kws_dscnn_bn": {"mfcc": (3, 1, 49, 10)},
    "mlperf_tiny_resnet8_cifar10": {"input": (2, 3, 32, 32)},
    "ppocr_cls": {"x": (2, 3, 48, 192)},
    "resnet20_cifar10": {"input": (2, 3, 32, 32)},
    "resnet56_cifar10": {"input": (1, 3, 32, 32)},
    "silero_vad_16k_op15": {"input": (1, 512), "state": (2, 1, 128), "sr": ()},
    "ultraface_rfb320": {"input": (1, 3, 240, 320)},
}


@pytest.mark.shared
@pytest.mark.parametrize("name", STATIC)
def test_real_models_compute_the_same_afterwards(shared: Path, out: Path, run: Run, name: str) -> None:
    path = shared / "models" / f"{name}.onnx"
    graph.normalise(path, out)
    feeds = dict(draw(path, STATIC[name])) | ({"sr": np.array(16000)} if "silero" in name else {})
    agree(run(path, feeds), run(out, feeds))
    agree_on_interface(path, out)


@pytest.mark.parametrize("name", ["densenet121", "shufflenet", "squeezenet"])
def test_old_graphs_compute_the_same_afterwards(out: Path, run: Run, name: str) -> None:
    path = LIGHT / f"light_{name}.onnx"
    graph.normalise(path, out)
    feeds = dict(draw(path, {graph.open_model(path).inputs[0].name: (1, 3, 224, 224)}))
    agree(run(path, feeds), run(out, feeds))
    agree_on_interface(path, out)


def cases() -> list[str]:
    manifest = Path(os.environ.get("COMPRESSOR_SHARED", Path(__file__).parents[3] / "shared")) / "cases/manifest.yaml"
    if not manifest.is_file():
        return []
    found = yaml.safe_load(manifest.read_text())["cases"]
    return [case["file"] for case in found if case["expect"] in {"run", "run-or-refuse"}]


@pytest.mark.shared
@pytest.mark.parametrize("case", cases())
def test_cases_compute_the_same_afterwards(shared: Path, out: Path, run: Run, case: str) -> None:
    path = shared / "cases" / case
    graph.normalise(path, out)
    limits = graph.index_limits(path)
    feeds = dict(draw(path, {}, limits))
    agree(run(path, feeds), run(out, feeds))
    agree_on_interface(path, out)
    onnx.checker.check_model(str(out), full_check=True)


def draw(
    path: Path, static: dict[str, tuple[int, ...]], limits: dict[str, int] | None = None
) -> Iterator[tuple[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    for tensor in graph.open_model(path).inputs:
        shape = static.get(tensor.name, tuple(d if isinstance(d, int) else 8 for d in tensor.shape or ()))
        if tensor.dtype == "str":
            yield tensor.name, np.full(shape, "cat", object)
        elif tensor.dtype.startswith("float"):
            yield tensor.name, rng.normal(size=shape).astype(tensor.dtype)
        else:
            yield tensor.name, rng.integers(0, (limits or {}).get(tensor.name, 2), shape).astype(tensor.dtype)


def agree(before: list[np.ndarray], after: list[np.ndarray]) -> None:
    for old, new in zip(before, after, strict=True):
        assert (old.dtype, old.shape) == (new.dtype, new.shape)
        if old.dtype.kind == "f":
            np.testing.assert_allclose(new, old, rtol=1e-4, atol=2e-5 * max(1.0, float(np.abs(old).max(initial=0))))
        else:
            np.testing.assert_array_equal(new, old)


def agree_on_interface(before: Path, after: Path) -> None:
    old, new = graph.open_model(before), graph.open_model(after)
    assert new.inputs == old.inputs
    for was, now in zip(old.outputs, new.outputs, strict=True):
        assert now.name == was.name
        assert was.shape in {None, now.shape}
    assert hashlib.sha256(after.read_bytes()).hexdigest() == new.sha256
    assert new.opset >= 17


def test_a_dimension_of_minus_one_is_open_inside_a_branch_too(make: Make, tmp_path: Path) -> None:
    text = """g (float[n,4] x, bool flag) => (float[n,4] y) {
        y = If (flag) <then_branch = yes () => (float[n,4] p) { p = Relu (x) },
                       else_branch = no () => (float[n,-1] q) { q = Neg (x) }> }"""

    graph.normalise(make(text), tmp_path / "out.onnx")

    (node,) = onnx.load(tmp_path / "out.onnx").graph.node
    dims = [branch.g.output[0].type.tensor_type.shape.dim[1] for branch in node.attribute]
    assert not any(dim.HasField("dim_value") and dim.dim_value < 0 for dim in dims)
