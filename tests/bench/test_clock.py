import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from compressor.bench import clock
from compressor.bench.clock import SYSTEM


def test_the_clock_of_the_machine_never_goes_back() -> None:
    assert SYSTEM.now_ns() <= SYSTEM.now_ns()
    assert 0 <= SYSTEM.preemptions() <= SYSTEM.preemptions()
    stalled = [SYSTEM.stalled_us() for _ in range(3)]
    assert all(before <= after for before, after in pairwise(us for us in stalled if us is not None))


def test_stalls_are_those_of_some_task_not_of_all(tmp_path: Path) -> None:
    pressure = tmp_path / "cpu"
    pressure.write_text(
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\nsome avg10=5.78 avg60=2.83 avg300=2.40 total=2874303713\n"
    )
    assert clock.stalled_us(pressure) == 2874303713


@pytest.mark.parametrize("text", [None, "", "some avg10=0.00\n"])
def test_nobody_counts_stalls_where_the_kernel_keeps_none(tmp_path: Path, text: str | None) -> None:
    pressure = tmp_path / "cpu"
    if text is not None:
        pressure.write_text(text)
    assert clock.stalled_us(pressure) is None


@pytest.mark.parametrize("seconds", [0.0, 0.0001, 0.002])
def test_a_sleep_is_never_too_short(seconds: float) -> None:
    for _ in range(20):
        begin_s = time.perf_counter()
        SYSTEM.sleep(seconds)
        assert time.perf_counter() - begin_s >= seconds


def test_a_sleep_ends_closer_to_its_time_than_a_plain_one() -> None:
    def late_s(sleep: Callable[[float], None]) -> float:
        begin_s = time.perf_counter()
        sleep(0.002)
        return time.perf_counter() - begin_s - 0.002

    late = [(late_s(SYSTEM.sleep), late_s(time.sleep)) for _ in range(50)]
    ours_s, plain_s = (sorted(each)[12] for each in zip(*late, strict=True))
    assert ours_s < plain_s


def test_a_long_sleep_spends_little_of_the_cpu() -> None:
    begin_s = time.thread_time()
    SYSTEM.sleep(0.2)
    assert time.thread_time() - begin_s < 0.1


@pytest.mark.parametrize(
    ("before_us", "after_us", "elapsed_ns", "share"),
    [(10, 260, 1_000_000, 0.25), (0, 5000, 1_000_000, 1), (None, 5, 9, None), (5, None, 9, None), (5, 6, 0, None)],
)
def test_the_share_of_stalled_time(
    before_us: int | None, after_us: int | None, elapsed_ns: int, share: float | None
) -> None:
    assert clock.stalled_share(before_us, after_us, elapsed_ns) == share
