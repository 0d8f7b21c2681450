from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from compressor.engines.tensorrt import Tensorrt, profiles
from compressor.engines.tensorrt.profiles import Extent, Profile
from compressor.errors import InputError
from compressor.records import Tensor

IMAGE = Tensor("image", "float32", ("N", 3, 8, 8))
IDS, MASK = Tensor("ids", "int64", ("N", "S")), Tensor("mask", "int64", ("N", "S"))


def read(text: Any) -> Any:
    return TypeAdapter(Extent).validate_python(text)


def given(**texts: str) -> Profile:
    return TypeAdapter(Profile).validate_python(texts)


def settled(inputs: list[Tensor], *asked: Profile, **shapes: tuple[int, ...]) -> Any:
    return profiles.settled(asked, inputs, [shapes])


def refused(inputs: list[Tensor], *asked: Profile, **shapes: tuple[int, ...]) -> str:
    with pytest.raises(InputError) as caught:
        settled(inputs, *asked, **shapes)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1/8/32", ((1,), (8,), (32,))),
        ("16", ((16,), (16,), (16,))),
        ("4/4/4", ((4,), (4,), (4,))),
        ("1x3x8x8/8x3x8x8/32x3x8x8", ((1, 3, 8, 8), (8, 3, 8, 8), (32, 3, 8, 8))),
        ("2x128", ((2, 128), (2, 128), (2, 128))),
    ],
)
def test_a_range_is_read(text: str, expected: Any) -> None:
    assert read(text) == expected
    assert read(profiles.write(expected)) == expected


def test_one_alone_is_written_as_all_three() -> None:
    assert profiles.write(read("16")) == "16/16/16"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("8/1/32", "1 <= least <= optimal <= largest", id="optimal below least"),
        pytest.param("1/64/32", "1 <= least <= optimal <= largest", id="optimal above largest"),
        pytest.param("1x8/2x4/4x8", "1 <= least <= optimal <= largest", id="order in another dimension"),
        pytest.param("0/8/32", "1 <= least <= optimal <= largest", id="zero"),
        pytest.param("0", "1 <= least <= optimal <= largest", id="zero alone"),
        pytest.param("-1/8/32", "a shape of whole numbers", id="-1"),
        pytest.param("-1x3x8x8", "a shape of whole numbers", id="-1 in a shape"),
        pytest.param("1x3/8/32x3", "as many dimensions", id="ranks differ"),
        pytest.param("", "as many dimensions", id="nothing"),
        pytest.param("//", "as many dimensions", id="nothing thrice"),
        pytest.param("1/8", "least/optimal/largest", id="two"),
        pytest.param("1/2/3/4", "least/optimal/largest", id="four"),
        pytest.param("1/8/32/", "least/optimal/largest", id="open end"),
        pytest.param("one/8/32", "a shape of whole numbers", id="a word"),
        pytest.param("1.5/8/32", "a shape of whole numbers", id="a fraction"),
        pytest.param(None, "least/optimal/largest", id="no text"),
        pytest.param([1, 8, 32], "least/optimal/largest", id="a list"),
    ],
)
def test_what_is_no_range_is_refused(text: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        read(text)


def test_a_recipe_reads_what_it_wrote() -> None:
    engine = Tensorrt(devices=("l4",), profiles=({"batch": "1/8/32", "ids": "1x16/4x128/8x384"},))  # type: ignore[dict-item]
    written = engine.model_dump(mode="json")
    assert written["profiles"] == [{"batch": "1/8/32", "ids": "1x16/4x128/8x384"}]
    assert Tensorrt.model_validate(written) == engine


def test_a_symbol_covers_its_dimension_in_every_input() -> None:
    made = settled([IDS, MASK], given(N="1/4/8", S="16/128/384"), ids=(1, 128), mask=(1, 128))
    assert made == ({"ids": (each := ((1, 16), (4, 128), (8, 384))), "mask": each},)


def test_an_input_takes_its_own_shapes() -> None:
    made = settled([IMAGE], given(image="1x3x8x8/4x3x8x8/16x3x8x8"), image=(1, 3, 8, 8))
    assert made == ({"image": ((1, 3, 8, 8), (4, 3, 8, 8), (16, 3, 8, 8))},)


def test_batch_names_the_leading_dimension_whatever_it_is_called() -> None:
    nameless = Tensor("x", "float32", (None, 5))
    made = settled([IMAGE, nameless], given(batch="1/2/4"), image=(1, 3, 8, 8), x=(2, 5))
    assert made == ({"image": ((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8)), "x": ((1, 5), (2, 5), (4, 5))},)


def test_several_profiles_stay_in_their_order() -> None:
    made = settled([IDS], given(batch="1", S="128"), given(batch="8/16/32", S="16/64/384"), ids=(1, 128))
    assert made == ({"ids": ((1, 128),) * 3}, {"ids": ((8, 16), (16, 64), (32, 384))})


def test_an_input_of_fixed_shape_is_in_no_profile() -> None:
    rate = Tensor("rate", "int64", ())
    made = settled([IMAGE, rate], given(batch="1/8/32"), image=(1, 3, 8, 8), rate=())
    assert list(made[0]) == ["image"]


def test_a_nameless_dimension_is_covered_by_its_input_alone() -> None:
    x = Tensor("x", "float32", (None, None))
    assert settled([x], given(x="1x4/2x8/3x9"), x=(1, 5)) == ({"x": ((1, 4), (2, 8), (3, 9))},)
    said = refused([x], given(batch="1/8/32"), x=(1, 5))
    assert "dimension 1 of input 'x' (?x?) is not covered" in said
    assert "add x: with" in said


def test_an_unknown_rank_takes_whole_shapes() -> None:
    x = Tensor("x", "float32", None)
    assert settled([x], given(x="1x4/2x8/3x9"), x=(1, 5)) == ({"x": ((1, 4), (2, 8), (3, 9))},)
    assert "'x' is of unknown rank" in refused([x], given(batch="1/8/32"), x=(1, 5))


def test_fixed_shapes_need_no_profile_and_take_none() -> None:
    x = Tensor("x", "float32", (1, 5))
    assert settled([x], x=(1, 5)) == ()
    assert "every input of the model has a fixed shape" in refused([x], given(batch="1/8/32"), x=(1, 5))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        pytest.param(
            {"ids": "1x16/4x128/8x384", "mask": "1x16/4x128/8x256"},
            "profiles[0]: the dimension 'S' would be 16/128/384 in 'ids' and 16/128/256 in 'mask'",
            id="two inputs",
        ),
        pytest.param(
            {"ids": "1x16/4x128/8x384", "N": "1/4/16", "S": "16/128/384"},
            "profiles[0]: the dimension 'N' would be",
            id="an input and a symbol for the other",
        ),
    ],
)
def test_what_is_the_same_elsewhere_has_one_size(texts: Mapping[str, str], said: str) -> None:
    assert said in refused([IDS, MASK], given(**texts), ids=(1, 128), mask=(1, 128))


def test_a_symbol_that_says_other_than_its_input_is_not_passed_over() -> None:
    said = refused([IDS], given(ids="1x16/4x128/8x384", N="1/2/3"), ids=(1, 128))
    assert "the dimension 'N' would be 1/2/3" in said
    assert settled([IDS], given(ids="1x16/4x128/8x384", N="1/4/8"), ids=(1, 128))


def test_a_symbol_twice_in_one_input_has_one_size() -> None:
    x = Tensor("x", "float32", ("S", "S"))
    assert "the dimension 'S' would be 1/2/4 in 'x' and 1/2/8 in 'x'" in refused([x], given(x="1x1/2x2/4x8"), x=(2, 2))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("imag", "did you mean 'image'?"),
        ("bacth", "did you mean 'batch'?"),
        ("sequence", "it has 'image', 'N', 'batch'"),
    ],
)
def test_an_unknown_name_is_told_with_those_there_are(name: str, hint: str) -> None:
    said = refused([IMAGE], given(batch="1/8/32", **{name: "1/8/32"}), image=(1, 3, 8, 8))
    assert said == f"profiles[0]: the model has no open dimension or input {name!r}; {hint}"


def test_batch_is_unknown_where_no_leading_dimension_is_open() -> None:
    x, scalar = Tensor("x", "float32", (1, "T")), Tensor("rate", "int64", ())
    asked = given(batch="1/8/32", T="1/8/32")
    assert "no open dimension or input 'batch'" in refused([x, scalar], asked, x=(1, 4), rate=())


def test_an_open_dimension_that_nothing_covers_is_named_with_its_profile() -> None:
    said = refused([IDS], given(batch="1", S="128"), given(batch="1/8/32"), ids=(1, 128))
    assert said == ("profiles[1]: 'S' of input 'ids' (NxS) is not covered: add S: with least/optimal/largest")


@pytest.mark.parametrize("text", ["1x3x8x9", "1x3x8", "1x4x8x8/2x3x8x8/4x3x8x8"])
def test_shapes_that_the_input_cannot_have_are_refused(text: str) -> None:
    with pytest.raises((InputError, ValidationError)) as caught:
        settled([IMAGE], given(image=text), image=(1, 3, 8, 8))
    assert "Nx3x8x8" in str(caught.value) or "least" in str(caught.value)


def test_a_dimension_takes_numbers_only() -> None:
    said = refused([IMAGE], given(N="1x3/8x3/32x3"), image=(1, 3, 8, 8))
    assert said == "profiles[0].N: expected numbers such as 1/8/32, found 1x3/8x3/32x3"


def test_what_is_measured_must_be_taken_by_one_profile() -> None:
    asked = (given(batch="1", S="128"), given(batch="2/4/8", S="16/64/256"))
    shapes = [{"ids": (1, 128)}, {"ids": (8, 256)}]
    assert len(profiles.settled(asked, [IDS], shapes)) == 2
    with pytest.raises(InputError) as caught:  # each number alone is within one of the two profiles
        profiles.settled(asked, [IDS], [*shapes, {"ids": (1, 256)}])
    said = str(caught.value)
    assert said.startswith("profiles: none takes what is measured, ids 1x256; they take")
    assert "ids 2x16/4x64/8x256" in said


@pytest.mark.parametrize(
    ("shape", "taken"),
    [((1, 16), True), ((8, 384), True), ((3, 100), True), ((9, 100), False), ((3, 15), False), ((3,), False)],
)
def test_a_profile_takes_shapes_within_its_limits(shape: tuple[int, ...], taken: bool) -> None:  # noqa: FBT001
    assert profiles.takes({"ids": ((1, 16), (4, 128), (8, 384))}, {"ids": shape, "other": (5,)}) is taken


def test_a_derived_profile_has_batch_1_8_32_and_measured_sizes() -> None:
    made = settled([IDS, MASK], ids=(1, 128), mask=(1, 128))
    assert made == ({"ids": (each := ((1, 128), (8, 128), (32, 128))), "mask": each},)


def test_a_derived_profile_takes_all_that_is_measured() -> None:
    shapes = [{"ids": (2, 100)}, {"ids": (64, 16)}, {"ids": (1, 384)}]
    (made,) = profiles.settled((), [IDS], shapes)
    assert made == {"ids": ((1, 16), (8, 100), (64, 384))}
    assert all(profiles.takes(made, each) for each in shapes)


def test_a_derived_profile_is_best_at_a_main_batch_above_8() -> None:
    assert settled([IMAGE], image=(16, 3, 8, 8)) == ({"image": ((1, 3, 8, 8), (16, 3, 8, 8), (32, 3, 8, 8))},)
    assert settled([IMAGE], image=(100, 3, 8, 8)) == ({"image": ((1, 3, 8, 8), (100, 3, 8, 8), (100, 3, 8, 8))},)


def test_a_leading_dimension_grows_wherever_it_stands() -> None:
    state = Tensor("state", "float32", (2, "N", 64))
    made = settled([IMAGE, state], image=(1, 3, 8, 8), state=(2, 1, 64))
    assert made[0]["state"] == ((2, 1, 64), (2, 8, 64), (2, 32, 64))


def test_an_unnamed_dimension_elsewhere_does_not_grow_with_an_unnamed_batch() -> None:
    x = Tensor("x", "float32", (None, None))
    assert settled([x], x=(1, 50)) == ({"x": ((1, 50), (8, 50), (32, 50))},)


def test_a_derived_profile_of_unknown_rank_has_that_of_its_samples() -> None:
    x = Tensor("x", "float32", None)
    assert settled([x], x=(1, 7, 9)) == ({"x": ((1, 7, 9), (8, 7, 9), (32, 7, 9))},)


def test_fixed_inputs_stay_out_of_a_derived_profile() -> None:
    fixed = Tensor("rate", "int64", (1,))
    assert list(settled([fixed, IMAGE], rate=(1,), image=(1, 3, 8, 8))[0]) == ["image"]


def test_one_open_dimension_that_is_not_the_batch_stays_as_measured() -> None:
    x = Tensor("x", "float32", (1, "T"))
    assert settled([x], x=(1, 512)) == ({"x": ((1, 512),) * 3},)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((1, 3), False), ((), False), (("N", 3), True), ((1, None), True), (None, True)],
)
def test_an_input_is_open_where_a_dimension_is_no_number(shape: Any, expected: bool) -> None:  # noqa: FBT001
    assert profiles.is_open(Tensor("x", "float32", shape)) is expected
