"""Graphs that a checker stops short at, and that reach code which trusts them: each is refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compressor import graph
from compressor.errors import InputError

Make = Callable[..., Path]
Damage = Callable[[onnx.ModelProto], None]

NET = "g (float[N,4] x) => (float[N,2] y) { y = MatMul(h, W) h = Relu(x) }"
"""Not sorted, which the checker stops at and runtimes do not mind."""


def _short(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].raw_data = bytes(13)


def _surplus(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].raw_data += b"x"


def _negative(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].dims[:] = [-1, 2]


def _huge(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].dims[:] = [2**62, 2]


def _cyclic(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].input[0] = "y"


def _empty(proto: onnx.ModelProto) -> None:
    proto.graph.node.append(helper.make_node("Constant", [], ["c"]))


def _mistyped(proto: onnx.ModelProto) -> None:
    proto.opset_import.add(domain="", version=0)  # of which the checker knows no operator, and says no more
    node = helper.make_node("Constant", [], ["c"], value_strings=["a"])
    node.attribute[0].name = "value"
    proto.graph.node.append(node)


def _untyped(proto: onnx.ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.UNDEFINED


def _unmade(proto: onnx.ModelProto) -> None:
    proto.graph.output[0].name = "nobody"


def _parameter(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].op_type = "Softmax"
    proto.graph.node[1].attribute.add(name="axis", type=onnx.AttributeProto.INT, ref_attr_name="a")


def _attribute(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].attribute.add(name="nothing")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_short, "tensor name: W"),
        (_surplus, "the data of tensor 'W' do not fit"),
        (_negative, "tensor name: W"),
        (_huge, "tensor name: W"),
        (_cyclic, "has a cycle"),
        (_empty, "Constant node 'Constant' holds 0 values"),
        (_mistyped, "holds 'value' as STRINGS, expected TENSOR"),
        (_untyped, "'x' has no type"),
        (_unmade, "nothing gives the output 'nobody'"),
        (_parameter, "'axis' of node 'Softmax' is the parameter of a function"),
        (_attribute, "not a valid ONNX model"),
    ],
)
def test_what_does_not_fit_together_is_refused(make: Make, damage: Damage, words: str) -> None:
    path = make(NET, {"W": (4, 2)})
    proto = onnx.load(path)
    damage(proto)
    onnx.save(proto, path)
    with pytest.raises(InputError, match=words) as caught:
        graph.open_model(path)
    assert "\n" not in str(caught.value)


def test_an_order_that_runtimes_do_not_mind_is_none_that_is_refused(make: Make) -> None:
    assert graph.open_model(make(NET, {"W": (4, 2)}), {"x": (3, 4)}).macs == 3 * 4 * 2


@pytest.mark.parametrize(
    ("node", "weight"),
    [
        ("Gather <axis = 0> (s, i)", np.array([7], np.int64)),
        ("Gather <axis = 0> (s, i)", np.array([0.5], np.float32)),
        ("Add (i, s)", np.array([0.5], np.float32)),
        ("Slice (s, i, i, i, i)", np.array([0], np.int64)),
    ],
)
def test_arithmetic_on_shapes_that_cannot_be_done_leaves_them_unknown(
    make: Make, node: str, weight: np.ndarray
) -> None:
    path = make(f"g (float[2,4] x) => (float[P,Q] y) {{ s = Shape(x) t = {node} y = Reshape(x, t) }}", {"i": weight})
    assert graph.open_model(path).macs == 0


@pytest.mark.parametrize(("stated", "right"), [((2, 9), [2, 2]), ((2,), [2, 2]), ((2, "M"), [2, "M"])])
def test_an_output_s_shape_is_corrected_where_the_graph_gives_another(
    make: Make, tmp_path: Path, stated: tuple[int | str, ...], right: list[int | str]
) -> None:
    path = make("g (float[2,4] x) => (float[2,2] y) { y = MatMul(x, W) }", {"W": (4, 2)})
    proto = onnx.load(path)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, stated))
    onnx.save(proto, path)
    did = graph.normalise(path, tmp_path / "normal.onnx")
    dims = onnx.load(tmp_path / "normal.onnx").graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == right
    assert ("corrected the shape of 1 output" in did.what.lower()) == (right == [2, 2])
