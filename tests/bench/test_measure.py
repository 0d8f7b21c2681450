import gc
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from compressor.bench.clock import Clock
from compressor.bench.load import Closed
from compressor.bench.measure import Experiment, Measured, measure
from compressor.bench.stats import bound, decided
from compressor.records import Feeds, Outputs, Progress, Session, Target, Timing, Work

MS = 1_000_000
P99 = Target(99, 0.95, 50)
FEEDS: list[Feeds] = [{"x": np.full((1, 3), i)} for i in range(3)]


@dataclass
class Host:
    """A machine on which time passes only in calls."""

    now_ns: int = 0
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(lambda: self.now_ns, lambda: 0)


@dataclass
class Fake:
    """A session whose i-th call takes `took_ms(i)`."""

    host: Host
    took_ms: Callable[[int], float]
    seen: list[int] = field(default_factory=list)

    def __call__(self, feeds: Feeds) -> Outputs:
        self.host.now_ns += int(self.took_ms(len(self.seen)) * MS)
        self.seen.append(int(feeds["x"][0, 0]))
        return {}

    def close(self) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Drawn:
    """A load that draws exponential latencies, quicker than calling a fake session."""

    mean_ms: float

    def drive(
        self, sessions: Sequence[Session], feeds: Sequence[Feeds], rng: np.random.Generator, clock: Clock
    ) -> tuple[Timing, ...]:
        del clock
        drawn = (rng.exponential(self.mean_ms * MS, (len(sessions), len(feeds)))).astype(np.int64)
        return tuple(Timing(row, float(row.sum()) / 1e9, 0.0) for row in drawn)


def experiment(*targets: Target, **changes: object) -> Experiment:
    plain = Experiment(Closed(), targets, budget_s=60, seed=0, shape={"x": "1x3"})
    return replace(plain, **changes)  # type: ignore[arg-type]


def finish(work: Work[Measured]) -> tuple[Measured, list[Progress]]:
    seen = []
    while True:
        try:
            seen.append(next(work))
        except StopIteration as stop:
            return stop.value, seen


def measured(plan: Experiment, *took_ms: Callable[[int], float]) -> Measured:
    host = Host()
    return finish(measure([Fake(host, t) for t in took_ms], FEEDS, plan, host.clock))[0]


def noisy(median_ms: float, seed: int, spread: float = 0.05) -> Callable[[int], float]:
    drawn = np.random.default_rng(seed).lognormal(math.log(median_ms), spread, 20_000)
    return lambda i: float(drawn[i])


def test_a_candidate_far_under_its_limit_is_decided_at_the_first_look() -> None:
    found = measured(experiment(P99), lambda _: 20, lambda _: 10)
    assert found.latency.n == 370  # 368 clean samples prove a p99 at 97.5 %: half of the error is spent here
    assert decided(found.latency.bounds[0])
    assert found.latency.bounds[0].high_ms == 10


def test_a_candidate_far_over_its_limit_is_decided_at_the_first_look() -> None:
    found = measured(experiment(P99), lambda _: 60)
    assert found.latency.n == 370
    assert found.latency.bounds[0].low_ms == 60


def test_a_median_is_decided_only_after_sixteen_blocks_of_pairs() -> None:
    assert measured(experiment(Target(50, 0.95, 50)), lambda _: 20, lambda _: 10).latency.n == 160


def test_a_candidate_close_to_its_limit_is_looked_at_again() -> None:
    found = measured(experiment(P99, budget_s=1000), lambda i: 60 if i % 200 == 100 else 40)
    assert found.latency.n in (1480, 2960)  # half of the permitted violations
    assert decided(found.latency.bounds[0])


def test_a_candidate_on_its_limit_is_inconclusive_at_the_cap() -> None:
    found = measured(experiment(P99, budget_s=1000), lambda i: 60 if i % 100 == 50 else 40)
    assert found.latency.n == 5000
    assert not decided(found.latency.bounds[0])


def test_a_slow_model_keeps_its_budget_and_says_how_many_samples_it_needs() -> None:
    host = Host()
    sessions = [Fake(host, lambda _: 300), Fake(host, lambda _: 300)]
    found, _ = finish(measure(sessions, FEEDS, experiment(Target(99, 0.95, 500)), host.clock))
    assert 90 <= found.latency.n <= 100
    assert host.now_ns <= 61_000 * MS
    assert not decided(found.latency.bounds[0])
    assert found.latency.bounds[0].needed == 368
    assert found.latency.p99_high_ms is None
    assert found.speedup is not None


def test_a_model_slower_than_the_budget_is_still_called_once() -> None:
    found = measured(experiment(P99, budget_s=1), lambda _: 9000)
    assert found.latency.n == 1
    assert found.speedup is None


def test_without_a_target_thirty_blocks_are_measured() -> None:
    found = measured(experiment(), lambda _: 20, lambda _: 10)
    assert found.latency.n == 300
    assert found.latency.p99_high_ms == 10  # 299 samples are enough for one look
    assert found.latency.bounds == ()


def test_the_summary_agrees_with_the_bound_that_is_judged() -> None:
    found = measured(experiment(P99), noisy(30, 1)).latency
    (judged,) = found.bounds
    assert (judged.percentile, judged.confidence, judged.limit_ms) == (99, 0.95, 50)
    assert (judged.low_ms, judged.value_ms, judged.high_ms) == (found.p99_low_ms, found.p99_ms, found.p99_high_ms)


def test_limits_are_those_of_a_stricter_confidence() -> None:
    found = measured(experiment(Target(90, 0.95, 50)), noisy(30, 2))
    samples_ms = found.timings[-1].latencies_ns / 1e6
    strict, plain = bound(samples_ms, 90, 0.975), bound(samples_ms, 90, 0.95)
    assert found.latency.bounds[0].high_ms == strict.high_ms
    assert strict.high_ms is not None
    assert plain.high_ms is not None
    assert strict.high_ms > plain.high_ms


@pytest.mark.parametrize("percentile", [95, 99])
def test_looking_again_and_again_does_not_pass_a_system_on_its_limit_too_often(percentile: float) -> None:
    limit = -math.log(1 - percentile / 100)
    plan = experiment(Target(percentile, 0.95, limit))
    passed, failed = 0, 0
    for seed in range(200):
        again = replace(plan, seed=seed, load=Drawn(1.0))  # type: ignore[arg-type]
        (judged,) = measured(again, lambda _: 1).latency.bounds
        failed += judged.low_ms is not None and judged.low_ms > limit
        passed += judged.high_ms is not None and judged.high_ms <= limit and judged.steady is not False
    assert passed <= 14  # 10 expected at most; 15 or more have a chance of 8 %, and the looks overlap
    assert failed <= 14


def test_all_targets_are_decided_before_it_stops() -> None:
    found = measured(experiment(Target(50, 0.95, 50), Target(99.9, 0.95, 50), budget_s=1000), lambda _: 10)
    assert found.latency.n == 3690
    assert all(map(decided, found.latency.bounds))


def test_the_cap_is_kept_where_even_clean_samples_are_too_few() -> None:
    found = measured(experiment(P99, max_samples=200), lambda _: 10)
    assert found.latency.n == 200
    assert found.latency.bounds[0].needed == 299  # a single look spends all of the error


def test_the_warm_up_is_not_counted() -> None:
    host = Host()
    session = Fake(host, lambda i: 1000 if i < 2 else 10)
    found, _ = finish(measure([session], FEEDS, experiment(P99), host.clock))
    assert found.latency.p99_ms == 10
    assert found.timings[0].latencies_ns.max() == 10 * MS
    assert len(session.seen) == found.latency.n + 2


def test_a_fast_model_is_warmed_up_for_a_third_of_a_second() -> None:
    host = Host()
    session = Fake(host, lambda _: 1)
    found, _ = finish(measure([session], FEEDS, experiment(P99), host.clock))
    assert len(session.seen) - found.latency.n == 300


def test_samples_are_taken_in_turn() -> None:
    host = Host()
    sessions = [Fake(host, lambda _: 1), Fake(host, lambda _: 1)]
    finish(measure(sessions, FEEDS, experiment(P99), host.clock))
    assert sessions[0].seen == sessions[1].seen
    assert sessions[0].seen[:7] == [0, 1, 2, 0, 1, 2, 0]
    assert sessions[0].seen == [i % 3 for i in range(len(sessions[0].seen))]


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
    assert [t.latencies_ns[0] for t in found.timings] == [20 * MS, 10 * MS]


def test_the_median_of_the_baseline_is_that_of_its_paired_calls() -> None:
    found = measured(experiment(P99), noisy(20, 7), lambda _: 10)
    assert found.speedup is not None
    assert found.speedup.baseline_p50_ms == pytest.approx(np.median(found.timings[0].latencies_ns) / 1e6)
    assert found.speedup.baseline_p50_ms == pytest.approx(20, rel=0.02)


def test_throughput_counts_the_samples_of_a_batch() -> None:
    host = Host()
    batch = [{"x": np.zeros((4, 3))}]
    found, _ = finish(measure([Fake(host, lambda _: 20), Fake(host, lambda _: 10)], batch, experiment(), host.clock))
    assert found.throughput_per_s == pytest.approx(400)


def test_percentiles_are_those_of_the_raw_samples() -> None:
    found = measured(experiment(), lambda i: i)
    raw_ms = np.sort(found.timings[0].latencies_ns / 1e6)
    latency = found.latency
    ranks = [math.ceil(300 * p / 100) - 1 for p in (50, 90, 95, 99)]
    assert [latency.p50_ms, latency.p90_ms, latency.p95_ms, latency.p99_ms] == raw_ms[ranks].tolist()
    assert latency.mean_ms == pytest.approx(raw_ms.mean())
    assert (latency.cold_ms, latency.load_ms) == (None, None)
    assert (latency.shape, latency.load) == ({"x": "1x3"}, "closed concurrency=1")


def test_progress_ends_with_all_calls_of_the_look() -> None:
    host = Host()
    _, seen = finish(measure([Fake(host, lambda _: 10)], FEEDS, experiment(P99), host.clock))
    assert seen[0] == Progress("warm up")
    assert seen[-1] == Progress("measure", 370, 370)
    done = [p.done for p in seen[1:]]
    assert done == sorted(done)


def test_share_of_preempted_calls_is_that_of_all_batches() -> None:
    host = Host()
    readings = iter(range(10**6))  # two a call: the second reading of every second call is higher than its first
    clock = Clock(lambda: host.now_ns, lambda: (next(readings) + 1) // 4)
    found, _ = finish(measure([Fake(host, lambda _: 30)], FEEDS, experiment(P99), clock))
    assert found.latency.preempted == pytest.approx(0.5)


def test_the_same_seed_calls_in_the_same_order() -> None:
    runs = [measured(experiment(P99), noisy(10, 5), noisy(10, 6)) for _ in range(2)]
    assert runs[0].latency == runs[1].latency
    assert runs[0].speedup == runs[1].speedup


def test_nothing_holds_the_sessions_afterwards() -> None:
    host = Host()
    session = Fake(host, lambda _: 10)
    gone = weakref.ref(session)
    gc.disable()
    try:
        found, _ = finish(measure([session], FEEDS, experiment(P99), host.clock))
        del session
        assert gone() is None
    finally:
        gc.enable()
    assert found.latency.n == 370
