from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compressor import graph
from compressor.errors import InputError, RungError
from compressor.stages.quantize.exclude import check_names, exclusions, too_wide

MASKED = """g (float[1,4] x, float[1,4] m) => (float[1,4] y) {
  [dense] d = MatMul(x, W) \n [scaled] n = Mul(m, c) \n [masked] s = Add(d, n)
  [soft] p = Softmax(s) \n [after] y = MatMul(p, W) }"""
WEIGHTS = {"W": (4, 4), "c": np.array(-1e4, np.float32)}
FINITE = {"x": (-1.0, 1.0), "m": (0.0, 1.0), "d": (-2.0, 2.0), "p": (0.0, 1.0), "y": (-1.0, 1.0)}


def test_a_modest_mask_is_excluded_up_to_the_product_before_it(make: Any) -> None:
    found = too_wide(make(MASKED, WEIGHTS).path, {**FINITE, "n": (-1e4, 0.0), "s": (-1e4, 2.0)})
    assert set(found) == {"masked", "soft"}
    assert "spans 1e+04" in found["soft"]


def test_scores_of_common_size_are_quantized(make: Any) -> None:
    assert too_wide(make(MASKED, WEIGHTS).path, {**FINITE, "n": (-9.0, 0.0), "s": (-9.0, 2.0)}) == {}


@pytest.mark.parametrize("bounds", [(-np.inf, 0.0), (np.nan, np.nan), (-3.4e38, 0.0), (0.0, np.inf)])
def test_all_that_touches_an_endless_tensor_is_excluded(bounds: tuple[float, float], make: Any) -> None:
    found = too_wide(make(MASKED, WEIGHTS).path, {**FINITE, "n": bounds, "s": (0.0, 1.0)})
    assert set(found) == {"scaled", "masked"}


def test_what_the_recipe_names_is_kept_apart_from_what_is_unsafe(make: Any) -> None:
    model = make(
        "g (float[4,4] x) => (float[4,4] y) { [odd] a = Gemm<alpha=2.0>(x, W) \n [b] y = MatMul(a, W) }", WEIGHTS
    )
    found = exclusions(model.path, ["b"])
    assert found["b"] == "the recipe says so"
    assert "alpha" in found["odd"]


UNNAMED = """<ir_version: 8, opset_import: ["": 17]> g (float[4,4] x) => (float[4,4] y)
  <float[4,4] W = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}> { h = MatMul(x, W) \n [last] y = Relu(h) }"""


def test_the_names_to_exclude_are_those_of_the_normalised_model(tmp_path: Path) -> None:
    given = tmp_path / "given.onnx"
    onnx.save(onnx.parser.parse_model(UNNAMED), given)
    graph.normalise(given, tmp_path / "normal.onnx")
    names = [node.name for node in onnx.load(tmp_path / "normal.onnx").graph.node]
    assert all(names)
    check_names(given, names)
    with pytest.raises(InputError, match="no node is named 'lost'; the closest are 'last'"):
        check_names(given, [*names, "lost"])


def test_plain_products_are_not_excluded(make: Any) -> None:
    model = make(
        "g (float[4,4] x) => (float[4,4] y) { a = Gemm<alpha=1.0, beta=1.0>(x, W) \n y = MatMul(a, W) }", WEIGHTS
    )
    assert exclusions(model.path, []) == {}


def test_a_vector_is_known_by_its_inferred_shape(make: Any) -> None:
    model = make("g (float[4,4] x, float[4] v) => (float[4] y) { a = Exp(v) \n [odd] y = MatMul(x, a) }", {})
    assert list(exclusions(model.path, [])) == ["odd"]


@pytest.mark.parametrize(("group", "inputs", "excluded"), [(2, "x, W, b", ["up"]), (2, "x, W", []), (1, "x, V, b", [])])
def test_only_in_groups_is_a_transposed_convolution_with_bias_excluded(
    group: int, inputs: str, excluded: list[str], make: Any
) -> None:
    text = f"g (float[1,4,3,3] x) => (float[1,4,4,4] y) {{ [up] y = ConvTranspose<group={group}>({inputs}) }}"
    model = make(text, {"W": (4, 2, 2, 2), "V": (4, 4, 2, 2), "b": (4,)})
    assert list(exclusions(model.path, [])) == excluded


def test_half_precision_weights_are_refused(make: Any) -> None:
    half = np.ones((4, 4), np.float16)
    model = make("g (float16[4,4] x) => (float16[4,4] y) { y = MatMul(x, W) }", {"W": half})
    with pytest.raises(RungError, match="'W' is float16"):
        exclusions(model.path, [])


def test_a_name_that_no_node_has_is_told_with_those_that_are_close(make: Any) -> None:
    model = make("g (float[4,4] x) => (float[4,4] y) { [head] a = MatMul(x, W) \n [tail] y = Relu(a) }", WEIGHTS)
    with pytest.raises(
        RungError, match=r"^quantize\.exclude: no node is named 'haed'; the closest are 'head', 'tail'$"
    ):
        exclusions(model.path, ["tail", "haed"])


def test_a_node_that_preparing_takes_out_is_no_name_to_exclude(make: Any) -> None:
    text = "g (float[4,4] x) => (float[4,4] y) { [same] a = Cast<to=1>(x) \n [dense] y = MatMul(a, W) }"
    with pytest.raises(InputError, match="no node is named 'same'; the closest are 'dense'"):
        check_names(make(text, WEIGHTS).path, ["same"])


def test_what_computes_in_other_floats_stays_as_it_is(make: Any) -> None:
    text = """g (float[4,4] x, double[1] t) => (float[4,4] y) {
      [clock] s = Mul(t, t) \n [back] f = Cast<to=1>(s) \n [dense] h = MatMul(x, W) \n [sum] y = Add(h, f) }"""
    found = exclusions(make(text, WEIGHTS).path, [])
    assert found == {"clock": "it computes in float64; 8 bits are made of float32 alone"}
