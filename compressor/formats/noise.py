"""What a machine seems to see where there is nothing: rows of a table, and one plain sentence.

A line of the table is a line in `rows`.
"""

from __future__ import annotations

import math

from compressor.formats import words
from compressor.formats.words import percent
from compressor.records import Noise, Speedup
from compressor.units import human_ms

HEADER = ("what", "found")


def rows(found: Noise) -> list[tuple[str, str]]:
    """Give the rows of `HEADER`."""
    speedup = found.speedup
    return [
        ("the same model twice", _beside(speedup)),
        ("rounds", words.rounds(speedup)),
        ("p50", human_ms(found.p50_ms)),
        ("took", f"{found.seconds:.0f} s"),
        ("slow-down that would be seen", _detectable(found)),
        ("machine", words.busy(speedup.preempted, speedup.stalled)),
    ]


def sentence(found: Noise, *, claimed: bool, busy: bool) -> str:
    """Say which difference this machine can see.

    `claimed`: it saw one between a model and itself. `busy`: with other work, so that a quiet machine would see more.
    """
    return _seen(found, claimed=claimed) + ("; the machine was busy: repeat when it is quiet" if busy else "")


def _seen(found: Noise, *, claimed: bool) -> str:
    if claimed:
        return "it told a model from itself: trust no comparison made now, and measure again on a quieter machine"
    seen = f"a slow-down of {_detectable(found)} would be seen nine times in ten"
    if not math.isfinite(found.detectable):
        seen = "no slow-down would be seen for sure: give it more --seconds, or a quieter machine"
    return f"in {found.seconds:.0f} s {seen}; the second time, the same model took {_beside(found.speedup)}"


def _beside(speedup: Speedup) -> str:
    """Give the difference rather than the ratio: it is close to 1."""
    more, low, high = (1 / ratio - 1 for ratio in (speedup.ratio, speedup.high, speedup.low))
    if more < 0:
        return f"{percent(-more)} less time (95 % interval {percent(-high)} to {percent(-low)})"
    return f"{percent(more)} more time (95 % interval {percent(low)} to {percent(high)})"


def _detectable(found: Noise) -> str:
    return f"{percent(found.detectable)} or more" if math.isfinite(found.detectable) else "none for sure"
