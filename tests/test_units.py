"""Quantities read from and written as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compressor import units


@pytest.mark.parametrize(
    ("text", "seconds"), [("50ms", 0.05), ("1s", 1), ("800us", 0.0008), ("1.5 s", 1.5), ("5min", 300), ("2h", 7200)]
)
def test_a_duration_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert units.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["50", "fast", "", "-1s", "1 parsec", "50 ms ", "1e3s", "nan s"])
def test_a_duration_without_a_known_unit_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time such as 50ms, found"):
        units.seconds(text)


@pytest.mark.parametrize("number", [50, 0.05, None, True])
def test_a_bare_number_is_no_duration(number: object) -> None:
    with pytest.raises(ValueError, match="expected a time"):
        units.seconds(number)  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "size"), [("4MiB", 4194304), ("1kB", 1000), ("8GiB", 8589934592), ("12B", 12)])
def test_a_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert units.size_bytes(text) == size


def test_a_percentage_is_read_exactly_and_stays_within_the_whole() -> None:
    assert units.fraction("95%") == 0.95
    with pytest.raises(ValueError, match="from 0% to 100%, found '101%'"):
        units.fraction("101%")


@pytest.mark.parametrize(("text", "shape"), [("1x3x224x224", (1, 3, 224, 224)), ("5", (5,)), ("", ())])
def test_a_shape_is_read(text: str, shape: tuple[int, ...]) -> None:
    assert units.shape(text) == shape
    assert units.write_shape(shape) == text


@pytest.mark.parametrize("text", ["1x?x3", "-1x3", "1x", "1,3", "axb", " "])
def test_a_shape_that_is_not_static_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="shape of whole numbers"):
        units.shape(text)


@given(st.integers(0, 10_000_000))
def test_a_duration_survives_being_written(microseconds: int) -> None:
    assert units.seconds(units.write_seconds(microseconds / 1e6)) == pytest.approx(microseconds / 1e6, rel=1e-11)


@given(st.integers(0, 2**50))
def test_a_size_survives_being_written(size: int) -> None:
    assert units.size_bytes(units.write_bytes(size)) == size


@given(st.integers(0, 1000))
def test_a_percentage_survives_being_written(tenths: int) -> None:
    value = tenths / 1000
    assert units.fraction(units.write_fraction(value)) == pytest.approx(value, rel=1e-11)


@pytest.mark.parametrize(
    ("value_ms", "text"), [(0.0756, "75.6 µs"), (1.234, "1.23 ms"), (999.4, "999 ms"), (1500, "1.5 s")]
)
def test_milliseconds_for_people_have_three_digits(value_ms: float, text: str) -> None:
    assert units.human_ms(value_ms) == text


@pytest.mark.parametrize(("size", "text"), [(214_000, "214 kB"), (18_600_000, "18.6 MB"), (12, "12 B")])
def test_sizes_for_people_have_three_digits(size: int, text: str) -> None:
    assert units.human_bytes(size) == text
