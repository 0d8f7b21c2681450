"""What the measurement claims by mistake, and what it finds, on latencies whose truth is known.

Each simulation runs the real `measure`, looks and all; only the calls are drawn. Beside it stands what a naive method
says on draws of the same kind: if that were not worse, the simulation could not fail.
"""
# ruff: noqa: T201 - the figures are what it is for: pytest -rP shows them

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, repeat

import numpy as np
import pytest
from host import MS, Host, finish

from compressor.bench import load as loads
from compressor.bench import looks, ratio, stats, summary
from compressor.bench import measure as module
from compressor.bench.clock import Clock
from compressor.bench.enough import enough
from compressor.bench.load import Closed, Constant, Poisson, Window
from compressor.bench.measure import Experiment, Measured, measure
from compressor.bench.rounds import Drive
from compressor.bench.serve import Line
from compressor.records import Array, Bound, Feeds, Latency, Progress, Session, Speedup, Target, Timing, Work
from compressor.units import write_rate

FEEDS: list[Feeds] = [{"x": np.zeros((1, 1))}]
EFFECT = 1.02
BUDGET_S = 60.0  # the default of limits.measure
CALL_S = 0.004  # of a call that is paired
SPREAD = 0.09  # of a latency's log; ratios of medians of ten calls then have the sd of 4.75 % that was measured

Draw = Callable[[np.random.Generator, int], Array]
"""Latencies of so many consecutive calls."""
Pairs = Callable[[np.random.Generator, int, int], tuple[Array, Array]]
"""Latencies of so many pairs in a round, given its number."""


@dataclass(frozen=True)
class Drawn:
    """A load whose latencies are drawn."""

    draw: Draw
    mean_ms: float
    open: bool = False
    paired: bool = False
    opened: int = 1

    def describe(self) -> str:
        return "drawn"

    def drive(self, sessions: Sequence[Session], feeds: Sequence[Feeds], window: Window, clock: Clock) -> Work[Timing]:
        del sessions, feeds
        left_ms = max(0, window.deadline_ns - clock.now_ns()) / MS
        calls = min(window.calls, int(1.1 * left_ms / self.mean_ms) + 10)
        yield Progress("measure", calls, calls)
        return passing(clock, timing(self.draw(window.rng, calls)), window)


def timing(latencies_ms: Array) -> Timing:
    latencies_ns = (latencies_ms * MS).astype(np.int64)
    return Timing(latencies_ns, float(latencies_ns.sum()) / 1e9, 0.0)


def passing(clock: Clock, drawn: Timing, window: Window) -> Timing:
    """Give the calls that begin before the deadline, and let their time pass."""
    ends_ns = clock.now_ns() + np.cumsum(drawn.latencies_ns)
    kept = 1 + int(np.searchsorted(ends_ns, window.deadline_ns))
    counted = drawn.latencies_ns[:kept]
    clock.sleep(float(counted.sum()) / 1e9)
    return replace(drawn, latencies_ns=counted, seconds=float(counted.sum()) / 1e9)


def run(plan: Experiment, openers: int) -> Measured:
    host = Host()  # its sessions only warm up
    return finish(measure([host.opener(lambda _: 30)] * openers, FEEDS, plan, host.clock))[0]


# --- a percentile against its limit ---


def independent(rng: np.random.Generator, calls: int) -> Array:
    return rng.exponential(10.0, calls)


def bursts(lowest: int, highest: int, scale_ms: float = 0.1) -> Draw:
    """Give calls of so many milliseconds, of which one in a hundred violates a limit of twice that, in runs."""

    def draw(rng: np.random.Generator, calls: int) -> Array:
        mean = (lowest + highest) / 2
        latencies = rng.uniform(0.5, 1.5, calls)
        for start in np.flatnonzero(rng.random(calls) < 0.01 / mean):
            latencies[start : start + rng.integers(lowest, highest + 1)] = 3
        return latencies * scale_ms

    return draw


def passes(draw: Draw, mean_ms: float, limit: float, trials: int) -> float:
    """Give how often a system whose p99 is exactly its limit is said to meet it."""
    plan = Experiment(Drawn(draw, mean_ms), (Target(99, 0.95, limit),), BUDGET_S, 0, {})  # type: ignore[arg-type]
    passed = 0
    for seed in range(trials):
        (bound,) = run(replace(plan, seed=seed), 1).latency.bounds
        passed += is_met(bound, limit)
    return passed / trials


def naive_passes(draw: Draw, limit: float, calls: int, trials: int) -> float:
    rng = np.random.default_rng(0)
    return float(np.mean([np.percentile(draw(rng, calls), 99) <= limit for _ in range(trials)]))


def binomial_passes(draw: Draw, limit: float, trials: int) -> float:
    """Give how often the binomial rule passes the system when it looks once, as early as it can."""
    rng = np.random.default_rng(0)
    return float(np.mean([stats.bound(draw(rng, 299), 99, 0.95).high_ms <= limit for _ in range(trials)]))


def test_a_system_on_its_limit_is_seldom_passed_although_it_is_looked_at_again_and_again() -> None:
    limit = -10 * math.log(0.01)
    found, naive = passes(independent, 10, limit, 120), naive_passes(independent, limit, 370, 400)
    print(f"false passes: {found:.1%}, by np.percentile {naive:.1%}")
    assert found <= 12 / 120  # 6 expected at 5 %, sd 2.4; 12 are 2.5 sd more
    assert naive > 0.4


@pytest.mark.parametrize("lengths", [(3, 3), (3, 10), (10, 10)])
def test_bursts_let_fewer_quick_systems_on_their_limit_pass_than_the_binomial_rule_alone_would(
    lengths: tuple[int, int],
) -> None:
    # Holds for quick calls only, which are watched for longer; the next test is about others.
    draw = bursts(*lengths)
    found, alone, naive = passes(draw, 0.1, 0.2, 60), binomial_passes(draw, 0.2, 400), naive_passes(draw, 0.2, 370, 400)
    print(f"false passes in bursts of {lengths}: {found:.1%}, binomial {alone:.1%}, by np.percentile {naive:.1%}")
    assert found <= 0.2  # of 5 % at most where calls are independent; the sd of 60 trials is 2.8 % to 4.6 %
    assert alone > 0.22
    assert naive > 0.5


@pytest.mark.parametrize(("length", "most"), [(3, 0.55), (10, 0.9)])
def test_bursts_pass_unseen_among_calls_of_ten_milliseconds_which_is_a_known_limit(length: int, most: float) -> None:
    """The 5 % are promised for independent violations: of 370 calls, none need be in a burst."""
    found = passes(bursts(length, length, 10), 10, 20, 100)
    independent = passes(bursts(1, 1, 10), 10, 20, 100)
    print(f"false passes of calls of 10 ms in bursts of {length}: {found:.1%}, independent: {independent:.1%}")
    assert 0.2 < found < most  # if this gets better, say so where `measure` names the limit
    assert independent <= 0.11


# --- a queue against its limit ---


@dataclass(frozen=True)
class Queue:
    """A single server that Poisson arrivals keep busy for a share of the time; calls are exponential, or all alike."""

    busy: float
    exponential: bool
    call_ms: float = 10.0

    def p99_ms(self) -> float:
        """Give the p99 of how long a request stays, when the queue has run forever."""
        if self.exponential:
            return -self.call_ms / (1 - self.busy) * math.log(0.01)
        rng, mean_ns = np.random.default_rng(7), self.call_ms * MS
        due_ns = rng.exponential(mean_ns / self.busy, 2_000_000).cumsum()
        return float(np.quantile(self.answers(due_ns, rng)[:, 1] - due_ns, 0.99)) / MS

    def answers(self, due_ns: Array, rng: np.random.Generator) -> Array:
        """Give the start and the end of each call, by Lindley's recursion."""
        mean_ns = self.call_ms * MS
        calls_ns = rng.exponential(mean_ns, len(due_ns)) if self.exponential else np.full(len(due_ns), mean_ns)
        before_ns = np.concatenate([[0.0], calls_ns[:-1].cumsum()])
        starts_ns = np.maximum.accumulate(due_ns - before_ns) + before_ns
        return np.stack([starts_ns, starts_ns + calls_ns], axis=1)

    def serve(self, line: Line, sessions: Sequence[Session], feeds: Sequence[Feeds]) -> Work[Timing]:
        """Stand for `serve` of one worker: answer a line, and let the time pass."""
        del sessions, feeds
        due_ns, begin_ns = np.array(line._due_ns), line.clock.now_ns()
        taken_ns = self.answers(due_ns, np.random.default_rng(int(due_ns[-1]))).astype(np.int64)
        late_ns, span_ns = taken_ns[:, 0] - due_ns, line._deadline_ns - begin_ns
        given_up = np.flatnonzero(late_ns > max(min(5e9, span_ns / 3), 20 * self.call_ms * MS))
        kept = given_up[0] if len(given_up) else len(due_ns)
        line.overloaded, line._begin_ns = bool(len(given_up)), begin_ns
        rows = [np.arange(kept), *(taken_ns[:kept].T + begin_ns), np.zeros(kept, np.int64)]
        line._rows.extend(np.stack(rows, axis=1).ravel().tolist())
        line.clock.sleep(float(taken_ns[kept - 1, 1]) / 1e9)
        yield Progress("measure", int(kept), line.calls)
        return line.timing(None, 1)


def queued(monkeypatch: pytest.MonkeyPatch, queue: Queue, target: Target, seed: int) -> Latency:
    """Measure a queue as an open loop in the product's budget."""
    monkeypatch.setattr(loads, "serve", queue.serve)
    load = Poisson(rate=write_rate(queue.busy / queue.call_ms * 1e3))
    host = Host()
    openers = [host.opener(lambda _: queue.call_ms)]
    return finish(measure(openers, FEEDS, Experiment(load, (target,), BUDGET_S, seed, {}), host.clock))[0].latency


def is_met(bound: Bound, limit: float) -> bool:
    return bound.high_ms is not None and bound.high_ms <= limit and bound.steady is not False


def met(found: Latency, limit: float) -> bool:
    return is_met(found.bounds[0], limit)


@pytest.mark.parametrize("call_ms", [10.0, 2.0])
@pytest.mark.parametrize(("busy", "exponential"), [(0.5, True), (0.7, True), (0.9, True), (0.8, False)])
def test_a_queue_on_its_limit_is_seldom_passed(
    monkeypatch: pytest.MonkeyPatch,
    busy: float,
    exponential: bool,  # noqa: FBT001
    call_ms: float,
) -> None:
    queue, trials = Queue(busy, exponential, call_ms), 120
    limit = queue.p99_ms()
    found = [queued(monkeypatch, queue, Target(99, 0.95, limit), seed) for seed in range(trials)]
    passed = sum(met(one, limit) for one in found)
    alone = sum(one.p99_ms <= limit for one in found)
    print(f"{queue}: {passed / trials:.1%} passed on the limit, by np.percentile {alone / trials:.1%}")
    assert passed <= 12  # 6 expected at 5 %, sd 2.4
    assert alone > 0.25 * trials


def test_stalls_that_are_rarer_than_a_moment_are_waited_for() -> None:
    # one call in 1000 takes 700 ms, behind which some 65 of the requests, one each 10 ms, wait for over 50 ms: 6.5 %
    passed, trials = 0, 20
    for seed in range(trials):
        stalls, host = np.random.default_rng(seed).random(20_000) < 1e-3, Host()
        opener = host.opener(lambda i, stalls=stalls: 700.0 if stalls[i] else 1.0)  # type: ignore[misc]
        asked = Experiment(Constant(rate="100/s"), (Target(95, 0.95, 50),), BUDGET_S, seed, {})
        passed += met(finish(measure([opener], FEEDS, asked, host.clock))[0].latency, 50)
    print(f"rare stalls: {passed} of {trials} passed over the limit")
    assert passed <= 3  # at most 1 expected at 5 %, sd 1; a window of 10 s sees no stall four times in ten


@pytest.mark.parametrize(("busy", "exponential"), [(0.5, True), (0.7, True), (0.8, False)])
def test_a_queue_well_within_its_limit_is_passed(
    monkeypatch: pytest.MonkeyPatch,
    busy: float,
    exponential: bool,  # noqa: FBT001
) -> None:
    queue = Queue(busy, exponential, 1.0)
    limit = 2 * queue.p99_ms()
    found = [queued(monkeypatch, queue, Target(99, 0.95, limit), seed) for seed in range(20)]
    assert sum(met(one, limit) for one in found) >= 18


@pytest.mark.parametrize("percentile", [50, 99])
@pytest.mark.parametrize("busy", [1.05, 1.2, 2.0, 10.0])
@pytest.mark.parametrize("exponential", [True, False])
def test_a_queue_that_has_no_end_meets_no_limit(
    monkeypatch: pytest.MonkeyPatch,
    busy: float,
    exponential: bool,  # noqa: FBT001
    percentile: float,
) -> None:
    queue, limit = Queue(busy, exponential), 1e9
    found = [queued(monkeypatch, queue, Target(percentile, 0.95, limit), seed) for seed in range(20)]
    print(f"{queue}: {sum(f.overloaded for f in found)} of 20 overloaded, {sum(f.growing for f in found)} growing")
    assert not any(met(one, limit) for one in found)
    if busy > 1.1:
        assert all(one.overloaded or one.growing for one in found)


@pytest.mark.parametrize(("busy", "exponential"), [(0.5, True), (0.7, True), (0.8, False)])
def test_a_queue_that_has_an_end_is_seldom_called_overloaded(
    monkeypatch: pytest.MonkeyPatch,
    busy: float,
    exponential: bool,  # noqa: FBT001
) -> None:
    found = [queued(monkeypatch, Queue(busy, exponential), Target(99, 0.95, 1e9), seed) for seed in range(40)]
    assert sum(one.overloaded for one in found) == 0
    assert sum(one.growing for one in found) <= 2


# --- a throughput against its rate ---


def test_a_rate_that_is_exactly_the_truth_is_seldom_decided() -> None:
    plan = Experiment(Drawn(independent, 10), (), 30, 0, {}, rates=(100.0,))  # type: ignore[arg-type]
    found = [run(replace(plan, seed=seed), 1).latency for seed in range(150)]
    wrong = [one for one in found if not (one.throughput_low_per_s or 0) <= 100 <= (one.throughput_high_per_s or 1e9)]
    print(f"throughput: {len(wrong) / 150:.1%} of the intervals without the truth")
    assert len(wrong) <= 14  # 7.5 expected at 5 %, sd 2.7
    assert all(one.throughput_low_per_s for one in found)


def test_a_rate_seven_percent_off_is_decided() -> None:
    for rate in (93.0, 107.0):
        plan = Experiment(Drawn(independent, 10), (), BUDGET_S, 0, {}, rates=(rate,))  # type: ignore[arg-type]
        found = [run(replace(plan, seed=seed), 1).latency for seed in range(40)]
        decided = sum(
            (one.throughput_low_per_s or 0) > rate or (one.throughput_high_per_s or 1e9) < rate for one in found
        )
        assert decided >= 30


# --- a number of samples that would decide ---


@pytest.mark.parametrize("share", [0.001, 0.003, 0.005, 0.015, 0.03])
def test_as_many_samples_as_are_needed_decide_nine_times_in_ten(share: float) -> None:
    def draw(rng: np.random.Generator, calls: int) -> Array:
        return np.where(rng.random(calls) < share, 60.0, 40.0)

    seen = Bound(99, 0.95, 40, None, None, 50, violations=round(share * 1000))
    samples = enough(seen, 1000, 1.0, partial(looks.last_share, first=370))
    assert samples is not None
    plan = Experiment(
        Drawn(draw, 40),
        (Target(99, 0.95, 50),),
        1e6,
        0,
        {},
        max_samples=samples,  # type: ignore[arg-type]
    )
    left = sum(not stats.decided(run(replace(plan, seed=seed), 1).latency.bounds[0]) for seed in range(100))
    print(f"{share:.1%} violations need {samples} samples: {left} of 100 undecided")
    assert left <= 17  # 10 expected, sd 3


# --- a model against itself, and against a slower one ---


def plain(rng: np.random.Generator, pairs: int, number: int) -> tuple[Array, Array]:
    del number
    return (rng.lognormal(0, SPREAD, pairs), rng.lognormal(0, SPREAD, pairs))


def heavy(rng: np.random.Generator, pairs: int, number: int) -> tuple[Array, Array]:
    del number
    a, b = np.exp(0.06 * rng.standard_t(2, (2, pairs)))
    return a, b


def drifting(rng: np.random.Generator, pairs: int, number: int) -> tuple[Array, Array]:
    moments = np.linspace(1 + 0.1 * number, 1.1 + 0.1 * number, pairs)
    a, b = plain(rng, pairs, number)
    return a * moments, b * moments


def loaded(rng: np.random.Generator, pairs: int, number: int) -> tuple[Array, Array]:
    """Draw calls that foreign work slows to the double, in stretches of about 30 calls."""
    switches = rng.random(2 * pairs) < 1 / 30
    slow = 1.0 + (switches.cumsum() + rng.integers(2)) % 2
    first, a, b = rng.integers(2, size=pairs), *plain(rng, pairs, number)
    order = 2 * np.arange(pairs)
    return a * slow[order + first], b * slow[order + 1 - first]


def laid_out(rng: np.random.Generator, pairs: int, number: int) -> tuple[Array, Array]:
    """Draw a layout of memory that favours one side for the whole round."""
    a, b = plain(rng, pairs, number)
    return a * math.exp(rng.normal(0, 0.03)), b


def disturbed(rng: np.random.Generator, pairs: int, number: int) -> tuple[Array, Array]:
    """Draw rounds of which one in eight is spoilt."""
    a, b = plain(rng, pairs, number)
    return a * math.exp(rng.normal(0, 0.2) * (rng.random() < 1 / 8)), b


def compared(monkeypatch: pytest.MonkeyPatch, draw: Pairs, slower: float, trials: int) -> list[Speedup]:
    """Compare two models, the second `slower` times as slow, as `compare` does."""
    found = []
    for seed in range(trials):
        monkeypatch.setattr(module, "interleaved", paired(draw, slower))
        speedup = run(Experiment(Closed(), (), BUDGET_S, seed, {}, ratios=(1 / EFFECT, EFFECT)), 2).speedup
        assert speedup is not None
        found.append(speedup)
    return found


def paired(draw: Pairs, slower: float) -> Drive:
    """Give what stands for `interleaved` in one measurement."""
    numbers = count()

    def drive(
        sessions: Sequence[Session], feeds: Sequence[Feeds], window: Window, clock: Clock
    ) -> Work[tuple[Timing, ...]]:
        del sessions, feeds
        left_s = (window.deadline_ns - clock.now_ns()) / 1e9
        calls = max(1, min(window.calls, int(left_s / (2 * CALL_S))))
        yield Progress("measure", calls, calls)
        baseline, candidate = draw(window.rng, calls, next(numbers))
        clock.sleep(2 * CALL_S * calls)
        return timing(baseline * CALL_S * 1e3), timing(candidate * slower * CALL_S * 1e3)

    return drive


NOISES = (plain, heavy, drifting, loaded, laid_out, disturbed)


@pytest.mark.parametrize("draw", NOISES, ids=lambda draw: draw.__name__)
def test_a_model_against_itself_is_not_called_faster_or_slower(monkeypatch: pytest.MonkeyPatch, draw: Pairs) -> None:
    found = compared(monkeypatch, draw, 1, 60)
    missed = sum(not one.low <= 1 <= one.high for one in found)
    claimed = sum(one.low > EFFECT or one.high * EFFECT < 1 for one in found)
    print(f"{draw.__name__}: {missed} of 60 intervals without 1, {claimed} beyond the minimum effect")
    assert missed <= 7  # at 5 %, 3 expected, sd 1.7: more than 7 have a chance of 1 %
    assert claimed == 0


@pytest.mark.parametrize("draw", NOISES, ids=lambda draw: draw.__name__)
def test_five_percent_are_found_nine_times_in_ten(monkeypatch: pytest.MonkeyPatch, draw: Pairs) -> None:
    found = compared(monkeypatch, draw, 1.05, 60)
    slower = sum(one.high * EFFECT < 1 for one in found)
    rounds = sum(one.rounds for one in found) / 60
    print(f"{draw.__name__}: {slower} of 60 found, in {rounds:.0f} rounds on average")
    assert slower >= 54
    assert not any(one.low > EFFECT for one in found)


def false_slower(monkeypatch: pytest.MonkeyPatch, trials: int) -> int:
    """Count what is called slower of models that are slower by exactly the minimum effect, which is none."""
    return sum(one.high * EFFECT < 1 for one in compared(monkeypatch, laid_out, EFFECT, trials))


def test_peeking_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = 200
    paid = false_slower(monkeypatch, trials)
    monkeypatch.setattr(looks, "stricter", lambda confidence, _: confidence)
    monkeypatch.setattr(summary, "stricter", lambda confidence, _: confidence)
    unpaid = false_slower(monkeypatch, trials)
    print(
        f"slower by exactly 2 %: {paid / trials:.1%} called slower, {unpaid / trials:.1%} if peeking were not paid for"
    )
    most = 0.025 * trials + 2 * math.sqrt(0.025 * 0.975 * trials)  # 9.4
    assert paid <= most < unpaid


def test_calls_of_a_single_pair_of_sessions_take_its_layout_for_a_difference() -> None:
    """Beside `laid_out`: the same pairs, but the layout stays, so blocks of calls only seem to be independent."""
    rng, missed = np.random.default_rng(2), 0
    for _ in range(60):
        a, b = plain(rng, 320, 0)
        a *= math.exp(rng.normal(0, 0.03))
        found = ratio.speedup(list(zip(np.split(a, 8), np.split(b, 8), strict=True)), 0.95)
        assert found is not None
        missed += not found.low <= 1 <= found.high
    print(f"{missed} of 60 intervals without 1 where no session is opened anew")
    assert missed > 20


def test_one_model_after_the_other_claims_what_is_not_there() -> None:
    """The machine slows down and recovers while one model runs, then the other: 160 calls each."""
    claims = {"Welch": 0, "Mann-Whitney": 0}
    rng = np.random.default_rng(1)
    for _ in range(60):
        moments = np.exp(0.1 * np.repeat(rng.normal(size=4), 80))  # each of them lasts 80 calls
        calls = np.exp(rng.normal(0, SPREAD, 320)) * moments
        claims["Welch"] += abs(_welch(calls[:160], calls[160:])) > 1.96
        claims["Mann-Whitney"] += abs(_mann_whitney(calls[:160], calls[160:])) > 1.96
    print(f"false claims of 60, one after the other: {claims}")
    assert min(claims.values()) > 30


def test_pairs_in_the_same_moments_claim_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def moments(rng: np.random.Generator, pairs: int, number: int) -> tuple[Array, Array]:
        slow = np.exp(0.1 * np.repeat(rng.normal(size=pairs // 40 + 1), 40)[:pairs])
        a, b = plain(rng, pairs, number)
        return a * slow, b * slow

    found = compared(monkeypatch, moments, 1, 60)
    assert sum(one.low > EFFECT or one.high * EFFECT < 1 for one in found) == 0


def _welch(a: Array, b: Array) -> float:
    return float((a.mean() - b.mean()) / math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b)))


def _mann_whitney(a: Array, b: Array) -> float:
    """Give the standardised U of samples without ties."""
    sides = chain(zip(a, repeat(0)), zip(b, repeat(1)))
    ranks = [rank for rank, (_, side) in enumerate(sorted(sides), 1) if side == 0]
    n, m = len(a), len(b)
    return (sum(ranks) - n * (n + m + 1) / 2) / math.sqrt(n * m * (n + m + 1) / 12)
