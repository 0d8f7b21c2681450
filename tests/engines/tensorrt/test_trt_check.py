"""What TensorRT would refuse: each rule on the smallest graph, and the installed parser beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from finished import finish
from onnx import TensorProto, helper, numpy_helper

from compressor import isolation
from compressor.engines.tensorrt import check, operators, provider
from compressor.isolation import Limits

T4, A10G, L4 = (7, 5), (8, 6), (8, 9)
ONE, ZERO = np.float32(0.5), np.int8(0)
PAIR = """g (float[1,3,4,4] x) => (float[1,3,4,4] y) {
    [q] a = QuantizeLinear (x, s, z)
    [d] y = DequantizeLinear (a, s, z)
}"""
Arrays = Mapping[str, object]
Refused = list[tuple[str, str]]
Found = Callable[..., Refused]


def write(path: Path, body: str, arrays: Arrays, domains: str = "") -> Path:
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21{domains}]>\n{body}')
    for name, array in arrays.items():
        stored = array if isinstance(array, onnx.TensorProto) else numpy_helper.from_array(np.asarray(array), name)
        proto.graph.initializer.append(stored)
    onnx.save(proto, path)
    return path


@pytest.fixture
def found(tmp_path: Path) -> Found:
    """Give a function that checks a graph and gives node and reason of each refusal."""

    def refused(body: str, arrays: Arrays | None = None, *capabilities: tuple[int, int], domains: str = "") -> Refused:
        path = write(tmp_path / "net.onnx", body, arrays or {}, domains)
        return [(one.node, one.reason) for one in check.refusals(path, capabilities)]

    return refused


def nodes(refused: Refused) -> list[str]:
    return [node for node, _ in refused]


def test_signed_symmetric_pairs_with_weights_a_channel_are_taken(found: Found) -> None:
    body = """g (float[1,3,4,4] x) => (float[1,2,4,4] y) {
        q = QuantizeLinear (x, s, z)
        a = DequantizeLinear (q, s, z)
        w8 = QuantizeLinear <axis = 0> (w, ws, wz)
        wq = DequantizeLinear <axis = 0> (w8, ws, wz)
        vq = DequantizeLinear <axis = 0> (v, ws, wz)
        c = Conv (a, wq, b)
        y = Conv (c, vq)
    }"""
    weights = {"w": np.ones((2, 3, 1, 1), np.float32), "v": np.ones((2, 2, 1, 1), np.int8)}
    scales = {"s": ONE, "z": ZERO, "ws": np.full(2, 0.5, np.float32), "wz": np.zeros(2, np.int8)}
    assert found(body, weights | scales | {"b": np.zeros(2, np.float32)}, A10G, L4) == []


def test_each_node_with_a_zero_point_is_named(found: Found) -> None:
    refused = found(PAIR, {"s": ONE, "z": np.int8(3)})
    assert nodes(refused) == ["q", "d"]
    assert all("zero point is not 0" in reason and "signed INT8" in reason for _, reason in refused)
    held = PAIR.replace("{\n", "{\n z = Constant <value = int8 {3}> ()\n", 1)
    assert nodes(found(held, {"s": ONE})) == ["q", "d"]


def test_unsigned_pairs_are_refused_even_with_a_zero_point_of_0(found: Found) -> None:
    refused = found(PAIR, {"s": ONE, "z": np.uint8(0)})
    assert nodes(refused) == ["q", "d"]
    assert all(reason.startswith("UINT8") for _, reason in refused)
    assert nodes(found(PAIR.replace(", z)", ")"), {"s": ONE})) == ["q", "d"]  # ONNX's default is UINT8
    signed = PAIR.replace("QuantizeLinear (x, s, z)", "QuantizeLinear <output_dtype = 3> (x, s)").replace(", z)", ")")
    assert found(signed, {"s": ONE}) == []
    assert nodes(found(PAIR, {"s": ONE, "z": np.uint8(128)})) == ["q", "q", "d", "d"]  # and not 0


def test_a_quantized_bias_is_refused(found: Found) -> None:
    body = """g (float[1,3,4,4] x) => (float[1,2,4,4] y) {
        [bias] b = DequantizeLinear <axis = 0> (b32, bs, bz)
        [conv] y = Conv (x, w, b)
    }"""
    bias = {"b32": np.ones(2, np.int32), "bs": np.ones(2, np.float32), "bz": np.zeros(2, np.int32)}
    (refusal,) = found(body, bias | {"w": np.ones((2, 3, 1, 1), np.float32)})
    assert refusal[0] == "bias"
    assert "quantized bias" in refusal[1]


def test_activations_have_one_scale_a_tensor(found: Found) -> None:
    body = PAIR.replace("Linear (", "Linear <axis = 1> (")
    refused = found(body, {"s": np.ones(3, np.float32), "z": np.zeros(3, np.int8)})
    assert nodes(refused) == ["q", "d"]
    assert all("one scale a tensor" in reason for _, reason in refused)


def test_scales_are_known_at_build_time_and_positive(found: Found) -> None:
    given = PAIR.replace("x)", "x, float s)", 1)
    assert ["scale must be known" in reason for _, reason in found(given, {"z": ZERO})] == [True, True]
    zeros = PAIR.replace("x)", "x, int8 z)", 1)
    assert ["zero point must be known" in reason for _, reason in found(zeros, {"s": ONE})] == [True, True]
    computed = PAIR.replace("{\n", "{\n s = Mul (r, r)\n", 1)
    assert found(computed, {"z": ZERO, "r": ONE}) == []
    assert ["above 0" in reason for _, reason in found(PAIR, {"s": np.float32(0), "z": ZERO})] == [True, True]


def test_quantized_constants_are_for_pairs(found: Found) -> None:
    body = """g (int64[4] x) => (float[4,2] y) {
        [table] t = Gather (w, x)
        y = DequantizeLinear (t, s, z)
    }"""
    (refusal,) = found(body, {"w": np.ones((8, 2), np.int8), "s": ONE, "z": ZERO})
    assert refusal[0] == "table"
    assert "INT8" in refusal[1]


@pytest.mark.parametrize("name", ["ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"])
def test_integer_operators_lead_to_pairs(found: Found, name: str) -> None:
    inputs = "x" if name == "DynamicQuantizeLinear" else "x, x"
    outputs = "y, s, z" if name == "DynamicQuantizeLinear" else "y"
    (refusal,) = found(f"g (int8[1,1,2,2] x) => (int32[1,1,2,2] y) {{ [n] {outputs} = {name} ({inputs}) }}")
    assert "Q/DQ" in refusal[1]


def test_operators_are_refused_by_domain_and_name(found: Found) -> None:
    body = "g (float[2,4] x) => (float[2,4] y) {{ [n] y = {} (x) }}"
    contrib = found(body.format("com.microsoft.FastGelu"), domains=', "com.microsoft": 1')
    assert nodes(contrib) == ["n"]
    assert "com.microsoft" in contrib[0][1]
    assert "without ONNX Runtime's optimizations" in contrib[0][1]
    learned = found(body.format("ai.onnx.ml.Normalizer"), domains=', "ai.onnx.ml": 3')
    assert "an operator of ai.onnx.ml" in learned[0][1]
    assert found(body.format("trt.TRT_Anything"), domains=', "trt": 1') == []
    (rtx,) = found("g (float[2,4] x) => (int64[2,n] y) { [n] y = NonZero (x) }")
    assert rtx[1].startswith("TensorRT-RTX has no such operator (TensorRT has)")


def test_subgraphs_and_functions_are_looked_into(found: Found) -> None:
    body = """g (bool c, int32[4] x) => (int32[4] y) {
        y = If (c) <
            then_branch = t () => (int32[4] a) { [inner] a = BitwiseNot (x) },
            else_branch = e () => (int32[4] b) <int16[4] w = {1, 1, 1, 1}> { k = Cast <to = 6> (w) b = Add (x, k) }
        >
    }"""
    refused = found(body)
    assert nodes(refused) == ["w", "inner"]
    assert "INT16" in refused[0][1]
    assert "no such operator" in refused[1][1]
    function = """g (float[4] x) => (float[4] y) { y = own.f (x) }
        <domain: "own", opset_import: ["": 21]> f (a) => (b) { b = %s (a) }"""
    assert found(function % "Relu", domains=', "own": 1') == []
    assert len(found(function % "Bernoulli", domains=', "own": 1')) == 1


@pytest.mark.parametrize(
    ("kind", "taken"),
    [("float", True), ("double", True), ("uint8", True), ("int64", True), ("bool", True), ("float16", True)]
    + [(kind, False) for kind in ("int16", "uint16", "uint32", "uint64", "string", "complex64", "complex128")],
)
def test_types_of_inputs(found: Found, kind: str, taken: bool) -> None:  # noqa: FBT001 - a parameter
    refused = found(f"g ({kind}[4] x, float[4] z) => (float[4] y) {{ y = Relu (z) }}")
    assert nodes(refused) == ([] if taken else ["x"])


def test_constants_of_types_that_there_are_not(found: Found) -> None:
    body = "g (float[4] x) => (float[4] y) { [c] k = Cast <to = 1> (w) [a] y = Add (x, k) }"
    assert nodes(found(body, {"w": np.ones(4, np.uint16)})) == ["w"]
    assert found(body, {"w": np.ones(4, np.uint8)}) == []  # the parser reads it as INT32
    assert nodes(found(body, {"w": np.ones(4, np.int8)})) == ["c"]
    held = 'g (float[4] x) => (float[4] y) { [t] s = Constant <value_string = "a"> () y = Relu (x) }'
    assert nodes(found(held)) == ["t"]


def test_uint8_is_for_inputs_and_outputs(found: Found) -> None:
    body = "g (uint8[4,8] x) => (%s[%s] y) { %s }"
    assert found(body % ("float", "4,8", "y = Cast <to = 1> (x)")) == []
    assert found(body % ("uint8", "4,8", "f = Cast <to = 1> (x) y = Cast <to = 2> (f)")) == []
    assert nodes(found(body % ("uint8", "8,4", "[t] y = Transpose (x)"))) == ["t"]
    inside = "f = Cast <to = 1> (x) [c] u = Cast <to = 2> (f) y = Cast <to = 1> (u)"
    assert nodes(found(body % ("float", "4,8", inside))) == ["c"]


def test_axes_are_known_at_build_time(found: Found) -> None:
    body = "g (float[2,3] x{}) => (float[n,m] y) {{ {} [sum] y = ReduceSum (x, axes) }}"
    (refusal,) = found(body.format(", int64[1] axes", ""))
    assert refusal[0] == "sum"
    assert "'axes' must be known" in refusal[1]
    assert found(body.format("", "axes = Constant <value_ints = [1]> ()")) == []
    assert found("g (float[2,3] x) => (float[1,1] y) { y = ReduceSum (x) }") == []


def test_nodes_may_stand_in_any_order(found: Found) -> None:
    ordered = PAIR.replace("{\n", "{\n s = Mul (r, r)\n", 1)
    head, tail = ordered.replace(" s = Mul (r, r)\n", "").rsplit("}", 1)
    assert found(f"{head} s = Mul (r, r)\n}}{tail}", {"r": ONE, "z": ZERO}) == []


def test_opsets_before_the_parsers_first(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model("""<ir_version: 3, opset_import: ["": 6]>
        g (float[4] x) => (float[4] y) { y = Relu (x) }""")
    onnx.save(proto, tmp_path / "net.onnx")
    (refusal,) = check.refusals(tmp_path / "net.onnx")
    assert refusal.reason.startswith("opset 6, expected 7")


def test_operands_that_an_operator_does_not_take(found: Found) -> None:
    body = "g ({0}[4,8] x, {0}[8,2] w) => ({0}[4,2] y) {{ [m] y = MatMul (x, w) }}"
    (refusal,) = found(body.format("int32"))
    assert "does not take INT32" in refusal[1]
    assert found(body.format("float")) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("[n] y = MaxPool <kernel_shape = [2, 2], dilations = [2, 1]> (x)", "dilations is"),
        ("[n] y, i = MaxPool <kernel_shape = [2, 2]> (x)", "only its first output"),
        ("[n] y = BatchNormalization <training_mode = 1> (x, one, one, one, one)", "training_mode is 1"),
        ("[n] y = Dropout (x, half, on)", "training mode"),
        ('[n] y = Resize <mode = "linear", antialias = 1> (x, , four)', "antialias is 1"),
        (
            '[n] y = Resize <coordinate_transformation_mode = "half_pixel_symmetric"> (x, , four)',
            "half_pixel_symmetric",
        ),
    ],
)
def test_settings_that_the_parser_does_not_take(found: Found, body: str, said: str) -> None:
    four, one = np.ones(4, np.float32), np.ones(3, np.float32)
    arrays = {"four": four, "one": one, "half": np.float32(0.5), "on": np.array(1, bool)}
    refused = found(f"g (float[1,3,8,8] x) => (float[1,3,h,w] y) {{ {body} }}", arrays)
    assert nodes(refused) == ["n"]
    assert said in refused[0][1]


def test_settings_that_it_takes(found: Found) -> None:
    pooled = "a = MaxPool <kernel_shape = [2, 2], dilations = [1, 1]> (x)"
    body = f'{pooled} b = Dropout (a, half, off) y = Resize <mode = "linear"> (b, , four)'
    arrays = {"four": np.ones(4, np.float32), "half": np.float32(0.5), "off": np.array(0, bool)}
    assert found(f"g (float[1,3,8,8] x) => (float[1,3,h,w] y) {{ {body} }}", arrays) == []


def test_open_dimensions_need_a_profile(tmp_path: Path) -> None:
    body = "g (float[batch,seq] x, float[2,3] fixed) => (float[batch,seq] y) { y = Relu (x) }"
    path = write(tmp_path / "net.onnx", body, {})
    (refusal,) = check.refusals(path)
    assert (refusal.node, refusal.operator) == ("x", "input")
    assert "batch, seq" in refusal.reason
    assert check.refusals(path, profiled=["x"]) == ()


def test_products_in_fp32_are_refused_on_turing_alone(found: Found) -> None:
    body = "g ({0}[4,8] x, {0}[1,1,4,4] i) => ({0}[4,2] y, {0}[1,1,4,4] c) {{ [fc] y = MatMul (x, w) c = Conv (i, k) }}"
    weights = {"w": np.ones((8, 2)), "k": np.ones((1, 1, 1, 1))}
    single = {name: array.astype(np.float32) for name, array in weights.items()}
    half = {name: array.astype(np.float16) for name, array in weights.items()}
    (refusal,) = found(body.format("float"), single, T4, L4)
    assert refusal[0] == "fc"
    assert "precision fp16" in refusal[1]
    assert found(body.format("float"), single, A10G, L4) == []
    assert found(body.format("float16"), half, T4) == []


def test_types_that_a_device_does_not_have_are_told_once(found: Found) -> None:
    body = "g (bfloat16[4] x) => (bfloat16[4] y) { [first] a = Exp (x) y = Relu (a) }"
    (refusal,) = found(body, {}, A10G, T4)
    assert refusal[0] == "first"
    assert "needs compute capability 8.0, found 7.5" in refusal[1]
    assert found(body, {}, A10G) == []
    eight = {"s": ONE, "z": helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], [0.0])}
    assert found(PAIR, eight, L4) == []
    ((node, reason),) = found(PAIR, eight, A10G, L4)
    assert node == "q"
    assert "needs compute capability 8.9, found 8.6" in reason


def test_weights_beside_the_model_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    body = onnx.parser.parse_graph("g (float[4,64] x) => (float[4,64] y) { [fc] y = MatMul (x, w) }")
    body.initializer.append(weight)
    proto = helper.make_model(body, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(proto, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=1)

    def read(_tensor: ir.ExternalTensor) -> None:
        raise AssertionError

    monkeypatch.setattr(ir.ExternalTensor, "numpy", read)
    (refusal,) = check.refusals(tmp_path / "net.onnx", [T4])
    assert refusal.node == "fc"


def test_the_tables_name_what_onnx_has() -> None:
    schemas = {schema.name: schema for schema in onnx.defs.get_all_schemas() if not schema.domain}
    young = {"BitCast", "CausalConvWithState", "CumProd", "LinearAttention", "SwiGLU"}  # of opsets from 26 on
    assert operators.UNSUPPORTED - set(schemas) <= young
    named = (
        operators.INTEGER | operators.NOT_IN_RTX | operators.ONE_OUTPUT | set(operators.OPERANDS) | set(operators.KNOWN)
    )
    assert named | operators.PRODUCTS | operators.UINT8 <= set(schemas)
    for name, attributes in operators.ATTRIBUTES.items():
        assert set(attributes) <= set(schemas[name].attributes)
    kinds = {kind.name for kind in ir.DataType}
    assert operators.TYPES | operators.QUANTIZED | set(operators.LEAST) <= kinds


class Parser:
    """A parser that refuses everything, one node twice."""

    num_errors = 2

    def __init__(self, *_: object) -> None:
        pass

    def parse_from_file(self, path: str) -> bool:
        return path.endswith("good.onnx")

    def get_error(self, _index: int) -> SimpleNamespace:
        text = "Invalid Node - n\n\nbecause of its type\nand so on"
        return SimpleNamespace(node_name=lambda: "n", node_operator=lambda: "Op", desc=lambda: text)


def test_what_the_parser_says_is_given_once_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Logger:
        ERROR = 1

        def __init__(self, _least: int) -> None:
            pass

    network = SimpleNamespace(create_network=lambda _flags: None)
    trt = SimpleNamespace(Logger=Logger, Builder=lambda _logger: network, OnnxParser=Parser, __version__="9.8")
    trt.NetworkDefinitionCreationFlag = SimpleNamespace(STRONGLY_TYPED=1)
    monkeypatch.setattr(provider, "unusable", lambda name: None if name == "tensorrt-rtx" else "not here")
    monkeypatch.setattr(provider, "module", lambda _name: trt)
    (refusal,) = check.asked(Path("bad.onnx")) or ()
    assert (refusal.node, refusal.operator) == ("n", "Op")
    assert refusal.reason == "the parser of tensorrt-rtx 9.8 refuses it: because of its type"
    assert check.asked(Path("good.onnx")) == ()
    monkeypatch.setattr(provider, "unusable", lambda _name: "not here")
    assert check.asked(Path("bad.onnx")) is None


@pytest.mark.skipif(not (find_spec("tensorrt_rtx") or find_spec("tensorrt_rtx_bindings")), reason="needs TensorRT-RTX")
@pytest.mark.parametrize(
    ("body", "arrays", "named"),
    [
        (PAIR, {"s": ONE, "z": ZERO}, []),
        (PAIR, {"s": ONE, "z": np.int8(3)}, ["q", "d"]),
        ("g (int32[4] x) => (int32[4] y) { [n] y = BitwiseNot (x) }", {}, ["n"]),
    ],
)
def test_the_installed_parser_agrees(tmp_path: Path, body: str, arrays: Arrays, named: list[str]) -> None:
    path = write(tmp_path / "net.onnx", body, arrays)
    told = finish(isolation.call(check.asked, path, limits=Limits())).value
    assert told is not None
    assert nodes([(one.node, one.reason) for one in check.refusals(path)]) == named
    assert [one.node for one in told] == named[: len(told)]
    assert bool(told) == bool(named)
