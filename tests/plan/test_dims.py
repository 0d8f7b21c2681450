"""Static shapes from recipe, file and samples."""

from __future__ import annotations

import pytest

from compressor.errors import InputError
from compressor.plan.dims import Dimension, at_batch, restated, settle
from compressor.records import Tensor


def tensor(name: str, *dims: Dimension) -> Tensor:
    return Tensor(name, "float32", dims)


def test_a_static_model_needs_nothing() -> None:
    assert settle([tensor("x", 2, 3)], {}, {}) == {"x": (2, 3)}


def test_the_first_axis_is_one_unless_something_says_otherwise() -> None:
    x = tensor("x", "batch", 3)
    assert settle([x], {}, {}) == {"x": (1, 3)}
    assert settle([x], {"x": (4, 3)}, {}) == {"x": (4, 3)}
    assert settle([x], {}, {"x": (2, 3)}) == {"x": (2, 3)}, "a sample that is a complete feed"


def test_a_sample_without_batch_axis_settles_the_rest() -> None:
    assert settle([tensor("x", None, 3, "h", "w")], {}, {"x": (3, 20, 30)}) == {"x": (1, 3, 20, 30)}


def test_the_recipe_wins_over_the_sample() -> None:
    assert settle([tensor("x", "n", "h")], {"x": (1, 8)}, {"x": (9,)}) == {"x": (1, 8)}


def test_a_symbol_has_one_value_in_all_inputs() -> None:
    inputs = [tensor("ids", "b", "s"), tensor("mask", "b", "s"), tensor("flag")]
    assert settle(inputs, {"mask": (2, 7)}, {}) == {"ids": (2, 7), "mask": (2, 7), "flag": ()}


def test_unknown_dimensions_are_listed_with_what_to_type() -> None:
    with pytest.raises(InputError, match=r"x is batchx3xhx\?.*--shape x=1x3x224x224"):
        settle([tensor("x", "batch", 3, "h", None)], {}, {})


def test_an_input_of_unknown_rank_must_be_stated() -> None:
    x = Tensor("x", "float32", None)
    assert settle([x], {"x": (1, 2)}, {}) == {"x": (1, 2)}
    with pytest.raises(InputError, match="x is of unknown rank"):
        settle([x], {}, {})


@pytest.mark.parametrize("given", [(1, 4), (1, 3, 3), ()])
def test_a_given_shape_must_fit(given: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"shapes\.x: expected a shape that fits batchx3, found"):
        settle([tensor("x", "batch", 3)], {"x": given}, {})


def test_one_symbol_cannot_have_two_values() -> None:
    inputs = [tensor("ids", "b", "s"), tensor("mask", "b", "s")]
    with pytest.raises(InputError, match=r"the dimension 's' would be 7 in 'ids' and 8 in 'mask'"):
        settle(inputs, {"ids": (1, 7), "mask": (1, 8)}, {})


def test_a_misspelt_input_is_pointed_out() -> None:
    with pytest.raises(InputError, match="no input 'inptu'; did you mean 'input'"):
        settle([tensor("input", 1)], {"inptu": (1,)}, {})


def test_an_input_that_holds_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="input 'x' is 0x64: it holds nothing"):
        settle([tensor("x", 0, 64)], {}, {})


def test_an_empty_input_beside_others_is_a_cache_at_its_start() -> None:
    inputs = [tensor("x", "n", 4), tensor("past", "n", 0, 8), tensor("mask", "n", "past")]
    assert settle(inputs, {"mask": (1, 0)}, {}) == {"x": (1, 4), "past": (1, 0, 8), "mask": (1, 0)}


def test_the_batch_of_one_stands_wherever_its_symbol_does() -> None:
    inputs = [tensor("x", "batch", 3), tensor("state", 2, "batch", 4)]
    assert settle(inputs, {}, {}) == {"x": (1, 3), "state": (2, 1, 4)}
    assert settle(inputs, {"state": (2, 5, 4)}, {}) == {"x": (5, 3), "state": (2, 5, 4)}


@pytest.mark.parametrize(
    "inputs",
    [
        [tensor("ids", "batch", "seq"), tensor("position", "seq")],
        [tensor("ids", "batch", "seq"), tensor("mask", "seq", "seq")],
        [tensor("mask", "seq", "seq")],
    ],
)
def test_a_length_that_is_also_a_first_axis_is_not_taken_for_the_batch(inputs: list[Tensor]) -> None:
    with pytest.raises(InputError, match="leaves dimensions open"):
        settle(inputs, {}, {})


def test_a_batch_stands_on_every_open_first_axis_and_wherever_its_symbol_does() -> None:
    inputs = [tensor("x", "batch", 3), tensor("state", 2, "batch", 4), tensor("rate")]
    shapes = {"x": (1, 3), "state": (2, 1, 4), "rate": ()}
    assert at_batch(inputs, shapes, 8) == {"x": (8, 3), "state": (2, 8, 4), "rate": ()}


def test_a_batch_on_inputs_without_a_first_axis_is_refused() -> None:
    with pytest.raises(InputError, match="batch 2: the model has no input with a batch axis"):
        at_batch([tensor("rate")], {"rate": ()}, 2)


def test_an_input_of_unknown_rank_takes_the_batch() -> None:
    assert at_batch([Tensor("x", "float32", None)], {"x": (1, 5)}, 2) == {"x": (2, 5)}


def test_a_symbol_that_is_stated_anew_moves_the_other_inputs_too() -> None:
    inputs = [tensor("ids", "b", "s"), tensor("mask", "b", "s")]
    assert restated(inputs, {"ids": (1, 7), "mask": (1, 7)}, {"ids": (2, 9)}) == {"ids": (2, 9), "mask": (2, 9)}


def test_a_shape_that_does_not_fit_is_refused_at_a_point_too() -> None:
    with pytest.raises(InputError, match=r"shapes\.x: expected a shape that fits batchx3, found 1x4"):
        restated([tensor("x", "batch", 3)], {"x": (1, 3)}, {"x": (1, 4)})
    with pytest.raises(InputError, match="no input 'y'"):
        restated([tensor("x", "batch", 3)], {"x": (1, 3)}, {"y": (1, 4)})


def test_what_differs_from_sample_to_sample_must_be_stated() -> None:
    x, observed = tensor("x", "batch", 3, "h", "w"), {"x": (3, (8, 12), (9, 9))}
    with pytest.raises(InputError, match=r"its samples are from 3x8x9 to 3x12x9.*--shape x=1x3x12x9"):
        settle([x], {}, observed)
    assert settle([x], {"x": (2, 3, 5, 5)}, observed) == {"x": (2, 3, 5, 5)}
    mask = tensor("mask", "batch", "h")
    assert settle([x, mask], {"x": (1, 3, 5, 5)}, {**observed, "mask": ((8, 12),)})["mask"] == (1, 5)
