"""What a machine seems to see where there is nothing: rows of a table, and one plain sentence.

A line of the table is a line in `rows`.
"""

from __future__ import annotations

import math

from compressor.formats.words import busy, percent, rounds
from compressor.records import Noise, Speedup
from compressor.units import human_ms

HEADER = ("what", "found")


def rows(found: Noise) -> list[tuple[str, str]]:
    """Give the rows of `HEADER`."""
    speedup = found.speedup
    return [
        ("the same model twice", _times(speedup)),
        ("rounds", rounds(speedup)),
        ("p50", human_ms(found.p50_ms)),
        ("took", f"{found.seconds:.0f} s"),
        ("slow-down that would be seen", _detectable(found)),
        ("machine", busy(speedup.preempted, speedup.stalled)),
    ]


def sentence(found: Noise, *, claimed: bool) -> str:
    """Say which difference this machine can see; `claimed`: it saw one between a model and itself."""
    if claimed:
        return "it told a model from itself: trust no comparison made now, and measure again on a quieter machine"
    seen = f"a slow-down of {_detectable(found)} would be seen nine times in ten"
    if not math.isfinite(found.detectable):
        seen = "no slow-down would be seen for sure: give it more --seconds, or a quieter machine"
    return f"in {found.seconds:.0f} s {seen}; the same model twice came out {_times(found.speedup)}"


def _times(speedup: Speedup) -> str:
    """Give the ratio with more digits than between two models: it is close to 1."""
    return f"{speedup.ratio:.3f} times as fast as itself (95 % interval {speedup.low:.3f} to {speedup.high:.3f})"


def _detectable(found: Noise) -> str:
    return f"{percent(found.detectable)} or more" if math.isfinite(found.detectable) else "none for sure"
