"""How numbers are written for people: intervals, shares, rates, scores, how busy a machine was.

Words that more than one format uses belong here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from compressor.records import MINIMUM_EFFECT, Bound, Latency, OutputError, Score, Speedup, Verdict
from compressor.units import human_bytes, human_ms, human_rate

NOTHING = "-"
MET = {True: "met", False: "not met", None: "undecided"}
MINIMUM = f"{(MINIMUM_EFFECT - 1) * 100:.0f} %"
"""The least difference of speed that counts."""
_AGREEMENT = "agreement"
_LARGE = 10_000
_ENOUGH = 370
"""Independent samples that support an upper limit of the p99 at the stricter confidence of a first look."""
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
    """Give what was answered a second: beside what was offered in an open loop, which sets it, else with its interval.

    Requests and samples are the same where a batch is one sample; else samples are counted, and named.
    """
    answered, low, high = latency.throughput_per_s, latency.throughput_low_per_s, latency.throughput_high_per_s
    batch = _batch(latency)
    rate = human_rate if batch == 1 else _samples
    if latency.offered_per_s is not None:
        offered = f"offered {rate(latency.offered_per_s * batch)}"
        return offered if answered is None else f"{offered}, answered {rate(answered)}"
    if answered is None:
        return NOTHING
    return rate(answered) + ("" if low is None or high is None else f" [{rate(low)}, {rate(high)}]")


def strain(latency: Latency) -> str:
    """Say why the percentiles are lower limits only; empty where they are not."""
    if latency.overloaded:
        return "overloaded"
    return "requests wait longer and longer" if latency.growing else ""


def median(latency: Latency) -> str:
    """Give the p50 that was seen; a lower limit where requests were not answered as they came."""
    return f"{'at least ' if strain(latency) else ''}{human_ms(latency.p50_ms)}"


def at_most(value_ms: float, high_ms: float | None, latency: Latency) -> str:
    """Give the upper limit of a percentile, how few the samples are that would have to support it, or a lower limit."""
    if strain(latency):
        return f"at least {human_ms(value_ms)}"
    if high_ms is not None:
        return human_ms(high_ms)
    return f"n = {latency.n}, {'too few' if latency.n < _ENOUGH else 'not independent'}"


def ratio(value: float) -> str:
    """Give how many times as much something is, with two digits everywhere."""
    return f"{value:.2f}"


def between(speedup: Speedup) -> str:
    """Give the interval of a speed-up."""
    return f"95 % interval {ratio(speedup.low)} to {ratio(speedup.high)}"


def times(speedup: Speedup) -> str:
    """Give a speed-up with its interval."""
    return f"{ratio(speedup.ratio)} times as fast ({between(speedup)})"


def rounds(speedup: Speedup) -> str:
    """Give in how many rounds a speed-up was seen, and how far these are apart."""
    if not speedup.rounds:
        return ""
    if speedup.lowest is None or speedup.highest is None:
        return f"{speedup.rounds} rounds"
    return f"{speedup.rounds} rounds ({ratio(speedup.lowest)} to {ratio(speedup.highest)})"


def smaller(before_bytes: int, after_bytes: int) -> str:
    """Give how many times smaller, or larger, a file became."""
    if after_bytes <= before_bytes:
        return f"{ratio(before_bytes / after_bytes)} times smaller"
    return f"{ratio(after_bytes / before_bytes)} times larger"


def score_words(score: Score) -> str:
    """Give a score with its interval and what it rests on."""
    of = f"{referred(score, 'the original model')}, " if score.reference else ""
    exact = "" if score.emulated is None else f", {number(score.emulated)} with exact integers"
    return f"{with_interval(score.value, score.low, score.high)} ({of}n = {score.n}{exact})"


def saturated(score: Score) -> str:
    """Say what this CPU's kernels do to a score; empty where exact arithmetic gives the same."""
    if score.emulated is None or number(score.emulated) == number(score.value):
        return ""
    return (
        f"{score.metric} is {number(score.value)} here and {number(score.emulated)} with exact integers: the integer "
        "kernels of this CPU saturate, so that the difference is the CPU's and not the model's"
    )


def referred(score: Score, other: str) -> str:
    """Say what a score that needs another model's outputs says of these."""
    return f"{_AGREEMENT if score.metric == _AGREEMENT else 'compared'} with {other}"


def dropped(score: Score) -> str:
    """Give how far a score fell or rose, or an error grew or shrank, with its interval; empty without a baseline."""
    if score.drop is None:
        return ""
    write = percent if score.relative or _is_share(score.value, score.drop) else number
    better = score.drop < 0
    sign = -1 if better else 1
    change = f"{_CHANGE[score.relative, better]} by {write(sign * score.drop)}{' of itself' if score.relative else ''}"
    if score.drop_low is None or score.drop_high is None:
        return change
    low, high = sorted((sign * score.drop_low, sign * score.drop_high))
    return f"{change} ({write(low)} to {write(high)})"


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


def unmet(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Give the verdicts that say no, then those that say neither."""
    return sorted((verdict for verdict in verdicts if verdict.met is not True), key=lambda verdict: verdict.met is None)


def _batch(latency: Latency) -> int:
    """Give the samples of one request: the leading axis of the first input, 1 for a scalar."""
    first = next(iter(latency.shape.values()), "").partition("x")[0]
    return max(1, int(first)) if first.isdecimal() else 1


def _samples(per_s: float) -> str:
    return human_rate(per_s).replace("/s", " samples/s")


def _is_share(value: float, drop: float) -> bool:
    """Tell a metric between 0 and 1 from one of another scale, such as decibels."""
    return abs(value) <= 1 and abs(value + drop) <= 1


_CHANGE = {(False, False): "drops", (False, True): "rises", (True, False): "grows", (True, True): "shrinks"}
_WRITE: Mapping[str, Callable[[float], str]] = {
    "B": human_bytes,
    "/s": human_rate,
    "x": lambda value: f"{ratio(value)}x",
}
