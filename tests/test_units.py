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


@pytest.mark.parametrize(("text", "value"), [("1.2x", 1.2), ("2 x", 2.0), ("0.98x", 0.98)])
def test_a_factor_is_read_with_its_x(text: str, value: float) -> None:
    assert units.factor(text) == value


@pytest.mark.parametrize("text", ["1.2", 1.2, "x", "120%", "1,2x"])
def test_a_factor_without_its_x_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a factor such as 1\.2x, found"):
        units.factor(text)


@pytest.mark.parametrize(("text", "value"), [("0.50 USD/1M", 0.5), ("3USD/1M", 3.0)])
def test_a_price_is_read_with_its_unit(text: str, value: float) -> None:
    assert units.price(text) == value


@pytest.mark.parametrize("text", ["0.50", 0.5, "0.50 USD", "0.50 EUR/1M"])
def test_a_price_in_another_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a price for a million such as 0\.50 USD/1M, found"):
        units.price(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [(200, 200), ("200", 200), ("300M", 300_000_000), ("1.1G", 1_100_000_000), ("1.5 k", 1500), (0, 0)],
)
def test_a_count_is_read_with_or_without_a_unit(text: str | int, value: int) -> None:
    assert units.count(text) == value
    assert isinstance(units.count(text), int)


@pytest.mark.parametrize("text", [1.5, "1.5", "1.0005k", "3T", "3m", -1, "-1", True, None, "", "k"])
def test_what_is_no_whole_number_is_no_count(text: str | int) -> None:
    with pytest.raises(ValueError, match="expected a whole number such as 200 or 300M, found"):
        units.count(text)


@pytest.mark.parametrize(
    ("value", "text"), [(0, 0), (999, 999), (1000, "1k"), (1500, 1500), (300_000_000, "300M"), (2 * 10**9, "2G")]
)
def test_a_count_is_written_in_the_largest_unit_that_divides_it(value: int, text: str | int) -> None:
    assert units.write_count(value) == text


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


@given(st.integers(0, 2**50))
def test_a_count_survives_being_written(value: int) -> None:
    assert units.count(units.write_count(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-5, "0.00001/s"), (0.1 / 3600, "0.0000277777777778/s"), (200, "200/s"), (1e13, "10000000000000/s")],
)
def test_a_rate_is_written_without_an_exponent_however_small_or_large(value: float, text: str) -> None:
    assert units.write_rate(value) == text
    assert units.rate(units.write_rate(value)) == pytest.approx(value, rel=1e-9)


@given(st.integers(1, 10_000_000))
def test_factors_and_prices_survive_being_written(thousandths: int) -> None:
    value = thousandths / 1000
    assert units.factor(units.write_factor(value)) == pytest.approx(value, rel=1e-11)
    assert units.price(units.write_price(value)) == pytest.approx(value, rel=1e-11)


@pytest.mark.parametrize(
    ("value", "text"), [(0.25, "0.25/s"), (152.4, "152/s"), (999.4, "999/s"), (1234.5, "1,234/s"), (62500, "62,500/s")]
)
def test_rates_for_people_have_three_digits_or_all_before_the_point(value: float, text: str) -> None:
    assert units.human_rate(value) == text


@pytest.mark.parametrize(
    ("value_ms", "text"), [(0.0756, "75.6 µs"), (1.234, "1.23 ms"), (999.4, "999 ms"), (1500, "1.5 s")]
)
def test_milliseconds_for_people_have_three_digits(value_ms: float, text: str) -> None:
    assert units.human_ms(value_ms) == text


@pytest.mark.parametrize(("size", "text"), [(214_000, "214 kB"), (18_600_000, "18.6 MB"), (12, "12 B")])
def test_sizes_for_people_have_three_digits(size: int, text: str) -> None:
    assert units.human_bytes(size) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0000123, "0.0000123"), (0.1849, "0.185"), (1, "1"), (999.6, "1000"), (110_000, "110,000")]
)
def test_numbers_for_people_have_no_exponent(value: float, text: str) -> None:
    assert units.human_number(value) == text
    assert units.human_rate(value) == f"{text}/s"


def test_what_is_rounded_to_a_thousand_has_no_exponent() -> None:
    assert [units.human_ms(ms) for ms in (0.9996, 999.6, 1_234_000)] == ["1000 µs", "1000 ms", "1,234 s"]
    assert units.human_bytes(999_600) == "1000 kB"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.01, "1 s"), (1.4, "1 s"), (119, "119 s"), (120, "2 min"), (245, "4 min"), (7200, "2 h"), (7.2e6, "2,000 h")],
)
def test_how_long_something_takes_is_told_roughly(seconds: float, text: str) -> None:
    assert units.human_duration(seconds) == text
