"""How numbers are written for people: intervals, shares, rates, scores, how busy a machine was.

Words that more than one format uses belong here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from compressor.records import Bound, Latency, OutputError, Score, Speedup
from compressor.units import human_bytes, human_ms, human_rate

NOTHING = "-"
MET = {True: "met", False: "not met", None: "undecided"}
_LARGE = 10_000
Escape = Callable[[str], str]


def number(value: float | None) -> str:
    """Give a number with four significant digits, a large count with all of its own."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= _LARGE and float(value).is_integer() else f"{value:.4g}"


def with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """Give a number with its interval in brackets, where it has one."""
    if value is None or low is None or high is None:
        return number(value)
    return f"{number(value)} [{number(low)}, {number(high)}]"


def with_unit(value: float | None, low: float | None, high: float | None, unit: str) -> str:
    """Give a number with its interval and its unit, as people write it."""
    if value is None:
        return NOTHING
    if unit not in _WRITE:
        return with_interval(value, low, high) + (f" {unit}" if unit else "")
    interval = "" if low is None or high is None else f" [{_WRITE[unit](low)}, {_WRITE[unit](high)}]"
    return _WRITE[unit](value) + interval


def percent(value: float) -> str:
    """Give a share in per cent; one that is not finite as it is."""
    return f"{value * 100 + 0.0:.2f} %" if math.isfinite(value) else str(value)


def throughput(latency: Latency) -> str:
    """Give the samples that were answered a second, with their interval."""
    if latency.throughput_per_s is None:
        return NOTHING
    low, high = latency.throughput_low_per_s, latency.throughput_high_per_s
    interval = "" if low is None or high is None else f" [{human_rate(low)}, {human_rate(high)}]"
    return human_rate(latency.throughput_per_s) + interval


def at_most(high_ms: float | None, n: int) -> str:
    """Give an upper limit of a time, or how few the samples are that would have to support it."""
    return human_ms(high_ms) if high_ms is not None else f"n = {n}, too few"


def times(speedup: Speedup) -> str:
    """Give a speed-up with its interval."""
    return f"{speedup.ratio:.2f} times as fast (95 % interval {speedup.low:.2f} to {speedup.high:.2f})"


def rounds(speedup: Speedup) -> str:
    """Give in how many rounds a speed-up was seen, and how far these are apart."""
    if not speedup.rounds:
        return ""
    if speedup.lowest is None or speedup.highest is None:
        return f"{speedup.rounds} rounds"
    return f"{speedup.rounds} rounds ({speedup.lowest:.2f} to {speedup.highest:.2f})"


def smaller(before_bytes: int, after_bytes: int) -> str:
    """Give how many times smaller, or larger, a file became."""
    if after_bytes <= before_bytes:
        return f"{before_bytes / after_bytes:.2f} times smaller"
    return f"{after_bytes / before_bytes:.2f} times larger"


def score_words(score: Score) -> str:
    """Give a score with its interval and what it rests on."""
    of = "agreement with the original model, " if score.reference else ""
    exact = "" if score.emulated is None else f", {number(score.emulated)} with exact integers"
    return f"{with_interval(score.value, score.low, score.high)} ({of}n = {score.n}{exact})"


def dropped(score: Score) -> str:
    """Give how far a score fell, or an error grew, with its interval; empty for a score that has no baseline."""
    if score.drop is None:
        return ""
    write = percent if score.relative or _is_share(score.value, score.drop) else number
    fell = f"{'grows' if score.relative else 'drops'} by {write(score.drop)}{' of itself' if score.relative else ''}"
    if score.drop_low is None or score.drop_high is None:
        return fell
    return f"{fell} ({write(score.drop_low)} to {write(score.drop_high)})"


def worst(score: Score) -> str:
    """Give the class that lost most; empty where none lost anything."""
    if (found := score.worst) is None or found.drop <= 0:
        return ""
    change = f"class {found.label}, {percent(found.before)} → {percent(found.value)} of {found.n} samples"
    return f"{change}, drops by {percent(found.drop)} ({percent(found.drop_low)} to {percent(found.drop_high)})"


def error(found: OutputError) -> str:
    """Give how far an output is from the original's."""
    relative = f"relative error {percent(found.mean)} on average, {percent(found.p95)} at the 95th percentile"
    return f"SQNR {found.sqnr_db:.1f} dB; {relative}; largest difference {number(found.max_abs)} (n = {found.n})"


def startup(bound: Bound | None) -> str:
    """Give the median of load plus first call with its upper limit, which takes several fresh processes."""
    if bound is None or bound.high_ms is None:
        return NOTHING
    return f"{human_ms(bound.value_ms)} (at most {human_ms(bound.high_ms)})"


def memory(size_bytes: int | None) -> str:
    """Give an amount of memory that may not have been measured."""
    return NOTHING if size_bytes is None else human_bytes(size_bytes)


def cost(per_million: float | None) -> str:
    """Give the price of a million inferences."""
    return NOTHING if per_million is None else f"{number(per_million)} USD"


def busy(preempted: float, stalled: float | None) -> str:
    """Give how busy the machine was; by preemptions, which own threads cause too, only where nothing else tells."""
    if stalled is None:
        return f"preempted in {preempted * 100:.0f} % of the calls"
    return f"some task waited for a CPU {stalled * 100:.0f} % of the time"


def _is_share(value: float, drop: float) -> bool:
    """Tell a metric between 0 and 1 from one of another scale, such as decibels."""
    return abs(value) <= 1 and abs(value + drop) <= 1


_WRITE: Mapping[str, Callable[[float], str]] = {"B": human_bytes, "/s": human_rate, "x": lambda ratio: f"{ratio:.2f}x"}
