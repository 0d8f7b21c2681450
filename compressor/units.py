"""Quantities as people write them, `50ms`, `200/s`, `4MiB`, `20%`, `1.2x`, `300M`, `1x3x224x224`, and back.

Each is a float or int annotated for pydantic: read from text, written as text. A number without its unit is refused,
but for counts, which have none. Add a unit to the table of its kind.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_RATES = {"/s": 1.0, "/min": 1 / 60, "/h": 1 / 3600}
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_COUNTS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_PRICES = {"USD/1M": 1.0}
_DIMS = r"([0-9]{1,9}(x[0-9]{1,9})*)?"
_WHOLE = 100  # per cent
_NUMBER = r"([0-9]{1,18}(?:\.[0-9]{1,24})?)"


def seconds(text: str) -> float:
    """Read a duration such as `50ms`.

    Raises:
        ValueError: It is no number with one of the units us, ms, s, min, h, d.
    """
    return _quantity(text, _SECONDS, "a time such as 50ms")


def rate(text: str) -> float:
    """Read a rate such as `200/s`, in events a second.

    Raises:
        ValueError: It is no number with one of the units /s, /min, /h.
    """
    return _quantity(text, _RATES, "a rate such as 200/s")


def size_bytes(text: str) -> int:
    """Read a size such as `4MiB`.

    Raises:
        ValueError: It is no number with one of the units B, kB, MB, GB, KiB, MiB, GiB.
    """
    return round(_quantity(text, _BYTES, "a size such as 4MiB"))


def fraction(text: str) -> float:
    """Read a share such as `20%` as 0.2; 0 to 100 %.

    Raises:
        ValueError: It is no percentage, or outside 0 to 100 %.
    """
    percent = _quantity(text, {"%": 1}, "a percentage such as 20%")
    if percent > _WHOLE:
        raise ValueError(f"expected a percentage from 0% to 100%, found {text!r}")
    return percent / _WHOLE


def factor(text: str) -> float:
    """Read a factor such as `1.2x`.

    Raises:
        ValueError: It is no number with an x behind it.
    """
    return _quantity(text, {"x": 1}, "a factor such as 1.2x")


def price(text: str) -> float:
    """Read a price such as `0.50 USD/1M`, in US dollars for a million.

    Raises:
        ValueError: It is no number with the unit USD/1M.
    """
    return _quantity(text, _PRICES, "a price for a million such as 0.50 USD/1M")


def count(given: str | int) -> int:
    """Read a count such as `300M`, or a plain whole number.

    Raises:
        ValueError: It is no whole number, alone or with one of the units k, M, G.
    """
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    expected = "a whole number such as 200 or 300M"
    number = _quantity(str(given) if isinstance(given, int) else given, _COUNTS, expected)
    if not math.isclose(number, round(number)):
        raise ValueError(f"expected {expected}, found {given!r}")
    return round(number)


def shape(text: str) -> tuple[int, ...]:
    """Read a static shape such as `1x3x224x224`; a scalar is the empty text.

    Raises:
        ValueError: A dimension is no whole number.
    """
    if not isinstance(text, str) or not re.fullmatch(_DIMS, text):
        raise ValueError(f"expected a shape of whole numbers such as 1x3x224x224, found {text!r}")
    return tuple(int(dim) for dim in text.split("x")) if text else ()


def write_seconds(value: float) -> str:
    """Write a duration in the largest unit that keeps it at or above 1."""
    if value == 0:
        return "0ms"
    unit = next((u for u in ("s", "ms") if value >= _SECONDS[u]), "us")
    return f"{_plain(value / _SECONDS[unit])}{unit}"


def write_rate(value: float) -> str:
    """Write a rate in events a second."""
    return f"{_plain(value)}/s"


def write_bytes(value: int) -> str:
    """Write a size exactly, in the largest binary unit that divides it."""
    unit = next(u for u in ("GiB", "MiB", "KiB", "B") if value % _BYTES[u] == 0)
    return f"{value // _BYTES[unit]}{unit}"


def write_fraction(value: float) -> str:
    """Write 0.2 as `20%`."""
    return f"{_plain(value * _WHOLE)}%"


def write_factor(value: float) -> str:
    """Write 1.2 as `1.2x`."""
    return f"{_plain(value)}x"


def write_price(value: float) -> str:
    """Write 0.5 as `0.5 USD/1M`."""
    return f"{_plain(value)} USD/1M"


def write_count(value: int) -> str | int:
    """Write a count exactly, in the largest unit that divides it; below a thousand and where none does, as it is."""
    unit = next((u for u in ("G", "M", "k") if value and value % _COUNTS[u] == 0), "")
    return f"{value // _COUNTS[unit]}{unit}" if unit else value


def write_shape(value: tuple[int, ...]) -> str:
    """Write (1, 3, 8, 8) as `1x3x8x8`."""
    return "x".join(map(str, value))


def human_bytes(value: float) -> str:
    """Write a size for people: three digits and a decimal unit."""
    unit = next((u for u in ("GB", "MB", "kB") if value >= _BYTES[u]), "B")
    return f"{human_number(value / _BYTES[unit])} {unit}"


def human_rate(value: float) -> str:
    """Write events a second for people: three digits."""
    return f"{human_number(value)}/s"


def human_ms(value: float) -> str:
    """Write milliseconds for people: three digits and a unit."""
    if value >= 1 / _SECONDS["ms"]:
        return f"{human_number(value / 1000)} s"
    return f"{human_number(value)} ms" if value >= 1 else f"{human_number(value * 1000)} µs"


def human_duration(seconds: float) -> str:
    """Write roughly how long something takes: a whole number of at least 2 minutes or hours, or else of seconds."""
    unit = next((u for u in ("h", "min") if seconds >= 2 * _SECONDS[u]), "s")
    return f"{max(1, round(seconds / _SECONDS[unit])):,} {unit}"


def human_number(value: float) -> str:
    """Write a number for people: three significant digits, and all that stand before the point."""
    return f"{value:,.0f}" if value >= _COUNTS["k"] else _plain(float(f"{value:.3g}"))


def _quantity(text: str, scales: Mapping[str, float], expected: str) -> float:
    match = re.fullmatch(rf"{_NUMBER}\s*({'|'.join(map(re.escape, scales))})", text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"expected {expected}, found {text!r}")
    return float(match[1]) * scales[match[2]]


def _plain(value: float) -> str:
    """Give twelve significant digits without an exponent, which no quantity is read with."""
    return format(Decimal(f"{value:.12g}"), "f")


def _text(pattern: str, example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$", "examples": [example]})


def _one_of(scales: Mapping[str, float]) -> str:
    return f"({'|'.join(scales)})"


Seconds = Annotated[
    float,
    BeforeValidator(seconds),
    PlainSerializer(write_seconds, return_type=str),
    _text(rf"{_NUMBER}\s*{_one_of(_SECONDS)}", "50ms"),
]
Rate = Annotated[
    float,
    BeforeValidator(rate),
    PlainSerializer(write_rate, return_type=str),
    _text(rf"{_NUMBER}\s*{_one_of(_RATES)}", "200/s"),
]
Bytes = Annotated[
    int,
    BeforeValidator(size_bytes),
    PlainSerializer(write_bytes, return_type=str),
    _text(rf"{_NUMBER}\s*{_one_of(_BYTES)}", "4MiB"),
]
Fraction = Annotated[
    float,
    BeforeValidator(fraction),
    PlainSerializer(write_fraction, return_type=str),
    _text(rf"{_NUMBER}\s*%", "20%"),
]
Factor = Annotated[
    float,
    BeforeValidator(factor),
    PlainSerializer(write_factor, return_type=str),
    _text(rf"{_NUMBER}\s*x", "1.2x"),
]
Price = Annotated[
    float,
    BeforeValidator(price),
    PlainSerializer(write_price, return_type=str),
    _text(rf"{_NUMBER}\s*{_one_of(_PRICES)}", "0.50 USD/1M"),
]
Count = Annotated[
    int,
    BeforeValidator(count),
    PlainSerializer(write_count, return_type=str | int),
    WithJsonSchema(
        {"type": ["integer", "string"], "minimum": 0, "pattern": rf"^{_NUMBER}\s*(k|M|G)?$", "examples": ["300M", 200]}
    ),
]
Shape = Annotated[
    tuple[int, ...],
    BeforeValidator(shape),
    PlainSerializer(write_shape, return_type=str),
    _text(_DIMS, "1x3x224x224"),
]
