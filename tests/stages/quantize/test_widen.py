from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper

from compressor import graph
from compressor.stages.quantize import widen
from compressor.stages.quantize.prepare import prepare

RNG = np.random.default_rng(0)
OTHERS = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16, "double": TensorProto.DOUBLE}
OTHER_NAMES = {"float16": "FLOAT16", "bfloat16": "BFLOAT16", "double": "DOUBLE"}
DTYPES = {"float16": np.float16, "double": np.float64}
LAYER = "g (T[2,4] x) => (T[2,3] y) { h = MatMul(x, W) \n r = Relu(h) \n y = Add(r, b) }"


def weights(dtype: Any) -> dict[str, np.ndarray]:
    return {"W": RNG.normal(size=(4, 3)).astype(dtype), "b": RNG.normal(size=3).astype(dtype)}


@pytest.mark.parametrize("name", DTYPES)
def test_a_model_in_another_float_computes_the_same_in_float32(name: str, make: Any, tmp_path: Path) -> None:
    arrays = weights(DTYPES[name])
    model = make(LAYER.replace("T[", f"{name}["), arrays)
    word = "float64" if name == "double" else name
    assert prepare(model.path, tmp_path / "out.onnx") == (
        f"made every {word} inside float32; inputs and outputs keep their types",
    )
    x = RNG.normal(size=(2, 4)).astype(DTYPES[name])
    (found,) = run(tmp_path / "out.onnx", x=x)
    wide = {key: array.astype(np.float64) for key, array in {**arrays, "x": x}.items()}
    expected = np.maximum(wide["x"] @ wide["W"], 0) + wide["b"]
    assert found.dtype == DTYPES[name]
    assert np.abs(found - expected).max() < (2e-3 if name == "float16" else 1e-6)


@pytest.mark.parametrize("name", OTHERS)
def test_only_the_ends_keep_their_type(name: str, make: Any, tmp_path: Path) -> None:
    model = widened(make(LAYER.replace("T[", f"{name}["), weights(np.float32)).path, name, tmp_path)
    types = {value.name: value.dtype.name for node in model.graph for value in node.outputs}
    assert {types.pop("y"), model.graph.inputs[0].dtype.name} == {name.upper()}
    assert set(types.values()) == {"FLOAT"}
    assert {value.dtype.name for value in model.graph.initializers.values()} == {"FLOAT"}
    assert [node.op_type for node in model.graph] == ["Cast", "MatMul", "Relu", "Add", "Cast"]


def test_floats_of_several_types_meet_without_casts(make: Any, tmp_path: Path) -> None:
    text = """g (float[2,4] x) => (float[2,4] y) {
      h = Cast<to=10>(x) \n a = MatMul(h, W) \n d = Cast<to=11>(a)
      e = MatMul(d, V) \n s = CastLike(e, x) \n z = Exp(s) \n y = Neg(z) }"""
    model = make(text, {"W": np.eye(4, dtype=np.float16), "V": np.eye(4)})
    assert prepare(model.path, tmp_path / "out.onnx")[0].startswith("made every float64 and float16 inside float32;")
    assert kinds(tmp_path / "out.onnx") == ["MatMul", "MatMul", "Exp", "Neg"]
    x = RNG.normal(size=(2, 4)).astype(np.float32)
    assert np.allclose(run(tmp_path / "out.onnx", x=x)[0], -np.exp(x), rtol=1e-6)


def test_what_branches_compute_follows(make: Any, tmp_path: Path) -> None:
    # 16384 are the bits of 2 in float16, as ONNX text wants them
    text = """g (float16[2,4] x, bool c) => (float16[2,4] y) { h = MatMul(x, W) \n y = If(c) <
      then_branch = t () => (float16[2,4] a) { a = Add(h, x) },
      else_branch = e () => (float16[2,4] b) { k = Constant<value = float16[1] {16384}>() \n b = Mul(h, k) } > }"""
    arrays = {"W": RNG.normal(size=(4, 4)).astype(np.float16)}
    model = make(text, arrays)
    prepare(model.path, tmp_path / "out.onnx")
    x = RNG.normal(size=(2, 4)).astype(np.float16)
    product = x.astype(np.float64) @ arrays["W"].astype(np.float64)
    for condition, expected in ((True, product + x), (False, 2 * product)):
        (found,) = run(tmp_path / "out.onnx", x=x, c=np.array(condition))
        assert np.abs(found - expected).max() < 5e-3
    assert widen_types(tmp_path / "out.onnx") == {"FLOAT"}


def test_attributes_that_name_a_type_follow(make: Any, tmp_path: Path) -> None:
    # 16896 are the bits of 3 in float16
    text = """g (float16[4,4] x, int64[2] s) => (float16[4,4] y) {
      z = ConstantOfShape<value = float16[1] {16896}>(s) \n i = EyeLike<dtype = 10>(x)
      r = RandomNormalLike<dtype = 10>(x)
      n = Mul(r, zero) \n a = Add(z, i) \n b = Add(a, n) \n y = Add(b, x) }"""
    model = make(text, {"zero": np.array(0, np.float16)})
    prepare(model.path, tmp_path / "out.onnx")
    x = RNG.normal(size=(4, 4)).astype(np.float16)
    (found,) = run(tmp_path / "out.onnx", x=x, s=np.array([4, 4]))
    assert np.abs(found - (3 + np.eye(4) + x)).max() < 5e-3
    assert widen_types(tmp_path / "out.onnx") == {"FLOAT"}


def test_the_least_float16_and_infinities_stay_what_they_are() -> None:
    tensor = ir.tensor(np.array([-65504, np.inf, -np.inf, 0.1], np.float16))
    assert widen._float32(tensor, frozenset({"FLOAT16"})).numpy().tolist() == [
        -65504.0,
        np.inf,
        -np.inf,
        np.float32(np.float16(0.1)),
    ]


def test_a_float64_beyond_float32_stays_finite() -> None:
    tensor = ir.tensor(np.array([-1.7e308, np.inf, 1e300]))
    bound = float(np.finfo(np.float32).max)
    assert widen._float32(tensor, frozenset({"DOUBLE"})).numpy().tolist() == [-bound, np.inf, bound]


def test_an_input_that_is_an_output_too_is_passed_on_as_it_is(make: Any, tmp_path: Path) -> None:
    model = make("g (float16[4] x) => (float16[4] x, float16[4] y) { y = Exp(x) }", {})
    prepare(model.path, tmp_path / "out.onnx")
    x = np.array([-1, 0, 0.1, 1], np.float16)
    same, exp = run(tmp_path / "out.onnx", x=x)
    assert (same == x).all()
    assert np.allclose(exp, np.exp(x.astype(float)), rtol=1e-3)


def test_an_output_that_is_read_too_is_read_in_float32(make: Any, tmp_path: Path) -> None:
    model = make("g (float16[4] x) => (float16[4] y, float16[4] z) { y = Exp(x) \n z = Neg(y) }", {})
    prepare(model.path, tmp_path / "out.onnx")
    made = onnx.load(tmp_path / "out.onnx")
    assert [value.name for value in made.graph.output] == ["y", "z"]
    neg = next(node for node in made.graph.node if node.op_type == "Neg")
    assert next(node for node in made.graph.node if node.output[0] == neg.input[0]).op_type == "Exp"


def test_float64_that_no_layer_computes_in_stays(make: Any, tmp_path: Path) -> None:
    text = """g (float16[2,4] x, double[1] t) => (float16[2,4] y, double[1] z) {
      h = MatMul(x, W) \n s = Sin(t) \n z = Mul(s, t) \n c = Cast<to=10>(s) \n y = Add(h, c) }"""
    prepare(make(text, {"W": np.eye(4, dtype=np.float16)}).path, tmp_path / "out.onnx")
    assert widen_types(tmp_path / "out.onnx") == {"DOUBLE", "FLOAT"}
    x, t = RNG.normal(size=(2, 4)).astype(np.float16), np.array([1e9 + 0.5])
    y, z = run(tmp_path / "out.onnx", x=x, t=t)
    assert np.abs(y - (x + np.sin(t))).max() < 5e-3
    assert np.abs(z - np.sin(t) * t).max() < 1e-5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("g (float16[4] x) => (seq(float16[4]) y) { y = SequenceConstruct(x) }", "'y' is a sequence or optional"),
        (
            "g (float16[4] x) => (string[4] y) { [words] y = Cast<to=8>(x) }",
            "words reads the digits or bits of float16",
        ),
    ],
)
def test_what_cannot_be_widened_is_left_and_said(text: str, reason: str, make: Any, tmp_path: Path) -> None:
    model = make(text, {})
    (said,) = prepare(model.path, tmp_path / "out.onnx")
    assert said.startswith(f"left floats other than float32 as they are: {reason}")
    assert kinds(tmp_path / "out.onnx") == kinds(model.path)


def test_an_operator_that_exists_in_float16_only_keeps_the_model_as_it_is(make: Any, tmp_path: Path) -> None:
    path = make(LAYER.replace("T[", "float16["), weights(np.float16)).path
    model = onnx.load(path)
    next(node for node in model.graph.node if node.op_type == "Relu").domain = "org.example"
    model.opset_import.append(onnx.helper.make_opsetid("org.example", 1))
    onnx.save(model, path)
    (said,) = prepare(path, tmp_path / "out.onnx")
    assert "org.example" in said
    assert widen_types(tmp_path / "out.onnx") == {"FLOAT16"}


def widened(path: Path, name: str, folder: Path) -> ir.Model:
    """Give the model with its float32 weights first put into another type, then widened."""
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.helper.make_tensor(tensor.name, OTHERS[name], array.shape, array.ravel()))
    onnx.save(proto, folder / "typed.onnx")
    model = graph.load(folder / "typed.onnx")
    assert widen.others(model) == {OTHER_NAMES[name]}
    widen.widen(model, widen.others(model))
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    return model


def widen_types(path: Path) -> set[str]:
    """Give the types of all floats that are no ends of the graph."""
    model = graph.load(path)
    ends = {value.name for value in (*model.graph.inputs, *model.graph.outputs)}
    values = [value for part in model.graphs() for value in part.initializers.values()]
    values += [value for node in model.graph.all_nodes() for value in node.outputs]
    names = {value.dtype.name for value in values if value.dtype is not None and value.name not in ends}
    return names & {"FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE"}


def kinds(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def run(path: Path, **feeds: np.ndarray) -> Any:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
