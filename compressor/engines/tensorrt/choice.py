"""Which optimization profile of an engine takes some inputs.

Another preference among profiles is a term of the key in `choose`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from compressor.engines.tensorrt.record import Range
from compressor.errors import RungError
from compressor.units import write_shape

Limited = Mapping[str, tuple[int, ...]]
"""What profiles limit of each input: its shape, or the values of one that lies in host memory."""


def choose(profiles: Sequence[Mapping[str, Range]], inputs: Limited) -> int:
    """Choose the profile that takes these inputs and the fewest others, of equals the one built nearest to them.

    Raises:
        RungError: None takes them.
    """
    fit = [number for number, ranges in enumerate(profiles) if not _outside(ranges, inputs)]
    if not fit:
        found = "; ".join(
            f"profile {number} takes {name} {_span(ranges[name])}, found {_written(inputs[name])}"
            for number, ranges in enumerate(profiles)
            for name in _outside(ranges, inputs)
        )
        raise RungError(f"no profile of the engine takes these inputs: {found}; build it with a profile that does")
    return min(fit, key=lambda number: (_width(profiles[number]), _distance(profiles[number], inputs)))


def _outside(ranges: Mapping[str, Range], inputs: Limited) -> list[str]:
    """Name the inputs that a profile does not take."""
    return [name for name, numbers in inputs.items() if not _within(numbers, ranges[name])]


def _within(numbers: tuple[int, ...], limits: Range) -> bool:
    least, _, most = limits
    return len(numbers) == len(least) and all(
        low <= number <= high for low, number, high in zip(least, numbers, most, strict=True)
    )


def _width(ranges: Mapping[str, Range]) -> int:
    """Give how many different inputs a profile takes."""
    return math.prod(
        high - low + 1 for least, _, most in ranges.values() for low, high in zip(least, most, strict=True)
    )


def _distance(ranges: Mapping[str, Range], inputs: Limited) -> int:
    """Give how far inputs are from what a profile was built to be fastest with."""
    return sum(
        abs(best - number)
        for name, numbers in inputs.items()
        for best, number in zip(ranges[name][1], numbers, strict=True)
    )


def _span(limits: Range) -> str:
    least, _, most = limits
    return _written(least) if least == most else f"from {_written(least)} to {_written(most)}"


def _written(numbers: tuple[int, ...]) -> str:
    return write_shape(numbers) or "a single number"
