"""Which ways of quantizing are looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from compressor import schemes
from compressor.errors import InputError
from compressor.records import Model
from compressor.schemes import Scheme
from compressor.stages import Quantize

CONV = "conv (float[1,3,8,8] x) => (float[1,4,6,6] y) { y = Conv (x, w) }"
PRODUCT = "product (float[1,8] x) => (float[1,4] y) { y = MatMul (x, w) }"


def scheme(name: str, *, here: bool = True) -> Scheme:
    found = schemes.by_name(name)
    assert found is not None
    return replace(found, here=here)


def ways(stage: Quantize, model: Model, target: Scheme) -> tuple[Quantize, ...]:
    """Give all candidates but the last, which is always to leave the model as it is."""
    *found, last = stage.candidates(model.path, target)
    assert last == Quantize(scheme="float")
    return tuple(found)


def kinds(found: tuple[Quantize, ...]) -> list[tuple[object, ...]]:
    return [(each.scheme, each.backend, each.operators, each.reduce_range) for each in found]


@pytest.fixture
def conv(make: Callable[..., Model]) -> Model:
    return make(CONV, {"w": (4, 3, 3, 3)})


@pytest.fixture
def product(make: Callable[..., Model]) -> Model:
    return make(PRODUCT, {"w": (8, 4)})


def test_a_network_of_convolutions_is_quantized_statically(conv: Model) -> None:
    found = ways(Quantize(), conv, scheme("x86-vnni"))
    assert kinds(found) == [
        ("static", "onnxruntime", "core", False),
        ("static", "onnxruntime", "all", False),
        ("static", "nncf", None, False),
    ]
    assert {(each.activations, each.symmetric, each.unsigned) for each in found} == {("u8", False, ())}


def test_matrix_products_are_also_tried_with_ranges_found_at_run_time_and_with_weights_alone(product: Model) -> None:
    found = [each.scheme for each in ways(Quantize(), product, scheme("x86-vnni"))]
    assert found == ["dynamic", "static", "static", "static", "weights"]


def test_where_kernels_saturate_seven_bits_are_tried_and_layers_are_looked_at(conv: Model, product: Model) -> None:
    found = ways(Quantize(), conv, scheme("x86-avx2"))
    assert ("static", "onnxruntime", "core", True) in kinds(found)
    assert ("static", "onnxruntime", "core", False) in kinds(found)
    assert {each.unsigned for each in found} == {None}
    dynamic = [each for each in ways(Quantize(), product, scheme("x86-avx2")) if each.scheme == "dynamic"]
    assert [each.reduce_range for each in dynamic] == [True], "its layers cannot be looked at one by one"


def test_for_another_machine_that_saturates_all_weights_have_seven_bits(conv: Model) -> None:
    found = ways(Quantize(), conv, scheme("x86-avx2", here=False))
    assert {each.reduce_range for each in found} == {True}
    assert {each.unsigned for each in found} == {()}


def test_tensorrt_gets_signed_symmetric_q_dq_and_nothing_that_only_onnxruntime_reads(product: Model) -> None:
    found = ways(Quantize(), product, scheme("tensorrt", here=False))
    assert {each.scheme for each in found} == {"static"}
    assert {(each.activations, each.symmetric) for each in found} == {("s8", True)}


@pytest.mark.parametrize("named", ["dynamic", "weights"])
def test_a_scheme_that_the_target_cannot_read_is_refused(product: Model, named: Any) -> None:
    with pytest.raises(InputError, match=f"scheme {named} is for CPUs, not for tensorrt: use static, or auto"):
        Quantize(scheme=named).resolve(product.path, scheme("tensorrt", here=False))


def test_what_the_recipe_states_is_not_searched(conv: Model) -> None:
    found = ways(Quantize(backend="nncf"), conv, scheme("x86-vnni"))
    assert kinds(found) == [("static", "nncf", None, False)]
    seven = ways(Quantize(reduce_range=True), conv, scheme("x86-vnni"))
    assert {each.reduce_range for each in seven} == {True}


def test_a_named_scheme_is_taken_at_its_word(conv: Model) -> None:
    stage = Quantize(scheme="static").resolve(conv.path, scheme("x86-vnni"))
    assert not stage.open
    assert (stage.backend, stage.operators, stage.activations, stage.reduce_range) == (
        "onnxruntime",
        "core",
        "u8",
        False,
    )


def test_what_a_recipe_states_of_the_weights_is_not_overruled(conv: Model) -> None:
    stated = Quantize(scheme="dynamic", reduce_range=False)
    assert stated.resolve(conv.path, scheme("x86-avx2")).reduce_range is False
    settled = Quantize(scheme="static", reduce_range=False, unsigned=("conv",))
    there = settled.resolve(conv.path, scheme("x86-avx2", here=False))
    assert (there.reduce_range, there.unsigned) == (False, ("conv",)), "what one machine settled holds on every other"


def test_a_settled_stage_stays_as_it_is_when_it_is_settled_again(conv: Model) -> None:
    for name in ("x86-vnni", "x86-avx2", "tensorrt"):
        for way in ways(Quantize(), conv, scheme(name)):
            assert way.resolve(conv.path, scheme(name)) == way
