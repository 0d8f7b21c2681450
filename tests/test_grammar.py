"""One-key values: both spellings, errors that name the key, the schema."""

from __future__ import annotations

from typing import Annotated

import jsonschema
import pytest
from pydantic import BaseModel, ValidationError

from compressor.grammar import Keyed


class Wash(BaseModel, frozen=True, extra="forbid"):
    times: int = 1


class Dry(BaseModel, frozen=True, extra="forbid"):
    minutes: int


class Plan(BaseModel, frozen=True, extra="forbid"):
    steps: tuple[Annotated[Wash | Dry, Keyed(Wash, Dry)], ...]


def test_a_bare_name_means_the_defaults() -> None:
    assert Plan.model_validate({"steps": ["wash", {"wash": None}, {"wash": {}}]}) == Plan(steps=(Wash(),) * 3)


def test_what_is_written_is_read_back() -> None:
    plan = Plan(steps=(Wash(times=3), Dry(minutes=5), Wash()))
    written = plan.model_dump(mode="json", exclude_defaults=True)
    assert written == {"steps": [{"wash": {"times": 3}}, {"dry": {"minutes": 5}}, "wash"]}
    assert Plan.model_validate(written) == plan


@pytest.mark.parametrize("wrong", ["iron", {"iron": {}}, {"wash": {}, "dry": {}}, 3, None, [], {}])
def test_an_unknown_key_is_refused_with_the_known_ones(wrong: object) -> None:
    with pytest.raises(ValidationError, match=r"expected one of wash, dry, found"):
        Plan.model_validate({"steps": [wrong]})


def test_an_error_inside_is_located_through_the_key() -> None:
    with pytest.raises(ValidationError) as caught:
        Plan.model_validate({"steps": [{"dry": {"minutes": "long"}}]})
    assert caught.value.errors()[0]["loc"] == ("steps", 0, "dry", "minutes")


@pytest.mark.parametrize(
    ("step", "fits"),
    [
        ("wash", True),
        ({"wash": {"times": 2}}, True),
        ({"dry": {"minutes": 1}}, True),
        ("dry", False),
        ({"dry": {}}, False),
        ({"wash": {}, "dry": {"minutes": 1}}, False),
        ("iron", False),
    ],
)
def test_the_schema_accepts_what_the_reader_accepts(step: object, fits: bool) -> None:  # noqa: FBT001
    validator = jsonschema.Draft202012Validator(Plan.model_json_schema())
    assert validator.is_valid({"steps": [step]}) is fits
