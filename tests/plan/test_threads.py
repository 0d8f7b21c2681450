"""When what is opened wants more threads than there are CPUs."""

from __future__ import annotations

import pytest

from compressor.bench.load import Closed, Constant, Load
from compressor.plan import oversubscribed


@pytest.mark.parametrize(
    ("threads", "load", "cpus"),
    [
        (2, Closed(), 2),
        (2, Closed(concurrency=16), 2),  # of one session
        (1, Closed(concurrency=4, sessions="own"), 4),
        (2, Constant(rate="5/s", workers=2, sessions="own"), 4),
    ],
)
def test_what_fits_is_not_warned_about(threads: int, load: Load, cpus: int) -> None:
    assert oversubscribed(threads, load, cpus) is None


@pytest.mark.parametrize(
    ("threads", "load", "cpus", "told"),
    [
        (16, Closed(), 2, "16 threads on 2 usable CPUs: latencies will be long and noisy; use 2 (--threads, or"),
        (3, Closed(concurrency=16), 2, "3 threads on 2 usable CPUs"),
        (2, Closed(concurrency=16, sessions="own"), 2, "32 threads (16 sessions of 2) on 2 usable CPUs"),
        (1, Closed(concurrency=3, sessions="own"), 2, "noisy; share one session, under load"),
        (4, Constant(rate="5/s", workers=2, sessions="own"), 4, "8 threads (2 sessions of 4) on 4 usable CPUs: lat"),
        (4, Constant(rate="5/s", workers=2, sessions="own"), 4, "use 2 (--threads, or in the recipe under engine)"),
    ],
)
def test_the_threads_of_all_sessions_are_counted_and_the_way_out_is_said(
    threads: int, load: Load, cpus: int, told: str
) -> None:
    assert told in (oversubscribed(threads, load, cpus) or "")
