"""What is written into a model from which units were cut: numbers that count channels, weights, shapes, names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from pruned import hold

from compressor import graph
from compressor.records import Model
from compressor.stages.prune.groups import Coupled, analyse
from compressor.stages.prune.surgery import shrunk

Make = Callable[..., Model]
GONE = (1, 4)
"""The units of the first layer that go, of 8."""
KEPT = [0, 2, 3, 5, 6, 7]
END = 2**63 - 1


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def image(body: str, out: str = "float[n,2,h,w] y") -> str:
    """Give Conv to 8 channels of 6x6 `a`, a body to `b`, Conv to 2 channels."""
    return f"g (float[n,3,6,6] x) => ({out}) {{ a = Conv (x, w1) {body} y = Conv (b, w2) }}"


W = {"w1": [8, 3, 1, 1]}


def of_first(coupled: Coupled, gone: tuple[int, ...] = GONE) -> frozenset[int]:
    return frozenset(coupled.groups[0].units[i] for i in gone)


def cut(make: Make, folder: Path, text: str, weights: Mapping[str, Any], opset: int = 17) -> onnx.ModelProto:
    """Remove the units `GONE` of the first layer, hold it against the model with zeros, and give what was written."""
    coupled = analyse(graph.load(make(text, weights, opset).path))
    return onnx.load(hold(coupled, of_first(coupled), folder))


def constant(model: onnx.ModelProto, kind: str, index: int) -> list[Any]:
    """Give the constant that the only node of an operator reads."""
    (node,) = (node for node in model.graph.node if node.op_type == kind)
    (tensor,) = (t for t in model.graph.initializer if t.name == node.input[index])
    return numpy_helper.to_array(tensor).tolist()


def attribute(model: onnx.ModelProto, node: str, name: str) -> Any:
    (found,) = (a for n in model.graph.node if n.name == node for a in n.attribute if a.name == name)
    return onnx.helper.get_attribute_value(found)


def array(model: onnx.ModelProto, name: str) -> Any:
    return next(numpy_helper.to_array(t) for t in model.graph.initializer if t.name == name)


def test_a_depthwise_convolution_gets_fewer_groups(make: Make, tmp_path: Path) -> None:
    body = "b = Conv <group: int = 8> (a, wd)"
    model = cut(make, tmp_path, image(body), {**W, "wd": [16, 1, 1, 1], "w2": [2, 16, 1, 1]})
    assert attribute(model, "Conv_b", "group") == 6
    assert array(model, "wd").shape == (12, 1, 1, 1)


def test_whole_groups_leave_fewer_groups_and_places_as_many(make: Make, tmp_path: Path) -> None:
    text = image("b = Conv <group: int = 8> (a, wg)")
    whole = cut(make, tmp_path, text, {"w1": [16, 3, 1, 1], "wg": [16, 2, 1, 1], "w2": [2, 16, 1, 1]})
    assert attribute(whole, "Conv_b", "group") == 6
    text = image("b = Conv <group: int = 2> (a, wg)")
    places = cut(make, tmp_path, text, {"w1": [16, 3, 1, 1], "wg": [16, 8, 1, 1], "w2": [2, 16, 1, 1]})
    assert attribute(places, "Conv_b", "group") == 2
    assert array(places, "wg").shape == (16, 6, 1, 1)


def test_a_transposed_depthwise_convolution_gets_fewer_groups(make: Make, tmp_path: Path) -> None:
    text = image("b = ConvTranspose <group: int = 8> (a, wt)")
    model = cut(make, tmp_path, text, {**W, "wt": [8, 1, 2, 2], "w2": [2, 8, 1, 1]})
    assert attribute(model, "ConvTranspose_b", "group") == 6


def test_a_group_norm_gets_fewer_groups(make: Make, tmp_path: Path) -> None:
    text = image("b = GroupNormalization <num_groups: int = 8> (a, s, t)")
    weights = {"w1": [16, 3, 1, 1], "s": [16], "t": [16], "w2": [2, 16, 1, 1]}
    model = cut(make, tmp_path, text, weights, 21)
    assert attribute(model, "GroupNormalization_b", "num_groups") == 6
    assert array(model, "s").shape == (12,)


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_recurrent_layer_gets_a_smaller_state(make: Make, tmp_path: Path, kind: str, gates: int) -> None:
    text = f"""g (float[3,2,4] x) => (float[3,2,2] y) {{
        h = {kind} <hidden_size: int = 8> (x, wx, wh)
        b = Squeeze (h, one)
        y = MatMul (b, w2)
    }}"""
    weights = {"wx": [1, gates * 8, 4], "wh": [1, gates * 8, 8], "w2": [8, 2], "one": ints(1)}
    model = cut(make, tmp_path, text, weights)
    assert attribute(model, f"{kind}_h", "hidden_size") == 6
    assert array(model, "wh").shape == (1, gates * 6, 6)


@pytest.mark.parametrize("sizes", [(3, 5), None])
def test_a_split_gets_sizes(make: Make, tmp_path: Path, sizes: tuple[int, int] | None) -> None:
    given = "(a, sizes)" if sizes else "(a)"
    number = "" if sizes else ", num_outputs: int = 2"
    text = image(f"c, d = Split <axis: int = 1{number}> {given} e = Conv (c, wc) f = Conv (d, wd) b = Add (e, f)")
    left = sizes[0] if sizes else 4
    weights = {**W, "wc": [4, left, 1, 1], "wd": [4, 8 - left, 1, 1], "w2": [2, 4, 1, 1]}
    made = make(text, weights | ({"sizes": ints(*sizes)} if sizes else {}), 18)
    coupled = analyse(graph.load(made.path))
    gone = frozenset(coupled.units["w1", 0][list(GONE)].tolist())  # one unit of either part
    model = onnx.load(hold(coupled, gone, tmp_path))
    assert constant(model, "Split", 1) == ([2, 4] if sizes else [3, 3])
    (split,) = (node for node in model.graph.node if node.op_type == "Split")
    assert [a.name for a in split.attribute] == ["axis"]


@pytest.mark.parametrize(
    ("target", "wanted"),
    [((0, 8, 36), (0, 6, 36)), ((0, 8, -1), (0, 6, -1)), ((-1, 8, 36), (-1, 6, 36)), ((0, 0, 36), (0, 0, 36))],
)
def test_a_reshape_target_counts_what_is_left(
    make: Make, tmp_path: Path, target: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    text = """g (float[n,3,6,6] x) => (float[n,2,36] y) {
        a = Conv (x, w1)
        b = Reshape (a, target)
        y = MatMul (w2, b)
    }"""
    model = cut(make, tmp_path, text, {**W, "w2": [2, 8], "target": ints(*target)})
    assert tuple(constant(model, "Reshape", 1)) == wanted


@pytest.mark.parametrize(
    ("bounds", "channels"),
    [((2, 6), 4), ((-6, -2), 4), ((2, END), 6), ((-100, 5), 5), ((0, 8), 8), ((-8, END), 8)],
)
def test_slice_bounds_count_what_is_left(make: Make, tmp_path: Path, bounds: tuple[int, int], channels: int) -> None:
    text = image("b = Slice (a, from, to, axes)")
    cuts = {"from": ints(bounds[0]), "to": ints(bounds[1]), "axes": ints(-3)}
    coupled = analyse(graph.load(make(text, {**W, "w2": [2, channels, 1, 1], **cuts}).path))
    gone = frozenset(unit for unit in coupled.units["w1", 0][list(GONE)].tolist() if unit != -1)
    model = onnx.load(hold(coupled, gone, tmp_path))
    made, read = coupled.units["w1", 0], coupled.units["w2", 1]
    assert read.tolist() == made[slice(*bounds)].tolist()
    kept = [u for u in read.tolist() if u not in gone]
    assert array(model, "w2").shape[1] == len(kept)


@pytest.mark.parametrize(("pads", "channels"), [((2, 1), 11), ((-2, 0), 6), ((0, -3), 5), ((-1, 2), 9)])
def test_padding_counts_what_is_left(make: Make, tmp_path: Path, pads: tuple[int, int], channels: int) -> None:
    before, behind = pads
    text = image("b = Pad (a, pads)")
    weights = {**W, "w2": [2, channels, 1, 1], "pads": ints(0, before, 0, 0, 0, behind, 0, 0)}
    coupled = analyse(graph.load(make(text, weights).path))
    gone = frozenset(unit for unit in coupled.units["w1", 0][list(GONE)].tolist() if unit != -1)
    model = onnx.load(hold(coupled, gone, tmp_path))
    left = [-1 if unit in gone else 0 for unit in coupled.units["a", 1].tolist()]
    wanted = [
        before if before > 0 else before - sum(left[:-before]),
        behind if behind > 0 else behind - sum(left[8 + behind :]),
    ]
    pads_left = constant(model, "Pad", 1)
    assert [pads_left[1], pads_left[5]] == wanted
    assert array(model, "w1").shape[0] == 8 + sum(left)


def test_gather_picks_what_is_left(make: Make, tmp_path: Path) -> None:
    text = image("b = Gather <axis: int = 1> (a, picks)")
    model = cut(make, tmp_path, text, {**W, "w2": [2, 8, 1, 1], "picks": ints(7, 6, 5, 4, 3, 2, 1, 0)})
    assert constant(model, "Gather", 1) == [5, 4, 3, 2, 1, 0]


def test_expand_and_resize_name_what_is_left(make: Make, tmp_path: Path) -> None:
    text = """g (float[1,3,6,6] x) => (float[1,2,12,12] y) {
        a = Conv (x, w1)
        r = Resize (a, roi, scales, sizes)
        p = GlobalAveragePool (r)
        e = Expand (p, shape)
        b = Add (e, r)
        y = Conv (b, w2)
    }"""
    text = text.replace("(a, roi, scales, sizes)", "(a, , , sizes)")
    given = {"sizes": ints(1, 8, 12, 12), "shape": ints(1, 8, 12, 12)}
    model = cut(make, tmp_path, text, {**W, "w2": [2, 8, 1, 1], **given})
    assert constant(model, "Resize", 3) == [1, 6, 12, 12]
    assert constant(model, "Expand", 1) == [1, 6, 12, 12]


def test_a_state_made_of_a_shape_counts_what_is_left(make: Make, tmp_path: Path) -> None:
    text = """g (float[3,n,4] x) => (float[3,n,2] y) {
        shape = Shape (x)
        batch = Slice (shape, one, two)
        size = Concat <axis: int = 0> (one, batch, eight)
        h0 = ConstantOfShape (size)
        h = GRU <hidden_size: int = 8> (x, wx, wh, , , h0)
        b = Squeeze (h, one)
        y = MatMul (b, w2)
    }"""
    numbers = {"one": ints(1), "two": ints(2), "eight": ints(8)}
    model = cut(make, tmp_path, text, {"wx": [1, 24, 4], "wh": [1, 24, 8], "w2": [8, 2], **numbers})
    assert attribute(model, "GRU_h", "hidden_size") == 6


def test_a_weight_that_two_layers_read_is_cut_once(make: Make, tmp_path: Path) -> None:
    text = image("c = Conv (a, w) d = Relu (c) b = Conv (d, w)")
    model = cut(make, tmp_path, text, {**W, "w": [8, 8, 1, 1], "w2": [2, 8, 1, 1]})
    assert [t.name for t in model.graph.initializer].count("w") == 1
    assert array(model, "w").shape == (6, 6, 1, 1)
    assert len({node.input[1] for node in model.graph.node if node.name in {"Conv_c", "Conv_b"}}) == 1


def test_a_constant_that_others_read_stays_for_them(make: Make, tmp_path: Path) -> None:
    text = """g (float[n,8,36] x, float[n,3,6,6] z) => (float[n,2,36] y, float[n,8,36] same) {
        a = Conv (z, w1)
        b = Reshape (a, target)
        y = MatMul (w2, b)
        r = Neg (x)
        same = Reshape (r, target)
    }"""
    coupled = analyse(graph.load(make(text, {**W, "w2": [2, 8], "target": ints(0, 8, 36)}).path))
    model = onnx.load(hold(coupled, of_first(coupled), tmp_path))
    targets = {n.output[0]: array(model, n.input[1]).tolist() for n in model.graph.node if n.op_type == "Reshape"}
    assert targets == {"b": [0, 6, 36], "same": [0, 8, 36]}


def test_slices_that_are_left_are_those_of_the_original_bit_by_bit(make: Make) -> None:
    model = make(image("b = Relu (a)"), {**W, "w2": [2, 8, 1, 1]})
    given = {t.name: numpy_helper.to_array(t) for t in onnx.load(model.path).graph.initializer}
    coupled = analyse(graph.load(model.path))
    left = shrunk(coupled, of_first(coupled)).graph.initializers
    assert np.array_equal(left["w1"].const_value.numpy(), given["w1"][KEPT])
    assert np.array_equal(left["w2"].const_value.numpy(), given["w2"][:, KEPT])


@pytest.mark.parametrize(("word", "dtype"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_half_precision_stays_half_precision(make: Make, tmp_path: Path, word: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    weights = {"w1": rng.normal(size=(8, 3, 1, 1)).astype(dtype), "w2": rng.normal(size=(2, 8, 1, 1)).astype(dtype)}
    coupled = analyse(graph.load(make(image("b = Relu (a)").replace("float[", f"{word}["), weights).path))
    graph.save(shrunk(coupled, of_first(coupled)), tmp_path / "out.onnx")
    model = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(model)
    wanted = onnx.TensorProto.DataType.Value(word.upper())
    assert {t.data_type for t in model.graph.initializer} == {wanted}
    assert np.array_equal(array(model, "w2").astype(np.float32), weights["w2"][:, KEPT].astype(np.float32))


def test_large_weights_beside_the_file_are_cut(make: Make, tmp_path: Path) -> None:
    path = make(image("b = Relu (a)"), {"w1": [800, 3, 1, 1], "w2": [2, 800, 1, 1]}).path
    loaded = onnx.load(path)
    onnx.save(loaded, out := tmp_path / "apart.onnx", save_as_external_data=True, location="apart.data")
    graph.normalise(out, normal := tmp_path / "normal.onnx")
    coupled = analyse(graph.load(normal))
    small = hold(coupled, of_first(coupled), tmp_path)
    assert array(onnx.load(small), "w1").shape == (798, 3, 1, 1)
    assert graph.open_model(small).parameters == 798 * 5
    assert graph.open_model(small).size_bytes == sum(part.stat().st_size for part in graph.parts(small))


def test_names_metadata_and_descriptions_stay_and_shapes_follow(make: Make, tmp_path: Path) -> None:
    model = make(image("[middle] b = Relu (a)", "float[n,2,6,6] y"), {**W, "w2": [2, 8, 1, 1]})
    given, coupled = onnx.load(model.path), analyse(graph.load(model.path))
    found = onnx.load(hold(coupled, of_first(coupled), tmp_path))
    assert [(n.name, n.op_type, *n.input, *n.output) for n in found.graph.node] == [
        (n.name, n.op_type, *n.input, *n.output) for n in given.graph.node
    ]
    assert (found.model_version, found.domain, found.doc_string) == (42, "org.example", "what it is for")
    assert {p.key: p.value for p in found.metadata_props}.items() >= {"classes": "cat,dog", "stride": "32"}.items()
    assert (found.graph.input, found.graph.output) == (given.graph.input, given.graph.output)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim][1:] for v in found.graph.value_info}
    assert (shapes["a"], shapes["b"]) == ([6, 6, 6], [6, 6, 6])


def test_what_was_analysed_is_not_changed_and_cutting_is_the_same_every_time(make: Make) -> None:
    import onnx_ir as ir

    def written(model: ir.Model) -> bytes:
        return ir.to_proto(model).SerializeToString(deterministic=True)

    text = image("c = Reshape (a, target) b = Relu (c)")
    coupled = analyse(graph.load(make(text, {**W, "w2": [2, 8, 1, 1], "target": ints(0, 8, 6, 6)}).path))
    before = written(coupled.model)
    one, two = (written(shrunk(coupled, of_first(coupled))) for _ in range(2))
    assert one == two
    assert written(coupled.model) == before != one


def test_removing_nothing_leaves_what_was_analysed(make: Make) -> None:
    import onnx_ir as ir

    path = make(image("b = Relu (a)"), {**W, "w2": [2, 8, 1, 1]}).path
    coupled = analyse(graph.load(path))
    wanted = ir.to_proto(coupled.model)
    wanted.graph.output[0].type.tensor_type.shape.CopyFrom(onnx.load(path).graph.output[0].type.tensor_type.shape)
    assert ir.to_proto(shrunk(coupled, frozenset())) == wanted


@pytest.mark.parametrize(("batch", "out"), [("n", "float[k,l] z"), ("1", "float[k] z")])
def test_a_squeeze_that_nothing_is_cut_before_is_left(make: Make, tmp_path: Path, batch: str, out: str) -> None:
    """What it drops may depend on the sizes that it is given."""
    text = image("b = Relu (a)", out).replace("}", "p = GlobalAveragePool (y) z = Squeeze (p) }")
    model = cut(make, tmp_path, text.replace("[n,3", f"[{batch},3"), {**W, "w2": [4, 8, 1, 1]})
    (squeeze,) = (node for node in model.graph.node if node.op_type == "Squeeze")
    assert len(squeeze.input) == 1
