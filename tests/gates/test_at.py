"""The points that a gate may state."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from compressor.gates import At


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ({"batch": 8}, "batch 8"),
        ({"shapes": {"x": "1x3x32x32"}}, "x 1x3x32x32"),
        ({"shapes": {"y": "2", "x": "1x3"}}, "x 1x3, y 2"),
        ({"shapes": {"x": ""}}, "x scalar"),
    ],
)
def test_a_point_has_a_name(text: dict[str, Any], name: str) -> None:
    assert At.model_validate(text).name() == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({}, "Value error, expected either batch or shapes, found neither"),
        ({"shapes": {}}, "Value error, expected either batch or shapes, found neither"),
        ({"batch": 8, "shapes": {"x": "1x3"}}, "Value error, expected either batch or shapes, found both"),
        ({"batch": 0}, "Input should be greater than or equal to 1"),
        ({"batch": 65_537}, "Input should be less than or equal to 65536"),
        ({"shapes": {"x": "Nx3"}}, "Value error, expected a shape of whole numbers such as 1x3x224x224, found 'Nx3'"),
    ],
)
def test_a_point_that_is_none_is_refused(text: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        At.model_validate(text)
    assert caught.value.errors()[0]["msg"] == message


def test_the_same_point_is_one_in_a_set_however_its_inputs_are_ordered() -> None:
    once = At(shapes={"x": "1x3", "y": "2"})
    assert len({once, At(shapes={"y": "2", "x": "1x3"}), At(batch=2), At(batch=2)}) == 2
