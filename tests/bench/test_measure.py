import gc
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from host import MS, Fake, Host, finish

from compressor.bench.clock import Clock
from compressor.bench.load import Closed, Constant, Load, Trace, Window
from compressor.bench.measure import Experiment, Measured, measure
from compressor.bench.stats import bound, decided
from compressor.records import Feeds, Outputs, Progress, Session, Target, Timing, Work

P99 = Target(99, 0.95, 50)
FEEDS: list[Feeds] = [{"x": np.full((1, 3), i)} for i in range(3)]
RATIOS = (1 / 1.02, 1.02)


@dataclass(frozen=True)
class Drawn:
    """A load that draws exponential latencies, quicker than calling a fake session."""

    mean_ms: float
    open: bool = False
    paired: bool = False
    opened: int = 1

    def describe(self) -> str:
        return "drawn"

    def drive(self, sessions: Sequence[Session], feeds: Sequence[Feeds], window: Window, clock: Clock) -> Work[Timing]:
        del sessions, feeds, clock
        yield Progress("measure", window.calls, window.calls)
        drawn_ns = (window.rng.exponential(self.mean_ms * MS, window.calls)).astype(np.int64)
        return Timing(drawn_ns, float(drawn_ns.sum()) / 1e9, 0.0)


def experiment(*targets: Target, **changes: object) -> Experiment:
    plain = Experiment(Closed(), targets, budget_s=60, seed=0, shape={"x": "1x3"})
    return replace(plain, **changes)  # type: ignore[arg-type]


def run(host: Host, plan: Experiment, *took_ms: Callable[[int], float]) -> Measured:
    openers = [host.opener(took, name) for took, name in zip(took_ms, "abc", strict=False)]
    return finish(measure(openers, FEEDS, plan, host.clock))[0]


def measured(plan: Experiment, *took_ms: Callable[[int], float]) -> Measured:
    return run(Host(), plan, *took_ms)


def noisy(median_ms: float, seed: int, spread: float = 0.05) -> Callable[[int], float]:
    drawn = np.random.default_rng(seed).lognormal(math.log(median_ms), spread, 20_000)
    return lambda i: float(drawn[i])


def test_a_candidate_far_under_its_limit_is_decided_at_the_first_look() -> None:
    found = measured(experiment(P99), lambda _: 20, lambda _: 10)
    assert found.latency.n == 370  # 368 clean samples prove a p99 at 97.5 %: half of the error is spent here
    assert decided(found.latency.bounds[0])
    assert found.latency.bounds[0].high_ms == 10


def test_a_quick_candidate_is_not_believed_before_a_second_of_calls() -> None:
    found = measured(experiment(P99), lambda _: 1)
    assert found.latency.n == 1100  # a second and what calls may get quicker by
    assert len(found.latency.rounds) == 8
    assert decided(found.latency.bounds[0])
    assert measured(experiment(P99), lambda _: 0.1).latency.n == 2000


def test_a_candidate_far_over_its_limit_is_decided_at_the_first_look() -> None:
    found = measured(experiment(P99), lambda _: 60)
    assert found.latency.n == 370
    assert found.latency.bounds[0].low_ms == 60


def test_a_median_is_decided_only_after_eight_rounds_of_pairs() -> None:
    found = measured(experiment(Target(50, 0.95, 50)), lambda _: 20, lambda _: 10)
    assert found.latency.rounds == (47, 47, 46, 46, 46, 46, 46, 46)


def test_a_candidate_close_to_its_limit_is_looked_at_again() -> None:
    found = measured(experiment(P99, budget_s=1000), lambda i: 60 if i % 200 == 100 else 40)
    assert found.latency.n in (1480, 2960)  # half of the permitted violations
    assert decided(found.latency.bounds[0])


def test_a_candidate_on_its_limit_is_inconclusive_at_the_cap() -> None:
    plan = experiment(P99, budget_s=1000, max_samples=5000)
    found = measured(plan, lambda i: 60 if i % 100 == 50 else 40)
    assert found.latency.n == 5000
    assert not decided(found.latency.bounds[0])


def test_a_slow_model_keeps_its_budget_and_says_how_many_samples_it_needs() -> None:
    host = Host()
    found = run(host, experiment(Target(99, 0.95, 500)), lambda _: 300, lambda _: 300)
    assert 80 <= found.latency.n <= 100
    assert host.now_ns <= 60_000 * MS
    assert not decided(found.latency.bounds[0])
    assert found.latency.bounds[0].needed == 300  # 299 in a single look
    assert found.latency.p99_high_ms is None
    assert found.speedup is not None
    assert found.speedup.rounds == 8


@pytest.mark.parametrize(("took_ms", "opening_ms"), [(2000, 0), (2000, 1000), (300, 3000), (1000, 6000), (5000, 100)])
def test_a_very_slow_model_still_has_three_rounds_within_its_budget(took_ms: float, opening_ms: float) -> None:
    host = Host(opening_ms=opening_ms)
    found = run(host, experiment(budget_s=90), lambda _: took_ms, lambda _: took_ms)
    assert found.speedup is not None
    assert len(found.latency.rounds) >= 3
    assert min(found.latency.rounds) >= 1
    assert host.now_ns <= 90_000 * MS


def test_opening_takes_a_fifth_of_the_budget_where_three_rounds_allow_it() -> None:
    host = Host(opening_ms=1000)
    found = run(host, experiment(budget_s=60, ratios=RATIOS), noisy(5, 1, 0.5), noisy(5, 2, 0.5))
    assert 4 <= len(found.latency.rounds) <= 10  # two sessions each, and one round for each later look
    assert found.latency.n > 1280


@pytest.mark.parametrize("load", [Closed(), Closed(concurrency=2), Constant(rate="5/s")])
@pytest.mark.parametrize("budget_s", [0, 1])
def test_a_model_slower_than_the_budget_is_still_called_once(load: Load, budget_s: float) -> None:
    found = measured(experiment(P99, load=load, budget_s=budget_s), lambda _: 9000)
    assert found.latency.n in (1, 2)
    assert found.speedup is None
    assert found.latency.throughput_per_s is not None


def test_without_a_target_eight_rounds_are_measured() -> None:
    found = measured(experiment(), lambda _: 20, lambda _: 10)
    assert found.latency.n == 370
    assert found.latency.p99_high_ms == 10
    assert found.latency.bounds == ()


def test_without_a_target_the_budget_can_be_filled() -> None:
    host = Host()
    found = run(host, experiment(budget_s=30, fill=True), lambda _: 1)
    assert 29_900 * MS <= host.now_ns <= 30_000 * MS
    assert found.latency.n > 25_000
    assert len(found.latency.rounds) == 24


def test_the_summary_agrees_with_the_bound_that_is_judged() -> None:
    found = measured(experiment(P99), noisy(30, 1)).latency
    (judged,) = found.bounds
    assert (judged.percentile, judged.confidence, judged.limit_ms) == (99, 0.95, 50)
    assert (judged.low_ms, judged.value_ms, judged.high_ms) == (found.p99_low_ms, found.p99_ms, found.p99_high_ms)


def test_limits_are_those_of_a_stricter_confidence() -> None:
    found = measured(experiment(Target(90, 0.95, 50)), noisy(30, 2))
    samples_ms = found.timings[-1] / 1e6
    strict, plain = bound(samples_ms, 90, 0.975), bound(samples_ms, 90, 0.95)
    assert found.latency.bounds[0].high_ms == strict.high_ms
    assert strict.high_ms is not None
    assert plain.high_ms is not None
    assert strict.high_ms > plain.high_ms


def test_all_targets_are_decided_before_it_stops() -> None:
    found = measured(experiment(Target(50, 0.95, 50), Target(99.9, 0.95, 50), budget_s=1000), lambda _: 10)
    assert found.latency.n == 3690
    assert all(map(decided, found.latency.bounds))


def test_the_cap_is_kept_where_even_clean_samples_are_too_few() -> None:
    found = measured(experiment(P99, max_samples=200), lambda _: 10)
    assert found.latency.n == 200
    assert found.latency.bounds[0].needed == 300  # a single look spends all of the error


def test_the_warm_up_of_every_round_is_not_counted() -> None:
    host = Host()
    since = [0]

    def open_session() -> Session:
        since[0] = 0
        return session()

    def took_ms(_: int) -> float:
        since[0] += 1
        return 1000 if since[0] <= 2 else 10

    session = host.opener(took_ms)
    found, _ = finish(measure([open_session], FEEDS, experiment(P99), host.clock))
    assert found.latency.p99_ms == 10
    assert found.timings[0].max() == 10 * MS
    assert host.log.count("call a") == found.latency.n + 2 * len(found.latency.rounds)


def test_a_fast_model_is_warmed_up_for_a_third_of_a_second_and_then_for_less() -> None:
    host = Host()
    found = run(host, experiment(P99), lambda _: 1)
    assert 300 <= host.log.index("close a") - 1 - found.latency.rounds[0] <= 301
    later = host.log.count("call a") - found.latency.n - 300
    assert 30 <= later / (len(found.latency.rounds) - 1) <= 32


def test_a_slow_model_is_warmed_up_with_a_single_call() -> None:
    host = Host()
    found = run(host, experiment(budget_s=60), lambda _: 4000)
    assert host.log.count("call a") - found.latency.n == len(found.latency.rounds)


def test_each_round_opens_all_sessions_anew_and_closes_them() -> None:
    host = Host()
    run(host, experiment(), lambda _: 20, lambda _: 10)
    events = [event for event in host.log if "call" not in event]
    assert len(events) == 8 * 4
    rounds = [events[i : i + 4] for i in range(0, 32, 4)]
    assert all({*one[:2]} == {"open a", "open b"} and {*one[2:]} == {"close a", "close b"} for one in rounds)
    assert {one[0] for one in rounds} == {"open a", "open b"}  # now this one first, now the other


def test_sessions_are_closed_when_a_call_fails() -> None:
    host = Host()
    with pytest.raises(ZeroDivisionError):
        run(host, experiment(), lambda _: 10, lambda i: 1 / (100 - i))
    assert [host.log.count(f"open {name}") for name in "ab"] == [host.log.count(f"close {name}") for name in "ab"]


def test_sessions_are_closed_when_nobody_wants_the_result() -> None:
    host = Host()
    work = measure([host.opener(lambda _: 10)], FEEDS, experiment(), host.clock)
    next(work)
    work.close()
    assert host.log == ["open a", "close a"]


def test_samples_are_taken_in_turn_over_all_rounds() -> None:
    host = Host()
    opened: list[Fake] = []

    def open_session() -> Session:
        opened.append(Fake(host, lambda _: 4000))
        return opened[-1]

    finish(measure([open_session], FEEDS, experiment(), host.clock))
    counted = [feed for session in opened for feed in session.seen[1:]]  # one call warms up
    assert counted == [i % 3 for i in range(len(counted))]
    assert len(opened) > 2


def test_a_planted_five_percent_is_found() -> None:
    found = measured(experiment(P99), noisy(10.5, 3), noisy(10, 4)).speedup
    assert found is not None
    assert 1.02 < found.low < found.ratio < found.high < 1.08


def test_the_same_model_twice_claims_no_effect() -> None:
    for seed in range(20):
        found = measured(experiment(P99, seed=seed), noisy(10, 2 * seed), noisy(10, 2 * seed + 1)).speedup
        assert found is not None
        assert 1 / 1.02 < found.ratio < 1.02
        assert found.low < 1.02
        assert found.high > 1 / 1.02


def test_the_last_session_is_the_candidate() -> None:
    found = measured(experiment(P99), lambda _: 20, lambda _: 10)
    assert found.latency.mean_ms == 10
    assert found.speedup is not None
    assert found.speedup.ratio == pytest.approx(2)
    assert [t[0] for t in found.timings] == [20 * MS, 10 * MS]


def test_the_baseline_has_a_latency_of_its_own_in_the_same_pairs() -> None:
    found = measured(experiment(), lambda _: 20, lambda _: 10)
    assert found.beside is not None
    assert (found.beside.p50_ms, found.latency.p50_ms) == (20, 10)
    assert found.beside.n == found.latency.n
    assert found.beside.throughput_per_s == pytest.approx(50)
    assert measured(experiment(), lambda _: 10).beside is None


def test_the_median_of_the_baseline_is_that_of_its_paired_calls() -> None:
    found = measured(experiment(P99), noisy(20, 7), lambda _: 10)
    assert found.speedup is not None
    assert found.speedup.baseline_p50_ms == pytest.approx(np.median(found.timings[0]) / 1e6)
    assert found.speedup.baseline_p50_ms == pytest.approx(20, rel=0.02)


def test_throughput_counts_the_samples_of_a_batch() -> None:
    host = Host()
    batch = [{"x": np.zeros((4, 3))}]
    openers = [host.opener(lambda _: 20), host.opener(noisy(10, 1))]
    found = finish(measure(openers, batch, experiment(), host.clock))[0].latency
    assert found.throughput_per_s == pytest.approx(4000 / found.mean_ms)
    assert found.throughput_low_per_s is not None
    assert found.throughput_high_per_s is not None
    assert 390 < found.throughput_low_per_s < found.throughput_per_s < found.throughput_high_per_s < 410


def test_percentiles_are_those_of_the_raw_samples() -> None:
    found = measured(experiment(), lambda i: 10 + i * 7 % 101)
    raw_ms = np.sort(found.timings[0] / 1e6)
    latency = found.latency
    ranks = [math.ceil(370 * p / 100) - 1 for p in (50, 90, 95, 99)]
    assert [latency.p50_ms, latency.p90_ms, latency.p95_ms, latency.p99_ms] == raw_ms[ranks].tolist()
    assert latency.mean_ms == pytest.approx(raw_ms.mean())
    assert (latency.cold_ms, latency.load_ms) == (None, None)
    assert (latency.shape, latency.load) == ({"x": "1x3"}, "closed loop, 1 worker")


def test_progress_ends_with_all_calls_of_the_look() -> None:
    host = Host()
    _, seen = finish(measure([host.opener(lambda _: 10)], FEEDS, experiment(P99), host.clock))
    assert seen[0] == Progress("warm up")
    assert seen[-1] == Progress("measure", 370, 370)
    done = [p.done for p in seen if p.step == "measure"]
    assert done == sorted(done)


def test_how_busy_the_machine_was_is_that_of_all_rounds() -> None:
    host = Host(stalled_us=0)

    def took_ms(i: int) -> float:
        host.switches += i % 2
        host.stalled_us = (host.stalled_us or 0) + 3000
        return 30

    found = run(host, experiment(P99), took_ms, took_ms)
    assert found.latency.preempted == pytest.approx(0.5, abs=0.05)
    assert found.latency.stalled == pytest.approx(0.1)
    assert found.speedup is not None
    assert found.speedup.preempted == pytest.approx(0.5, abs=0.05)
    assert found.speedup.stalled == pytest.approx(0.1)


def test_the_same_seed_calls_in_the_same_order() -> None:
    runs = [measured(experiment(P99), noisy(10, 5), noisy(10, 6)) for _ in range(2)]
    assert runs[0].latency == runs[1].latency
    assert runs[0].speedup == runs[1].speedup


def test_nothing_holds_the_sessions_afterwards() -> None:
    host = Host()
    alive: list[weakref.ref[Fake]] = []

    def open_session() -> Session:
        session = Fake(host, lambda _: 10)
        alive.append(weakref.ref(session))
        return session

    gc.disable()
    try:
        found, _ = finish(measure([open_session], FEEDS, experiment(P99), host.clock))
        assert not any(one() for one in alive)
    finally:
        gc.enable()
    assert len(found.latency.rounds) == len(alive) == 8


def test_a_ratio_that_someone_wants_decided_is_looked_at_until_it_is() -> None:
    once = measured(experiment(budget_s=1000), noisy(10, 1, 0.1), noisy(10, 2, 0.1))
    decided_later = measured(experiment(budget_s=1000, ratios=RATIOS), noisy(10, 1, 0.1), noisy(10, 2, 0.1))
    assert once.latency.n == 370
    assert decided_later.latency.n > 370
    assert decided_later.speedup is not None
    assert not any(decided_later.speedup.low <= ratio <= decided_later.speedup.high for ratio in RATIOS)
    obvious = measured(experiment(ratios=RATIOS), noisy(20, 1, 0.1), noisy(10, 2, 0.1))
    assert obvious.latency.n == 370


def test_the_interval_of_a_first_of_several_looks_is_wider() -> None:
    one = measured(experiment(), noisy(20, 1), noisy(10, 2)).speedup
    first = measured(experiment(ratios=RATIOS), noisy(20, 1), noisy(10, 2)).speedup
    assert one is not None
    assert first is not None
    assert one.ratio == first.ratio
    assert first.low < one.low < one.high < first.high


def test_a_load_without_pairs_drives_the_candidate_alone_after_the_pairs() -> None:
    host = Host()
    found = run(host, experiment(load=Closed(concurrency=2)), lambda _: 20, lambda _: 10)
    assert found.speedup is not None
    assert found.speedup.ratio == pytest.approx(2)
    assert found.latency.load.startswith("closed loop, 2 workers")
    assert found.latency.rounds == (47, 47, 46, 46, 46, 46, 46, 46)
    assert [len(timing) for timing in found.timings] == [370]
    assert "a" not in "".join(event.split()[1] for event in host.log[-370:])
    assert host.log.count("open a") == 8
    assert host.log.count("open b") == 16


def test_workers_with_a_session_each_have_them_all_opened_by_the_last_opener() -> None:
    host = Host()
    run(host, experiment(load=Closed(concurrency=3, sessions="own")), lambda _: 20, lambda _: 10)
    assert host.log.count("open b") == 8 + 8 * 3


def test_an_open_loop_is_judged_on_one_window_of_the_whole_budget() -> None:
    host = Host()
    found = run(host, experiment(P99, load=Constant(rate="50/s")), lambda _: 10)
    (counted,) = found.latency.rounds
    assert counted == pytest.approx(0.9 * 50 * 60, rel=0.02), "a tenth does not count"
    assert found.latency.offered_per_s == pytest.approx(50)
    assert found.latency.throughput_per_s == pytest.approx(50, rel=0.01)
    assert (found.latency.throughput_low_per_s, found.latency.throughput_high_per_s) == (None, None)
    assert decided(found.latency.bounds[0])
    assert host.log.count("open a") == 1
    assert host.now_ns <= 60_100 * MS


@pytest.mark.parametrize(("call_ms", "budget_s"), [(1100, 20), (500, 20)])
def test_a_few_requests_of_an_open_loop_prove_nothing(call_ms: float, budget_s: float) -> None:
    plan = experiment(Target(50, 0.95, 5000), load=Constant(rate="1/s"), budget_s=budget_s)
    (bound,) = measured(plan, lambda _: call_ms).latency.bounds
    assert bound.steady is False


def test_without_a_target_an_open_loop_is_one_window_or_the_whole_budget() -> None:
    load = Constant(rate="50/s")
    assert measured(experiment(load=load), lambda _: 10).latency.rounds == (667,)
    (filled,) = measured(experiment(load=load, fill=True), lambda _: 10).latency.rounds
    assert filled == pytest.approx(0.9 * 50 * 60, rel=0.02)


def test_a_trace_is_one_look_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(str(i / 50) for i in range(500)))
    found = measured(experiment(P99, load=Trace(path=path)), lambda _: 10).latency
    assert found.rounds == (500,)
    assert found.bounds[0].high_ms == 10  # 299 are enough where there is one look


def test_requests_that_wait_longer_and_longer_meet_nothing() -> None:
    plan = experiment(Target(50, 0.95, 1e6), load=Constant(rate="40/s"), budget_s=25)
    found = measured(plan, lambda i: 10 + i / 50).latency  # 25 ms apart: from 750 on they wait
    assert (found.growing, found.overloaded) == (True, False)
    assert found.bounds[0].steady is False
    assert found.bounds[0].needed is None
    assert found.p99_high_ms is None


def test_a_window_that_answers_fewer_than_come_is_overloaded_whatever_the_limit() -> None:
    found = measured(experiment(Target(50, 0.95, 1e6), load=Constant(rate="100/s")), lambda _: 10.5).latency
    assert found.overloaded
    assert (found.p50_high_ms, found.p90_high_ms, found.p95_high_ms, found.p99_high_ms) == (None,) * 4
    assert (found.bounds[0].high_ms, found.bounds[0].steady) == (None, False)
    assert found.throughput_per_s == pytest.approx(1000 / 10.5, rel=0.01)


def test_a_rate_that_someone_wants_decided_is_looked_at_until_it_is() -> None:
    plan = experiment(budget_s=100)
    once = measured(plan, noisy(10, 1, 0.3)).latency
    rate = 1.01 * (once.throughput_per_s or 0)
    longer = measured(replace(plan, rates=(rate,)), noisy(10, 1, 0.3)).latency
    obvious = measured(replace(plan, rates=(50.0,)), noisy(10, 1, 0.3)).latency
    assert (once.n, obvious.n) == (370, 370)
    assert longer.n > 370
    for found, wanted in ((longer, rate), (obvious, 50.0)):
        assert found.throughput_low_per_s is not None
        assert found.throughput_high_per_s is not None
        assert not found.throughput_low_per_s <= wanted <= found.throughput_high_per_s


def test_rates_are_decided_in_closed_loops_of_several_workers_too() -> None:
    plan = experiment(load=Closed(concurrency=2), rates=(10.0,))
    assert measured(plan, lambda _: 10).latency.n == 370


def test_a_throughput_of_a_first_of_several_looks_is_wider() -> None:
    one = measured(experiment(), noisy(10, 1)).latency
    first = measured(experiment(rates=(50.0,)), noisy(10, 1)).latency
    assert one.n == first.n
    assert one.throughput_low_per_s is not None
    assert first.throughput_low_per_s is not None
    assert first.throughput_low_per_s < one.throughput_low_per_s


def test_a_filled_budget_looks_once_at_its_end_whatever_is_wanted() -> None:
    host = Host()
    plan = experiment(budget_s=30, fill=True, ratios=RATIOS, rates=(1.0,))
    found = run(host, plan, lambda _: 20, lambda _: 10)
    assert host.now_ns >= 29_800 * MS
    assert len(found.latency.rounds) == 24
    assert found.latency.n > 900


def test_the_look_at_which_the_budget_ends_spends_all_that_is_left() -> None:
    found = measured(experiment(P99, budget_s=9), lambda i: 60 if i == 200 else 20)  # one of 400 violates: not enough
    only = bound(found.timings[-1] / 1e6, 99, 0.95).high_ms
    assert 370 < found.latency.n < 473
    assert found.latency.p99_high_ms == only == 60


def test_a_slow_model_with_a_target_still_has_many_rounds() -> None:
    found = measured(experiment(Target(50, 0.95, 5000)), lambda _: 1000, lambda _: 1000)
    assert len(found.latency.rounds) >= 6


def test_a_stall_counts_for_all_requests_that_wait_behind_it() -> None:
    found = measured(experiment(load=Constant(rate="50/s")), lambda i: 500 if i == 150 else 10).latency
    assert found.p99_ms >= 400


def test_an_overloaded_loop_stops_and_meets_nothing() -> None:
    host = Host()
    generous = Target(99, 0.95, 60_000)
    found = run(host, experiment(generous, load=Constant(rate="50/s"), budget_s=60), lambda _: 40).latency
    assert found.overloaded
    assert not decided(found.bounds[0])
    assert found.p99_high_ms is None
    assert found.p99_ms > 1000
    assert host.now_ns < 60_000 * MS


def test_an_overloaded_loop_can_miss_its_target() -> None:
    (judged,) = measured(experiment(P99, load=Constant(rate="50/s")), lambda _: 100).latency.bounds
    assert judged.low_ms is not None
    assert judged.low_ms > 50


def test_a_point_keeps_its_name() -> None:
    assert measured(experiment(at="batch 8"), lambda _: 10).latency.at == "batch 8"


@dataclass
class Deaf:
    """A session that takes nothing, and 10 ms for it."""

    host: Host

    def __call__(self, feeds: Feeds) -> Outputs:
        assert feeds == {}
        self.host.now_ns += 10 * MS
        return {}

    def close(self) -> None:
        """Close nothing."""


def test_a_model_without_inputs_answers_one_sample_a_call() -> None:
    host = Host()
    found, _ = finish(measure([lambda: Deaf(host)], [{}], experiment(), host.clock))
    assert found.latency.throughput_per_s == pytest.approx(100)
